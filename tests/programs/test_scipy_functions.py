"""SciPy's functions on tensors; see `scipy_functions.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import scipy_functions

ROOT = Path(__file__).parents[2]


@pytest.mark.in_turns
@pytest.mark.parametrize("part", ["0/3", "1/3", "2/3"])
def test_scipy_takes_tensors(part: str) -> None:
    assert len(scipy_functions.functions()) > 150
    command = [sys.executable, "-m", "tests.programs.scipy_functions", "--part", part]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (run.stdout, run.returncode) == ("", 0), run.stdout + run.stderr


def test_the_page_lists_them() -> None:
    page = (ROOT / "docs" / "interoperation.md").read_text()
    assert [name for name in scipy_functions.functions() if f"`{name}`" not in page] == []
