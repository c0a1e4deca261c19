"""`x[index]`, and what a subscript means.

NumPy's rules: ints, slices of any step, None, Ellipsis, integer arrays and tensors (which may depend
on data), lists, bool masks. A Python int out of range raises; an index that is data is clamped, after
negative ones have been counted from the end.

`plan_index` turns a subscript into four steps, which updates (`lazy.numpy.at_updates`) run backwards:

    slice -> gather over the indexed axes, moved to the front -> reshape (new axes) -> transpose

A mask has a result whose shape depends on data: outside tracing it is evaluated; while tracing it is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.build import emit_element
from loopgrad.graph.errors import DTypeError, IndexRangeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.ranges import may_lie_in
from loopgrad.graph.types import DType, TensorType, bool_, int32, int64, uint64
from loopgrad.lazy.tensor.core import (
    TensorCore,
    array_leaf,
    as_tensor,
    broadcast_value,
    cast_value,
    constant,
    wrap,
)
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.operands import Shape, joined_shape
from loopgrad.lazy.tensor.promotion import promote

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

FULL = slice(None)


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """`widened`, where it isn't None, is the shape to read the array in first: with an axis of extent 1 for each mask
    without axes. `spans` is None where every slice is full. `axes` are indexed by `indices` (equal shapes,
    negative positions resolved); `order` moves them to the front; `expanded` and `perm` give the
    result its new axes and its order."""

    spans: tuple[tuple[int, int | None, int], ...] | None
    axes: tuple[int, ...]
    indices: tuple[Value, ...]
    order: tuple[int, ...]
    gathered: Shape
    expanded: Shape
    perm: tuple[int, ...]
    widened: Shape | None = None

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return tuple([self.expanded[p] for p in self.perm])


def get_item(x: Tensor, index: Any) -> Tensor:
    """The elements of `x[index]`, in memory of their own."""
    value = x._value
    return wrap(read(value, plan_index(value.shape, index)), x._weak)


def read(value: Value, plan: IndexPlan) -> Value:
    """The elements that a plan takes of a value. Raises IndexRangeError for positions along an axis without elements:
    there is none that they could be clamped to."""
    value = value if plan.widened is None else ops.reshape(value, plan.widened)
    if plan.spans is not None:
        value = slice_spans(value, plan.spans)
    if plan.axes:
        _check_not_empty(value.shape, plan)
        value = ops.gather(ops.transpose(value, plan.order), *plan.indices)
    return ops.transpose(ops.reshape(value, plan.expanded), plan.perm)


def _check_not_empty(shape: Shape, plan: IndexPlan) -> None:
    empty = [axis for axis in plan.axes if not shape[axis]]
    if empty and 0 not in plan.indices[0].shape:
        fix = "read only what is there, or pass mode='fill' to lg.take"
        raise IndexRangeError(explained("index", f"no position along axis {empty[0]}", f"shape {shape}", fix))


def element(vector: Value, index: int) -> Value:
    """`x[i]` of a vector, as a plan reads it: the commonest subscript of all."""
    extent = vector.shape[0]
    place = _position(index, extent, 0)
    return ops.reshape(vector, ()) if extent == 1 else emit_element(vector, place)


def _without_scalar_masks(shape: Shape, index: Any) -> tuple[Shape, Any]:
    """The index, and the shape of what it is used on, where a mask without axes (True, False) takes all of a new axis
    of extent 1, or nothing of it: what such a mask means in NumPy."""
    items = index if isinstance(index, tuple) else (index,)
    if not any(map(_is_scalar_mask, items)):
        return shape, index
    axes, chosen = list(shape), list(items)
    for at, item in enumerate(items):
        if _is_scalar_mask(item):
            before, after = chosen[:at], items[at + 1 :]
            counted_from_end = any(i is Ellipsis for i in before)
            axis = len(axes) - sum(map(_axes_of, after)) if counted_from_end else sum(map(_axes_of, before))
            axes.insert(axis, 1)
            chosen[at] = np.zeros(int(_scalar_mask(item)), np.int64)
    return tuple(axes), tuple(chosen)


def _is_scalar_mask(item: Any) -> bool:
    if isinstance(item, bool | np.bool_):
        return True
    if isinstance(item, TensorCore):
        return item._value.dtype is bool_ and not item._value.shape
    return isinstance(item, np.ndarray) and item.dtype == np.bool_ and not item.shape


def _scalar_mask(item: Any) -> bool:
    if isinstance(item, TensorCore) and item._value.scope is not None:
        raise _mask_refused(item._value)
    return bool(to_numpy(item, "index")) if isinstance(item, TensorCore) else bool(item)


def _axes_of(item: Any) -> int:
    """How many axes one subscript takes."""
    if item is None or item is Ellipsis or _is_scalar_mask(item):
        return 0
    if isinstance(item, int | slice | np.integer):
        return 1
    t = as_tensor(item)._value
    return len(t.shape) if t.dtype is bool_ else 1


def slice_spans(value: Value, spans: Sequence[tuple[int, int | None, int]]) -> Value:
    """One (start, stop, step) per axis."""
    starts, stops, steps = zip(*spans, strict=True)
    return ops.slice(value, starts, stops, steps)


# ---- reading a subscript


def plan_index(shape: Shape, index: Any) -> IndexPlan:
    """What `x[index]` does to an `x` of that shape."""
    numbers = (index,) if type(index) is int else index if type(index) is tuple else ()
    if 0 < len(numbers) <= len(shape) and {int}.issuperset(map(type, numbers)):
        return _numbers_plan(shape, numbers)
    wide, index = _without_scalar_masks(shape, index)
    if wide != shape:
        return replace(plan_index(wide, index), widened=wide)
    items = _expand(shape, index if isinstance(index, tuple) else (index,))
    spans: list[tuple[int, int | None, int]] = []
    axes: list[int] = []
    arrays: list[Any] = []
    kinds: list[str] = []  # per item: new, dots (of no axes), keep, int, array
    axis = 0
    for item in items:
        if item is None or item is Ellipsis:
            kinds.append("new" if item is None else "dots")
            continue
        extent = shape[axis]
        if isinstance(item, slice):
            kinds.append("keep")
            spans.append(_span(item, extent))
        elif isinstance(item, TensorCore):
            kinds.append("array")
            axes.append(axis)
            arrays.append(item)
            spans.append((0, extent, 1))
        else:
            kinds.append("int")
            axes.append(axis)
            arrays.append(_position(item, extent, axis))
            spans.append((0, extent, 1))
        axis += 1
    if "array" not in kinds:
        return _basic_plan(shape, kinds, spans, axes, arrays)
    return _advanced_plan(shape, kinds, spans, axes, arrays)


def _expand(shape: Shape, items: tuple[Any, ...]) -> list[Any]:
    """Masks, missing axes and an Ellipsis that stands for some written out; array-likes as tensors."""
    expanded: list[Any] = []
    extents: dict[int, int] = {}  # id of a mask's positions -> the mask's extent along their axis
    for item in items:
        expanded.extend(_indices(item, extents))
    used = sum(1 for i in expanded if i is not None and i is not Ellipsis)
    dots = sum(1 for i in expanded if i is Ellipsis)
    if dots > 1:
        raise IndexError(explained("index", "at most one ...", dots, "write ':' for the other axes"))
    missing = len(shape) - used
    if missing < 0:
        fix = "index fewer axes"
        raise IndexRangeError(explained("index", f"at most {len(shape)} indices for shape {shape}", used, fix))
    at = next((i for i, item in enumerate(expanded) if item is Ellipsis), len(expanded))
    if missing:
        expanded[at : at + dots] = [FULL] * missing
    _check_masks(shape, expanded, extents)
    return expanded


def _check_masks(shape: Shape, expanded: Sequence[Any], extents: Mapping[int, int]) -> None:
    """A mask must have the extents of the axes that it indexes, or none at all."""
    axes = [item for item in expanded if item is not None and item is not Ellipsis]
    for axis, item in enumerate(axes):
        extent = extents.get(id(item), shape[axis])
        if extent not in (0, shape[axis]):
            expected, got = f"a mask of extent {shape[axis]} for axis {axis} of shape {shape}", f"extent {extent}"
            raise IndexRangeError(explained("index", expected, got, "make the mask from the array it indexes"))


def _indices(item: Any, extents: dict[int, int]) -> list[Any]:
    """One subscript as slices, None, Ellipsis, ints and integer tensors (a mask gives several)."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return [item]
    if isinstance(item, int | np.integer):
        return [int(item)]
    if not isinstance(item, TensorCore) and isinstance(item, list) and not item:
        item = np.zeros(0, dtype=np.int64)
    tensor = as_tensor(item) if not hasattr(item, "__index__") or isinstance(item, TensorCore | np.ndarray) else None
    if tensor is None:
        return [int(item.__index__())]
    kind = tensor._value.dtype.kind
    if kind == "b":
        found = _mask_positions(tensor)
        extents.update(zip(map(id, found), tensor._value.shape, strict=True))
        return list(found)
    if kind not in "iu":
        fix = "convert it with .astype(lg.int64)"
        raise DTypeError(explained("index", "integers or a bool mask", tensor._value.type, fix))
    return [tensor]


