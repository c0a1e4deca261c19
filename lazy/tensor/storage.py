"""Tensors that share memory, as NumPy's views do.

A tensor object is a handle of a place in memory. Handles that would share memory in NumPy (`x` and `x[0]`, `x.T`,
`x.reshape(-1)`) share a `Storage`; the `View` of each says how its elements are found in the storage's root:

    x = lg.zeros((2, 3));  r = x.T[0]     root -- Transposed --> View -- Subscript --> View of r

Graph values never change. A write computes the new value of the handle written to, from it that of the root (each
step is run backwards), and from that the values of the other handles that overlap. So nothing is looked up when a
tensor is read, and whoever shares no memory has neither view nor storage.

A storage refers to its handles weakly: what only a view was taken of isn't held, nor computed along
(`lazy.tensor.liveness`). Where the root has no handle of its own and two views overlap, `keeper` stands for it from the
first write on: it is evaluated as the tensors of the script are, so that a loop that writes doesn't grow its graph.

Circle: a tensor has a slot for its view, as `lazy/tensor/core.py` declares without looking into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import ref

import numpy as np

from loopgrad.graph.build import Scope, current_scope
from loopgrad.graph.errors import explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.tensor.core import CHANGES, TensorCore, copied, note_holder, wrap
from loopgrad.lazy.tensor.errors import TracedValueError
from loopgrad.lazy.tensor.staleness import written
from loopgrad.lazy.tensor.view_steps import Layout, Shape, Step, WritableStep, row_strides

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

_MOST_WRITES: Final = 64  # to a root before it is evaluated along with a view of it
_FIRST_LIMIT: Final = 64  # references to handles before dead ones are looked for


# ---- views and storages


class View:
    """A place in a storage: the root where `parent` is None, else `step` from there.

    A root whose storage is None is memory that nobody shares; it is noted for arrays without axes, which NumPy
    distinguishes from numbers, and for those that don't lie row by row, of which `reshape` makes copies.
    """

    __slots__ = ("_layout", "parent", "step", "storage")

    def __init__(
        self, storage: Storage | None, layout: Layout | None = None, parent: View | None = None,
        step: Step | None = None,
    ) -> None:  # fmt: skip
        self.storage = storage
        self._layout = layout
        self.parent = parent
        self.step = step

    @property
    def read_only(self) -> bool:
        """Whether NumPy refuses to write through such a view."""
        return any(view.step is not None and not isinstance(view.step, WritableStep) for view in _way(self))

    @property
    def in_rows(self) -> bool:
        """Whether the elements of a root surely lie without gaps, row by row."""
        return self._layout is None

    def layout(self, shape: Shape) -> Layout:
        """Where the elements of a handle with this view, which has that shape, lie."""
        if self._layout is None:
            if self.parent is None or self.step is None:
                self._layout = Layout(0, shape, row_strides(shape))
            else:
                assert self.storage is not None
                self._layout = self.step.layout(self.parent.layout(self.storage.value.shape))
        return self._layout

    def refers_to(self, value: Value) -> bool:
        """Whether the memory refers to the value of a handle with this view, too."""
        return self.parent is None and self.root_value is value

    @property
    def root_value(self) -> Value | None:
        """What the memory refers to as its elements; None for memory that nobody shares."""
        return None if self.storage is None else self.storage.noted_value

    @property
    def waits(self) -> bool:
        """Whether a root is to be computed along with the handle."""
        return self.storage is not None and self.storage.waits

    def note_evaluated(self, leaf: Value) -> None:
        """The elements of a handle with this view exist now: writes to the root start there."""
        if self.parent is None and self.storage is not None:
            self.storage.evaluated(leaf)


LONE: Final = View(None)  # an array without axes whose memory nobody shares


class Storage:
    """Memory with several handles. `value` holds the elements of its root."""

    __slots__ = ("_handles", "_keeper", "_limit", "_value", "_writes", "home")

    def __init__(self, value: Value, home: Scope | None) -> None:
        self._value = value
        self.home = home  # the function being traced that made this memory, of elements from outside it
        self._writes = 0  # since the root was evaluated
        self._handles: list[ref[TensorCore]] = []
        self._limit = _FIRST_LIMIT
        self._keeper: TensorCore | None = None

    @property
    def value(self) -> Value:
        return self._value if self._keeper is None else self._keeper._value

    @property
    def noted_value(self) -> Value:
        """The value that it refers to itself."""
        return self._value

    @property
    def waits(self) -> bool:
        """Whether the root has been written to often without being evaluated."""
        return self._writes >= _MOST_WRITES

    def evaluated(self, leaf: Value) -> None:
        """The root's elements exist."""
        self._value = leaf
        self._writes = 0

    def waiting(self) -> TensorCore | None:
        """The handle of a root that has been written to often without being evaluated: its graph only grows."""
        if not self.waits:
            return None
        self._writes = 0
        living = [h for r in self._handles if (h := r()) is not None]
        roots = [h for h in living if h._view is not None and h._view.storage is self and h._view.parent is None]
        return next(iter(roots), self._keeper)

    def write(self, value: Value, rooted: bool) -> None:
        """New elements; `rooted`: some handle refers to the root."""
        self._value = value
        self._writes += 1
        if self._keeper is not None:
            _point(self._keeper, value)
        elif not rooted:
            self._keeper = wrap(value)

    def add(self, handle: TensorCore, view: View) -> None:
        """One more handle."""
        with CHANGES:
            handle._view = view
            self._handles.append(ref(handle))
            if len(self._handles) > self._limit:
                self._handles = [r for r in self._handles if r() is not None]
                self._limit = max(_FIRST_LIMIT, 2 * len(self._handles))

    def others(self, writer: TensorCore) -> list[TensorCore]:
        """The handles beside one of them; those that another function's tracing left behind don't count."""
        scope = current_scope()
        living, found = [], []
        for reference in self._handles:
            handle = reference()
            if handle is None or handle._view is None or handle._view.storage is not self:
                continue
            living.append(reference)
            here = handle._value.scope is scope or (scope is not None and self.home is scope)
            if here and handle is not writer:
                found.append(handle)
        self._handles = living
        return found


