"""One row per stack for the plan: what a loop's reverse pass saves, how deep, and why.

formula: `max(n)` for the size expression reduce_max(n); `trips, measured` where there is none
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.program import Residual
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import KEEPING_SPLATS, REDUCTIONS
from loopgrad.graph.types import TensorType

INFIX: Final = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "div": "//", "mod": "%"}
SILENT: Final = KEEPING_SPLATS - {"slice"} | {"cast"}  # what takes all elements along, with the same numbers
LONGEST: Final = 120
DEEPEST: Final = 12


def residual(node: Node, graph: Graph | None, place: str) -> Residual:
    """The row of a `stack_new` node of `graph`; None where that is a region's, whose inputs have no names."""
    element: TensorType = node.attrs["element"]
    name = node.attrs.get("name") or "stack"
    reason = node.attrs.get("reason") or "the reverse pass of the loop reads it"
    inputs = {} if graph is None else {v: f"input{i}" for i, v in enumerate(graph.inputs)}
    depth = formula(node.operands[0], inputs) if node.operands else "trips, measured"
    return Residual(name, element, depth, reason, place, node.loc)


def formula(value: Value, inputs: dict[Value, str]) -> str:
    """A size expression as text."""
    text = _text(value, inputs, DEEPEST, {})
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _text(value: Value, inputs: dict[Value, str], depth: int, known: dict[tuple[Value, int], str]) -> str:
    node = value.node
    if node is None:
        return inputs.get(value, "captured")
    if depth == 0:
        return "..."
    if (value, depth) not in known:
        operands = [_text(v, inputs, depth - 1, known) for v in node.operands]
        known[value, depth] = _operation(node, operands)[:LONGEST]
    return known[value, depth]


def _operation(node: Node, operands: list[str]) -> str:
    match node.op:
        case "const":
            return str(node.attrs["value"])
        case op if op in SILENT:
            return operands[0]
        case op if op in INFIX:
            return f"({operands[0]} {INFIX[op]} {operands[1]})"
        case op if op in REDUCTIONS:
            return f"{op.removeprefix('reduce_')}({operands[0]})"
        case "gather":
            return f"{operands[0]}[{', '.join(operands[1:])}]"
        case "for" | "while":
            return f"trips of the loop at {node.loc}" if node.loc else "trips of a loop"
    return f"{node.op}({', '.join(operands)})"
