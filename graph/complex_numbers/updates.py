"""Updates at positions that are data.

Parts of complex numbers are added and replaced as real numbers are. Their products mix parts, so these are computed
before they are written: updates are brought into the order of the positions that they go to, those that meet multiplied
by a running product that begins anew at each position, and what the last one of each position has is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from loopgrad.graph import ops
from loopgrad.graph.associative import RunningCombination, Values
from loopgrad.graph.complex_numbers.arithmetic import multiply
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, bool_, int64


def updated(table: Value, *operands: Value, kind: str) -> Value:
    """What a scatter of a kind gives: `operands` are the indices and the updates."""
    *indices, updates = operands
    return ops.scatter(kind, table, indices, updates) if kind != "mul" else _multiplied(table, indices, updates)


def _multiplied(table: Value, indices: Sequence[Value], updates: Value) -> Value:
    axes = len(indices)
    extents, window = table.shape[:axes], table.shape[axes:]
    if not prod(table.shape) or not prod(updates.shape):
        return table
    if not indices[0].shape:  # one place: nothing meets
        return ops.scatter("set", table, indices, multiply(ops.gather(table, *indices), updates))
    rows, count = prod(extents), prod(indices[0].shape)
    places = ops.reshape(_places(indices, extents), (count,))
    order = ops.argsort(places, 0)
    places = ops.gather(places, order)
    anew = ops.ne(ops.slice(places, (1,), (count,)), ops.slice(places, (0,), (count - 1,)))
    edge = ops.full(True, TensorType((1,), bool_))
    factors = ops.gather(ops.reshape(updates, (count, *window)), order)
    begins = ops.broadcast(ops.concat([edge, anew], 0), factors.shape, (0,))
    _, products = RunningCombination(_since_the_beginning, (0, 0)).run((begins, factors))
    flat = ops.reshape(table, (rows, *window))
    ends = ops.select(ops.concat([anew, edge], 0), places, rows)  # others are out of range, and dropped
    product = multiply(ops.gather(flat, places), products)
    return ops.reshape(ops.scatter("set", flat, [ends], product), table.shape)


def _since_the_beginning(left: Values, right: Values) -> Values:
    """Two pieces of a running product that begins anew where the first value is True."""
    begins, factors = right
    return ops.or_(left[0], begins), ops.select(begins, factors, multiply(left[1], factors))


def _places(indices: Sequence[Value], extents: Sequence[int]) -> Value:
    """Row-major positions; of what is out of range one behind the end."""
    first = ops.full(0, TensorType(indices[0].shape, int64))
    place, inside = first, ops.eq(first, first)
    for given, extent in zip(indices, extents, strict=True):
        index = ops.cast(given, int64)
        inside = ops.and_(inside, ops.and_(ops.ge(index, 0), ops.lt(index, extent)))
        place = ops.add(ops.mul(place, extent), index)
    return ops.select(inside, place, prod(extents))
