"""Derivatives of gather and scatter.

A gather's cotangent is scattered onto what its table has accumulated so far (`ACCUMULATE`), so a chain of
scatters forms instead of a sum of dense arrays. Gather clamps its indices and scatter drops what is out of
range: the adjoints clamp and mask accordingly. Where updates of a `set` meet, the last one wins and gets all
of the cotangent; equal winners of `min` and `max`, the table's element included, share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.autodiff.rules.reduction import shifted
from loopgrad.graph import ops
from loopgrad.graph.distinct import distinct_axis
from loopgrad.graph.lanes import iota_axis
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.ranges import bounds
from loopgrad.graph.types import DType, TensorType, int64

Indices = Sequence[Value]


# ---- indices


def _counts_within(index: Value, extent: int) -> bool:
    """Whether the index is an iota or comes from a sort, and can't leave 0 .. extent - 1."""
    axis = iota_axis(index)
    if axis is not None:
        return index.shape[axis] <= extent
    if distinct_axis(index) is None:
        return False
    low, high = bounds(index)
    return low >= 0 and high < extent


def _largest(dtype: DType) -> int:
    return int((1 << (dtype.bits - (dtype.kind == "i"))) - 1)


def clamped(indices: Indices, table: Value) -> list[Value]:
    """The indices as gather reads them: looked up in the positions, so that whoever checks what a gather is given
    checks them too, where the gather itself isn't needed any more."""
    result = []
    for index, extent in zip(indices, table.shape, strict=False):
        if not _counts_within(index, extent):
            index = ops.gather(ops.iota(TensorType((extent,), index.dtype), 0), index)
        result.append(index)
    return result


def in_range(indices: Indices, table: Value) -> Value | None:
    """Which updates a scatter applies; None where that is all of them."""
    mask: Value | None = None
    for index, extent in zip(indices, table.shape, strict=False):
        if _counts_within(index, extent):
            continue
        inside = ops.ge(index, 0)
        if extent <= _largest(index.dtype):
            inside = ops.and_(inside, ops.lt(index, extent))
        mask = inside if mask is None else ops.and_(mask, inside)
    return mask


def _covers_each_axis_once(indices: Indices) -> bool:
    """Whether no two updates can meet: every axis of the index shape is counted by some index."""
    counted = {iota_axis(v) for v in indices}
    return all(d in counted or n == 1 for d, n in enumerate(indices[0].shape))


def _masked(mask: Value | None, v: Value) -> Value:
    return v if mask is None else ops.select(ops.broadcast_leading(mask, v.shape), v, 0)


def _looked_up(table: Value, indices: Indices) -> Value:
    """What stands at the updates' places; 0 for the updates that scatter drops."""
    return _masked(in_range(indices, table), ops.gather(table, *indices))


# ---- gather


def accumulate_gather(node: Node, ct: Value, accumulated: Value | None) -> Value:
    table, *indices = node.operands
    base = ops.zeros_like(table) if accumulated is None else accumulated
    return ops.scatter("add", base, clamped(indices, table), ct)


def _gather_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    t = tangents[0]
    assert t is not None
    return (ops.gather(t, *node.operands[1:]),)


# ---- scatter: per kind, (table's cotangent, updates' cotangent) and the tangent


def _add_vjp(table: Value, indices: Indices, updates: Value, node: Node, ct: Value) -> tuple[Value, Value]:
    return ct, _looked_up(ct, indices)


def _add_jvp(table: Value, indices: Indices, updates: Value, node: Node, t: Value, tu: Value) -> Value:
    return ops.scatter("add", t, indices, tu)


def _last_writer(table: Value, indices: Indices, updates: Value) -> Value | None:
    """Which updates of a `set` survive; None where none can meet another."""
    shape = indices[0].shape
    if _covers_each_axis_once(indices):
        return in_range(indices, table)
    number = ops.reshape(ops.iota(TensorType((prod(shape),), int64), 0), shape)
    places = TensorType(table.shape[: len(indices)], int64)
    owner = ops.scatter("set", ops.full(-1, places), indices, number)
    wins = ops.eq(ops.gather(owner, *indices), number)
    mask = in_range(indices, table)
    return wins if mask is None else ops.and_(wins, mask)


def _set_vjp(table: Value, indices: Indices, updates: Value, node: Node, ct: Value) -> tuple[Value, Value]:
    to_table = ops.scatter("set", ct, indices, ops.zeros_like(updates))
    return to_table, _masked(_last_writer(table, indices, updates), ops.gather(ct, *indices))


def _set_jvp(table: Value, indices: Indices, updates: Value, node: Node, t: Value, tu: Value) -> Value:
    return ops.scatter("set", t, indices, tu)


