"""Files don't import each other in circles, counting imports inside functions and for type checkers alone.

A docstring may defend a circle: the paragraph of the imported file that begins with "Circle:" names in backquotes the
files or folders that may name it in annotations, or import it when it is needed, though it imports them. Imports that
run when a file is loaded are never in a circle.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import SOURCES, name, parsed

PARAGRAPH = re.compile(r"^Circle: (.*?)(?:\n\n|\Z)", re.DOTALL | re.MULTILINE)


def module_of(path):
    return "loopgrad." + name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


FILES = {module_of(path): name(path) for path in SOURCES}


@functools.cache
def trees_of_all() -> dict[str, ast.Module]:
    return {name(path): parsed(path)[1] for path in SOURCES}


def imports(tree: ast.AST, loaded: bool = True) -> Iterator[tuple[str, bool]]:
    """File -> whether it is imported while the importing file is loaded."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue  # no statement is in one
        if isinstance(node, ast.Import):
            yield from ((FILES[alias.name], loaded) for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom):
            found = {FILES.get(f"{node.module}.{alias.name}", FILES.get(node.module or "")) for alias in node.names}
            yield from ((file, loaded) for file in found if file)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports(node, loaded=False)
        else:
            yield from imports(node, loaded and not isinstance(node, ast.FunctionDef))


def defended(tree: ast.Module) -> list[str]:
    """The files and folders that a docstring lets import the file."""
    paragraphs = PARAGRAPH.findall(ast.get_docstring(tree) or "")
    return [place for text in paragraphs for place in re.findall("`([^`]+/[^`]*)`", text)]


def edges(trees: dict[str, ast.Module], with_defended: bool) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file, tree in trees.items():
        found[file] = set()
        for other, loaded in imports(tree):
            pardoned = not loaded and any(file.startswith(place) for place in defended(trees[other]))
            if other != file and (with_defended or not pardoned):
                found[file].add(other)
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Files from each of which all the others are reached (Tarjan 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(file: str) -> None:
        number[file] = lowest[file] = len(number)
        path.append(file)
        for other in graph[file]:
            if other not in number:
                visit(other)
            if other in path:
                lowest[file] = min(lowest[file], lowest[other])
        if lowest[file] == number[file]:
            start = path.index(file)
            if len(path) - start > 1:
                found.append(sorted(path[start:]))
            del path[start:]

    for file in graph:
        if file not in number:
            visit(file)
    return found


def test_no_circle_but_those_that_a_docstring_defends():
    assert circles(edges(trees_of_all(), with_defended=False)) == []


def test_every_defence_is_needed():
    """Each place of a paragraph has a file that is in a circle with the one that the paragraph is of."""
    together = circles(edges(trees_of_all(), with_defended=True))
    needless = [
        (file, place)
        for file, tree in trees_of_all().items()
        for place in defended(tree)
        if not any(file in circle and any(o.startswith(place) for o in circle if o != file) for circle in together)
    ]
    assert needless == []


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("import loopgrad.graph.text", "def f():\n  from loopgrad.graph import nodes", True),
        ("import loopgrad.graph.text", "if TYPE_CHECKING:\n  from loopgrad.graph.nodes import Graph", True),
        ('"""First.\n\nCircle: `graph/text.py` names it."""\nimport loopgrad.graph.text',
         "if TYPE_CHECKING:\n  from loopgrad.graph.nodes import Graph", False),
        ('"""First.\n\nCircle: `graph/text.py` names it."""\nimport loopgrad.graph.text',
         "from loopgrad.graph.nodes import Graph", True),
        ("import loopgrad.graph.text", "from loopgrad.graph import key", False),
    ],
)  # fmt: skip
def test_circles_are_seen(first, second, found):
    trees = {name(path): ast.parse("") for path in SOURCES} | {
        "graph/nodes.py": ast.parse(first), "graph/text.py": ast.parse(second)
    }  # fmt: skip
    assert circles(edges(trees, with_defended=False)) == ([["graph/nodes.py", "graph/text.py"]] if found else [])
