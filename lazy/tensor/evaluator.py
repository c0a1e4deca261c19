"""What evaluation remembers, shared by all threads: who computes what, and what is known.

A lazy tensor refers to a value of the graph, and an evaluation makes it refer to the leaf that holds its elements:

             claim                      settle
    pending -------> being computed ------------> known: the tensor refers to a leaf and owns its history,
       ^                   |                             `Value.known` leads to the leaf
       +-------------------+
         failed, broken off

Who asks for a value that another thread computes waits, looks again, and finds it known or pending. A tensor
that was written to meanwhile (`storage.write`) refers to something else and stays as it is; whoever asked gets the
elements of what it was.

A claim is a lock that the evaluation holds, so that it ends with it whatever happens. Only a thread that claims
nothing waits for others, so waiting forms no circle: an evaluation inside another one (a finalizer's, a signal
handler's) computes what it needs itself. Two more locks are held for moments, never while something is computed, and
whoever holds one asks for no other:

- `Evaluator._changed` guards who computes several values (of one, `dict.setdefault` is the whole step);
- `core.CHANGES` guards what tensors refer to (`_value`, `_history`), which of them share memory
  (`lazy.tensor.storage`), and what is noted (`Value.known`). Readers do without: a tensor gets its history before its
  leaf, so who reads them in the other order sees a pair that belongs together.

The tensors of the top level (`core.LIVE`) and the bytes until the next collection are each thread's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import ref

from loopgrad.graph.nodes import Leaf, Value
from loopgrad.lazy.tensor.core import (
    CHANGES,
    LIVE,
    History,
    Siblings,
    TensorCore,
    TensorLeaf,
    computed_leaf,
    next_serial,
)
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.processes import child_safe_lock, renewed_in_children

if TYPE_CHECKING:
    from loopgrad.runtime.executable import DirectProgram, Executable

Wanted = dict[int, tuple[TensorCore, Value]]
"""Tensors by identity, each with the value that it referred to when it was looked at."""
Found = dict[Value, Buffer]
_new: Final = object.__new__
_begin_change, _end_change = CHANGES.acquire, CHANGES.release


class Computed(NamedTuple):
    """The elements of an evaluation's values; `committed`: those that are on a device that the user chose.
    `generation`: as a leaf's."""

    buffers: Found
    committed: Collection[Value]
    generation: int


class _OwnClaim(threading.local):
    """`lock`: what this thread holds while it computes a line that it knows."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget who held it."""
        self.lock = threading.Lock()


_own: Final = _OwnClaim()


