"""From tensors to elements.

`evaluate` computes several tensors in one program and points each at the leaf that holds its
elements, so that nothing is computed twice, also where several threads ask for it (`lazy.tensor.evaluator`);
what gets computed on the way and is still needed is kept as well (`lazy.tensor.liveness`). While a derivative
is being taken (`derivation`) tensors keep their graph: the elements are given, but what is built from
the tensor still depends on it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.codegen.options import Options
from loopgrad.graph.ambient import AMBIENT
from loopgrad.graph.build import current_scope, enter
from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.expressions import OPAQUE, Expression, expression_of
from loopgrad.graph.nodes import Graph, Leaf, Noted, Value
from loopgrad.graph.passes.alike import MANY as MANY_PIECES
from loopgrad.lazy.tensor.config import current
from loopgrad.lazy.tensor.core import (
    LIVE,
    ArrayLike,
    History,
    Siblings,
    TensorCore,
    TensorLeaf,
    computed_as,
    from_data,
    wrap,
)
from loopgrad.lazy.tensor.device_choice import places, places_of_outputs
from loopgrad.lazy.tensor.errors import derivative_lost_error, traced_value_error
from loopgrad.lazy.tensor.evaluator import EVALUATOR, Computed, Found, Wanted
from loopgrad.lazy.tensor.liveness import (
    ALONE,
    COUNTED,
    NOTHING,
    Needed,
    held_alone,
    still_needed,
    unread,
    waiting_states,
)
from loopgrad.lazy.tensor.ongoing_derivations import (
    UNDER_WAY,
    deriving,
    followed,
    from_variables,
    note_reads,
)
from loopgrad.lazy.tensor.walk import Walk, walked
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import devices_in_use, get_device
from loopgrad.runtime.plan import MemoryStats
from loopgrad.runtime.rare_collection import RARE_COLLECTION

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.storage import View
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "eval=evaluate memory_stats synchronize to_device"
MANY: Final = 1 << 62
GARBAGE_LIMIT: Final = 256 * 2**20  # bytes evaluated between two collections


# purposes for which a value that is being differentiated may be read: no number of it gets into what is computed
LOOKS: Final = frozenset({"bool", "eval", "index", "text"})


def buffers_of(tensors: Sequence[TensorCore], purpose: str = "array") -> list[Buffer]:
    """The elements of tensors, computed together where they aren't there yet."""
    if len(tensors) == 1:
        return [buffer_of(tensors[0], purpose)]
    if not UNDER_WAY and AMBIENT.scope is None:
        for t in tensors:
            if isinstance(t._history, Siblings):
                t._history.elements(t)
        if len(tensors) >= MANY_PIECES:
            _compute_alike(tensors)
    values = [t._value for t in tensors]
    note_reads(values)
    lazy = [value for value in values if not isinstance(value, Leaf)]
    if not lazy:
        return [value.buffer for value in values]  # type: ignore[attr-defined]
    for value in lazy:
        _check_readable(value, purpose)
    computed = _only_computed(lazy) if deriving() else EVALUATOR.claimed(tensors, settled)
    return [_elements(t, value, computed) for t, value in zip(tensors, values, strict=True)]


def _compute_alike(tensors: Sequence[TensorCore]) -> None:
    """Compute those of which many were noted alike, all at once."""
    from loopgrad.lazy.tensor.alike_tensors import computed_together  # late: as below

    each: dict[Expression, list[TensorCore]] = {}
    for t in tensors:
        if type(value := t._value) is Noted and value.known is None:
            each.setdefault(value.expression or expression_of(value), []).append(t)
    for expression, (first, *more) in each.items():
        if len(more) >= MANY_PIECES and expression is not OPAQUE and type(value := first._value) is Noted:
            computed_together(first, value, expression)


def buffer_of(t: TensorCore, purpose: str = "array") -> Buffer:
    """The elements of one tensor, as above: what lines of a script ask for one by one."""
    value = t._value
    if not UNDER_WAY and AMBIENT.scope is None and type(value) is Noted and t._history is None:
        others = getrefcount(value) - ALONE if COUNTED else -1
        if t._view is not None:
            others -= _of_memory(t._view, value)
        lines = None if others else (value.expression or expression_of(value)).known
        known: Buffer | None = None
        if lines is not None:
            known = lines.often(t, value)
            if known is None:
                known = lines.elements(t, value)
        if known is None and others >= 0:
            known = _elements_of_line()(t, value, others > 0)
        if known is not None:
            return known
        value = t._value  # another thread may have been first
    elif not UNDER_WAY and AMBIENT.scope is None and isinstance(t._history, Siblings):
        del value  # whoever refers to it counts
        known = t._history.elements(t)
        if known is not None:
            return known
        value = t._value
    note_reads((value,))
    if not isinstance(value, Leaf):
        _check_readable(value, purpose)
        compute = _settled_alone if unread(t) else settled
        computed = _only_computed((value,)) if deriving() else EVALUATOR.claimed((t,), compute)
        return _elements(t, value, computed)
    buffer: Buffer = value.buffer
    return buffer


