"""`x.at[index].set(v)` and its siblings.

An update returns a new tensor. Updates that meet at one element are combined (`set`: the last one
wins); an index that is data and out of range is dropped. A region given by slices and ints is written
with a select over the whole tensor, which fuses with its surroundings; rows of large tensors and
everything indexed by data become a scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.location import user_location
from loopgrad.graph.nodes import Noted, Value
from loopgrad.graph.types import TensorType, bool_, int64
from loopgrad.lazy.numpy.elementwise import add, divide, maximum, minimum, multiply, negative, power
from loopgrad.lazy.numpy.indexing import FULL, IndexPlan, get_item, slice_spans
from loopgrad.lazy.numpy.positions_out_of_range import plan_by_mode, read_by_mode, reading_mode
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    TensorCore,
    as_tensor,
    broadcast_value,
    cast_operand,
    constant,
    is_scalar,
    wrap,
)
from loopgrad.lazy.tensor.operands import Shape, joined_shape, positions
from loopgrad.lazy.tensor.promotion import promote, promote_weak, scalar_dtype
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

_POSITION: Final = TensorType((), int64)
_SET: Final = {"kind": "set"}
# A row addressed by ints in a tensor of more elements is scattered: only the row is touched.
_SMALL: Final = 64

_COMBINE: Final[dict[str, Callable[[Any, Any], Any] | None]] = {
    "set": None,
    "add": add,
    "mul": multiply,
    "min": minimum,
    "max": maximum,
}


class How(TypedDict, total=False):
    """JAX's keywords of updates."""

    mode: str | None
    indices_are_sorted: bool
    unique_indices: bool