def _mask_positions(mask: Tensor) -> list[Tensor]:
    if mask._value.scope is not None:
        raise _mask_refused(mask._value)
    return [wrap(array_leaf(p)) for p in np.nonzero(to_numpy(mask, "index"))]


def _mask_refused(mask: Value) -> DTypeError:
    fix = "use lg.where(mask, x, fill), a reduction of it, or x.at[mask].set(value)"
    got = f"a mask {mask.type}: the number of selected elements, and so the result's shape, depends on data"
    return DTypeError(explained("index", "ints, slices or integer arrays while a function is traced", got, fix))


def _span(item: slice, extent: int) -> tuple[int, int | None, int]:
    for part in (item.start, item.stop, item.step):
        if isinstance(part, TensorCore) and part._value.scope is not None:
            fix = "take a fixed number of elements: x[start + lg.arange(n)], or name n in static_argnums"
            raise DTypeError(explained("slice", "Python ints while a function is traced", part._value.type, fix))
    try:
        start, stop, step = item.indices(extent)
    except (TypeError, ValueError) as error:  # floats and strings; a step of 0
        kind = IndexRangeError if isinstance(error, ValueError) else DTypeError
        raise kind(explained("slice", "ints or None, and a step other than 0", item, "convert with int(...)")) from None
    if not len(range(start, stop, step)):
        return 0, 0, 1
    return start, None if stop < 0 else stop, step


