"""Calls that were started and not looked at: in one of them a stack may have been too small.

A call whose kernels save values isn't waited for. Its kernels mark a word of the device when a stack is too small,
and all kernels that come after do nothing while the word is marked, so what was started in vain ends at once. Whoever
needs elements looks at the word first. Where it is marked, the calls are done again, in their order and into the same
memory; until then the ledger holds their inputs. Results that nobody holds, no later call among them, are let go: their
memory may have another use by then, so they get some of their own. A call that fails then leaves its failure with its
results. On an H200 four million lanes of 0 to 63 trips take 1.27 times as long where each call is waited for.

Circle: the protocol in `runtime/gpu/driver.py` says that a driver may have a ledger, which starts its work there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import ref

from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.runtime.gpu.driver import Driver, Shared
from loopgrad.runtime.gpu.memory import Allocation

MOST_CALLS: Final = 32
SHARE: Final = 1 / 8  # of the memory that the device had


class Repeatable(Protocol):
    """What the ledger asks of a context (`runtime.gpu.context`) to do its last run again."""

    @property
    def program(self) -> ProgramRecord: ...
    @property
    def driver(self) -> Driver: ...
    def run(self, inputs: Sequence[Allocation], given: Mapping[int, Allocation | None]) -> object: ...
    def clear_reports(self) -> None: ...
    def release(self) -> None: ...


@dataclass(slots=True, eq=False)
class StartedCall:
    """One that was started in this context. `size`: bytes of what it read and made."""

    context: Repeatable
    inputs: Sequence[Allocation]
    outputs: Sequence[ref[Allocation]]
    size: int

    def repeat(self) -> None:
        """Do it again and wait for it."""
        held = [output() for output in self.outputs]
        try:
            require(self.inputs)
            self.context.run(self.inputs, dict(zip(self.context.program.outputs, held, strict=True)))
            for output in held:
                if output is not None:
                    self.context.driver.made(output)
        except Exception as failure:
            slots = self.context.program.slots
            for slot, output in zip(self.context.program.outputs, held, strict=True):
                if output is not None and slots[slot].constant is None and output not in self.inputs:
                    output.failure = failure.with_traceback(None)  # which would hold on to arrays
        finally:
            self.context.release()


class Ledger:
    """One per device, under its lock. `address`: of the word that kernels mark."""

    def __init__(self, driver: Driver, memory: int) -> None:
        self._driver = driver
        self._word: Shared = driver.shared(1)
        self.address = self._word.address
        self._calls: deque[StartedCall] = deque()
        self._most_bytes = int(memory * SHARE)
        self._bytes = 0
        self._begun = False  # a call was started and not entered yet, or never, since that was broken off
        self._marked = False
        self._repeating = False

    @property
    def empty(self) -> bool:
        return not (self._calls or self._begun)

    @property
    def full(self) -> bool:
        return len(self._calls) >= MOST_CALLS or self._bytes > self._most_bytes

    def begin(self) -> None:
        """A call is about to be started that will be entered."""
        self._begun = True

    def add(self, context: Repeatable, inputs: Sequence[Allocation], outputs: Sequence[Allocation]) -> None:
        size = 0
        for a in inputs:
            size += a.size
        for a in outputs:
            size += a.size
        self._calls.append(StartedCall(context, inputs, [ref(a) for a in outputs], size))
        self._bytes += size
        self._begun = False

    def settle(self) -> bool:
        """Wait for all calls, and do them again where one was in vain; whether there were any. What it raises comes
        from outside, as by Ctrl-C, and the next look goes on from there."""
        if self._repeating or self.empty:
            return False
        self._repeating = True
        try:
            if not self._marked:
                self._driver.start((), (), self._word)
                self._marked = bool(self._word.words[0])
            if self._marked or self._begun:
                self._word.clear()
                for context in {id(call.context): call.context for call in self._calls}.values():
                    context.clear_reports()  # so that each call says anew what it needs
            while self._calls:
                if self._marked:
                    self._calls[0].repeat()
                self._bytes -= self._calls.popleft().size
            self._marked = self._begun = False
        finally:
            self._repeating = False
        return True

    def clear(self) -> None:
        """A call that was waited for has dealt with what its kernels marked."""
        if self._repeating or not self._calls:
            self._word.clear()


def complete(driver: Driver, *allocations: Allocation) -> None:
    """Let all that was started have what it will have in the end; raises why one of these has no content."""
    if driver.ledger is not None:
        driver.ledger.settle()
    require(allocations)


def require(allocations: Sequence[Allocation]) -> None:
    """Raise why one of these has no content."""
    for allocation in allocations:
        if allocation.failure is not None:
            raise allocation.failure.with_traceback(None)
