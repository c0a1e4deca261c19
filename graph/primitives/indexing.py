"""Indexing with data: gather and scatter.

    gather   (x, i_0 .. i_{m-1})            -> I + x.shape[m:]
    scatter  (x, i_0 .. i_{m-1}, updates)   attrs kind: add mul min max set -> x's type

The indices share one integer dtype and one shape I; index j addresses dim j of x. Gather clamps an index
to its dim (a dim of extent 0 reads as 0), scatter drops the update. Negative indices are out of range
like any other. Updates that meet are combined in row-major order of I: for `set` the last one wins.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import intervals
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    Kind,
    Primitive,
    Types,
    added_in,
    always_exact,
    dtype_error,
    require_kinds,
    shape_error,
    sized,
    table,
    tensor_type,
    types_text,
)
from loopgrad.graph.types import TensorType

# kind -> (kinds of dtype allowed, ufunc that combines an element with its update)
COMBINE: Final[dict[str, tuple[str, np.ufunc | None]]] = {
    "add": ("iufc", np.add),
    "mul": ("iuf", np.multiply),
    "min": ("iuf", np.minimum),
    "max": ("iuf", np.maximum),
    "set": ("biufc", None),
}


def _index_shape(op: str, table: TensorType, indices: tuple[Value, ...]) -> tuple[int, ...]:
    if not 1 <= len(indices) <= len(table.shape):
        raise shape_error(
            op, f"between 1 and {len(table.shape)} indices into {table}", len(indices), "index fewer dimensions"
        )
    first = tensor_type(op, indices[0])
    for v in indices:
        t = tensor_type(op, v)
        if not t.dtype.is_integer or t.dtype is not first.dtype:
            raise dtype_error(op, "indices of one integer dtype", types_text(indices), "cast the indices first")
        if t.shape != first.shape:
            raise shape_error(op, "indices of one shape", types_text(indices), "broadcast the indices first")
    return first.shape


def _infer_gather(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    table, indices = tensor_type("gather", operands[0]), operands[1:]
    shape = _index_shape("gather", table, indices)
    return (sized("gather", shape + table.shape[len(indices) :], table.dtype),)


def _infer_scatter(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    table, indices, updates = tensor_type("scatter", operands[0]), operands[1:-1], tensor_type("scatter", operands[-1])
    kind: str = attrs["kind"]
    if kind not in COMBINE:
        raise dtype_error("scatter", f"a kind of {', '.join(COMBINE)}", kind, "use one of these")
    require_kinds(f"scatter {kind}", table, COMBINE[kind][0])
    expected = TensorType(_index_shape("scatter", table, indices) + table.shape[len(indices) :], table.dtype)
    if updates.dtype is not table.dtype:
        raise dtype_error("scatter", f"updates of type {expected}", updates, "cast the updates first")
    if updates.shape != expected.shape:
        raise shape_error("scatter", f"updates of type {expected}", updates, "broadcast the updates first")
    return (table,)


def _gather(attrs: Attrs, x: Array, *indices: Array) -> tuple[Array]:
    m = len(indices)
    if 0 in x.shape[:m]:
        return (np.zeros(indices[0].shape + x.shape[m:], dtype=x.dtype),)
    # two functions of elements in place of `np.clip`, which takes ten times as long for a few
    clamped = [np.minimum(np.maximum(_wide(i), 0), n - 1) for i, n in zip(indices, x.shape[:m], strict=True)]
    return (np.asarray(x[tuple(clamped)]),)


def _wide(index: Array) -> Array:
    """As int64; what only uint64 can hold stays out of range."""
    if index.dtype == np.uint64:
        index = np.minimum(index, np.uint64(2**63 - 1))
    return index.astype(np.int64, copy=False)


def scatter_array(kind: str, x: Array, indices: tuple[Array, ...], updates: Array, active: Array | None) -> Array:
    """`scatter` on arrays; `active`, where given, has the shape of the indices and drops the other updates."""
    m = len(indices)
    if kind == "set" and active is None and not any(i.shape for i in indices):
        place, changed = tuple([int(i) for i in indices]), x.copy()
        if all(0 <= i < n for i, n in zip(place, x.shape[:m], strict=True)):
            changed[place] = updates  # one row, of thousands that a script sets one after the other
        return changed
    wide = [_wide(i) for i in indices]
    keep = np.ones(wide[0].shape, dtype=np.bool_) if active is None else active.copy()
    for i, n in zip(wide, x.shape[:m], strict=True):
        keep &= (i >= 0) & (i < n)
    where = tuple([i[keep] for i in wide])
    combine = COMBINE[kind][1]
    result = x.astype(added_in(x.dtype)) if kind == "add" else x.copy()
    with np.errstate(all="ignore"):
        if combine is None:
            result[where] = updates[keep]
        else:
            combine.at(result, where, updates[keep].astype(result.dtype, copy=False))
        return result.astype(x.dtype, copy=False)


def _scatter(attrs: Attrs, x: Array, *rest: Array) -> tuple[Array]:
    return (scatter_array(attrs["kind"], x, rest[:-1], rest[-1], None),)


def _gather_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    """Window dims of the table and all dims of the indices survive; looked-up dims don't."""
    if operand:
        return axes
    m = len(node.operands) - 1
    if any(a < m for a in axes):
        return None
    return tuple([len(node.operands[1].shape) + a - m for a in axes])


def _scatter_exact(node: Node) -> bool:
    return node.attrs["kind"] == "set" or node.operands[0].dtype.kind in "biu"


def _scatter_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    """Window dims survive: of the table as they are, of the updates at the table's position."""
    m = len(node.operands) - 2
    if operand == 0:
        return None if any(a < m for a in axes) else axes
    rank = len(node.operands[1].shape)
    if operand <= m or any(a < rank for a in axes):
        return None
    return tuple([a - rank + m for a in axes])


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="gather", public=None, kind=Kind.INDEXING, infer=_infer_gather, reference=_gather,
        interval=intervals.gather, axes=_gather_axes, linear=True, cost=4.0,
        exact=always_exact,
    ),
    Primitive(
        name="scatter", public=None, kind=Kind.INDEXING, infer=_infer_scatter, reference=_scatter,
        interval=intervals.scatter, axes=_scatter_axes, heavy=True, updates=True,
        exact=_scatter_exact,
    ),
)  # fmt: skip