def _position(item: int, extent: int, axis: int) -> int:
    if not -extent <= item < extent:
        limits = f"an index from {-extent} to {extent - 1}" if extent else "no index"
        raise IndexRangeError(explained("index", f"{limits} for axis {axis} of {extent}", item, "check the bounds"))
    return item + extent if item < 0 else item


# ---- plans


def _basic_plan(
    shape: Shape, kinds: Sequence[str], spans: list[tuple[int, int | None, int]], axes: list[int], positions: list[int]
) -> IndexPlan:
    for axis, position in zip(axes, positions, strict=True):
        spans[axis] = (position, position + 1, 1)
    expanded: list[int] = []
    axis = 0
    for kind in kinds:
        if kind in ("new", "dots"):
            expanded.extend([1] if kind == "new" else [])
            continue
        if kind == "keep":
            expanded.append(_length(spans[axis], shape[axis]))
        axis += 1
    trivial = all(s == (0, n, 1) for s, n in zip(spans, shape, strict=True))
    kept = tuple(expanded)
    return IndexPlan(None if trivial else tuple(spans), (), (), (), kept, kept, tuple(range(len(kept))))


def _numbers_plan(shape: Shape, numbers: tuple[int, ...]) -> IndexPlan:
    """What `x[i]` and `x[i, j]` do, which scripts are full of."""
    places = [_position(i, extent, axis) for axis, (i, extent) in enumerate(zip(numbers, shape, strict=False))]
    kept = shape[len(places) :]
    trivial = shape[: len(places)] == (1,) * len(places)
    spans = None if trivial else (*[(i, i + 1, 1) for i in places], *[(0, extent, 1) for extent in kept])
    return IndexPlan(spans, (), (), (), kept, kept, tuple(range(len(kept))))