def _other_factors(table: Value, indices: Indices, updates: Value) -> Value:
    """For each update of a `mul`, the product of the others at its place. Nothing is divided, so zeros among
    them are right to every order: updates are sorted by place, and multiplied up from both sides."""
    if _covers_each_axis_once(indices):
        return ops.ones_like(updates)
    rank = len(indices[0].shape)
    window = updates.shape[rank:]
    place = _linear(indices, table)
    order = ops.argsort(place, 0)
    place = ops.gather(place, order)
    rows = ops.gather(ops.reshape(updates, (place.shape[0], *window)), order)
    others = ops.mul(_earlier_product(rows, place, 1), _earlier_product(rows, place, -1))
    return ops.reshape(ops.gather(others, ops.argsort(order, 0)), updates.shape)


def _linear(indices: Indices, table: Value) -> Value:
    """The updates' places as one number each, -1 where dropped; flat."""
    total = ops.cast(ops.zeros_like(indices[0]), int64)
    for index, extent in zip(clamped(indices, table), table.shape, strict=False):
        total = ops.add(ops.mul(total, extent), ops.cast(index, int64))
    mask = in_range(indices, table)
    flat = total if mask is None else ops.select(mask, total, -1)
    return ops.reshape(flat, (prod(flat.shape),))


def _earlier_product(rows: Value, place: Value, step: int) -> Value:
    """Per row, the product of the rows before it (after it, where step is -1) at the same place, by doubling;
    equal places stand together."""

    def neighbour(product: Value, by: int) -> Value:
        same = ops.eq(place, shifted(place, 0, by, -2))
        return ops.select(ops.broadcast_leading(same, rows.shape), shifted(product, 0, by, 1), 1)

    product, by = rows, step
    while abs(by) < rows.shape[0]:
        product = ops.mul(product, neighbour(product, by))
        by *= 2
    return neighbour(product, step)


def _mul_vjp(table: Value, indices: Indices, updates: Value, node: Node, ct: Value) -> tuple[Value, Value]:
    own = ops.mul(_looked_up(ops.mul(ct, table), indices), _other_factors(table, indices, updates))
    return ops.scatter("mul", ct, indices, updates), own


def _mul_jvp(table: Value, indices: Indices, updates: Value, node: Node, t: Value, tu: Value) -> Value:
    own = ops.mul(ops.mul(tu, ops.gather(table, *indices)), _other_factors(table, indices, updates))
    return ops.scatter("add", ops.scatter("mul", t, indices, updates), indices, own)


def _shares(table: Value, indices: Indices, updates: Value, result: Value) -> tuple[Value, Value, Value]:
    """For min and max: whether the table's element wins, which updates win, and how many winners there are."""
    table_wins = ops.eq(table, result)
    wins = ops.eq(updates, ops.gather(result, *indices))
    mask = in_range(indices, table)
    if mask is not None:
        wins = ops.and_(wins, ops.broadcast_leading(mask, wins.shape))
    count = ops.scatter("add", ops.cast(table_wins, table.dtype), indices, ops.cast(wins, table.dtype))
    return table_wins, wins, ops.max(count, 1)


def _extremum_vjp(table: Value, indices: Indices, updates: Value, node: Node, ct: Value) -> tuple[Value, Value]:
    table_wins, wins, count = _shares(table, indices, updates, node.results[0])
    share = ops.div(ct, count)
    return ops.select(table_wins, share, 0), ops.select(wins, ops.gather(share, *indices), 0)


def _extremum_jvp(table: Value, indices: Indices, updates: Value, node: Node, t: Value, tu: Value) -> Value:
    table_wins, wins, count = _shares(table, indices, updates, node.results[0])
    total = ops.scatter("add", ops.select(table_wins, t, 0), indices, ops.select(wins, tu, 0))
    return ops.div(total, count)


SCATTER_VJP: Final = {
    "add": _add_vjp,
    "set": _set_vjp,
    "mul": _mul_vjp,
    "min": _extremum_vjp,
    "max": _extremum_vjp,
}

SCATTER_JVP: Final = {
    "add": _add_jvp,
    "set": _set_jvp,
    "mul": _mul_jvp,
    "min": _extremum_jvp,
    "max": _extremum_jvp,
}


def _scatter_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,) = cotangents
    assert ct is not None
    table, *indices, updates = node.operands
    to_table, to_updates = SCATTER_VJP[node.attrs["kind"]](table, indices, updates, node, ct)
    return (to_table, *(None for _ in indices), to_updates)


def _scatter_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    table, *indices, updates = node.operands
    t = ops.zeros_like(table) if tangents[0] is None else tangents[0]
    tu = ops.zeros_like(updates) if tangents[-1] is None else tangents[-1]
    return (SCATTER_JVP[node.attrs["kind"]](table, indices, updates, node, t, tu),)


VJP: Final[dict[str, Rule]] = {"scatter": _scatter_vjp}

# op -> what operand 0 has accumulated after the node's cotangent is added
ACCUMULATE: Final[dict[str, Callable[[Node, Value, Value | None], Value]]] = {"gather": accumulate_gather}

JVP: Final[dict[str, Rule]] = {"gather": _gather_jvp, "scatter": _scatter_jvp}