def _of_memory(view: View, value: Noted) -> int:
    """How many references to the value of a tensor with that view its memory has; so many that nothing is equal where
    more is to be computed along."""
    return MANY if view.waits else view.refers_to(value)


@cache
def _elements_of_line() -> Callable[[TensorCore, Noted, bool], Buffer | None]:
    from loopgrad.lazy.tensor.repeated_lines import elements_of  # late: building graphs needs no session

    return elements_of


def _check_readable(value: Value, purpose: str) -> None:
    if value.scope is not None:
        raise traced_value_error(value, purpose)
    if purpose not in LOOKS and followed(value):
        raise derivative_lost_error(value, purpose)


def _only_computed(values: Sequence[Value]) -> Found:
    """The elements; tensors keep their graph."""
    values = list(dict.fromkeys(values))
    return dict(zip(values, _run(values, walked(values))[0], strict=True))


def _elements(t: TensorCore, value: Value, computed: Found) -> Buffer:
    if not isinstance(value, Leaf):
        found = computed.get(value)
        if found is not None:
            return found
        value = t._value  # another thread was first
    if not isinstance(value, Leaf):  # or writes to the tensor
        return buffer_of(t)
    buffer: Buffer = value.buffer
    return buffer


@RARE_COLLECTION
def settled(wanted: Wanted) -> Found:
    """The elements of these tensors, which become leaves, as does what should be computed along."""
    if not wanted:
        return {}
    values = [value for _, value in wanted.values()]
    if from_variables(values):
        return _only_computed(values)
    return _looked_after(wanted, walked(values))


@RARE_COLLECTION
def _settled_alone(wanted: Wanted) -> Found:
    """As above, of one tensor whose value nobody reads."""
    if len(wanted) != 1:
        return settled(wanted)
    values = [value for _, value in wanted.values()]
    if from_variables(values):
        return _only_computed(values)
    walk = walked(values)
    needed = held_alone(walk)
    return _looked_after(wanted, walk) if needed is None else _kept(wanted, walk, needed)


def _looked_after(wanted: Wanted, walk: Walk) -> Found:
    """With what is still needed of what is computed on the way."""
    states = waiting_states(walk, wanted)
    needed = NOTHING if states else still_needed(walk, wanted)
    if waiting := [(t, value) for t, value in states or needed.waiting if not from_variables([value])]:
        more = {**wanted, **{id(t): (t, value) for t, value in waiting}}
        with suppress(LoopgradError):  # nobody asked for those: whoever does will be told
            further = walked([value for _, value in waiting], walk)
            return _kept(more, further, still_needed(further, more))
    return _kept(wanted, walk, still_needed(walk, wanted) if states else needed)


def _kept(wanted: Wanted, walk: Walk, needed: Needed) -> Found:
    """Make these tensors, and those computed along, refer to their elements, and note the elements of values that
    unevaluated tensors need."""
    evaluated = [*wanted.values(), *needed.along]
    values = list(dict.fromkeys([value for _, value in evaluated]))
    if needed.read:
        values = list(dict.fromkeys([*values, *needed.read]))
    buffers, committed = _run(values, walk)
    computed = dict(zip(values, buffers, strict=True))
    EVALUATOR.settle(evaluated, needed.read, Computed(computed, committed, needed.generation))
    _collect_garbage(buffers)
    return computed


@cache
def _session() -> Callable[[Graph, Sequence[Value], str, Options], list[Buffer]]:
    from loopgrad.runtime.session import evaluate_graph  # late: building graphs needs no session

    return evaluate_graph


def _run(values: Sequence[Value], walk: Walk) -> tuple[list[Buffer], Collection[Value]]:
    """The elements of each value that was walked to, and the values whose device the user chose. Raises LinAlgError for
    what `lazy.tensor.refusals` tests on the way."""
    if current_scope() is not None:
        with enter(None):
            return _run(values, walk)
    marks = walk.marks()
    if not marks:
        return _computed(values, walk)
    from loopgrad.lazy.tensor.refusals import check, with_tests  # late: few programs factorise

    tested = with_tests(values, marks)
    buffers, committed = _computed(tested, walked(tested))
    check(marks, [get_device(b.device).get(b) for b in buffers[len(values) :]])
    return buffers[: len(values)], committed


