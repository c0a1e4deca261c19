"""Rules of `simplify` about positions of extremes.

argmax of long rows, or of few long columns    ->  the largest element, and the first position at which it stands
argmax of very long rows                       ->  the largest of each of many blocks, the first block with the largest
                                                   of these, and the position in that block

A position can't be reduced by parts of a row, an extreme and the least of some positions can: by vectors, threads and
workgroups. Rows are read twice, of very long ones only a block is. Where a row's elements don't lie beside each other,
many lanes that walk do well.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from loopgrad.graph.identities import identity
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import TensorType, bool_, int32, int64

Rule = Callable[[Node, GraphBuilder], Value | None]

LONG: Final = 64  # elements of a row: fewer are read by one lane, once
MOST: Final = 1 << 31
LONG_COLUMN: Final = 1024
FEW_LANES: Final = 1 << 14  # that walk columns, which leave a device idle
VERY_LONG: Final = 1 << 16
BLOCK: Final = 1 << 10  # elements of a block, at least


def _by_blocks(extreme: str, kind: str) -> Rule:
    def rule(node: Node, builder: GraphBuilder) -> Value | None:
        (x,), axis = node.operands, node.attrs["axis"]
        extent, outer = x.shape[axis], prod(x.shape[:axis])
        if not VERY_LONG <= extent < MOST or prod(x.shape) != outer * extent:
            return None
        size = max(1 << -(-(extent - 1).bit_length() // 2), BLOCK)  # about as many blocks
        blocks = -(-extent // size)
        if x.dtype is bool_:
            x = builder.value("cast", x, dtype=int32)
        rows = builder.value("reshape", x, shape=(outer, extent))
        if blocks * size > extent:
            neutral = builder.const(identity(kind, x.dtype), TensorType((), x.dtype))
            rows = builder.value("pad", rows, neutral, low=(0, 0), high=(0, blocks * size - extent))
        parts = builder.value("reshape", rows, shape=(outer, blocks, size))
        block = builder.value(node.op, builder.value(extreme, parts, axes=(2,)), axis=1)
        own = builder.value("iota", axis=0, type=TensorType((outer,), int64))
        place = builder.value(node.op, builder.value("gather", parts, own, block), axis=1)
        first = builder.value("mul", block, builder.const(size, TensorType((outer,), int64)))
        shape = node.results[0].shape
        return builder.value("reshape", builder.value("add", first, place), shape=shape)

    return rule


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
    "argmax": (_by_blocks("reduce_max", "max"), _position("reduce_max")),
    "argmin": (_by_blocks("reduce_min", "min"), _position("reduce_min")),
}
