"""What the operands, results and regions of a region node are is counted out in one place, by `graph.regions`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.sources import SOURCES, name, nodes, parsed

# the format, the rules that check it, and intervals, which no operation with regions has
COUNTING = {"graph/regions.py", "graph/primitives/control.py", "graph/primitives/intervals.py"}
NAMED = ("carries", "lanes", "shared")


def is_number(node: ast.expr | None) -> bool:
    return node is None or isinstance(node, ast.Constant | ast.UnaryOp)


def offences(tree: ast.Module) -> Iterator[str]:
    """Attributes of regions read by name, regions taken by number, operands cut at computed positions."""
    for node in nodes(tree, ast.Call, ast.Subscript):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            container, index = node.func.value, node.args[0]
        elif isinstance(node, ast.Subscript):
            container, index = node.value, node.slice
        else:
            continue
        what = container.attr if isinstance(container, ast.Attribute) else getattr(container, "id", "")
        attribute = what == "attrs" and isinstance(index, ast.Constant) and index.value in NAMED
        region = what == "regions" and isinstance(container, ast.Attribute) and is_number(index)
        cut = isinstance(index, ast.Slice) and not (is_number(index.lower) and is_number(index.upper))
        if attribute or region or (cut and ast.unparse(container).endswith("node.operands")):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_regions_are_asked():
    others = [path for path in SOURCES if name(path) not in COUNTING]
    found = [f"{name(path)}, {o}" for path in others for o in offences(parsed(path)[1])]
    assert not found, "ask loopgrad.graph.regions instead:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    ["node.attrs['carries']", "attrs.get('shared', ())", "node.regions[-1]", "loop.node.operands[first : first + n]"],
)
def test_what_counts_is_found(text):
    assert list(offences(ast.parse(text)))


@pytest.mark.parametrize("text", ["node.attrs['axis']", "loop.body", "context.regions[op]", "node.operands[1:]"])
def test_what_does_not_count_is_let_be(text):
    assert not list(offences(ast.parse(text)))
