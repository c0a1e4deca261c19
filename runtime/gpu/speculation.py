"""Recorded loops and branches on a driver that can't decide on them: the host reads decisions, few times.

What lies between two decisions is a stretch: one list of commands, made once, and started as often as it is
needed. The host foresees how loops and branches will be decided (as in the run before; a loop that it knows
nothing of goes on for as many passes as it has made, and for FIRST at least), and starts all the stretches
of that way at once. Every decision is recorded with the answer that was foreseen: another one pauses what follows,
so that nothing of it is done, and the host goes on from there with the answer that it reads. A replay whose loops
make as many trips as before is so one start and one wait; a loop of n trips that nobody knows takes about log2(n).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from loopgrad.codegen.targets.gpu.support.update_list import PAUSED, PROGRESS
from loopgrad.runtime.gpu.control_flow import Condition, DeviceBranches, DeviceLoop, Item, Launch
from loopgrad.runtime.gpu.driver import Commands, Driver, Shared, Words

FIRST: Final = 8  # passes of a loop that nobody knows
MOST: Final = 4096  # launches of one start
FEW: Final = 64  # of one after an unexpected decision, if more than those that were made don't promise more
LONGEST: Final = 256  # launches of a stretch: what is written out may have thousands
START_SECONDS: Final = 0.25  # what one start should take at most, so that signals are seen in time
REMEMBERED: Final = 4096  # loops and branches of one place in a program whose answers are kept


@dataclass(frozen=True, slots=True)
class StatePlace:
    """Where the words of a run are. `void`, `state`: positions of the void word and of the state in `shared`, whose
    address is `address`; `answers`: position of the first decision in the state; `nothing`: the address of an update
    list that does nothing."""

    shared: Shared
    void: int
    state: int
    answers: int
    nothing: int

    @property
    def words(self) -> Words:
        return self.shared.words

    def answer(self, number: int) -> int:
        """The address of a decision."""
        return self.shared.address + 8 * (self.state + self.answers + number)


@dataclass(slots=True, eq=False)
class _Turn:
    """A loop's condition, or a branch's: where each answer leads. `past` has what the last run found, `found` what
    this one has so far: trips of a loop each time that it ran, answers of a branch. `made`: trips of the loop that
    runs."""

    number: int
    loops: bool
    targets: list[_Stretch | None]
    past: list[int] = field(default_factory=list)
    found: list[int] = field(default_factory=list)
    made: int = 0

    def begin(self) -> None:
        """Another run."""
        if self.found:
            self.past = self.found
        self.found, self.made = [], 0

    def take(self, answer: int) -> _Stretch | None:
        """What follows an answer."""
        if self.loops and answer:
            self.made += 1
        else:
            if len(self.found) < REMEMBERED:
                self.found.append(self.made if self.loops else answer)
            self.made = 0
        return self.target(answer)

    def target(self, answer: int) -> _Stretch | None:
        return self.targets[min(answer, len(self.targets) - 1)]

    def known(self, ordinal: int) -> int | None:
        """What the loop or branch number `ordinal` of the run will find."""
        if ordinal < len(self.past):
            return self.past[ordinal]
        known = self.found or self.past
        return known[-1] if known else None


@dataclass(slots=True, eq=False)
class _Stretch:
    """Launches, of which the last one decides, where there is a turn; else `following` comes. `recorded`: by the
    answer that is expected, None where any will do."""

    launches: list[Launch]
    turn: _Turn | None
    following: _Stretch | None
    recorded: dict[int | None, Commands] = field(default_factory=dict)


Step = tuple[_Stretch, int | None]  # and the answer that is expected


class _Foresight:
    """A way through the program, as it is expected to go on."""

    def __init__(self) -> None:
        self._reached: dict[_Turn, tuple[int, int]] = {}  # how many loops or branches were through, and trips made

    def expected(self, turn: _Turn) -> int | None:
        """The next answer; None where nothing is known."""
        ordinal, made = self._reached.get(turn, (len(turn.found), turn.made))
        known = turn.known(ordinal)
        if not turn.loops:
            answer = known
        elif known is not None and made <= known:
            answer = int(made < known)
        else:
            answer = 1 if made < max(2 * turn.made, FIRST) else None
        ended = answer is not None and not (turn.loops and answer)
        self._reached[turn] = (ordinal + 1, 0) if ended else (ordinal, made + 1)
        return answer


class SpeculativeWork:
    """`run` as of Commands, whose report must be `place.shared`; the first upload holds it as zeros there. Without a
    report, where nothing is decided, all of it is started."""

    def __init__(self, driver: Driver, items: Sequence[Item], place: StatePlace) -> None:
        self._driver, self._place = driver, place
        self._turns: dict[Condition, _Turn] = {}
        self._update: Launch | None = None
        self._entry = self._chain(items, None)
        self._resume = None if self._update is None else self._resuming(self._update)
        self._seconds = 0.0  # of a launch
        self._ran = False

    # the program

    def _chain(self, items: Sequence[Item], following: _Stretch | None) -> _Stretch | None:
        """The first stretch of these items; `following` comes after them. From the last to the first, since what
        decides on a loop or branch comes right before it, and at the end of a loop's body."""
        launches: list[Launch] = []
        turn: _Turn | None = None
        for item in reversed(items):
            decides = item.decides if isinstance(item, Launch) else None
            if launches and (decides is not None or not isinstance(item, Launch) or len(launches) == LONGEST):
                following = _Stretch(launches[::-1], turn, following)
                launches, turn = [], None
            if isinstance(item, Launch):
                launches.append(item)
                if decides is not None:
                    self._update, turn = item, self._turns[decides]
            else:
                self._region(item, following)
        return _Stretch(launches[::-1], turn, following) if launches else following

    def _region(self, item: DeviceLoop | DeviceBranches, following: _Stretch | None) -> None:
        """Its turn: what decides on it leads there."""
        turn = self._turns[item.condition] = _Turn(len(self._turns), isinstance(item, DeviceLoop), [])
        if isinstance(item, DeviceLoop):
            turn.targets = [following, None]
            turn.targets[1] = self._chain(item.body, None)
        else:
            turn.targets = [*[self._chain(branch, following) for branch in item.branches], following]

    # commands

    def _commands(self, stretch: _Stretch, expected: int | None) -> Commands:
        known = stretch.recorded.get(expected)
        if known is None:
            known = stretch.recorded[expected] = self._driver.commands()
            known.begin()
            for launch in stretch.launches:
                push = launch.push
                if launch.decides is not None:
                    address = self._place.answer(self._turns[launch.decides].number)
                    push = (push[0], push[1], address, 0 if expected is None else expected + 1, 0, 0)
                known.dispatch(launch.pipeline, launch.groups, push)
                known.barrier()
            known.end(again=True)
        return known

    def _resuming(self, update: Launch) -> Commands:
        """What lifts a pause."""
        commands = self._driver.commands()
        commands.begin()
        commands.dispatch(update.pipeline, 1, (update.push[0], self._place.nothing, 0, 0, 1, 0))
        commands.barrier()
        commands.end(again=True)
        return commands

    # a run

    def run(self, uploads: Sequence[tuple[Shared, int]], report: Shared | None) -> None:
        if report is None:
            assert not self._turns, "decisions are read from the report"
            self._driver.start([self._commands(stretch, None) for stretch in self._straight()], uploads, None)
            return
        assert report is self._place.shared
        for turn in self._turns.values():
            turn.begin()
        stretch, paused, counted, trusted = self._entry, False, 0, MOST if self._ran else FEW
        while True:
            way = self._foreseen(stretch, trusted)
            lists = [self._commands(*step) for step in way]
            if paused and self._resume is not None:
                lists.insert(0, self._resume)
            began = time.perf_counter()
            self._driver.start(lists, uploads, self._place.shared)
            spent, uploads, paused = time.perf_counter() - began, (), self._void() == PAUSED
            if self._void() and not paused:  # a failure, or a stack that is too small
                return
            made = int(self._place.words[self._place.state + PROGRESS])
            stretch, launches = self._follow(way, made - counted, paused)
            counted, self._seconds = made, spent / max(launches, 1)
            trusted = max(2 * launches, FEW) if paused else min(2 * trusted, MOST)
            if stretch is None:
                self._ran = True
                return

    def _straight(self) -> Iterator[_Stretch]:
        """All stretches of a program without decisions."""
        stretch = self._entry
        while stretch is not None:
            yield stretch
            stretch = stretch.following

    def _foreseen(self, stretch: _Stretch | None, trusted: int) -> list[Step]:
        """Stretches of `trusted` launches at most, and the answer that is expected of each; of the last one any
        will do."""
        way: list[Step] = []
        foresight, launches = _Foresight(), 0
        most = min(START_SECONDS / max(self._seconds, 1e-9), trusted)
        while stretch is not None:
            expected = None if stretch.turn is None else foresight.expected(stretch.turn)
            launches += len(stretch.launches)
            full = launches >= most
            way.append((stretch, None if full else expected))
            if full or (stretch.turn is not None and expected is None):
                break
            stretch = stretch.following if stretch.turn is None else stretch.turn.target(expected or 0)
        return way

    def _void(self) -> int:
        return int(self._place.words[self._place.void]) & 0xFFFFFFFF

    def _follow(self, way: Sequence[Step], left: int, paused: bool) -> tuple[_Stretch | None, int]:
        """What comes after that way, of which `left` foreseen decisions were made, and how many launches were."""
        launches, stretch = 0, None
        for stretch, expected in way:
            launches += len(stretch.launches)
            turn = stretch.turn
            if turn is None:
                stretch = stretch.following
                continue
            left -= expected is not None
            if expected is None or (paused and not left):
                return turn.take(self._answer(turn)), launches
            stretch = turn.take(expected)
        return stretch, launches

    def _answer(self, turn: _Turn) -> int:
        place = self._place
        return int(place.words[place.state + place.answers + turn.number])
