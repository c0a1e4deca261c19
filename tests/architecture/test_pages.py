"""Files and names that ARCHITECTURE.md and docs/how_do_i.md mention are there."""

from __future__ import annotations

import re

from tests.architecture.sources import PYTHON, ROOT, defined

QUOTED = re.compile(r"`([^`\s]+)`")
TOP = ("autodiff", "benchmarks", "codegen", "docs", "graph", "lazy", "runtime", "src", "tests")


def missing(quoted):
    """Whether a path or `path:name` isn't there; <...> in a path stands for anything."""
    place, _, wanted = quoted.partition(":")
    if "<" in place:
        return not list(ROOT.glob(re.sub("<.*?>", "*", place)))
    return not (ROOT / place).exists() or bool(wanted and wanted not in defined(ROOT / place))


def test_every_path_of_the_page_of_questions_is_there():
    quoted = QUOTED.findall((ROOT / "docs" / "how_do_i.md").read_text())
    paths = [text for text in quoted if text.startswith(tuple(f"{folder}/" for folder in TOP))]
    assert len(paths) > 50
    assert [path for path in paths if missing(path)] == []


def test_every_file_that_the_architecture_names_is_there():
    """By the end of its path, as the page's paragraphs name them."""
    known = [f"/{path.relative_to(ROOT)}" for path in [*PYTHON, *(ROOT / "src" / "loopgrad").glob("*.py")]]
    quoted = QUOTED.findall((ROOT / "ARCHITECTURE.md").read_text())
    files = [text for text in quoted if text.endswith(".py") and "<" not in text]
    assert len(files) > 15
    assert [file for file in files if not any(path.endswith(f"/{file}") for path in known)] == []
