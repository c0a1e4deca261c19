"""What ARCHITECTURE.md promises about the shape of the source. Import layers are import-linter's (pyproject.toml)."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib

import loopgrad as lg
from tests.architecture.sources import FOLDERS, PYTHON, ROOT, SOURCES, imported, name, nodes, parsed

MOST_LINES = 500
MOST_LINES_OF_A_FUNCTION = 60
EMPTY_NAMES = {"utils", "util", "helpers", "misc", "common"}
HEAVY = ("llvmlite", "networkx", "ml_dtypes", "platformdirs", "scipy", "matplotlib", "rich")


def definitions(path):
    return [*nodes(parsed(path)[1], ast.FunctionDef, ast.AsyncFunctionDef)]


def python(code, **more):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, **more)


def test_files_are_short():
    lines = {name(path): len(path.read_text().splitlines()) for path in PYTHON}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_functions_are_short():
    lengths = {
        f"{name(path)}:{d.lineno} {d.name}": (d.end_lineno or 0) - d.lineno + 1
        for path in SOURCES
        for d in definitions(path)
    }
    assert {where: length for where, length in lengths.items() if length > MOST_LINES_OF_A_FUNCTION} == {}


def test_the_runtime_reads_no_step_by_position():
    """A Program's steps are dataclasses there too."""
    subscripts = [
        (path, place)
        for path in SOURCES
        if path.is_relative_to(ROOT / "runtime")
        for place in nodes(parsed(path)[1], ast.Subscript)
        if isinstance(place.value, ast.Name) and place.value.id == "step"
    ]
    assert [f"{name(p)}:{s.lineno}" for p, s in subscripts if isinstance(s.slice, ast.Constant)] == []


def test_names_say_what_is_inside():
    assert [name(path) for path in PYTHON if path.stem in EMPTY_NAMES] == []


def test_modules_begin_with_their_contract():
    assert [name(path) for path in SOURCES if not ast.get_docstring(parsed(path)[1])] == []


def test_imports_name_the_package():
    """From loopgrad.<folder>: neither relative, nor by the bare name of a folder, nor from the public package, which
    only `Tensor.__array_namespace__` must return."""
    namespace = [d for path in SOURCES for d in definitions(path) if d.name == "__array_namespace__"]
    returned = {id(statement) for definition in namespace for statement in ast.walk(definition)}
    wrong = [
        f"{name(path)}:{statement.lineno} {module}"
        for path in SOURCES
        for module, statement in imported(parsed(path)[1])
        if getattr(statement, "level", 0)
        or module.split(".")[0] in FOLDERS
        or (module == "loopgrad" and id(statement) not in returned)
    ]
    assert wrong == []


def test_late_imports_give_their_reason():
    """An import inside a function carries a comment on its first line, or above it."""
    wrong = []
    for path in SOURCES:
        lines = parsed(path)[0].splitlines()
        imports = [*nodes(parsed(path)[1], ast.Import, ast.ImportFrom)]
        for definition in definitions(path):
            late = [s for s in imports if definition.lineno <= s.lineno <= (definition.end_lineno or 0)]
            near = [lines[n - 1] for s in late for n in (s.lineno - 1, s.lineno, s.end_lineno or s.lineno)]
            if late and not any("#" in line for line in near):
                wrong.append(f"{name(path)}:{definition.lineno} {definition.name}")
    assert wrong == []


def test_heavy_packages_are_imported_when_first_needed():
    code = f"import sys, loopgrad; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert python(code).stdout.strip() == "[]"


def test_importing_brings_no_compiler_and_no_derivative():
    """Not even the dataclasses of programs, which cost a tenth of the import."""
    found = python("import sys, loopgrad; print(*sys.modules)").stdout.split()
    brought = [m for m in found if m.startswith(("loopgrad.codegen.", "loopgrad.autodiff."))]
    assert brought == ["loopgrad.codegen.options"]


def test_folders_refuse_their_bare_names():
    code = f"""
for folder in {FOLDERS!r}:
    try:
        __import__(folder)
    except ImportError as error:
        print("loopgrad." + folder in str(error))
"""
    assert python(code, cwd=ROOT).stdout.split() == ["True"] * len(FOLDERS)


def test_every_public_name_is_importable_and_documented():
    values = {public: getattr(lg, public) for public in lg.__all__}
    assert [public for public, value in values.items() if callable(value) and not value.__doc__] == []


def test_tests_mirror_the_folders():
    """Every folder of the library has one with tests under its name. In lazy/ a module's tests are in its room's."""
    folders = {path.parent.relative_to(ROOT) for path in SOURCES if path.name != "__init__.py"}
    missing = [str(folder) for folder in sorted(folders) if not list((ROOT / "tests" / folder).rglob("test_*.py"))]
    assert missing == []
    modules = {path.stem: path.parent.name for path in (ROOT / "lazy").glob("*/*.py") if path.stem != "__init__"}
    tests = {path.stem.removeprefix("test_"): path.parent.name for path in (ROOT / "tests" / "lazy").glob("*/*.py")}
    assert [stem for stem, room in tests.items() if modules.get(stem, room) != room] == []


def test_wheels_hold_every_folder():
    """What src/loopgrad links to is what a wheel takes from the top, not by the links, and what pyright looks at."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    wheel = settings["hatch"]["build"]["targets"]["wheel"]
    links = {link.name: link.resolve() for link in (ROOT / "src" / "loopgrad").iterdir() if link.is_symlink()}
    assert links == {folder: ROOT / folder for folder in FOLDERS}
    assert set(wheel["only-include"]) == {"src/loopgrad", *FOLDERS}
    assert set(settings["hatch"]["build"]["exclude"]) == {f"/src/loopgrad/{folder}" for folder in FOLDERS}
    assert wheel["sources"] == {"src/loopgrad": "loopgrad", **{folder: f"loopgrad/{folder}" for folder in FOLDERS}}
    assert set(settings["pyright"]["include"]) == {"src/loopgrad/*.py", *(f"src/loopgrad/{f}" for f in FOLDERS)}
