"""Reductions in an order that the number of lanes alone decides.

A shard's lanes are combined in a tree of elementwise operations, each of which is rounded by itself: no target chooses
an order. Shards are combined in a binary tree over all of them. A process hands on the roots of the largest subtrees
that are its own; all processes combine these in the same way.

    ten lanes, as shards of one, of two processes:   ((01)(23)) 4 | 5 (67) (89)   handed on: 2 and 3 rows

Sums of floats are compensated, as everywhere (`codegen/math/compensated.py`): a total and a rest, which collects what
additions lose by Knuth's sum of two, exact for any operands; both are handed on, and added when all shards are. What
wasn't added up of anything has lost nothing, and no rest is handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from loopgrad.graph.identities import identity, of_nothing
from loopgrad.graph.nodes import Value
from loopgrad.graph.placement.layout import ProcessPart, shard_count, shard_extent
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import TensorType

WAYS: Final = 16  # that a stage of a tree combines at once
NEIGHBOURS: Final = 64  # rows that one kernel combines, pair by pair
Partial = tuple[Value, ...]  # what some elements make: one value, or a total and its rest
Counts = tuple[tuple[int, ...], ...]  # of several arrays, how many rows each process has


@dataclass(frozen=True, slots=True)
class SubtreeRows:
    """What processes hand on: `own` rows, of totals, and of the rests of those that have one; `counts`: how many of
    these and those each process has. `beside`: a total and its rest lie side by side in a row."""

    own: Partial
    counts: Counts
    beside: bool = False


def resized(shape: Sequence[int], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def cut(b: GraphBuilder, v: Value, axis: int, start: int, stop: int) -> Value:
    """Elements start to stop along an axis. Of a concat those of one piece are taken from the piece."""
    if start == 0 and stop == v.shape[axis]:
        return v
    if v.node is not None and v.node.op == "concat" and v.node.attrs["axis"] == axis:
        before = 0
        for piece in v.node.operands:
            if before <= start and stop <= before + piece.shape[axis]:
                return cut(b, piece, axis, start - before, stop - before)
            before += piece.shape[axis]
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


def sharded(b: GraphBuilder, v: Value, axis: int, n: int, part: ProcessPart, fill: str = "add") -> Value:
    """Local lanes along `axis`, as shards in front: (shards of this process, ..., lanes of a shard, ...)."""
    own, extent = part.shards(n), shard_extent(n)
    v = filled(b, v, axis, len(own) * extent, fill)
    v = b.value("reshape", v, shape=(*v.shape[:axis], len(own), extent, *v.shape[axis + 1 :]))
    order = [d for d in range(len(v.shape)) if d != axis]
    return v if axis == 0 else b.value("transpose", v, perm=(axis, *order))


def one_shard(b: GraphBuilder, v: Value, axis: int, n: int, part: ProcessPart, shard: int) -> Value:
    """The lanes along `axis` of one of this process' shards, as many as of the others."""
    extent, first = shard_extent(n), part.lanes(n).start
    start, stop = shard * extent - first, min((shard + 1) * extent, n) - first
    return filled(b, cut(b, v, axis, start, stop), axis, extent, "add")


