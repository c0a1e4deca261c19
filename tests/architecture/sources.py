"""The project's Python files, parsed once."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
ROOT = Path(__file__).parents[2]
# A folder may import the ones to its right.
FOLDERS = ("lazy", "runtime", "codegen", "autodiff", "graph")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PYTHON = sorted(
    path for folder in (*FOLDERS, "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
)


@functools.cache
def parsed(path: Path) -> tuple[str, ast.Module]:
    text = path.read_text()
    return text, ast.parse(text)


@functools.cache
def _by_kind(tree: ast.Module) -> dict[type[ast.AST], list[ast.AST]]:
    """All nodes of a file, which many tests go through, but for Load and its like, which are a third of them."""
    found: dict[type[ast.AST], list[ast.AST]] = {}
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        found.setdefault(type(node), []).append(node)
        for field in node._fields:
            value = getattr(node, field)
            if isinstance(value, list):
                left.extend([part for part in value if isinstance(part, ast.AST)])
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                left.append(value)
    return found


def nodes(tree: ast.Module, *kinds: type[Node]) -> Iterator[Node]:
    """The nodes of a file of these kinds."""
    found = _by_kind(tree)
    for kind in kinds:
        yield from found.get(kind, ())  # type: ignore[misc]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def defined(path: Path) -> set[str]:
    """The names that a file defines at its top."""
    names: set[str] = set()
    for statement in parsed(path)[1].body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def imported(tree: ast.Module) -> list[tuple[str, ast.Import | ast.ImportFrom]]:
    """The modules that a file imports, at its top or later."""
    found: list[tuple[str, ast.Import | ast.ImportFrom]] = []
    found.extend((statement.module or "", statement) for statement in nodes(tree, ast.ImportFrom))
    found.extend((alias.name, statement) for statement in nodes(tree, ast.Import) for alias in statement.names)
    return found


def strings(tree: ast.Module) -> Iterator[str]:
    """The string constants of a file, without what only documents."""
    statements = {id(s.value) for s in nodes(tree, ast.Expr)}
    for node in nodes(tree, ast.Constant):
        if isinstance(node.value, str) and id(node) not in statements:
            yield node.value
