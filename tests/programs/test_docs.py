"""The code in README.md and docs/ runs as it is written, one namespace a page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [p for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if "```python" in p.read_text()]


def run(page: Path) -> dict[str, object]:
    names: dict[str, object] = {}
    text = page.read_text()
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = text[: block.start(1)].count("\n")
        exec(compile("\n" * lines + block[1], str(page), "exec"), names)  # so that a failure shows the page's line
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_of_a_page(page):
    run(page)


def test_results_that_the_loops_page_shows():
    names = run(ROOT / "docs" / "loops.md")
    assert np.asarray(names["counts"]).tolist() == [0, 0, 0, 0, 0, 0, 0, 7, 0, 0]
