"""Creation and movement: every axis moves up by one, the batch axis stays whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.batching.row import Context, Row, all_expanded
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import TensorType, bool_

Values = Sequence[Value]


def _created(node: Node, operands: Values, context: Context) -> Values:
    """What is made of nothing is the same for the whole batch."""
    return emit(node.op, operands, node.attrs)


def _broadcast(node: Node, operands: Values, context: Context) -> Values:
    dims = (0, *(d + 1 for d in node.attrs["dims"]))
    return (ops.broadcast(operands[0], (context.size, *node.attrs["shape"]), dims),)


def _reshape(node: Node, operands: Values, context: Context) -> Values:
    return emit("reshape", operands, {"shape": (context.size, *node.attrs["shape"])})


def _transpose(node: Node, operands: Values, context: Context) -> Values:
    return emit("transpose", operands, {"perm": (0, *(p + 1 for p in node.attrs["perm"]))})


def _slice(node: Node, operands: Values, context: Context) -> Values:
    start, stop, step = node.attrs["start"], node.attrs["stop"], node.attrs["step"]
    return (ops.slice(operands[0], (0, *start), (context.size, *stop), (1, *step)),)


def _pad(node: Node, operands: Values, context: Context) -> Values:
    attrs = {"low": (0, *node.attrs["low"]), "high": (0, *node.attrs["high"])}
    if node.operands[1] not in context.batched:
        return emit("pad", operands, attrs)
    # pad takes one scalar, here each batch element has its own: it goes where a padded mask is False
    x, filling = all_expanded(node, operands, context)
    edge = ops.full(False, TensorType((), bool_))
    kept = emit("pad", (ops.full(True, TensorType(x.shape, bool_)), edge), attrs)[0]
    padded = emit("pad", (x, ops.full(0, TensorType((), x.dtype))), attrs)[0]
    return (ops.select(kept, padded, ops.broadcast_leading(filling, padded.shape)),)


def _concat(node: Node, operands: Values, context: Context) -> Values:
    return emit("concat", all_expanded(node, operands, context), {"axis": node.attrs["axis"] + 1})


def _flip(node: Node, operands: Values, context: Context) -> Values:
    return emit("flip", operands, {"axes": tuple([a + 1 for a in node.attrs["axes"]])})


ROWS: Final[dict[str, Row]] = {
    "const": _created,
    "literal": _created,
    "iota": _created,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "concat": _concat,
    "flip": _flip,
}
