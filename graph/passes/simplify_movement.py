"""Rules of `simplify` about where elements come from; all are exact.

broadcast of broadcast, reshape of reshape, transpose of transpose    ->  one
an identity broadcast, reshape, transpose, slice, flip, pad           ->  its operand
a concat of slices of one value that lie behind each other            ->  one slice
a reduction over no axes, or over axes of extent 1                    ->  a reshape
the largest or least of a few that are stacked                        ->  that of the first two, of the next two ...
elementwise operations on equal broadcasts                            ->  one broadcast of the small result
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, REDUCTIONS
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import TensorType

Rule = Callable[[Node, GraphBuilder], Value | None]
MOST_STACKED: Final = 16
EXTREMES: Final = {"reduce_max": "max", "reduce_min": "min"}


def _same_type(node: Node, builder: GraphBuilder) -> Value | None:
    """For operations that are the identity whenever they keep the shape."""
    return node.operands[0] if node.operands[0].type == node.results[0].type else None


def _broadcast_of_broadcast(node: Node, builder: GraphBuilder) -> Value | None:
    inner = node.operands[0].node
    if inner is None or inner.op != "broadcast":
        return None
    outer = node.attrs["dims"]
    dims = tuple([outer[d] for d in inner.attrs["dims"]])
    return builder.value("broadcast", inner.operands[0], shape=node.attrs["shape"], dims=dims)


def _reshape_of_reshape(node: Node, builder: GraphBuilder) -> Value | None:
    inner = node.operands[0].node
    if inner is None or inner.op != "reshape":
        return None
    (x,) = inner.operands
    return x if x.type == node.results[0].type else builder.value("reshape", x, shape=node.attrs["shape"])


def _transpose_of_transpose(node: Node, builder: GraphBuilder) -> Value | None:
    inner = node.operands[0].node
    if inner is None or inner.op != "transpose":
        return None
    perm = tuple([inner.attrs["perm"][p] for p in node.attrs["perm"]])
    (x,) = inner.operands
    return x if perm == tuple(range(len(perm))) else builder.value("transpose", x, perm=perm)


def _identity_transpose(node: Node, builder: GraphBuilder) -> Value | None:
    perm = node.attrs["perm"]
    return node.operands[0] if perm == tuple(range(len(perm))) else None


def _identity_slice(node: Node, builder: GraphBuilder) -> Value | None:
    unit = all(step == 1 for step in node.attrs["step"])
    return _same_type(node, builder) if unit else None


def _identity_flip(node: Node, builder: GraphBuilder) -> Value | None:
    (x,) = node.operands
    return x if all(x.shape[a] <= 1 for a in node.attrs["axes"]) else None


def _flip_of_flip(node: Node, builder: GraphBuilder) -> Value | None:
    inner = node.operands[0].node
    if inner is None or inner.op != "flip":
        return None
    axes = tuple(sorted(set(node.attrs["axes"]) ^ set(inner.attrs["axes"])))
    (x,) = inner.operands
    return builder.value("flip", x, axes=axes) if axes else x


def _single_concat(node: Node, builder: GraphBuilder) -> Value | None:
    return node.operands[0] if len(node.operands) == 1 else None


def _rejoined(node: Node, builder: GraphBuilder) -> Value | None:
    """Slices of one value, each of which begins where the one before it ends, are one slice."""
    axis, pieces = node.attrs["axis"], [v.node for v in node.operands]
    first = pieces[0]
    if first is None or first.op != "slice":
        return None
    (x,), start, stop = first.operands, first.attrs["start"], first.attrs["stop"]
    end = stop
    for piece in pieces:
        if piece is None or piece.op != "slice" or piece.operands != (x,) or set(piece.attrs["step"]) != {1}:
            return None
    for before, piece in pairwise(pieces):
        assert before is not None
        assert piece is not None
        if piece.attrs["start"] != _replaced(start, axis, before.attrs["stop"][axis]):
            return None
        if piece.attrs["stop"] != _replaced(stop, axis, piece.attrs["stop"][axis]):
            return None
        end = piece.attrs["stop"]
    if node.results[0].type == x.type:
        return x
    return builder.value("slice", x, start=start, stop=end, step=first.attrs["step"])


def _replaced(places: tuple[int, ...], axis: int, place: int) -> tuple[int, ...]:
    return (*places[:axis], place, *places[axis + 1 :])


def _reduction_of_ones(node: Node, builder: GraphBuilder) -> Value | None:
    (x,) = node.operands
    if any(x.shape[a] != 1 for a in node.attrs["axes"]):
        return None
    shape = node.results[0].shape
    return x if shape == x.shape else builder.value("reshape", x, shape=shape)


def _extreme_of_stacked(node: Node, builder: GraphBuilder) -> Value | None:
    """In halves; no order changes which one that is."""
    stacked, axes = node.operands[0].node, node.attrs["axes"]
    if stacked is None or stacked.op != "concat" or axes != (stacked.attrs["axis"],):
        return None
    if len(stacked.operands) > MOST_STACKED or any(v.shape[axes[0]] != 1 for v in stacked.operands):
        return None
    left = [builder.value("reshape", v, shape=node.results[0].shape) for v in stacked.operands]
    while len(left) > 1:
        pairs = [builder.value(EXTREMES[node.op], x, y) for x, y in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[len(left) - len(left) % 2 :]
    return left[0]


def _elementwise_on_broadcasts(node: Node, builder: GraphBuilder) -> Value | None:
    """Constants count as broadcasts of anything."""
    small: TensorType | None = None
    dims = None
    for v in node.operands:
        inner = v.node
        if inner is None or inner.op not in ("broadcast", "const"):
            return None
        if inner.op == "const":
            continue
        shape = inner.operands[0].shape
        if small is not None and (shape != small.shape or inner.attrs["dims"] != dims):
            return None
        small, dims = TensorType(shape, v.dtype), inner.attrs["dims"]
    if small is None or small.size >= node.operands[0].type.size:  # type: ignore[union-attr]
        return None
    operands = [_shrunk(v, small.shape, builder) for v in node.operands]
    (result,) = builder.emit(node.op, operands, node.attrs)
    return builder.value("broadcast", result, shape=node.results[0].shape, dims=dims)


def _shrunk(value: Value, shape: tuple[int, ...], builder: GraphBuilder) -> Value:
    assert value.node is not None
    if value.node.op == "broadcast":
        return value.node.operands[0]
    return builder.const(value.node.attrs["value"], TensorType(shape, value.dtype))


MOVEMENT_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    **dict.fromkeys(ELEMENTWISE, (_elementwise_on_broadcasts,)),
    "broadcast": (_same_type, _broadcast_of_broadcast),
    "reshape": (_same_type, _reshape_of_reshape),
    "transpose": (_identity_transpose, _transpose_of_transpose),
    "slice": (_identity_slice,),
    "flip": (_identity_flip, _flip_of_flip),
    "pad": (_same_type,),
    "concat": (_single_concat, _rejoined),
    **dict.fromkeys(REDUCTIONS, (_reduction_of_ones,)),
    **dict.fromkeys(EXTREMES, (_reduction_of_ones, _extreme_of_stacked)),
}
