"""Update lists: what the host would do between launches of a recorded program, in words that the device reads.

A recorded program's state is an array of u64 words: a header, a record per loop and per stack of whole
tensors, the symbols (addresses of slots, capacities), the address tables of launches, and update lists. One
launch of one workgroup runs one list: its first invocation interprets the operations in order, then all
together bring the tables up to date (`words[target] = words[source]` for each pair of the list). A list may
decide one condition: whether a loop goes on, or which branch is taken. Operations after the decision that a
loop ends are not done, so that what begins a pass may follow the decision on it.

Launch words (the ABI of interface.py): the state's address, the list's, the condition's handle or 0, `expected`,
`resume`. Where `expected` isn't 0, any decision but `expected` - 1 makes the void word PAUSED: of what was started
already nothing is done, until an update with `resume` lifts it. A list: the number of operations, the number
of pairs, the operations, the pairs. An operation is OPERATION words: its code, then positions of words and small
numbers as `UpdateList` says. Positions count from the state's address and may lie outside of it, also before.
Once the `void` word is set, whatever follows is repeated or raised by the host: loops end, no branch is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from loopgrad.graph.types import DType

# the header
LOOP_ERROR: Final = 0  # 0, or 1 + the number of the loop that reached its limit; EMPTY_STACK
LOOP_MADE: Final = 1  # the trips it had made
STOP: Final = 2  # the host asks loops to end
VOID: Final = 3  # the address of the void word
PROGRESS: Final = 4  # decisions of which one answer was expected
HEADER: Final = 5
EMPTY_STACK: Final = (1 << 32) - 1

PAUSED: Final = 2  # the void word between an unexpected decision and the next update that resumes

# a loop's record
TRIPS, COUNT = 0, 1  # trips made (of a `for`: the trip in progress), and the count of a `for`
LOOP: Final = 2

# a stack's record; row `capacity` takes what doesn't fit, so that the depth that is needed is found
DEPTH, PEAK, CAPACITY, BASE, STRIDE = range(5)
STACK: Final = 5

SWAP, ENTER, NEXT, CLEAR, TEST, CHOOSE, PUSH, POP, ROOM, WATCH = range(1, 11)
OPERATION: Final = 6
NO_LIMIT: Final = (1 << 63) - 1

ENTRY: Final = "update"  # the kernel's name in code for streams, and its workgroup there
GROUP: Final = 128

Words = tuple[int, ...]


def integer_kind(dtype: DType) -> int:
    """How one integer or bool lies in memory: its size, plus 16 where it has a sign."""
    return dtype.itemsize + (16 if dtype.kind == "i" else 0)


@dataclass(slots=True)
class UpdateList:
    """Operations in the making; every argument but kinds and flags is the position of a word.
    `changed`: positions whose words the list changes, so that tables which copy them follow."""

    operations: list[Words] = field(default_factory=list)
    changed: set[int] = field(default_factory=set)

    def swap(self, a: int, b: int) -> None:
        """Two symbols change places."""
        self._add(SWAP, a, b)
        self.changed |= {a, b}

    def enter(self, loop: int, count: int, kind: int) -> None:
        """A `for` begins; `count` is the symbol of its count. `next` follows."""
        self._add(ENTER, loop, count, kind)

    def next(self, loop: int, index: int, kind: int, reverse: bool) -> None:
        """Decide on the next trip and write its index."""
        self._add(NEXT, loop, index, kind, int(reverse))

    def clear(self, loop: int) -> None:
        """A `while` begins. `test` follows, after its condition."""
        self._add(CLEAR, loop)

    def test(self, loop: int, pred: int, limit: int | None, number: int) -> None:
        """Decide by the bool in `pred`; beyond `limit` trips loop `number` has failed."""
        self._add(TEST, loop, pred, NO_LIMIT if limit is None else limit, number)

    def choose(self, index: int, kind: int, branches: int) -> None:
        """Decide on a branch; `branches` stands for none."""
        self._add(CHOOSE, index, kind, branches)

    def push(self, stack: int, target: int) -> None:
        """Let the symbol `target` be the address of the stack's next row."""
        self._add(PUSH, stack, target)
        self.changed.add(target)

    def pop(self, stack: int, slot: int) -> None:
        """Let the symbol `slot` be the address of the last row."""
        self._add(POP, stack, slot)
        self.changed.add(slot)

    def room(self, stack: int, depth: int, kind: int) -> None:
        """As many rows more as the integer says will be pushed."""
        self._add(ROOM, stack, depth, kind)

    def watch(self, control: int) -> None:
        """A kernel whose control block tells of a failed check voids what follows."""
        self._add(WATCH, control)

    @property
    def movable(self) -> bool:
        """Nothing but pushes and pops, which read no memory of slots."""
        return all(operation[0] in (PUSH, POP) for operation in self.operations)

    def extend(self, other: UpdateList) -> None:
        """What `other` does, behind the rest."""
        self.operations += other.operations
        self.changed |= other.changed

    def _add(self, *words: int) -> None:
        self.operations.append((*words, *[0] * (OPERATION - len(words))))

    def encode(self, pairs: Iterable[tuple[int, int]]) -> list[int]:
        """The list's words; `pairs` are (target, source) of the tables."""
        copies = [word for pair in pairs for word in pair]
        return [len(self.operations), len(copies) // 2, *[w for op in self.operations for w in op], *copies]