class Evaluator:
    """See above."""

    def __init__(self) -> None:
        self._changed = child_safe_lock()
        # Value -> a lock that the evaluation holds which computes it: free once that has ended, in whatever way.
        self._owners: dict[Value, Any] = {}
        renewed_in_children(self._owners.clear)
        renewed_in_children(_own.renew)

    def claimed(self, tensors: Sequence[TensorCore], compute: Callable[[Wanted], Found]) -> Found:
        """What `compute` gives for those of these tensors that have no elements yet, and their siblings; no other
        thread computes them meanwhile. Waits for threads that already do."""
        mine = threading.Lock()
        values: list[Value] = []
        live, owners = LIVE, self._owners
        live.evaluating += 1
        try:
            with mine:
                while True:
                    wanted = pending(tensors)
                    values = [value for _, value in wanted.values()]
                    with self._changed:
                        others = [o for v in values if (o := owners.setdefault(v, mine)) is not mine and o.locked()]
                        for value in values:
                            if not others:
                                owners[value] = mine
                            elif owners.get(value) is mine:
                                del owners[value]
                    if not others or live.evaluating > 1 or _own.lock.locked():
                        return compute(wanted)
                    for other in others:
                        with other:
                            """It has ended: look again."""
        finally:
            live.evaluating -= 1
            with self._changed:
                for value in values:
                    if owners.get(value) is mine:
                        del owners[value]

    def claim(self, value: Value) -> Any:
        """A lock that is held while a value is computed (see `release`); None where that is somebody's already, or the
        thread is in the middle of such a claim."""
        mine = _own.lock
        if not mine.acquire(False):
            return None
        if self._owners.setdefault(value, mine) is mine:
            return mine
        mine.release()
        return None

    def claim_too(self, values: Sequence[Value], mine: Any) -> set[Value]:
        """Those of more values that nobody else has claimed, which are claimed together with the first."""
        with self._changed:
            return {v for v in values if self._owners.setdefault(v, mine) is mine}

    def claim_all(self, values: Sequence[Value]) -> Any:
        """As `claim`, of several values; None where one of them is somebody's already."""
        first, *more = values
        mine = self.claim(first)
        if mine is None or not more:
            return mine
        too = self.claim_too(more, mine)
        if len(too) == len(more):
            return mine
        self.release(first, mine, too)
        return None

    def release(self, value: Value, mine: Any, more: Collection[Value] = ()) -> None:
        """The value that was claimed is computed, or isn't, and more that were claimed together with it."""
        owners = self._owners
        owners.pop(value, None)
        for v in more:
            owners.pop(v, None)
        mine.release()

    def run_line(
        self, t: TensorCore, value: Value, program: Executable | DirectProgram, inputs: Sequence[Buffer],
        expression: Any,
    ) -> Buffer | None:  # fmt: skip
        """The elements of a tensor whose value nobody else reads, the only output of a program, which become its leaf,
        with that expression; None where somebody else is to be waited for."""
        mine, owners = _own.lock, self._owners
        if not mine.acquire(False):
            return None
        if owners.setdefault(value, mine) is not mine:
            mine.release()
            return None
        try:
            if t._value is not value:
                return None
            (buffer,) = program.run(inputs)
            _settle_one(t, value, buffer, expression)
            return buffer
        finally:
            del owners[value]
            mine.release()

    def settle_line(
        self, t: TensorCore, value: Value, along: Sequence[tuple[TensorCore, Value]], buffers: Sequence[Buffer],
        expression: Any = None,
    ) -> None:  # fmt: skip
        """As below, of tensors with values of their own that nobody else reads, on the device of the settings.
        `expression`: the first one's leaf's, where it is known."""
        leaf = _settle_one(t, value, buffers[0], expression)
        for (other, v), buffer in zip(along, buffers[1:], strict=True) if along else ():
            _settle_one(other, v, buffer).serial = leaf.serial

    def settle(self, evaluated: Iterable[tuple[TensorCore, Value]], read: Sequence[Value], computed: Computed) -> None:
        """Make these tensors refer to their elements (their history stays reachable while they live), and note the
        elements of values that unevaluated tensors `read`."""
        serial, kept = next_serial(), set(read)
        with CHANGES:
            for t, value in evaluated:
                if t._value is not value:
                    continue  # written to, or another thread was first
                history = History(value)
                leaf = _leaf(computed, value, history, serial)
                t._history = history
                t._value = leaf
                if t._view is not None:
                    t._view.note_evaluated(leaf)
                # what is read must outlive the tensor
                strong = value in kept or isinstance(value.known, TensorLeaf)
                value.known = leaf if strong else ref(leaf)
            for value in read:
                if known_leaf(value) is None:
                    value.known = _leaf(computed, value, None, serial)


EVALUATOR: Final = Evaluator()


def _settle_one(t: TensorCore, value: Value, buffer: Buffer, expression: Any = None) -> TensorLeaf:
    """As `Evaluator.settle`, of one tensor; its leaf. What `computed_leaf` does stands here too: a call of it would
    take as long as half of that, and each line of a script makes one."""
    leaf: TensorLeaf = _new(TensorLeaf)
    leaf.type = buffer._type or buffer.type
    leaf.node = leaf.known = leaf.scope = None
    leaf.expression = expression
    leaf.index = leaf.generation = 0
    leaf.buffer = buffer
    leaf.serial = next_serial()
    leaf.computed = True
    leaf.committed = False
    history: History = _new(History)
    history.value = value
    leaf.history = ref(history)
    known = ref(leaf)
    _begin_change()  # a third of what a `with` costs
    try:
        if t._value is value:  # not written to, and no other thread was first
            t._history = history
            t._value = leaf
            value.known = known
            if t._view is not None:
                t._view.note_evaluated(leaf)
    finally:
        _end_change()
    return leaf


def known_leaf(value: Value) -> TensorLeaf | None:
    """The leaf that holds a value's elements, where an evaluation has noted one that is still there."""
    known = value.known
    if known is None:
        return None
    leaf: TensorLeaf | None = known() if isinstance(known, ref) else known
    return leaf


def pending(tensors: Iterable[TensorCore]) -> Wanted:
    """The tensors without elements, those that the same calls returned, and what views were often written through
    to."""
    found: Wanted = {}
    for t in tensors:
        value, history, view = t._value, t._history, t._view
        if isinstance(value, Leaf):
            continue
        found[id(t)] = t, value
        along = [member() for member in history.members] if isinstance(history, Siblings) else []
        if view is not None and view.storage is not None:
            along.append(view.storage.waiting())
        for other in along:
            if other is not None and not isinstance(lazy := other._value, Leaf):
                found.setdefault(id(other), (other, lazy))
    return found


def _leaf(computed: Computed, value: Value, history: History | None, serial: int) -> TensorLeaf:
    buffers, committed, generation = computed
    buffer = buffers[value]
    if not committed and history is not None:
        made = computed_leaf(buffer)  # of a long list thousands are made
        made.history, made.serial, made.generation = ref(history), serial, generation
        return made
    leaf = TensorLeaf(buffer.type, buffer, history, True, value in committed, serial)
    leaf.generation = generation
    return leaf