def is_number(t: TensorCore) -> bool:
    """Whether a tensor is what NumPy has scalars for: nothing can share its memory."""
    return t._view is None and not t._value.shape


def as_array(t: Tensor) -> Tensor:
    """The tensor itself; a number becomes an array without axes, which can be written to."""
    if t._view is None and not t._value.shape:
        t._view = LONE
    return t


def _shared(t: TensorCore) -> View:
    """The view of a handle that is about to share its memory."""
    with CHANGES:
        view = t._view
        if view is None or view.storage is None:
            storage = Storage(t._value, _home(t))
            view = View(storage, None if view is None else view._layout)
            storage.add(t, view)
        return view


def viewed(t: Tensor, step: Step, value: Value) -> Tensor:
    """The tensor of `value`, the elements that `step` takes of t, sharing t's memory."""
    view = t._view
    # of a Python int NumPy makes an array of int64
    result = wrap(value, t._weak and (view is not None or bool(t._value.shape) or not t._value.dtype.is_integer))
    if view is None and not t._value.shape:
        return result
    if view is None or view.storage is None:
        view = _shared(t)
    storage = view.storage
    assert storage is not None
    storage.add(result, View(storage, None, view, step))
    return result


def whole(t: Tensor) -> Tensor:
    """Another handle of t's memory (of a number: a copy)."""
    result = copied(t)
    if t._view is not None or t._value.shape:
        view = _shared(t)
        assert view.storage is not None
        view.storage.add(result, view)
    return result


def by_rows(t: TensorCore) -> bool:
    """Whether a tensor's elements lie without gaps, row by row."""
    view = t._view
    return view is None or (view.parent is None and view.in_rows) or view.layout(t._value.shape).by_rows()


def is_lone(t: TensorCore) -> bool:
    """Whether nobody else has a handle of a tensor's memory: what it is a view of is gone."""
    storage = None if t._view is None else t._view.storage
    return storage is None or not storage.others(t)


def lone_view(t: TensorCore) -> View | None:
    """The view of a tensor with a view, once it has its memory for itself."""
    view, shape = t._view, t._value.shape
    assert view is not None
    layout = view.layout(shape)._replace(offset=0)
    return LONE if not shape else None if layout.by_rows() else View(None, layout)


def needs_copy(t: TensorCore, shape: Shape) -> bool:
    """Whether NumPy would have to copy the elements for another shape."""
    return not by_rows(t) and t._view is not None and t._view.layout(t._value.shape).reshaped(shape) is None


def share_memory(a: TensorCore, b: TensorCore) -> bool:
    """Whether two tensors may have an element in common."""
    one, two = a._view, b._view
    if a is b:
        return not is_number(a)
    shared = one is not None and two is not None and one.storage is not None and one.storage is two.storage
    return shared and not _apart(one, two)  # type: ignore[arg-type]


# ---- arguments


def is_array_without_axes(x: Any) -> bool:
    """Whether x is an array of rank 0, not a number."""
    if isinstance(x, TensorCore):
        return x._view is not None and not x._value.shape
    return isinstance(x, np.ndarray) and not x.shape


def private(x: Any) -> Any:
    """What a transform hands to the function it calls in place of x: of a tensor a copy that belongs to the function
    being traced. Containers are handed on themselves, so that a function may fill a dict of its caller's."""
    if not isinstance(x, TensorCore):
        return x
    scope = current_scope()
    inner = wrap(x._value if scope is None else scope.resolve(x._value), x._weak)
    inner._history = x._history
    return inner if is_number(x) else as_array(inner)