def _length(span: tuple[int, int | None, int], extent: int) -> int:
    return len(range(*slice(*span).indices(extent)))


def _advanced_plan(
    shape: Shape, kinds: Sequence[str], spans: list[tuple[int, int | None, int]], axes: list[int], arrays: list[Any]
) -> IndexPlan:
    sliced = tuple([_length(s, n) for s, n in zip(spans, shape, strict=True)])
    indices = index_values(arrays, [shape[a] for a in axes])
    lanes = indices[0].shape
    rest = [a for a in range(len(shape)) if a not in axes]
    extents = iter([sliced[a] for a in rest])
    kept = [1 if kind == "new" else next(extents) for kind in kinds if kind in ("new", "keep")]
    perm = tuple(range(len(lanes) + len(kept)))
    where = [i for i, kind in enumerate(kinds) if kind in ("int", "array")]
    if lanes and where[-1] - where[0] == len(where) - 1:  # adjacent, also without dots of no axes: they stay in place
        before = len(lanes) + sum(1 for kind in kinds[: where[0]] if kind != "dots")
        perm = (*range(len(lanes), before), *range(len(lanes)), *range(before, len(perm)))
    trivial = sliced == shape and all(s[2] == 1 for s in spans)
    gathered = lanes + tuple([sliced[a] for a in rest])
    order = (*axes, *rest)
    return IndexPlan(
        None if trivial else tuple(spans), tuple(axes), indices, order, gathered, lanes + tuple(kept), perm
    )


def index_values(arrays: Sequence[Any], extents: Sequence[int]) -> tuple[Value, ...]:
    """Ints and integer tensors as index values: one dtype, one shape, negative ones counted from the end."""
    dtype = _index_dtype([a._value.dtype for a in arrays if isinstance(a, TensorCore)], extents)
    shape = joined_shape("index", [a._value.shape for a in arrays if isinstance(a, TensorCore)])
    result = []
    for item, extent in zip(arrays, extents, strict=True):
        if isinstance(item, TensorCore):
            wrapped = _from_end(_as_index(item._value, dtype), extent)
            result.append(broadcast_value(wrapped, shape))
        else:
            result.append(constant(item, TensorType(shape, dtype)))
    return tuple(result)


def _as_index(value: Value, dtype: DType) -> Value:
    """An index in the dtype of all of them; what only uint64 holds stays beyond every extent."""
    if value.dtype is uint64 and dtype is not uint64:
        value = ops.min(value, 2**63 - 1)
    return cast_value(value, dtype)


def _index_dtype(dtypes: Sequence[DType], extents: Sequence[int]) -> DType:
    """The narrowest of int32, int64 and the given ones that holds every position and negative."""
    joined = dtypes[0]
    for d in dtypes[1:]:
        joined = promote(joined, d)
    if joined.kind == "f":
        return int64
    if joined.bits < 32 or joined is int32:
        return int32 if max(extents) < 2**31 else int64
    return joined


def _from_end(index: Value, extent: int) -> Value:
    if index.dtype.kind == "u" or not may_lie_in(index, -extent, -1):
        return index
    return ops.select(ops.lt(index, 0), ops.add(index, extent), index)