@dataclass(frozen=True, slots=True)
class Combination:
    """Elements combined by `combine` ("add", "max", ...). `compensated`: sums have rests."""

    b: GraphBuilder
    combine: str
    compensated: bool

    def joined(self, x: Partial, y: Partial) -> Partial:
        """Two partial results as one."""
        total = self.b.value(self.combine, x[0], y[0])
        if not self.compensated:
            return (total,)
        rests = (*x[1:], *y[1:], self._lost(x[0], y[0], total))
        rest = rests[0]
        for other in rests[1:]:
            rest = self.b.value("add", rest, other)
        return total, rest

    def _lost(self, x: Value, y: Value, total: Value) -> Value:
        """What the sum of two lost, exactly (Knuth, TAOCP 2, 4.2.2)."""

        def sub(left: Value, right: Value) -> Value:
            return self.b.value("sub", left, right)

        moved = sub(total, x)
        return sub(sub(y, moved), sub(sub(total, moved), x))

    def rounded(self, partial: Partial) -> Value:
        """As one number: the total where the rest says nothing, which it does beside infinities."""
        if len(partial) == 1:
            return partial[0]
        total, rest = partial
        value = self.b.value("add", total, rest)
        finite = self.b.value("eq", rest, rest)
        zero = self.b.value("eq", value, total)  # the sign of a zero is the total's
        kept = self.b.value("select", zero, total, value)
        return self.b.value("select", finite, kept, total)

    def nothing(self, shape: tuple[int, ...], like: Value) -> Partial:
        made = self.b.const(identity(self.combine, like.dtype), TensorType(shape, like.dtype))
        return (made, made) if self.compensated else (made,)

    def tree(self, partial: Partial, axis: int) -> Partial:
        """All elements along an axis combined; the axis has one element then. It has at least one before."""
        b = self.b
        while (extent := partial[0].shape[axis]) > 1:
            ways = min(WAYS, 1 << (extent - 1).bit_length())
            each = -(-extent // ways)
            whole = [filled(b, v, axis, each * ways, self.combine) for v in partial]
            parts = [tuple([cut(b, v, axis, i * each, (i + 1) * each) for v in whole]) for i in range(ways)]
            while len(parts) > 1:
                parts = [self.joined(x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            partial = self.kept(parts[0])
        return partial

    def kept(self, partial: Partial) -> Partial:
        """In memory, where many elements became one: who reads it doesn't combine all of them, again or in one lane."""
        return tuple([self.b.value("alias", v, kept=True) for v in partial])

    def folded(self, v: Value, axes: Sequence[int]) -> Partial:
        """A reduction over these axes, which disappear."""
        partial: Partial = (v,)
        for axis in sorted(axes, reverse=True):
            shape = partial[0].shape
            if shape[axis] == 0:
                none = TensorType((*shape[:axis], *shape[axis + 1 :]), v.dtype)
                partial = (self.b.const(of_nothing(self.combine, v.dtype), none),)
            else:
                partial = tuple([without(self.b, part, axis) for part in self.tree(partial, axis)])
        return partial

    def plainly(self, v: Value, axes: Sequence[int], front: int) -> Value:
        """A reduction over few elements along these axes, which disappear, without rests; axis `front` comes first."""
        kept = [d for d in range(len(v.shape)) if d != front and d not in axes]
        order = (*axes, front, *kept)
        if order != tuple(range(len(order))):
            v = self.b.value("transpose", v, perm=order)
        count = prod(v.shape[: len(axes)])
        if count == 0:
            return self.b.const(of_nothing(self.combine, v.dtype), TensorType(v.shape[len(axes) :], v.dtype))
        v = self.b.value("reshape", v, shape=(count, *v.shape[len(axes) :])) if axes else v
        parts = [without(self.b, cut(self.b, v, 0, i, i + 1), 0) for i in range(count)] if axes else [v]
        while len(parts) > 1:
            joined = [self.b.value(self.combine, x, y) for x, y in zip(parts[::2], parts[1::2], strict=False)]
            parts = joined + parts[2 * len(joined) :]
        return parts[0]

    def rows(self, shards: Partial, n: int, part: ProcessPart) -> SubtreeRows:
        """One row for each of this process' largest subtrees, of one row a shard."""
        own, roots = part.shards(n), list[Partial]()
        for first, height in part.subtrees(n):
            start, stop = first - own.start, min(first + (1 << height), own.stop) - own.start
            rows = [filled(self.b, cut(self.b, v, 0, start, stop), 0, 1 << height, self.combine) for v in shards]
            roots.append(self._pairwise(tuple(rows)))
        element = TensorType(shards[0].shape[1:], shards[0].dtype)
        return self._joined_rows(roots, element, self._counts(len(shards), n, part))

    def rows_of_device(self, x: Value, extent: int, n: int, part: ProcessPart) -> SubtreeRows:
        """As `rows`, of lanes along the first axis in shards of so many, which the device combines in one order."""
        b, own, subtrees = self.b, part.shards(n), part.subtrees(n)
        roots = tuple([(first - own.start, min(first + (1 << h), own.stop) - first) for first, h in subtrees])
        row = TensorType((2 if self.compensated else 1, *x.shape[1:]), x.dtype)
        if not roots:
            found = self._joined_column((), row)
        else:
            found = b.value("shard_reduce", x, combine=self.combine, extent=extent, roots=roots)
        if extent > 1 or not self.compensated:
            return SubtreeRows((found,), self._counts(1, n, part)[:1], beside=True)
        columns, counts = list(self.apart(found)), self._counts(1, n, part)
        if len(counts) > 1 and counts[1][part.rank] < len(roots):  # lanes that weren't added up have lost nothing
            lost = [cut(b, columns[1], 0, i, i + 1) for i, (_, height) in enumerate(subtrees) if height]
            columns[1] = self._joined_column(lost, TensorType(x.shape[1:], x.dtype))
        return SubtreeRows(tuple(columns[: len(counts)]), counts)

    def apart(self, rows: Value) -> Partial:
        """Totals and rests that lie side by side."""
        return tuple([without(self.b, cut(self.b, rows, 1, k, k + 1), 1) for k in range(rows.shape[1])])

    def alone(self, x: Value, extent: int, n: int) -> Value:
        """What all lanes make, where one process has them: its device rounds as well."""
        roots = ((0, shard_count(n)),)
        return self.b.value("shard_reduce", x, combine=self.combine, extent=extent, roots=roots, rounded=True)

    def _counts(self, made: int, n: int, part: ProcessPart) -> Counts:
        """How many rows each process has, of shards that are so many values. A shard alone has a rest where adding up
        its lanes made one."""
        heights = [[height for _, height in part.of(rank).subtrees(n)] for rank in range(part.size)]
        totals = tuple(map(len, heights))
        if made > 1:
            return totals, totals
        rests = tuple([sum([height > 0 for height in each]) for each in heights])
        return (totals, rests) if self.compensated and any(rests) else (totals,)

    def _joined_rows(self, roots: Sequence[Partial], element: TensorType, counts: Counts) -> SubtreeRows:
        columns = [[root[i] for root in roots if i < len(root)] for i in range(len(counts))]
        return SubtreeRows(tuple([self._joined_column(column, element) for column in columns]), counts)

    def _joined_column(self, rows: Sequence[Value], element: TensorType) -> Value:
        if not rows:
            return self.b.const(identity(self.combine, element.dtype), TensorType((0, *element.shape), element.dtype))
        return rows[0] if len(rows) == 1 else self.b.emit("concat", rows, {"axis": 0})[0]

    def rows_one_by_one(
        self, make: Callable[[int], Partial], n: int, part: ProcessPart, element: TensorType
    ) -> SubtreeRows:
        """As `rows`, of shards' rows, of one value each, that are made where they are added: few of them are in memory
        at once."""
        own = part.shards(n)

        def root(first: int, height: int) -> Partial | None:
            if first >= own.stop:
                return None
            if not height:
                return self.kept(make(first))
            left, right = root(first, height - 1), root(first + (1 << height - 1), height - 1)
            return left if right is None or left is None else self.kept(self.joined(left, right))

        roots = [found for place in part.subtrees(n) if (found := root(*place)) is not None]
        return self._joined_rows(roots, element, self._counts(1, n, part))

    def _pairwise(self, rows: Partial) -> Partial:
        """A power of two of rows combined, neighbours first: a total and its rest, if several are."""
        while (count := rows[0].shape[0]) > 1:
            ways = min(count, NEIGHBOURS)
            if ways == count:
                parts = [tuple([cut(self.b, v, 0, i, i + 1) for v in rows]) for i in range(ways)]
            else:
                groups = [self._groups(v, ways) for v in rows]
                parts = [tuple([self._member(v, i) for v in groups]) for i in range(ways)]
            while len(parts) > 1:
                parts = [self.joined(x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            rows = parts[0] if count == ways else self.kept(parts[0])
        return rows

    def _groups(self, rows: Value, ways: int) -> Value:
        return self.b.value("reshape", rows, shape=(rows.shape[0] // ways, ways, *rows.shape[1:]))

    def _member(self, groups: Value, i: int) -> Value:
        return without(self.b, cut(self.b, groups, 1, i, i + 1), 1)

    def whole(self, rows: Partial, n: int, part: ProcessPart) -> Value:
        """The tree over all shards, of the rows that all processes hand on; without their axis."""
        b, first_row = self.b, rows[0]
        shape = first_row.shape[1:]
        if first_row.shape[0] == 0:
            return b.const(of_nothing(self.combine, first_row.dtype), TensorType(shape, first_row.dtype))
        known: dict[tuple[int, int], Partial] = {}
        places = [p for rank in range(part.size) for p in part.of(rank).subtrees(n)]
        if len(places) & (len(places) - 1) == 0 and len({height for _, height in places}) == 1:
            top = tuple([b.value("reshape", v, shape=shape) for v in self._pairwise(rows)])
            return self.rounded(top)
        columns = [[b.value("reshape", cut(b, v, 0, i, i + 1), shape=shape) for i in range(v.shape[0])] for v in rows]
        rests = iter(columns[1] if len(rows) > 1 else ())
        complete = len({len(column) for column in columns}) == 1
        for place, total in zip(places, columns[0], strict=True):
            known[place] = (total, next(rests)) if len(rows) > 1 and (complete or place[1]) else (total,)
        count = shard_count(n)

        def root(first: int, height: int) -> Partial | None:
            if first >= count:
                return None
            found = known.get((first, height))
            if found is None and height:
                half = 1 << (height - 1)
                left, right = root(first, height - 1), root(first + half, height - 1)
                found = left if right is None or left is None else self.joined(left, right)
            return found

        found = root(0, max(count - 1, 0).bit_length())
        assert found is not None
        return self.rounded(found)
