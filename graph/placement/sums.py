"""Reductions in an order that the number of lanes alone decides.

A shard's lanes are combined in a tree of elementwise operations, each of which is rounded by itself: no target chooses
an order. Shards are combined in a binary tree over all of them. A process hands on the roots of the largest subtrees
that are its own; all processes combine these in the same way.

    ten lanes, as shards of one, of two processes:   ((01)(23)) 4 | 5 (67) (89)   handed on: 2 and 3 rows
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph.identities import identity, of_nothing
from loopgrad.graph.nodes import Value
from loopgrad.graph.placement.layout import ProcessPart, shard_count, shard_extent
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import TensorType

WAYS: Final = 8  # that a stage of a tree combines at once


def resized(shape: Sequence[int], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def cut(b: GraphBuilder, v: Value, axis: int, start: int, stop: int) -> Value:
    """Elements start to stop along an axis."""
    if start == 0 and stop == v.shape[axis]:
        return v
    first, last = resized([0] * len(v.shape), axis, start), resized(v.shape, axis, stop)
    return b.value("slice", v, start=first, stop=last, step=(1,) * len(v.shape))


def filled(b: GraphBuilder, v: Value, axis: int, extent: int, combine: str) -> Value:
    """`v` with identities behind its elements, up to this extent."""
    missing = extent - v.shape[axis]
    if not missing:
        return v
    none = [0] * len(v.shape)
    edge = b.const(identity(combine, v.dtype), TensorType((), v.dtype))
    return b.value("pad", v, edge, low=tuple(none), high=resized(none, axis, missing))


def without(b: GraphBuilder, v: Value, axis: int) -> Value:
    """`v` without an axis of one element."""
    return b.value("reshape", v, shape=(*v.shape[:axis], *v.shape[axis + 1 :]))


def tree(b: GraphBuilder, v: Value, axis: int, combine: str) -> Value:
    """All elements along an axis combined; the axis has one element then. It has at least one before."""
    while (extent := v.shape[axis]) > 1:
        ways = min(WAYS, 1 << (extent - 1).bit_length())
        each = -(-extent // ways)
        v = filled(b, v, axis, each * ways, combine)
        parts = [cut(b, v, axis, i * each, (i + 1) * each) for i in range(ways)]
        while len(parts) > 1:
            parts = [b.value(combine, x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        (v,) = parts
    return v


def folded(b: GraphBuilder, v: Value, axes: Sequence[int], combine: str) -> Value:
    """A reduction over these axes, which disappear."""
    for axis in sorted(axes, reverse=True):
        if v.shape[axis] == 0:
            shape = (*v.shape[:axis], *v.shape[axis + 1 :])
            v = b.const(of_nothing(combine, v.dtype), TensorType(shape, v.dtype))
        else:
            v = without(b, tree(b, v, axis, combine), axis)
    return v


def sharded(b: GraphBuilder, v: Value, axis: int, n: int, part: ProcessPart, fill: str = "add") -> Value:
    """Local lanes along `axis`, as shards in front: (shards of this process, ..., lanes of a shard, ...)."""
    own, extent = part.shards(n), shard_extent(n)
    v = filled(b, v, axis, len(own) * extent, fill)
    v = b.value("reshape", v, shape=(*v.shape[:axis], len(own), extent, *v.shape[axis + 1 :]))
    order = [d for d in range(len(v.shape)) if d != axis]
    return v if axis == 0 else b.value("transpose", v, perm=(axis, *order))


def subtree_rows(b: GraphBuilder, shards: Value, n: int, part: ProcessPart, combine: str) -> Value:
    """One row for each of this process' largest subtrees, of one row a shard."""
    own, roots = part.shards(n), []
    for first, height in part.subtrees(n):
        rows = cut(b, shards, 0, first - own.start, min(first + (1 << height), own.stop) - own.start)
        rows = filled(b, rows, 0, 1 << height, combine)
        roots.append(pairwise(b, rows, combine))
    if not roots:
        return b.const(identity(combine, shards.dtype), TensorType((0, *shards.shape[1:]), shards.dtype))
    return roots[0] if len(roots) == 1 else b.emit("concat", roots, {"axis": 0})[0]


def pairwise(b: GraphBuilder, rows: Value, combine: str) -> Value:
    """A power of two of rows combined, neighbours first."""
    while (count := rows.shape[0]) > 1:
        rest = rows.shape[1:]
        pairs = b.value("reshape", rows, shape=(count // 2, 2, *rest))
        halves = [
            b.value("reshape", cut(b, pairs, 1, i, i + 1), shape=(count // 2, *rest)) for i in range(2)
        ]  # fmt: skip
        rows = b.value(combine, *halves)
    return rows


def whole(b: GraphBuilder, rows: Value, n: int, part: ProcessPart, combine: str) -> Value:
    """The tree over all shards, of the rows that all processes hand on; without their axis."""
    shape = rows.shape[1:]
    if rows.shape[0] == 0:
        return b.const(of_nothing(combine, rows.dtype), TensorType(shape, rows.dtype))
    known: dict[tuple[int, int], Value] = {}
    for at, place in enumerate([p for rank in range(part.size) for p in part.of(rank).subtrees(n)]):
        known[place] = b.value("reshape", cut(b, rows, 0, at, at + 1), shape=shape)
    count = shard_count(n)

    def root(first: int, height: int) -> Value | None:
        if first >= count:
            return None
        found = known.get((first, height))
        if found is None and height:
            half = 1 << (height - 1)
            left, right = root(first, height - 1), root(first + half, height - 1)
            found = left if right is None or left is None else b.value(combine, left, right)
        return found

    top = root(0, max(count - 1, 0).bit_length())
    assert top is not None
    return top
