"""From tensors to elements.

`evaluate` computes several tensors in one program and points each at the leaf that holds its
elements, so that nothing is computed twice; what gets computed on the way and is still needed is kept
as well (`lazy.liveness`). While a derivative is being taken (`derivation`) tensors
keep their graph: the elements are given, but what is built from the tensor still depends on it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import ref

import numpy as np

from loopgrad.graph.build import enter
from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.nodes import Leaf, Value
from loopgrad.lazy.config import current
from loopgrad.lazy.core import History, Siblings, TensorCore, TensorLeaf, next_serial, wrap
from loopgrad.lazy.derivation import deriving, followed, from_variables, note_reads
from loopgrad.lazy.errors import derivative_lost_error, traced_value_error
from loopgrad.lazy.liveness import Needed, known_leaf, still_needed, without_known
from loopgrad.lazy.placement import places
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.plan import MemoryStats

if TYPE_CHECKING:
    from loopgrad.lazy.tensor import Tensor


GARBAGE_LIMIT: Final = 256 * 2**20  # bytes evaluated between two collections


# purposes for which a value that is being differentiated may be read: no number of it gets into what is computed
LOOKS: Final = frozenset({"bool", "eval", "index", "text"})


def buffers_of(tensors: Sequence[TensorCore], purpose: str = "array") -> list[Buffer]:
    """The elements of tensors, computed together where they aren't there yet."""
    note_reads([t._value for t in tensors])
    pending = {id(t): t for t in tensors if not isinstance(t._value, Leaf)}
    if not pending:
        return [t._value.buffer for t in tensors if isinstance(t._value, Leaf)]
    for t in pending.values():
        if t._value.scope is not None:
            raise traced_value_error(t._value, purpose)
        if purpose not in LOOKS and followed(t._value):
            raise derivative_lost_error(t._value, purpose)
    if not deriving():
        _add_siblings(pending)
    if deriving() or from_variables([t._value for t in pending.values()]):
        wanted = list(dict.fromkeys([t._value for t in pending.values()]))
        computed = dict(zip(wanted, [found.buffer for found in _run(wanted)], strict=True))
    else:
        computed = _settled(pending)
    return [t._value.buffer if isinstance(t._value, Leaf) else computed[t._value] for t in tensors]


def _settled(pending: dict[int, TensorCore]) -> dict[Value, Buffer]:
    """The elements of these tensors, which become leaves, as does what should be computed along."""
    needed = still_needed([t._value for t in pending.values()])
    waiting = [t for t in needed.waiting if not from_variables([t._value])]
    if waiting:
        more = {**pending, **{id(t): t for t in waiting}}
        with suppress(LoopgradError):  # nobody asked for those: whoever does will be told
            return _kept(more, still_needed([t._value for t in more.values()]))
    return _kept(pending, needed)


def _kept(pending: dict[int, TensorCore], needed: Needed) -> dict[Value, Buffer]:
    """Make these tensors, and those computed along, refer to their elements (their history stays reachable while
    they live), and note the elements of values that unevaluated tensors need."""
    evaluated = list({**pending, **{id(t): t for t in needed.along}}.values())
    wanted = list(dict.fromkeys([*(t._value for t in evaluated), *needed.read]))
    computed = dict(zip(wanted, _run(wanted), strict=True))
    buffers = {value: found.buffer for value, found in computed.items()}
    serial, read = next_serial(), set(needed.read)
    for t in evaluated:
        value = t._value
        t._history = History(value)
        leaf = _leaf(computed[value], t._history, serial)
        t._value = leaf
        if t._view is not None:
            t._view.note_evaluated(leaf)
        leaf.generation = needed.generation
        value.known = leaf if value in read else ref(leaf)  # what is read must outlive the tensor
    for value in needed.read:
        if known_leaf(value) is None:
            value.known = leaf = _leaf(computed[value], None, serial)
            leaf.generation = needed.generation
    _collect_garbage(sum([b.nbytes for b in buffers.values()]))
    return buffers