def _computed(values: Sequence[Value], walk: Walk) -> tuple[list[Buffer], Collection[Value]]:
    """As above, one program a device."""
    evaluate_graph, config = _session(), current()
    whole, leaves = walk.cut(values)
    if not TensorLeaf.any_committed:
        return evaluate_graph(whole, leaves, config.device, config.options), ()
    chosen = places_of_outputs(whole, leaves)
    on = [place or config.device for place in chosen]
    computed: dict[int, Buffer] = {}
    for device in dict.fromkeys(on):
        mine = [i for i, name in enumerate(on) if name == device]
        part, given = whole, leaves
        if len(mine) != len(on):
            some = [values[i] for i in mine]
            part, given = walked(some).cut(some)
        buffers = evaluate_graph(part, given, device, config.options)
        computed.update(zip(mine, buffers, strict=True))
    committed = {value for value, place in zip(values, chosen, strict=True) if place is not None}
    return [computed[i] for i in range(len(values))], committed


def _collect_garbage(buffers: Sequence[Buffer]) -> None:
    """Graphs are cycles that hold the leaves they read: the collector counts objects, this counts bytes."""
    live = LIVE
    for buffer in buffers:
        live.garbage += buffer.nbytes
    if live.garbage > GARBAGE_LIMIT:
        live.garbage = 0
        gc.collect()


def evaluate(*tensors: Any) -> None:
    """Compute tensors (or trees of lists, tuples and dicts of them) together, in one program; shapes and dtypes stay.

    Raises TracedValueError while a function is traced.

    >>> x = lg.ones(3)
    >>> y, z = x + 1.0, lg.sum(x)
    >>> lg.eval(y, [z])
    >>> y, z
    (Tensor([2., 2., 2.], dtype=float64), Tensor(3., dtype=float64))
    """
    found: list[TensorCore] = []
    _collect(tensors, found)
    buffers_of(found, "eval")


def _collect(tree: Any, found: list[TensorCore]) -> None:
    if isinstance(tree, TensorCore):
        found.append(tree)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            _collect(item, found)
    elif isinstance(tree, dict):
        for item in tree.values():
            _collect(item, found)


def to_numpy(t: TensorCore, purpose: str = "array") -> np.ndarray[Any, Any]:
    """The elements as a read-only NumPy array."""
    value = t._value
    if type(value) is TensorLeaf and not UNDER_WAY:
        buffer: Buffer = value.buffer
    else:
        del value  # whoever refers to it counts
        buffer = buffer_of(t, purpose)
    return buffer.array if type(buffer) is Buffer else get_device(buffer.device).get(buffer)


def arrays_of(tensors: Sequence[TensorCore]) -> list[np.ndarray[Any, Any]]:
    """The elements of each tensor as read-only NumPy arrays, evaluated in one program a device."""
    return [get_device(buffer.device).get(buffer) for buffer in buffers_of(tensors)]


def part_of(t: TensorCore) -> str:
    """What this process has of elements that are on several; empty where it has all. Evaluates."""
    return buffers_of((t,), "text")[0].part


def device_of(t: TensorCore) -> str:
    """Where the elements are, or will be."""
    value = t._value
    if isinstance(value, Leaf):
        return str(value.buffer.device)
    place = None if value.scope is not None else places((value,))[0]
    return place or current().device


def memory_stats(device: str | None = None) -> MemoryStats:
    """The bytes that compiled programs hold on a device, and peaks; arrays of the user aren't counted.

    The device is the default one unless named; raises ValueError for an unknown one.

    >>> lg.memory_stats("interpreter").arena_bytes
    0
    """
    return get_device(device or current().device).memory_stats()


def synchronize(device: str | None = None) -> None:
    """Wait until all work that was started on a device (on all devices where none is named) is done: for timing.

    What failed meanwhile is raised where its result is used. Raises RuntimeError where a device was lost.

    >>> lg.synchronize()
    """
    for each in devices_in_use() if device is None else (get_device(device),):
        each.finish()


def to_device(t: ArrayLike, device: str) -> Tensor:
    """The tensor on `device`, with the shape and dtype of `t`; what is computed from it runs there.

    `t` is a tensor, NumPy array, nested sequence or number. Evaluates. Raises ValueError for an unknown device,
    RuntimeError for one that can't be used, TracedValueError while a function is traced or a derivative through `t` is
    taken.

    >>> (2.0 * lg.to_device(lg.ones(2), "interpreter")).device
    'interpreter'
    """
    from loopgrad.runtime.session import move  # late: as above

    target = get_device(device)
    if not isinstance(t, TensorCore):
        t = from_data(t, device=device)  # of tensors: where these are
    if t._value.scope is not None:
        raise traced_value_error(t._value, "to_device")
    buffer = move(buffer_of(t, "to_device"), target)
    history = History(computed_as(t))
    moved = wrap(TensorLeaf(buffer.type, buffer, history, committed=True), t._weak)
    moved._history = history
    return moved
