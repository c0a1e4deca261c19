"""What computing one element costs, in units of one vector addition per lane.

Only ratios matter: they decide whether a value is stored or computed again (stored.py).
"""

from __future__ import annotations

from math import prod
from typing import Final

from loopgrad.codegen.lower.elementwise import whole_exponent
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives import ELEMENTWISE, PRIMITIVES, Kind

WHOLE_POWER: Final = 6.0
LOAD: Final = 1.0
STORE: Final = 6.0
LAUNCH: Final = 500.0  # of one more kernel
EXPENSIVE: Final = 8.0  # worth storing rather than computing in two kernels
AGAIN: Final = (
    20.0  # as little is computed again by GPUs, where that reads one array, as the stored value would be read
)
CEILING: Final = 1e9


def own_cost(node: Node) -> float:
    """One element of the node's result, operands aside."""
    cost = PRIMITIVES[node.op].cost
    if node.op == "concat":
        return cost * len(node.operands)
    if node.op == "pow" and whole_exponent(node) is not None:
        return WHOLE_POWER
    return cost


def repeats(node: Node, operand: int) -> float:
    """How often one element of the result reads the operand."""
    if node.op in ELEMENTWISE:
        return 1.0
    match PRIMITIVES[node.op].kind:
        case Kind.REDUCTION | Kind.RUNNING_TOTAL:
            axes = node.attrs["axes"] if "axes" in node.attrs else (node.attrs["axis"],)
            count: int = prod([node.operands[0].shape[a] for a in axes])
            return 1.0 * max(count, 1)
        case Kind.CONTRACTION:
            return 1.0 * node.operands[0].shape[-1]
        case Kind.INDEXING if node.op == "scatter" and operand:
            return 1.0 * prod(node.operands[1].shape)
    return 1.0