class Elements(NamedTuple):
    """What was computed; `committed`: on a device that the user chose."""

    buffer: Buffer
    committed: bool


def _leaf(found: Elements, history: History | None, serial: int) -> TensorLeaf:
    buffer, committed = found
    return TensorLeaf(buffer.type, buffer, history, computed=True, committed=committed, serial=serial)


def _run(values: Sequence[Value]) -> list[Elements]:
    """The elements of each value, one program a device, and whether the user chose the device."""
    from loopgrad.runtime.session import evaluate as run_session  # late: building graphs needs no session

    config = current()
    with enter(None):
        outputs = without_known(values)
        chosen = places(outputs)
        on = [place or config.device for place in chosen]
        computed: dict[int, Buffer] = {}
        for device in dict.fromkeys(on):
            mine = [i for i, name in enumerate(on) if name == device]
            buffers = run_session([outputs[i] for i in mine], device, config.options)
            computed.update(zip(mine, buffers, strict=True))
    return [Elements(computed[i], place is not None) for i, place in enumerate(chosen)]


def _add_siblings(pending: dict[int, TensorCore]) -> None:
    """Tensors that the same call returned, and what views were often written through to."""
    for t in list(pending.values()):
        if t._view is not None and t._view.storage is not None:
            root = t._view.storage.waiting()
            if root is not None and not isinstance(root._value, Leaf):
                pending.setdefault(id(root), root)
        if isinstance(t._history, Siblings):
            for member in t._history.members:
                other = member()
                if other is not None and not isinstance(other._value, Leaf):
                    pending.setdefault(id(other), other)


class _Garbage(threading.local):
    nbytes: int = 0


_garbage = _Garbage()


def _collect_garbage(nbytes: int) -> None:
    """Graphs are cycles that hold the leaves they read: the collector counts objects, this counts bytes."""
    _garbage.nbytes += nbytes
    if _garbage.nbytes > GARBAGE_LIMIT:
        _garbage.nbytes = 0
        gc.collect()


def evaluate(*tensors: Any) -> None:
    """Compute tensors (or trees of lists, tuples and dicts of them) together, in one program."""
    found: list[TensorCore] = []
    _collect(tensors, found)
    buffers_of(found, "eval")


def _collect(tree: Any, found: list[TensorCore]) -> None:
    if isinstance(tree, TensorCore):
        found.append(tree)
    elif isinstance(tree, list | tuple):
        for item in tree:
            _collect(item, found)
    elif isinstance(tree, dict):
        for item in tree.values():
            _collect(item, found)


def to_numpy(t: TensorCore, purpose: str = "array") -> np.ndarray[Any, Any]:
    """The elements as a read-only NumPy array."""
    buffer = buffers_of((t,), purpose)[0]
    return get_device(buffer.device).get(buffer)


def device_of(t: TensorCore) -> str:
    """Where the elements are, or will be."""
    if isinstance(t._value, Leaf):
        return str(t._value.buffer.device)
    place = None if t._value.scope is not None else places((t._value,))[0]
    return place or current().device


def memory_stats(device: str | None = None) -> MemoryStats:
    """The bytes that compiled programs hold on a device, and peaks; arrays of the user aren't counted."""
    return get_device(device or current().device).memory_stats()


def synchronize(device: str | None = None) -> None:
    """Wait until all work that was started on a device (the default device where none is named) is done: for timing.
    What failed meanwhile is raised where its result is used. RuntimeError where the device was lost."""
    get_device(device or current().device).finish()


def to_device(t: TensorCore, device: str) -> Tensor:
    """The tensor on `device`; what is computed from it runs there."""
    from loopgrad.runtime.session import move  # late: as above

    target = get_device(device)
    if t._value.scope is not None:
        raise traced_value_error(t._value, "to_device")
    buffer = move(buffers_of((t,), "to_device")[0], target)
    history = t._history if isinstance(t._history, History) else History(t._value)
    moved = wrap(TensorLeaf(buffer.type, buffer, history, committed=True), t._weak)
    moved._history = history
    return moved
