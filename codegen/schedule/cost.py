"""What computing one element costs, in units of one vector addition per lane.

Only ratios matter: they decide whether a value is stored or computed again (stored.py).
"""

from __future__ import annotations

from math import prod
from typing import Final

from loopgrad.codegen.lower.elementwise import whole_exponent
from loopgrad.graph.nodes import Node

ONE: Final[dict[str, float]] = {
    **dict.fromkeys(("const", "literal", "iota", "reshape", "broadcast", "transpose", "alias", "stop_gradient"), 0.0),
    **dict.fromkeys(("slice", "flip"), 0.5),
    **dict.fromkeys(("pad",), 2.0),
    **dict.fromkeys(("div", "sqrt", "rsqrt", "floor", "ceil", "round", "trunc"), 4.0),
    **dict.fromkeys(("floordiv", "mod", "rem"), 6.0),
    **dict.fromkeys(("exp", "exp2", "log", "log2", "sin", "cos"), 10.0),
    **dict.fromkeys(("expm1", "log1p", "log10", "tanh", "tan", "asin", "acos", "atan", "erf"), 16.0),
    **dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh", "pow", "atan2", "erfc"), 24.0),
    **dict.fromkeys(("lgamma", "digamma"), 50.0),
    "gather": 4.0,
}
WHOLE_POWER: Final = 6.0
LOAD: Final = 1.0
STORE: Final = 6.0
LAUNCH: Final = 500.0  # of one more kernel
EXPENSIVE: Final = 8.0  # worth storing rather than computing in two kernels
CEILING: Final = 1e9


def own_cost(node: Node) -> float:
    """One element of the node's result, operands aside."""
    if node.op == "concat":
        return 2.0 * len(node.operands)
    if node.op == "pow" and whole_exponent(node) is not None:
        return WHOLE_POWER
    return ONE.get(node.op, 1.0)


def repeats(node: Node, operand: int) -> float:
    """How often one element of the result reads the operand."""
    match node.op:
        case "reduce_sum" | "reduce_prod" | "reduce_min" | "reduce_max" | "reduce_and" | "reduce_or":
            return float(max(prod([node.operands[0].shape[a] for a in node.attrs["axes"]]), 1))
        case "argmin" | "argmax" | "cumsum" | "cumprod" | "cummax" | "cummin":
            return float(node.operands[0].shape[node.attrs["axis"]])
        case "matmul":
            return float(node.operands[0].shape[-1])
        case "scatter" if operand:
            return float(prod(node.operands[1].shape))
    return 1.0
