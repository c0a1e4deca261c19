"""Recorded loops and branches on a driver that can't decide on them: the host reads each decision.

What lies between two decisions is one list of commands, made once, so that a trip costs one start and one
short wait. Loops that hold no others are also started many passes at a time: the pass that ends the loop pauses
those behind it. This is done where the loop made so many passes before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.runtime.gpu.driver import Commands, Driver, Shared
from loopgrad.runtime.gpu.flow import Branches, Condition, Item, Launch, Loop

AT_ONCE: Final = 16  # passes
LAUNCHES: Final = 64  # of all of them
EMPTY_LIST: Final = 2  # words: no operations, no pairs


class SteppedWork:
    """`run` as of Commands. `_answers` has a word per condition, which update kernels write, then an update list
    that does nothing."""

    def __init__(self, driver: Driver, items: Sequence[Item]) -> None:
        self._driver = driver
        self._numbers: dict[Condition, int] = {}
        self._conditions = _conditions(items)
        self._answers: Shared = driver.shared(self._conditions + EMPTY_LIST)
        self._steps = self._block(items)
        self._last = driver.commands()
        self._last.begin()
        self._last.end(again=True)

    def _block(self, items: Sequence[Item]) -> list[_Stretch | _Repeat | _Choice]:
        made: list[_Stretch | _Repeat | _Choice] = []
        pending: list[Launch] = []
        for item in items:
            if isinstance(item, Launch):
                pending.append(item)
                if item.decides is not None:
                    made.append(self._stretch(pending))
                    pending = []
                continue
            if pending:
                made.append(self._stretch(pending))
                pending = []
            number = self._number(item.condition)
            if isinstance(item, Loop):
                made.append(_Repeat(number, self._block(item.body), *self._passes(item)))
            else:
                made.append(_Choice(number, [self._block(branch) for branch in item.branches]))
        if pending:
            made.append(self._stretch(pending))
        return made

    def _number(self, condition: Condition) -> int:
        return self._numbers.setdefault(condition, len(self._numbers))

    def _stretch(self, launches: Sequence[Launch]) -> _Stretch:
        commands = self._driver.commands()
        commands.begin()
        self._record(commands, launches, pause=0)
        commands.end(again=True)
        return _Stretch(commands, any(launch.decides is not None for launch in launches))

    def _record(self, commands: Commands, launches: Sequence[Launch], pause: int) -> None:
        for launch in launches:
            push = launch.push
            if launch.decides is not None:
                address = self._answers.address + 8 * self._number(launch.decides)
                push = (push[0], push[1], address, pause, 0, 0)
            commands.dispatch(launch.pipeline, launch.groups, push)
            commands.barrier()

    def _passes(self, loop: Loop) -> tuple[Commands | None, int]:
        """Several passes of a loop in one list, and how many."""
        body = [item for item in loop.body if isinstance(item, Launch)]
        deciding = [launch for launch in body if launch.decides is not None]
        count = min(AT_ONCE, LAUNCHES // max(len(body), 1))
        if count < 2 or len(body) < len(loop.body) or len(deciding) != 1 or body[-1] is not deciding[0]:
            return None, 0
        commands = self._driver.commands()
        commands.begin()
        for _ in range(count):
            self._record(commands, body, pause=1)
        resume = (body[-1].push[0], self._answers.address + 8 * self._conditions, 0, 0, 1, 0)
        commands.dispatch(body[-1].pipeline, 1, resume)
        commands.barrier()
        commands.end(again=True)
        return commands, count

    def run(self, uploads: Sequence[tuple[Shared, int]], report: Shared | None) -> None:
        self._uploads = [(self._answers, len(self._answers.words)), *uploads]
        self._run(self._steps)
        self._start(self._last, report)

    def _start(self, commands: Commands, report: Shared | None) -> None:
        commands.run(self._uploads, report)
        self._uploads = []

    def _run(self, steps: Sequence[_Stretch | _Repeat | _Choice]) -> None:
        for step in steps:
            if isinstance(step, _Stretch):
                self._start(step.commands, self._answers if step.decides else None)
            elif isinstance(step, _Repeat):
                self._repeat(step)
            else:
                chosen = int(self._answers.words[step.number])
                if chosen < len(step.branches):
                    self._run(step.branches[chosen])

    def _repeat(self, loop: _Repeat) -> None:
        made = 0
        while self._answers.words[loop.number]:
            if loop.passes is not None and loop.likely(made):
                self._start(loop.passes, self._answers)
                made += loop.count
            else:
                self._run(loop.body)
                made += 1
        loop.last = made


class _Stretch:
    def __init__(self, commands: Commands, decides: bool) -> None:
        self.commands, self.decides = commands, decides


class _Repeat:
    """`passes` are `count` of them in one list, where there is one; `last`: how many passes there were the last
    time, or some more."""

    def __init__(
        self, number: int, body: list[_Stretch | _Repeat | _Choice], passes: Commands | None, count: int
    ) -> None:
        self.number, self.body, self.passes, self.count = number, body, passes, count
        self.last = 0

    def likely(self, made: int) -> bool:
        """Whether `count` more passes are."""
        if made < self.last:
            return made + self.count <= self.last
        return made >= self.count


class _Choice:
    def __init__(self, number: int, branches: list[list[_Stretch | _Repeat | _Choice]]) -> None:
        self.number, self.branches = number, branches


def _conditions(items: Sequence[Item]) -> int:
    count = 0
    for item in items:
        if isinstance(item, Loop):
            count += 1 + _conditions(item.body)
        elif isinstance(item, Branches):
            count += 1 + sum(_conditions(branch) for branch in item.branches)
    return count
