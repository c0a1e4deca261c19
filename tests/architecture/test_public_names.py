"""The list of public names: type checkers, completion and the package itself say the same."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

import pytest

import loopgrad as lg
from loopgrad.public_names import MODULES, ORIGINS
from tests.architecture.public_stub import STUB, stub

ROOT: Final = Path(__file__).parents[2]

TYPED: Final = """
import loopgrad as lg
from loopgrad import value_and_grad
from typing import assert_type

x = lg.arange(3.0)
assert_type(x, lg.Tensor)
assert_type(lg.abs(x).sum(), lg.Tensor)
assert_type(lg.linalg.norm(x), lg.Tensor)
assert_type(lg.compile(value_and_grad(lg.sum)), lg.Compiled)
assert_type(lg.float32, lg.DType)
lg.arange(3, step="one")
lg.nonsense
"""


def test_no_name_is_listed_twice():
    assert len(ORIGINS) == sum(len(names.split()) for names in MODULES.values())


def test_the_stub_is_written_from_the_list():
    assert STUB.read_text() == stub(), "write it anew: python -m tests.architecture.public_stub"


def test_names_are_what_the_list_says():
    for public, origin in ORIGINS.items():
        assert getattr(lg, public) is getattr(importlib.import_module(origin.module), origin.name)
    assert dir(lg) == sorted([*ORIGINS, "linalg", "newaxis"])


def test_type_checkers_see_types(tmp_path):
    """Two errors, on the last lines: names have their types, and those that don't exist none."""
    script = tmp_path / "script.py"
    script.write_text(TYPED)
    api = pytest.importorskip("mypy.api")
    report, trouble, _ = api.run(["--strict", "--config-file", str(ROOT / "pyproject.toml"), str(script)])
    assert trouble == ""
    lines = TYPED.splitlines()
    found = [lines[int(line.split(":")[1]) - 1] for line in report.splitlines() if ": error:" in line]
    assert found == lines[-2:], report
