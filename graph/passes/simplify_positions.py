"""Rules of `simplify` about positions of extremes.

argmax of long rows, or of few long columns    ->  the largest element, and the first position at which it stands

A position can't be reduced by parts of a row, an extreme and the least of some positions can: by vectors, threads and
workgroups. Rows are read twice. Where a row's elements don't lie beside each other, many lanes that walk do well.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import TensorType, bool_, int32, int64

Rule = Callable[[Node, GraphBuilder], Value | None]

LONG: Final = 64  # elements of a row: fewer are read by one lane, once
MOST: Final = 1 << 31
LONG_COLUMN: Final = 1024
FEW_LANES: Final = 1 << 14  # that walk columns, which leave a device idle


def _position(extreme: str) -> Rule:
    def rule(node: Node, builder: GraphBuilder) -> Value | None:
        (x,), axis = node.operands, node.attrs["axis"]
        shape = x.shape
        extent, inner = shape[axis], prod(shape[axis + 1 :])
        if not LONG <= extent < MOST or 0 in shape:
            return None
        if inner > 1 and (extent < LONG_COLUMN or prod(shape) // extent > FEW_LANES):
            return None
        if x.dtype is bool_:
            x = builder.value("cast", x, dtype=int32)
        dims = tuple([d for d in range(len(shape)) if d != axis])
        best = builder.value("broadcast", builder.value(extreme, x, axes=(axis,)), shape=shape, dims=dims)
        found = builder.value("eq", x, best)
        if x.dtype.is_float:  # NaN wins, and equals nothing
            both = builder.value("and", builder.value("is_nan", x), builder.value("is_nan", best))
            found = builder.value("or", found, both)
        type = TensorType(shape, int32)
        places = builder.value("iota", axis=axis, type=type)
        first = builder.value("select", found, places, builder.const(extent - 1, type))
        return builder.value("cast", builder.value("reduce_min", first, axes=(axis,)), dtype=int64)

    return rule


POSITION_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "argmax": (_position("reduce_max"),),
    "argmin": (_position("reduce_min"),),
}