# ---- writing


def _home(t: TensorCore) -> Scope | None:
    """The function being traced that made this handle, where its elements are from outside of that."""
    return getattr(t, "_home", None)


def check_writable(what: str, t: TensorCore) -> None:
    """TracedValueError where t's memory was made outside the function being traced, ValueError where it can't be
    written to."""
    view = t._view
    storage = None if view is None else view.storage
    root, home = (t._value, _home(t)) if storage is None else (storage.value, storage.home)
    scope = current_scope()
    if root.scope is not scope and (scope is None or home is not scope):
        fix = (
            "use x = x + v or x = x.at[index].set(values), write to a copy (x.copy()), or carry it through the loop "
            "and return it"
        )
        kind = "one" if storage is None or view is None or view.parent is None else "a view of one"
        got = f"{kind} made outside it ({root.type})"
        raise TracedValueError(explained(what, "a tensor of the function being traced", got, fix))
    if view is not None and view.read_only:
        fix = "write to a copy (x.copy()), or to the tensor that this is a view of"
        got = f"a read-only view, in which elements occur more than once or on a diagonal ({t._value.type})"
        raise ValueError(explained(what, "a tensor that can be written to", got, fix))


def written_to(what: str, t: Tensor) -> None:
    """As `check_writable`; a number becomes an array, as the array API standard knows arrays only."""
    check_writable(what, t)
    as_array(t)


def _point(t: TensorCore, value: Value) -> None:
    if value.scope is None:
        written(t)
    t._value, t._weak, t._history = value, False, None
    if value.scope is None:
        note_holder(t, value)


def write(t: TensorCore, value: Value, region: Step | None = None) -> None:
    """Make `value`, which has t's type, the elements of t and of all that shares its memory.

    `region`: what was taken of t to write to, where that isn't all of it.
    """
    with CHANGES:  # for all handles at once: another thread may be evaluating one of them
        _write(t, value, region)


def _write(t: TensorCore, value: Value, region: Step | None) -> None:
    view = t._view
    if view is None or view.storage is None:
        _point(t, value)
        return
    if value is t._value:
        return
    storage = view.storage
    others = storage.others(t)
    overlapping = [h for h in others if not _apart(view, h._view)]
    if not overlapping:  # t has its memory for itself again
        t._view = lone_view(t)
        _point(t, value)
        return
    new = _Rewritten(storage, view, value)
    storage.write(new.root, any(h._view.parent is None for h in (t, *overlapping)))  # type: ignore[union-attr]
    _point(t, value)
    touched = view if region is None else View(storage, None, view, region)
    for h in overlapping:
        if region is None or not _apart(touched, h._view):
            _point(h, new.of(h._view))


class _Rewritten:
    """The values of all views after one of them was given a new one."""

    def __init__(self, storage: Storage, view: View, value: Value) -> None:
        self._old: dict[View, Value] = {}
        self._new: dict[View, Value] = {view: value}
        while view.parent is not None and view.step is not None:
            assert isinstance(view.step, WritableStep), "a read-only view was written to"
            value = view.step.back(self._before(storage, view.parent), value)
            view = view.parent
            self._new[view] = value
        self.root = value

    def _before(self, storage: Storage, view: View) -> Value:
        found = self._old.get(view)
        if found is None:
            if view.parent is None or view.step is None:
                found = storage.value
            else:
                found = view.step.forward(self._before(storage, view.parent))
            self._old[view] = found
        return found

    def of(self, view: Any) -> Value:
        """The new elements of a view."""
        found = self._new.get(view)
        if found is None:
            found = self._new[view] = view.step.forward(self.of(view.parent))
        return found


def _apart(a: View, b: Any) -> bool:
    """Whether two views of a storage are known to have no element in common."""
    if a is b or a.parent is None or b.parent is None:
        return False
    assert a.storage is not None
    root = a.storage.value.shape
    one, two = a.layout(root), b.layout(root)
    if one.offset is not None and two.offset is not None:
        (low, high), (lowest, highest) = one.span(), two.span()
        empty = high < low or highest < lowest
        if empty or one.offset + high < two.offset + lowest or two.offset + highest < one.offset + low:
            return True
    return _branches_apart(_way(a), _way(b))


def _way(view: View) -> list[View]:
    """The views from the root to this one."""
    way = [view]
    while way[-1].parent is not None:
        way.append(way[-1].parent)
    return way[::-1]


def _branches_apart(one: list[View], two: list[View]) -> bool:
    for a, b in zip(one, two, strict=False):
        if a is not b:
            return a.step is not None and b.step is not None and a.parent is b.parent and a.step.apart(b.step)
    return False