class At:
    """`x.at`: subscript it, then say how to update."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __getitem__(self, index: Any) -> AtIndex:
        return AtIndex(self._tensor, index)


class AtIndex:
    """`x.at[index]`: every method returns a new tensor."""

    __slots__ = ("_index", "_tensor")

    def __init__(self, tensor: Tensor, index: Any) -> None:
        self._tensor = tensor
        self._index = index

    def get(
        self, *, mode: str | None = None, fill_value: ArrayLike | None = None, indices_are_sorted: bool = False,
        unique_indices: bool = False,
    ) -> Tensor:  # fmt: skip
        """`x[index]`, a copy: what is out of range and data is clamped; dtype and shape are those of the subscript.

        `mode` "fill" (or "drop") gives `fill_value` where a position is out of range; None is NaN, the smallest signed
        or largest unsigned integer, True; a `fill_value` alone means that. "clip" and "promise_in_bounds" clamp. With a
        mode ints are data, too. JAX's `indices_are_sorted` and `unique_indices` change nothing. Raises ValueError for
        another mode, also beside a fill_value, DTypeError for a fill_value that doesn't fit x's dtype.

        >>> lg.arange(3).at[lg.asarray([1, 9])].get()
        Tensor([1, 2], dtype=int64)
        >>> lg.arange(3).at[lg.asarray([1, 9])].get(mode="fill", fill_value=-1)
        Tensor([ 1, -1], dtype=int64)
        """
        mode = reading_mode("at[...].get", mode, fill_value)
        if mode is None:
            return get_item(self._tensor, self._index)
        return read_by_mode("at[...].get", self._tensor, self._index, mode, fill_value)

    def set(self, values: ArrayLike, **how: Unpack[How]) -> Tensor:
        """x with the elements replaced; where an index occurs twice the last one wins.

        `values` broadcast to the shape of `x[index]`, and must fit x's dtype (integers fit bools, where they are set):
        raises ShapeError or DTypeError. All methods here share that, and `mode`: positions out of range are dropped, as
        with "drop" or "fill", or with "clip" clamped; with a mode ints are data, too. JAX's `indices_are_sorted` and
        `unique_indices` change nothing.

        >>> lg.arange(4).at[1:3].set(9)
        Tensor([0, 9, 9, 3], dtype=int64)
        """
        return update("set", self._tensor, self._index, values, **how)

    def add(self, values: ArrayLike, **how: Unpack[How]) -> Tensor:
        """x with `values` added; repeated indices add up. Shapes, dtypes and errors are those of `set`.

        >>> lg.zeros(3).at[lg.asarray([0, 0, 2])].add([1.0, 2.0, 4.0])
        Tensor([3., 0., 4.], dtype=float64)
        """
        return update("add", self._tensor, self._index, values, **how)

    def subtract(self, values: ArrayLike, **how: Unpack[How]) -> Tensor:
        """x with `values` subtracted; repeated indices add up. Shapes, dtypes and errors are those of `set`.

        >>> lg.zeros(3).at[0].subtract(1.0)
        Tensor([-1.,  0.,  0.], dtype=float64)
        """
        taken = wrap(as_update("add", values, self._tensor._value))
        return update("add", self._tensor, self._index, negative(taken), **how)

    def multiply(self, values: ArrayLike, **how: Unpack[How]) -> Tensor:
        """x multiplied by `values`; repeated indices multiply. Shapes, dtypes and errors are those of `set`.

        >>> lg.ones(3).at[lg.asarray([0, 0])].multiply(3.0)
        Tensor([9., 1., 1.], dtype=float64)
        """
        return update("mul", self._tensor, self._index, values, **how)

    mul = multiply

    def divide(self, values: ArrayLike, **how: Unpack[How]) -> Tensor:
        """x divided by `values`; repeated indices divide repeatedly. Shapes, dtypes and errors are those of `set`.

        >>> lg.ones(3).at[1].divide(4.0)
        Tensor([1.  , 0.25, 1.  ], dtype=float64)
        """
        return update("mul", self._tensor, self._index, divide(1, values), **how)

    def min(self, values: ArrayLike, **how: Unpack[How]) -> Tensor:
        """The smaller of x and `values`, at repeated indices of all. Shapes, dtypes and errors are those of `set`.

        >>> lg.ones(3).at[lg.asarray([0, 0])].min([0.5, 0.25])
        Tensor([0.25, 1.  , 1.  ], dtype=float64)
        """
        return update("min", self._tensor, self._index, values, **how)

    def max(self, values: ArrayLike, **how: Unpack[How]) -> Tensor:
        """The larger of x and `values`, at repeated indices of all. Shapes, dtypes and errors are those of `set`.

        >>> lg.ones(3).at[lg.asarray([0, 0])].max([0.5, 2.0])
        Tensor([2., 1., 1.], dtype=float64)
        """
        return update("max", self._tensor, self._index, values, **how)

    def power(self, values: ArrayLike, **how: Unpack[How]) -> Tensor:
        """x to the power `values`; an index may occur once only. Shapes, dtypes and errors are those of `set`.

        >>> lg.asarray([2.0, 3.0]).at[1].power(2.0)
        Tensor([2., 9.], dtype=float64)
        """
        return update("set", self._tensor, self._index, power(self._taken(how), values), **how)

    def apply(self, function: Callable[[Tensor], Tensor], **how: Unpack[How]) -> Tensor:
        """x with `function` applied to the elements, as one tensor of their shape; an index may occur once only.

        What it returns is set: dtypes and errors are those of `set`.

        >>> lg.asarray([4.0, 9.0]).at[1].apply(lg.sqrt)
        Tensor([4., 3.], dtype=float64)
        """
        return update("set", self._tensor, self._index, function(self._taken(how)), **how)

    def _taken(self, how: How) -> Tensor:
        """The elements that an update starts from; what is made of others isn't written."""
        return self.get(mode="clip" if how.get("mode") else None)


