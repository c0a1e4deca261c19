"""What ARCHITECTURE.md promises about the shape of the source: sizes, names, import layers."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("lazy", "graph", "autodiff", "codegen", "runtime")
# A folder may import the ones to its right.
LAYERS = ("lazy", "runtime", "codegen", "autodiff", "graph")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PYTHON = sorted(
    path for folder in (*FOLDERS, "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
)


@functools.cache
def parsed(path: Path) -> tuple[str, ast.Module]:
    text = path.read_text()
    return text, ast.parse(text)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(tree: ast.AST) -> list[tuple[str, ast.stmt]]:
    found: list[tuple[str, ast.stmt]] = []
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, "imports are absolute"
            found.append((statement.module or "", statement))
        elif isinstance(statement, ast.Import):
            found.extend((alias.name, statement) for alias in statement.names)
    return found


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_files_are_short(path):
    assert len(parsed(path)[0].splitlines()) <= 500


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_functions_are_short(path):
    for definition in ast.walk(parsed(path)[1]):
        if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (definition.end_lineno or 0) - definition.lineno + 1
            assert length <= 60, f"{definition.name} at line {definition.lineno} has {length} lines"


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_names_say_what_is_inside(path):
    assert path.stem not in {"utils", "util", "helpers", "misc", "common"}


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_modules_begin_with_their_contract(path):
    assert ast.get_docstring(parsed(path)[1])


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_imports_point_one_way(path):
    folder = path.relative_to(ROOT).parts[0]
    # Tensor.__array_namespace__ must return the public package itself.
    allowed = {"loopgrad"} if name(path) == "lazy/tensor/tensor.py" else set()
    allowed |= {f"loopgrad.{other}" for other in LAYERS[LAYERS.index(folder) :]}
    for module, statement in imported(parsed(path)[1]):
        assert module.split(".")[0] not in FOLDERS, f"line {statement.lineno}: import it as loopgrad.{module}"
        if module.startswith("loopgrad"):
            assert ".".join(module.split(".")[:2]) in allowed, f"line {statement.lineno} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_late_imports_give_their_reason(path):
    """An import inside a function carries a comment on its first line."""
    text, tree = parsed(path)
    lines = text.splitlines()
    functions = [d for d in ast.walk(tree) if isinstance(d, ast.FunctionDef | ast.AsyncFunctionDef)]
    for definition in functions:
        late = [s for s in ast.walk(definition) if isinstance(s, ast.Import | ast.ImportFrom)]
        if late:
            reasons = [lines[number - 1] for s in late for number in (s.lineno - 1, s.lineno, s.end_lineno or s.lineno)]
            assert any("#" in line for line in reasons), f"{definition.name} at line {definition.lineno}"


def test_heavy_packages_are_imported_when_first_needed():
    heavy = ("llvmlite", "networkx", "ml_dtypes", "platformdirs", "scipy", "matplotlib", "rich")
    code = f"import sys, loopgrad; print([name for name in {heavy!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_refuse_their_bare_names(folder):
    run = subprocess.run(
        [sys.executable, "-c", f"import {folder}"], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert run.returncode != 0
    assert f"loopgrad.{folder}" in run.stderr


def test_every_public_name_is_importable_and_documented():
    import loopgrad as lg

    for public in lg.__all__:
        value = getattr(lg, public)
        assert not callable(value) or value.__doc__, public


def test_tests_mirror_the_folders():
    """A folder of tests is named as the folder that it tests; in lazy/ each room has one, in which a module's tests
    are found under its name."""
    for folder in FOLDERS:
        tested = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests" / folder).rglob("test_*.py")}
        assert tested, folder
        assert [room for room in tested if not (ROOT / room).is_dir()] == []
    modules = {path.stem: path.parent.name for path in (ROOT / "lazy").glob("*/*.py") if path.stem != "__init__"}
    tests = {path.stem.removeprefix("test_"): path.parent.name for path in (ROOT / "tests" / "lazy").glob("*/*.py")}
    assert set(modules.values()) <= set(tests.values())
    assert [stem for stem, room in tests.items() if modules.get(stem, room) != room] == []
