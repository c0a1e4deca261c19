"""Subscripts that share memory, assignment, and in-place operators.

`x[0]`, `x[1:, None]` and `x[k]` with a number k (also one that depends on data) are views, as in NumPy; masks,
lists and index arrays make copies, and what has no axes left is a number, unless the subscript has an Ellipsis.

`M[i] += v` is three steps in Python: `row = M[i]`, `row += v`, which writes to M, and `M[i] = row`, which is known
to change nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from sys import _getframe
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.ambient import AMBIENT
from loopgrad.graph.build import ELEMENT, element_again, note_places, places_again
from loopgrad.graph.expressions import Expression
from loopgrad.graph.location import LOCATIONS, user_location
from loopgrad.graph.nodes import Value
from loopgrad.lazy.numpy.at_updates import row_set, update, updated
from loopgrad.lazy.numpy.indexing import IndexPlan, element, plan_index, read
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, held, passing, wrap
from loopgrad.lazy.tensor.operands import positions
from loopgrad.lazy.tensor.repeated_calls import Calls
from loopgrad.lazy.tensor.storage import as_array, is_number, viewed, whole, write, written_to
from loopgrad.lazy.tensor.view_steps import Layout, Step, WritableStep

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor


_INTEGERS: Final = frozenset({int})


class Subscript(WritableStep):
    """What a plan takes whose indices have no axes. `key` tells the subscript from others."""

    __slots__ = ("_plan", "key")

    def __init__(self, plan: IndexPlan | tuple[int, ...], key: Any = None) -> None:
        self._plan = plan  # or the shape that it is made for when somebody asks: few write to a row that they read
        self.key = key

    @property
    def plan(self) -> IndexPlan:
        if not isinstance(self._plan, IndexPlan):
            self._plan = plan_index(self._plan, self.key)
        return self._plan

    def forward(self, base: Value) -> Value:
        return read(base, self.plan)

    def back(self, base: Value, new: Value) -> Value:
        if self.key is None or AMBIENT.plain is None:
            return updated("set", base, self.plan, new)
        written: Tensor = _WRITES.result(self._written, (passing(base), self.key, passing(new)), _NO_OPTIONS)
        return written._value

    def _written(self, base: Tensor, _: Any, new: Tensor) -> Tensor:
        return wrap(updated("set", base._value, self.plan, new._value))

    def layout(self, base: Layout) -> Layout:
        """Axes that the subscript takes away or adds have extent 1 here or there, so their strides don't matter."""
        plan, offset = self.plan, base.offset
        strides = []
        spans = plan.spans or [(0, n, 1) for n in base.shape]
        for axis, ((start, stop, step), extent, stride) in enumerate(zip(spans, base.shape, base.strides, strict=True)):
            if offset is not None:
                offset += start * stride
            if axis not in plan.axes and len(range(*slice(start, stop, step).indices(extent))) != 1:
                strides.append(stride * step)
        kept = iter(strides)
        filled = [0 if n == 1 else next(kept) for n in plan.shape]
        return Layout(None if plan.axes else offset, plan.shape, tuple(filled))

    def apart(self, other: Step) -> bool:
        if not isinstance(other, Subscript) or self.plan.axes or other.plan.axes:
            return False
        mine, theirs = self.plan.spans, other.plan.spans
        return mine is not None and theirs is not None and any(map(_spans_apart, mine, theirs))


def _spans_apart(a: tuple[int, int | None, int], b: tuple[int, int | None, int]) -> bool:
    """Whether two spans of one axis have no position in common."""
    first, last = _ends(a)
    lowest, highest = _ends(b)
    return last < lowest or highest < first or (first - lowest) % gcd(a[2], b[2]) != 0


def _ends(span: tuple[int, int | None, int]) -> tuple[int, int]:
    start, stop, step = span
    if step > 0:
        assert stop is not None
        return start, start + (stop - 1 - start) // step * step
    end = -1 if stop is None else stop
    return start + (start - end - 1) // -step * step, start


_SUBSCRIPTS: Final = Calls(views=True)
_WRITES: Final = Calls()
_NO_OPTIONS: Final[dict[str, Any]] = {}


def _key(index: Any) -> Any:
    """A subscript as something to compare, in which a tensor counts as its present value."""
    if type(index) is tuple:
        return tuple([_key(i) for i in index])
    if type(index) is slice:
        return _key((slice, index.start, index.stop, index.step))
    return index._value if isinstance(index, TensorCore) else index


def _is_array(item: Any) -> bool:
    """Whether an item of a subscript makes the result a copy."""
    if isinstance(item, TensorCore):
        return not is_number(item)
    return isinstance(item, np.ndarray) or not (item is None or item is Ellipsis or hasattr(item, "__index__"))


def subscript(x: Tensor, index: Any) -> Tensor:
    """`x[index]`."""
    value = x._value
    if type(index) is int:
        known: Expression | None = value.expression
        found = None if known is None else known.further.get(ELEMENT)
        if found is not None and AMBIENT.plain is not None:
            extent: int = value.type.shape[0]  # type: ignore[union-attr]  # whoever has elements is a vector
            if -extent <= index < extent:
                frame = _getframe(1)
                loc = LOCATIONS[id(frame.f_code)][frame.f_lasti] or user_location(1)
                return held(element_again(value, index if index >= 0 else index + extent, found, loc), x._weak)
        if len(value.shape) == 1:
            return wrap(element(value, index), x._weak)
    numbers = _numbers(index)
    if numbers is not None and (again := _places_again(x, numbers)) is not None:
        return again
    if numbers is None and AMBIENT.plain is not None:
        return _SUBSCRIPTS.result(_taken, (x, index), _NO_OPTIONS)  # type: ignore[no-any-return]
    return _taken(x, index)


