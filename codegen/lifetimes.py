"""When a slot (or, before slots are assigned, a buffer) is alive: the one analysis that slots and bytes are shared by.

Steps are numbered in program order; a loop has a number of its own for its end. A slot is alive from its first to its
last step. Where some of its uses are inside a loop and some outside, or where the loop rotates it or reads it before
writing it, it is alive during the whole loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.program import (
    CopyStep,
    ForStep,
    LaunchStep,
    MatmulStep,
    PopStep,
    PushStep,
    ReserveStep,
    RoutineStep,
    Step,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.steps import blocks, named


@dataclass(slots=True, eq=False)
class _Loop:
    """`always`: what the loop itself names."""

    begin: int
    always: frozenset[int]
    around: _Loop | None
    end: int = 0


@dataclass(slots=True, eq=False)
class _Uses:
    """The first and the last step that names a slot, the loops in which it is named, and whether its old elements
    matter to the first."""

    first: int
    last: int
    reads_first: bool
    loops: dict[_Loop, None] = field(default_factory=dict)


@dataclass(slots=True)
class Lifetimes:
    """`launches`: the positions of each kernel; `rotations`: all pairs that loops swap."""

    kernels: Sequence[Kernel]
    launches: dict[int, list[int]] = field(default_factory=dict)
    rotations: list[tuple[int, int]] = field(default_factory=list)
    _position: int = 0
    _loop: _Loop | None = None
    _uses: dict[int, _Uses] = field(default_factory=dict)

    def used(self) -> Collection[int]:
        return self._uses.keys()

    def touch(self, slot: int, reads: bool) -> None:
        """A use here. `reads`: its old elements matter."""
        uses = self._uses.get(slot)
        if uses is None:
            uses = self._uses[slot] = _Uses(self._position, self._position, reads)
        else:
            uses.last = self._position
        if self._loop is not None:
            uses.loops[self._loop] = None

    def life(self, slots: Collection[int]) -> tuple[int, int]:
        """The first and the last step of slots that live and die together, at least one of which is used."""
        uses = [found for slot in slots if (found := self._uses.get(slot)) is not None]
        first, last = earliest, latest = min([u.first for u in uses]), max([u.last for u in uses])
        loops = [loop for u in uses for loop in u.loops]
        if not loops:
            return first, last
        reads_first = any(u.reads_first for u in uses)
        seen: set[_Loop] = set()
        for innermost in loops:
            loop: _Loop | None = innermost
            while loop is not None and loop not in seen:
                seen.add(loop)
                outside = earliest < loop.begin or latest > loop.end
                if outside or reads_first or not loop.always.isdisjoint(slots):
                    first, last = min(first, loop.begin), max(last, loop.end)
                loop = loop.around
        return first, last

    def steps(self, steps: Sequence[Step]) -> None:
        """Go over these steps."""
        for step in steps:
            self._position += 1
            if isinstance(step, ForStep | WhileStep):
                self._enter(step)
                continue
            for slot, reads in self._accesses(step):
                self.touch(slot, reads)
            if isinstance(step, LaunchStep):
                self.launches.setdefault(step.kernel, []).append(self._position)
            for block in blocks(step):
                self.steps(block)

    def _enter(self, step: ForStep | WhileStep) -> None:
        loop = self._loop = _Loop(self._position, frozenset(named(step)), self._loop)
        if isinstance(step, ForStep):
            self.touch(step.count, True)
        for block in blocks(step):
            self.steps(block)
        self.rotations.extend(step.rotate)
        for slot in loop.always:
            self.touch(slot, True)
        self._position += 1
        loop.end = self._position
        self._loop = loop.around

    def _accesses(self, step: Step) -> Iterator[tuple[int, bool]]:
        """(slot, whether its old elements matter), reads first."""
        match step:
            case LaunchStep():
                yield from self._launch_accesses(step)
            case CopyStep():
                yield from ((step.source, True), (step.target, False))
            case MatmulStep():
                yield from ((step.left, True), (step.right, True), (step.out, False))
                if step.epilogue is not None:
                    yield from self._launch_accesses(step.epilogue)
            case RoutineStep():
                yield from ((slot, True) for slot in step.inputs)
                yield from ((slot, False) for slot in (*step.outputs, *step.scratch))
            case ReserveStep():
                yield (step.depth, True)
            case PushStep():
                yield (step.slot, not step.in_place)
            case PopStep():
                yield (step.slot, False)
            case SwitchStep():
                yield (step.index, True)
            case ForStep() | WhileStep():
                pass

    def _launch_accesses(self, step: LaunchStep) -> Iterator[tuple[int, bool]]:
        initials = dict(step.initials)
        for position, initial in initials.items():
            if initial.source is not None and initial.source != step.slots[position]:
                yield (initial.source, True)
        for position, (slot, param) in enumerate(zip(step.slots, self.kernels[step.kernel].params, strict=True)):
            started = position in initials and initials[position].source != slot
            yield (slot, param.access == "read" or (param.access == "accumulate" and not started))