@repeated
def update(
    kind: str, x: Tensor, index: Any, values: ArrayLike, *, mode: str | None = None, indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Tensor:  # fmt: skip
    """x with the elements at `index` combined with `values`."""
    masked = update_masked(kind, x, index, values)
    if masked is not None:
        return masked
    base = x._value
    incoming = as_update(kind, values, base)
    return wrap(updated(kind, base, plan_by_mode(f"at[...].{kind}", base.shape, index, mode), incoming))


def updated(kind: str, base: Value, plan: IndexPlan, incoming: Value) -> Value:
    """`base` with what a plan takes of it combined with new elements of its dtype."""
    if plan.widened is not None:
        wide = ops.reshape(base, plan.widened)
        return ops.reshape(updated(kind, wide, replace(plan, widened=None), incoming), base.shape)
    if plan.axes or _row_of_large(base.shape, plan):
        return _scattered(kind, base, plan, incoming)
    return _written(kind, base, plan, incoming)


def as_update(kind: str, values: ArrayLike, base: Value) -> Value:
    """The new elements in the tensor's dtype."""
    if is_scalar(values):
        if kind == "set" and base.dtype is bool_ and scalar_dtype(values).is_integer:
            return as_tensor(values, bool_)._value
        if promote_weak(base.dtype, scalar_dtype(values)) is not base.dtype:
            raise _lossy(kind, scalar_dtype(values), base)
        return as_tensor(values, base.dtype)._value
    t = as_tensor(values)
    dtype = t._value.dtype
    joined = promote_weak(base.dtype, dtype) if t._weak else promote(base.dtype, dtype)
    if kind == "set" and base.dtype is bool_ and dtype.is_integer:  # whether they aren't 0, as in NumPy
        return cast_operand(t, bool_)
    if joined.kind != base.dtype.kind:  # the same kind in fewer bits is rounded, or wraps, as in NumPy
        raise _lossy(kind, dtype, base)
    return cast_operand(t, base.dtype)


def _lossy(kind: str, dtype: object, base: Value) -> DTypeError:
    fix = "convert one of them with .astype"
    return DTypeError(explained(f"at[...].{kind}", f"values that fit {base.dtype}", f"{dtype} values", fix))


def _fitted(kind: str, incoming: Value, shape: Shape) -> Value:
    """The new elements stretched to the region they go to."""
    extra = len(incoming.shape) - len(shape)
    if extra > 0 and all(n == 1 for n in incoming.shape[:extra]):
        incoming = ops.reshape(incoming, incoming.shape[extra:])
    if len(incoming.shape) > len(shape) or joined_shape(f"at[...].{kind}", (incoming.shape, shape)) != shape:
        fix = "reshape or reduce the values"
        raise ShapeError(explained(f"at[...].{kind}", f"values that stretch to {shape}", incoming.shape, fix))
    return broadcast_value(incoming, shape)


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([perm.index(i) for i in range(len(perm))])


# ---- regions of slices and ints


def _row_of_large(shape: Shape, plan: IndexPlan) -> bool:
    """Whether the plan picks one position on the leading axes, everything else whole, of a large tensor."""
    if plan.spans is None or prod(shape) <= _SMALL:
        return False
    leading = _single_axes(shape, plan)
    return leading > 0 and all(s == (0, n, 1) for s, n in zip(plan.spans[leading:], shape[leading:], strict=True))


def _single_axes(shape: Shape, plan: IndexPlan) -> int:
    assert plan.spans is not None
    count = 0
    for (start, stop, step), extent in zip(plan.spans, shape, strict=True):
        if stop != start + 1 or step != 1 or extent == 1:
            break
        count += 1
    return count


def _written(kind: str, base: Value, plan: IndexPlan, incoming: Value) -> Value:
    new = ops.reshape(ops.transpose(_fitted(kind, incoming, plan.shape), _inverse(plan.perm)), plan.gathered)
    old = base if plan.spans is None else slice_spans(base, plan.spans)
    return _put_back(base, plan, _combined(kind, old, ops.reshape(new, old.shape)))


def _combined(kind: str, old: Value, new: Value) -> Value:
    combine = _COMBINE[kind]
    return new if combine is None else combine(wrap(old), wrap(new))._value


def _put_back(base: Value, plan: IndexPlan, region: Value) -> Value:
    """`base` with the region of the plan's spans replaced."""
    spans = plan.spans
    if spans is None:
        return region
    if not prod(region.shape):
        return base
    # a negative step walks the same elements backwards
    backwards = [a for a, s in enumerate(spans) if s[2] < 0]
    region = ops.flip(region, backwards)
    strided = [a for a, s in enumerate(spans) if abs(s[2]) != 1]
    if strided:
        return _put_back_strided(base, spans, region)
    low = [_lowest(s, n) for s, n in zip(spans, region.shape, strict=True)]
    high = [e - a - n for e, a, n in zip(base.shape, low, region.shape, strict=True)]
    inside = ops.pad(constant(True, TensorType(region.shape, bool_)), low, high, False)
    return ops.select(inside, ops.pad(region, low, high, 0), base)


def _lowest(span: tuple[int, int | None, int], count: int) -> int:
    start, _, step = span
    return start if step > 0 else start + (count - 1) * step


def _put_back_strided(base: Value, spans: Any, region: Value) -> Value:
    """Positions along each axis as index arrays: one scatter."""
    indices = []
    for axis, (span, count) in enumerate(zip(spans, region.shape, strict=True)):
        counter = positions(region.shape, axis)
        indices.append(ops.add(ops.mul(counter, abs(span[2])), _lowest(span, count)))
    return ops.scatter("set", base, indices, region)


# ---- positions that are data


def _scattered(kind: str, base: Value, plan: IndexPlan, incoming: Value) -> Value:
    if not plan.axes:
        plan = _row_plan(base.shape, plan)
    new = ops.transpose(_fitted(kind, incoming, plan.shape), _inverse(plan.perm))
    old = base if plan.spans is None else slice_spans(base, plan.spans)
    table = ops.transpose(old, plan.order)
    result = computed("scatter", table, *plan.indices, ops.reshape(new, plan.gathered), kind=kind)
    return _put_back(base, plan, ops.transpose(result, _inverse(plan.order)))


def _row_plan(shape: Shape, plan: IndexPlan) -> IndexPlan:
    """The plan of a row given by ints, as one of scalar indices."""
    assert plan.spans is not None
    axes = tuple(range(_single_axes(shape, plan)))
    positions = tuple([constant(plan.spans[a][0], TensorType((), int64)) for a in axes])
    gathered = shape[len(axes) :]
    return IndexPlan(None, axes, positions, tuple(range(len(shape))), gathered, plan.expanded, plan.perm)


def row_set(base: Value, places: Sequence[int], values: Any) -> Value | None:
    """What `update` notes at the top level where a row of a large array, given by numbers, is set to one of the same
    type, in a tenth of the time: scripts write one after the other. None where more is to be looked at."""
    type, count = base.type, len(places)
    if not isinstance(type, TensorType) or not isinstance(values, TensorCore) or type.size <= _SMALL:
        return None
    if count > len(type.shape):
        return None
    row, shape = values._value, type.shape
    if values._weak or base.scope is not None or row.scope is not None or row.type.shape != shape[count:]:  # type: ignore[union-attr]
        return None
    if row.dtype is not type.dtype or type.dtype.kind == "c" or 1 in shape[:count]:
        return None
    loc, positions = user_location(1), []
    for place, extent in zip(places, shape, strict=False):
        if not -extent <= place < extent:
            return None
        attrs = {"value": place if place >= 0 else place + extent, "type": _POSITION}
        positions.append(Noted(_POSITION, "const", (), attrs, loc))
    return Noted(type, "scatter", (base, *positions, row), _SET, loc)


# ---- masks


def _leading_mask(index: Any) -> Tensor | None:
    """The mask where `index` is one, alone or followed by nothing but full slices."""
    items = index if isinstance(index, tuple) else (index,)
    first = items[0] if items else None
    if isinstance(first, bool | int | slice) or first is None or first is Ellipsis:
        return None
    if any(not (isinstance(i, slice) and i == FULL) and i is not Ellipsis for i in items[1:]):
        return None
    tensor = as_tensor(first)
    return tensor if tensor._value.dtype is bool_ else None


def update_masked(kind: str, x: Tensor, index: Any, values: ArrayLike) -> Tensor | None:
    """The update where `index` is a mask that chooses with a select; None where it isn't."""
    mask = _leading_mask(index)
    if mask is None or (mask._value.scope is None and prod(as_tensor(values)._value.shape) != 1):
        return None
    base = x._value
    rank = len(mask._value.shape)
    if base.shape[:rank] != mask._value.shape:
        axes = zip(mask._value.shape, base.shape[:rank], strict=False)
        if 0 in mask._value.shape and rank <= len(base.shape) and all(m in (0, n) for m, n in axes):
            return wrap(base)
        fix = "the mask's shape must be that of the leading axes"
        raise ShapeError(explained("mask", f"shape {base.shape[:rank]}", mask._value.shape, fix))
    new = as_update(kind, values, base)
    if new.shape and prod(new.shape) != 1 and new.shape[:1] != (1,) and len(new.shape) > len(base.shape) - rank:
        fix = "use lg.where(mask, values, x) with values for every position"
        raise ShapeError(explained("x.at[mask]", "a scalar while a function is traced", new.type, fix))
    inside = ops.broadcast_leading(mask._value, base.shape)
    result = _combined(kind, base, _fitted(kind, new, base.shape))
    return where(wrap(inside), wrap(result), wrap(base))