def _taken(x: Tensor, index: Any) -> Tensor:
    """As above, whatever the subscript is."""
    value, numbers = x._value, _numbers(index)
    plan = plan_index(value.shape, index)
    result = read(value, plan)
    if numbers is not None and AMBIENT.plain is not None and value.scope is None:
        note_places(value, len(numbers), result)
    if plan.widened is not None:  # by a mask, if one without axes
        return wrap(result, x._weak)
    items = index if type(index) is tuple else (index,)
    if not result.shape and not any(i is Ellipsis for i in items):
        return wrap(result, x._weak)
    if plan.axes and any(_is_array(i) for i in items if type(i) is not slice):
        return wrap(result, x._weak)
    if is_number(x):
        return as_array(wrap(result, x._weak))
    if result is value:
        return whole(x)
    return viewed(x, Subscript(plan, _key(index)), result)


def _numbers(index: Any) -> tuple[int, ...] | None:
    """A subscript of numbers alone."""
    if type(index) is int:
        return (index,)
    return index if type(index) is tuple and set(map(type, index)) == _INTEGERS else None


def _places_again(x: Tensor, numbers: tuple[int, ...]) -> Tensor | None:
    """`x[numbers]` at the top level where x, or one like it, was read so before."""
    value = x._value
    found = None if value.expression is None else value.expression.further.get((ELEMENT, len(numbers)))
    if found is None or AMBIENT.plain is None:
        return None
    shape: tuple[int, ...] = value.type.shape  # type: ignore[union-attr]  # whoever has elements is an array
    places = tuple([i if i >= 0 else i + n for i, n in zip(numbers, shape, strict=False)])
    if not all(0 <= i < n for i, n in zip(places, shape, strict=False)):
        return None
    frame = _getframe(2)
    loc = LOCATIONS[id(frame.f_code)][frame.f_lasti] or user_location(2)
    result = places_again(value, places, found, loc)
    if not found.type.shape:
        return held(result, x._weak)
    return viewed(x, Subscript(shape, numbers if len(numbers) > 1 else numbers[0]), result)


def set_item(x: Tensor, index: Any, values: ArrayLike) -> None:
    """`x[index] = values`: writes to x and to all that shares its memory; what was computed from it stays."""
    written_to("assignment", x)
    if isinstance(values, TensorCore) and _is_there(values, x, index):
        return
    numbers = _numbers(index) if AMBIENT.plain is not None else None
    row = None if numbers is None else row_set(x._value, numbers, values)
    new = update("set", x, index, values)._value if row is None else row
    write(x, new, None if x._view is None else _region(x, index))


def _region(x: Tensor, index: Any) -> Subscript | None:
    """What a write to x[index] touches; None where that is data."""
    items = index if type(index) is tuple else (index,)
    if any(isinstance(i, TensorCore) or _is_array(i) for i in items if type(i) is not slice):
        return None
    plan = plan_index(x._value.shape, index)
    return None if plan.axes else Subscript(plan)


def _is_there(values: TensorCore, x: Tensor, index: Any) -> bool:
    """Whether `values` is the view `x[index]` itself."""
    view = values._view
    if view is None or view.parent is None or view.parent is not x._view or not isinstance(view.step, Subscript):
        return False
    return _same(view.step.key, _key(index))


def _same(a: Any, b: Any) -> bool:
    """Whether two keys are surely equal."""
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (type(a) is type(b) is int and bool(a == b))


class Diagonal(Step):
    """A diagonal of the last two axes as the last one, as `diagonal` gives it: to be read."""

    __slots__ = ("count", "first")

    def __init__(self, first: tuple[int, int], count: int) -> None:
        self.first = first
        self.count = count

    def _plan(self, shape: Sequence[int]) -> IndexPlan:
        along = positions((self.count,), 0)
        indices = [wrap(ops.add(along, start)) for start in self.first]
        return plan_index(tuple(shape), (..., *indices))

    def forward(self, base: Value) -> Value:
        """Elements that lie a row and one apart. Looked up, they would have a sum into a table as derivative."""
        *before, rows, columns = base.shape
        if not self.count:
            return read(base, self._plan(base.shape))
        start = self.first[0] * columns + self.first[1]
        stop = start + (self.count - 1) * (columns + 1) + 1
        flat, none = ops.reshape(base, (*before, rows * columns)), [0] * len(before)
        return ops.slice(flat, [*none, start], [*before, stop], [*[1] * len(before), columns + 1])

    def layout(self, base: Layout) -> Layout:
        row, column = base.strides[-2:]
        offset = None if base.offset is None else base.offset + row * self.first[0] + column * self.first[1]
        return Layout(offset, (*base.shape[:-2], self.count), (*base.strides[:-2], row + column))


class WritableDiagonal(Diagonal, WritableStep):
    """The same as `einsum` gives it."""

    __slots__ = ()

    def back(self, base: Value, new: Value) -> Value:
        return updated("set", base, self._plan(base.shape), new)
