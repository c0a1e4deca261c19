"""SciPy's functions on tensors; see `scipy_functions.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.programs import scipy_functions

ROOT = Path(__file__).parents[2]


def test_scipy_takes_tensors() -> None:
    assert len(scipy_functions.functions()) > 150
    run = subprocess.run(
        [sys.executable, "-m", "tests.programs.scipy_functions"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (run.stdout, run.returncode) == ("", 0), run.stdout + run.stderr


def test_the_page_lists_them() -> None:
    page = (ROOT / "docs" / "interoperation.md").read_text()
    assert [name for name in scipy_functions.functions() if f"`{name}`" not in page] == []
