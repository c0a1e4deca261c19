"""Public names are stated where the functions are: type checkers, completion, pages and the package say the same."""

from __future__ import annotations

import importlib
from typing import Final

import pytest

import loopgrad as lg
from loopgrad.public_names import NAMESPACES, ORIGINS, Origin, read
from tests.architecture import public_stub
from tests.architecture.sources import ROOT, SOURCES, defined

AGAIN: Final = "write it anew: python -m tests.architecture.public_stub"

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


def test_every_name_is_stated_beside_what_it_names():
    """Once, and all functions are whose docstring calls them as users do."""
    stated = {o for space in ("", *NAMESPACES) for o in public_stub.origins(space).values()}  # raises for a double
    missing = []
    for path in (path for path in SOURCES if path.is_relative_to(ROOT / "lazy")):
        module = "loopgrad." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        values = {name: getattr(importlib.import_module(module), name) for name in sorted(defined(path))}
        shown = {name: value for name, value in values.items() if f"lg.{name}(" in (value.__doc__ or "")}
        offered = [n for n, value in shown.items() if Origin(module, n) in stated]
        missing += [f"{module}.{name}" for name in shown if name not in offered]
    assert missing == [], "add them to the statement PUBLIC of the module"


def test_what_is_written_says_what_the_modules_state():
    """The package imports by this file, and type checkers read it."""
    stated, written = public_stub.origins(), read(public_stub.STUB.read_text())
    missing = sorted(set(stated) - set(written))
    stale = sorted(name for name in written if written[name] != stated.get(name))
    assert (missing, stale) == ([], []), AGAIN
    assert public_stub.STUB.read_text() == public_stub.stub(stated), AGAIN
    for name in NAMESPACES:
        assert (public_stub.PACKAGE / f"{name}.pyi").read_text() == public_stub.stub(public_stub.origins(name)), AGAIN


def test_the_page_for_users_of_numpy_has_the_names():
    text = public_stub.PAGE.read_text()
    table = text.partition(public_stub.BEGIN)[2].partition(public_stub.END)[0]
    assert [name for name in lg.__all__ if name not in NAMESPACES and f"`{name}`" not in table] == [], AGAIN
    assert text == public_stub.page(public_stub.origins(), text), AGAIN


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from a.b import sin as sin", {"sin": ("a.b", "sin")}),
        (
            "from a.b import absolute as absolute\n\nabs = absolute",
            {"absolute": ("a.b", "absolute"), "abs": ("a.b", "absolute")},
        ),
        ("# from\nfrom a import evaluate\n__version__: str\neval = evaluate", {"eval": ("a", "evaluate")}),
    ],
)
def test_what_is_written_is_read(text, names):
    assert read(text) == names


def test_names_are_what_the_list_says():
    for public, origin in ORIGINS.items():
        assert getattr(lg, public) is getattr(importlib.import_module(origin.module), origin.name)
    assert dir(lg) == sorted(ORIGINS)


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
