"""Reductions of neighbours in an order that their number alone decides (`graph.placement` makes them of reductions of
lanes, for devices that keep that order themselves).

    shard_reduce  (x)   attrs combine (add mul min max), extent, roots -> (roots, 2 or 1, *kept)
                        and rounded                                    -> (*kept)

The first axis of `x` is cut into shards of `extent` elements, the last of which may be shorter. Each of `roots` is
a (first, count) of shards that are combined, neighbours first: what these make is a row of the result; sums have what
their additions lost beside it. Where there is one root, it may be `rounded`: one number, to which that is added. The
order of a shard is a device's own, and may depend on nothing but the extent. That of the CPU, and of the reference:

- It is cut into parts of equal length (`part_extent`), which are combined neighbours first.
- A part is rows of some elements (`columns`). Eight rows are combined, neighbours first, and that with what came before
  in its column; a sum has a total and its rest there, as everywhere (`codegen/math/compensated.py`). Missing elements
  are identities.
- The columns of a part are combined by halves: the first with that in the middle.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives import elementwise
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Kind,
    Primitive,
    Types,
    always_exact,
    require_kinds,
    shape_error,
    table,
    tensor_type,
)
from loopgrad.graph.types import DType, TensorType, dtype_named

COLUMN_BYTES: Final = 64  # a vector of the widest machines
TOGETHER: Final = 8  # rows: what a total takes is a third of the additions, as in other sums
LONGEST_PART: Final = 1 << 12
ALIGNED: Final = 256  # lanes: so many rows of the narrowest elements
NOTHING: Final = {"add": -0.0, "mul": 1.0, "min": float("inf"), "max": float("-inf")}

Partial = tuple[Any, ...]  # one array, or totals and their rests


def columns(dtype: DType, extent: int) -> int:
    """Elements of a row of a shard's parts: as many as a vector has, or fewer where a part has few rows of these."""
    most: int = COLUMN_BYTES // dtype.itemsize
    rows = max(part_extent(extent) // TOGETHER, 1)
    return min(most, 1 << (rows.bit_length() - 1))


def part_extent(extent: int) -> int:
    """The elements of a part of a shard; the last one may have fewer."""
    if extent <= LONGEST_PART:
        return extent
    parts = 1 << (-(-extent // LONGEST_PART) - 1).bit_length()
    return -(-extent // (parts * ALIGNED)) * ALIGNED


def numbers(combine: str) -> int:
    """That stand for what is combined so far."""
    return 2 if combine == "add" else 1


def _infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type, extent = tensor_type("shard_reduce", operands[0]), attrs["extent"]
    require_kinds("shard_reduce", type, "f")
    if not type.shape or extent < 1:
        raise shape_error("shard_reduce", "an axis, and shards of an element", (type, extent), "check the extent")
    if any(not 0 <= first < first + count <= -(-type.shape[0] // extent) for first, count in attrs["roots"]):
        raise shape_error("shard_reduce", f"shards of {extent} of {type}", attrs["roots"], "check the roots")
    if not attrs.get("rounded"):
        return (TensorType((len(attrs["roots"]), numbers(attrs["combine"]), *type.shape[1:]), type.dtype),)
    if len(attrs["roots"]) != 1:
        raise shape_error("shard_reduce", "one root, which is rounded", attrs["roots"], "check the roots")
    return (TensorType(type.shape[1:], type.dtype),)


def _batched(attrs: Attrs, size: int) -> Attrs:
    raise AssertionError("programs are placed when all is batched")


class _Order:
    """How arrays of partial results are combined, element by element."""

    def __init__(self, combine: str) -> None:
        self.sums = combine == "add"
        reference = elementwise.ROWS[combine].reference
        assert reference is not None
        self._reference = reference

    def pair(self, x: Array, y: Array) -> Array:
        (found,) = self._reference({}, x, y)
        return found

    def added(self, so_far: Partial, x: Array) -> Partial:
        now = self.pair(so_far[0], x)
        return (now, so_far[1] + (x - (now - so_far[0]))) if self.sums else (now,)

    def merged(self, x: Partial, y: Partial) -> Partial:
        now = self.pair(x[0], y[0])
        if not self.sums:
            return (now,)
        moved = now - x[0]
        return now, (x[1] + y[1]) + ((y[0] - moved) - ((now - moved) - x[0]))

    def rounded(self, partial: Partial) -> Partial:
        """As one number (`codegen/math/compensated.py`)."""
        if not self.sums:
            return partial
        total, value = partial[0], self.pair(*partial)
        return (np.where((value < total) | (total < value), value, total),)

    def by_pairs(self, partial: Partial) -> Partial:
        """Neighbours along the second axis, of a power of two of elements."""
        while partial[0].shape[1] > 1:
            partial = self.merged(*[tuple([v[:, i::2] for v in partial]) for i in (0, 1)])
        return tuple([v[:, 0] for v in partial])

    def by_halves(self, partial: Partial) -> Partial:
        """Likewise along the third axis."""
        while (half := partial[0].shape[2] // 2) > 0:
            partial = self.merged(*[tuple([v[:, :, i : i + half] for v in partial]) for i in (0, half)])
        return tuple([v[:, :, 0] for v in partial])


def _extended(x: Array, axis: int, extent: int, nothing: Any) -> Array:
    """With identities behind its elements, which change nothing."""
    missing = (*x.shape[:axis], extent - x.shape[axis], *x.shape[axis + 1 :])
    return np.concatenate([x, np.full(missing, nothing, x.dtype)], axis=axis)


def _shard_reduce(attrs: Attrs, x: Array) -> tuple[Array]:
    combine, extent = attrs["combine"], attrs["extent"]
    dtype, order = dtype_named(x.dtype.name), _Order(combine)
    nothing, width, each = NOTHING[combine], columns(dtype, extent), part_extent(extent)
    shards, kept = -(-x.shape[0] // extent), x.shape[1:]
    parts = 1 << (-(-extent // each) - 1).bit_length()
    high = -(-each // (TOGETHER * width)) * TOGETHER
    x = _extended(x, 0, shards * extent, nothing).reshape(shards, extent, *kept)
    x = _extended(x, 1, parts * each, nothing).reshape(shards, parts, each, *kept)
    x = _extended(x, 2, high * width, nothing).reshape(shards, parts, high, width, *kept)
    so_far: Partial = (np.full((shards, parts, width, *kept), nothing, x.dtype),) * numbers(combine)
    with np.errstate(all="ignore"):
        for r in range(0, high, TOGETHER):
            rows = [x[:, :, r + i] for i in range(TOGETHER)]
            while len(rows) > 1:
                rows = [order.pair(a, b) for a, b in zip(rows[::2], rows[1::2], strict=True)]
            so_far = order.added(so_far, rows[0])
        shard = order.by_pairs(order.by_halves(so_far))
        found = np.empty((len(attrs["roots"]), numbers(combine), *kept), x.dtype)
        for number, (first, count) in enumerate(attrs["roots"]):
            level = 1 << (count - 1).bit_length()
            own = tuple([_extended(v[None, first : first + count], 1, level, nothing) for v in shard])
            root = order.by_pairs(own)
            found[number] = [v[0] for v in root]
        return (np.asarray(order.rounded(root)[0][0]) if attrs.get("rounded") else found,)


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="shard_reduce", public=None, kind=Kind.SHARDS, kinds="f", infer=_infer, reference=_shard_reduce,
        batched=_batched, exact=always_exact, heavy=True, not_differentiable="programs are placed when all is derived",
    ),
)  # fmt: skip
