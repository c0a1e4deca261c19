"""From tensors to elements.

`evaluate` computes several tensors in one program and points each at the leaf that holds its
elements, so that nothing is computed twice; what gets computed on the way and is still needed is kept
as well (`lazy.liveness`). While a derivative is being taken (`derivation`) tensors
keep their graph: the elements are given, but what is built from the tensor still depends on it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

import numpy as np

from loopgrad.graph.build import enter
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Leaf, Value
from loopgrad.lazy.config import current
from loopgrad.lazy.core import History, Siblings, TensorCore, TensorLeaf, next_serial, wrap
from loopgrad.lazy.errors import traced_value_error
from loopgrad.lazy.liveness import still_needed, without_known
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.plan import MemoryStats

if TYPE_CHECKING:
    from loopgrad.lazy.tensor import Tensor


GARBAGE_LIMIT: Final = 256 * 2**20  # bytes evaluated between two collections


class _Depth(threading.local):
    depth: int = 0


_derivation = _Depth()


@contextmanager
def derivation() -> Iterator[None]:
    """While a function is called to be differentiated, batched or traced as a graph."""
    _derivation.depth += 1
    try:
        yield
    finally:
        _derivation.depth -= 1


def deriving() -> bool:
    """Whether some transform is calling the user's function now."""
    return _derivation.depth > 0


def buffers_of(tensors: Sequence[TensorCore], purpose: str = "array") -> list[Buffer]:
    """The elements of tensors, computed together where they aren't there yet."""
    pending = {id(t): t for t in tensors if not isinstance(t._value, Leaf)}
    if not pending:
        return [t._value.buffer for t in tensors if isinstance(t._value, Leaf)]
    for t in pending.values():
        if t._value.scope is not None:
            raise traced_value_error(t._value, purpose)
    kept: list[Value] = []
    if not deriving():
        _add_siblings(pending)
        along, kept = still_needed([t._value for t in pending.values()])
        pending.update({id(t): t for t in along})
    wanted = list(dict.fromkeys([*(t._value for t in pending.values()), *kept]))
    computed = dict(zip(wanted, _run(wanted), strict=True))
    results = [t._value.buffer if isinstance(t._value, Leaf) else computed[t._value] for t in tensors]
    if not deriving():
        _keep(list(pending.values()), kept, computed)
    return results


def _run(values: Sequence[Value]) -> list[Buffer]:
    from loopgrad.runtime.session import evaluate as run_session  # late: building graphs needs no session

    config = current()
    with enter(None):
        outputs = without_known(values)
        return run_session(outputs, _place(outputs, config.device), config.options)


def _add_siblings(pending: dict[int, TensorCore]) -> None:
    """Tensors that the same call returned."""
    for t in list(pending.values()):
        if isinstance(t._history, Siblings):
            for member in t._history.members:
                other = member()
                if other is not None and not isinstance(other._value, Leaf):
                    pending.setdefault(id(other), other)


def _keep(evaluated: Sequence[TensorCore], kept: Sequence[Value], computed: dict[Value, Buffer]) -> None:
    """Make evaluated tensors refer to their elements (their history stays reachable while they live),
    and note the elements of values that unevaluated tensors need."""
    serial = next_serial()
    for t in evaluated:
        value = t._value
        t._history = History(value)
        buffer = computed[value]
        t._value = TensorLeaf(buffer.type, buffer, t._history, serial=serial)
        value.known = ref(t._value)
    for value in kept:
        buffer = computed[value]
        value.known = TensorLeaf(buffer.type, buffer, computed=True, serial=serial)
    _collect_garbage(sum([b.nbytes for b in computed.values()]))


class _Garbage(threading.local):
    nbytes: int = 0


_garbage = _Garbage()


def _collect_garbage(nbytes: int) -> None:
    """Graphs are cycles that hold the leaves they read: the collector counts objects, this counts bytes."""
    _garbage.nbytes += nbytes
    if _garbage.nbytes > GARBAGE_LIMIT:
        _garbage.nbytes = 0
        gc.collect()


def _place(values: Sequence[Value], default: str) -> str:
    """The device to compute on: that of a leaf placed by the user, else the default one."""
    if not TensorLeaf.any_committed:
        return default
    for leaf in extract(values).inputs:
        if isinstance(leaf, TensorLeaf) and leaf.committed:
            return str(leaf.buffer.device)
    return default


def evaluate(*tensors: Any) -> None:
    """Compute tensors (or trees of lists, tuples and dicts of them) together, in one program."""
    found: list[TensorCore] = []
    _collect(tensors, found)
    buffers_of(found)


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
    return current().device if t._value.scope is not None else _place((t._value,), current().device)


def memory_stats(device: str | None = None) -> MemoryStats:
    """The bytes that compiled programs hold on a device, and peaks; arrays of the user aren't counted."""
    return get_device(device or current().device).memory_stats()


def to_device(t: TensorCore, device: str) -> Tensor:
    """The tensor on `device`; what is computed from it runs there."""
    from loopgrad.runtime.session import move  # late: as above

    target = get_device(device)
    if t._value.scope is not None:
        raise traced_value_error(t._value, "to_device")
    buffer = move(buffers_of((t,))[0], target)
    history = t._history if isinstance(t._history, History) else History(t._value)
    moved = wrap(TensorLeaf(buffer.type, buffer, history, committed=True), t._weak)
    moved._history = history
    return moved
