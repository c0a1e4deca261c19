"""Which temporary lives where: offsets into one block of memory per running call.

Enters: a Program, its kernels' scratch sizes and an alignment. Leaves: an `Arena`: an aligned offset for
every slot that needs memory of its own and for every kernel's scratch blocks; two of them share
bytes only when they are never alive at the same time.

Steps are numbered in program order. A slot is alive from its first to its last step. Where some of
its uses are inside a loop and some outside, or where the loop rotates it or reads it before writing
it, it is alive during the whole loop. Slots that change places in a rotation may hold each other's
memory ever after, so they live and die together. Placement is greedy, largest first (of very many: in the
order of first use), lowest free offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from loopgrad.codegen.program import (
    ALIGNMENT,
    CopyStep,
    ForStep,
    HostCallStep,
    LaunchStep,
    MatmulStep,
    PopStep,
    Program,
    PushStep,
    ReserveStep,
    Step,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.steps import blocks, named

MANY: Final = 1000  # lives that are no longer placed largest first


@dataclass(frozen=True, slots=True)
class Arena:
    """`slots`: slot -> offset. `scratch[kernel]`: one offset per scratch block."""

    slots: dict[int, int]
    scratch: tuple[tuple[int, ...], ...]
    size: int


@dataclass(slots=True, eq=False)
class _Life:
    """`item` is a slot, or (kernel, block) for scratch."""

    item: int | tuple[int, int]
    size: int
    first: int
    last: int
    offset: int = -1


@dataclass(slots=True)
class _Walk:
    """What one pass over the steps finds; loops are (first step, last step)."""

    position: int = 0
    uses: dict[int, list[int]] = field(default_factory=dict)
    reads_first: dict[int, bool] = field(default_factory=dict)
    launches: dict[int, list[int]] = field(default_factory=dict)
    loops: list[tuple[int, int, frozenset[int]]] = field(default_factory=list)
    rotations: list[tuple[int, int]] = field(default_factory=list)

    def touch(self, slot: int, reads: bool) -> None:
        self.uses.setdefault(slot, []).append(self.position)
        self.reads_first.setdefault(slot, reads)


def plan_arena(
    program: Program, scratch: Sequence[Sequence[int]], owned: frozenset[int], alignment: int = ALIGNMENT
) -> Arena:
    """Place the slots of `owned` and all scratch blocks; `scratch[kernel]` are the sizes of its blocks."""
    walk = _Walk()
    _walk_steps(program, program.steps, walk)
    for slot in program.outputs:
        walk.touch(slot, True)
    companions = _companions(walk)
    lives = [
        life for slot in owned if (life := _slot_life(program, slot, companions.get(slot, {slot}), walk)) is not None
    ]
    for kernel, positions in walk.launches.items():
        for block, size in enumerate(scratch[kernel]):
            lives += [_Life((kernel, block), size, positions[0], positions[-1])]
    size = _place(lives, alignment)
    offsets = {life.item: life.offset for life in lives}
    slots = {slot: offsets.get(slot, 0) for slot in sorted(owned)}
    blocks = tuple(
        tuple(offsets.get((kernel, block), 0) for block in range(len(sizes))) for kernel, sizes in enumerate(scratch)
    )
    return Arena(slots, blocks, size)


def _walk_steps(program: Program, steps: Sequence[Step], walk: _Walk) -> None:
    for step in steps:
        walk.position += 1
        for slot, reads in _accesses(program, step):
            walk.touch(slot, reads)
        match step:
            case LaunchStep():
                walk.launches.setdefault(step.kernel, []).append(walk.position)
            case ForStep() | WhileStep():
                _walk_loop(program, step, walk)
            case SwitchStep():
                for branch in step.branches:
                    _walk_steps(program, branch, walk)


def _walk_loop(program: Program, step: ForStep | WhileStep, walk: _Walk) -> None:
    first, always = walk.position, tuple(named(step))
    for block in blocks(step):
        _walk_steps(program, block, walk)
    walk.rotations.extend(step.rotate)
    for slot in always:
        walk.touch(slot, True)
    walk.position += 1
    walk.loops.append((first, walk.position, frozenset(always)))


def _accesses(program: Program, step: Step) -> Iterator[tuple[int, bool]]:
    """(slot, whether its old elements matter), reads first."""
    match step:
        case LaunchStep():
            yield from _launch_accesses(program, step)
        case CopyStep():
            yield from ((step.source, True), (step.target, False))
        case MatmulStep():
            yield from ((step.left, True), (step.right, True), (step.out, False))
        case HostCallStep():
            yield from ((slot, True) for slot in step.inputs)
            yield from ((slot, False) for slot in step.outputs)
        case ReserveStep():
            yield (step.depth, True)
        case PushStep():
            yield (step.slot, True)
        case PopStep():
            yield (step.slot, False)
        case SwitchStep():
            yield (step.index, True)
        case ForStep():
            yield (step.count, True)
        case WhileStep():
            pass


def _launch_accesses(program: Program, step: LaunchStep) -> Iterator[tuple[int, bool]]:
    kernel = program.kernels[step.kernel]
    initials = dict(step.initials)
    for position, initial in initials.items():
        if initial.source is not None and initial.source != step.slots[position]:
            yield (initial.source, True)
    for position, (slot, param) in enumerate(zip(step.slots, kernel.params, strict=True)):
        started = position in initials and initials[position].source != slot
        yield (slot, param.access == "read" or (param.access == "accumulate" and not started))


def _companions(walk: _Walk) -> dict[int, set[int]]:
    """Slot -> all slots whose memory it may hold after rotations, itself included."""
    groups: dict[int, set[int]] = {}
    for pair in walk.rotations:
        merged = set(pair).union(*(groups.get(slot, set()) for slot in pair))
        groups.update((slot, merged) for slot in merged)
    return groups


def _slot_life(program: Program, slot: int, group: set[int], walk: _Walk) -> _Life | None:
    if slot not in walk.uses:
        return None
    uses = [use for member in group for use in walk.uses.get(member, ())]
    reads_first = any(walk.reads_first.get(member, False) for member in group)
    first, last = min(uses), max(uses)
    # inner loops were recorded before the loops around them, so one pass widens outwards
    for begin, end, always in walk.loops:
        inside = any(begin <= use <= end for use in uses)
        outside = any(use < begin or use > end for use in uses)
        if inside and (outside or not group.isdisjoint(always) or reads_first):
            first, last = min(first, begin), max(last, end)
    return _Life(slot, program.slots[slot].type.nbytes, first, last)


def _place(lives: Sequence[_Life], alignment: int) -> int:
    """Set every offset; the number of bytes needed."""
    if len(lives) > MANY:
        return _place_in_order(lives, alignment)
    placed: list[_Life] = []
    total = 0
    for life in sorted(lives, key=lambda item: (-item.size, item.first)):
        size = _rounded(life.size, alignment)
        offset = 0
        for other in sorted(placed, key=lambda item: item.offset):
            if other.last < life.first or life.last < other.first:
                continue
            if offset + size <= other.offset:
                break
            offset = max(offset, other.offset + _rounded(other.size, alignment))
        life.offset = offset
        placed.append(life)
        total = max(total, offset + size)
    return total


def _place_in_order(lives: Sequence[_Life], alignment: int) -> int:
    """The same in the order of first use, each life in the first hole that is large enough: what the others do is
    quadratic in the number of lives."""
    holes: list[tuple[int, int]] = []  # (offset, size), in order, none beside another
    ends: list[tuple[int, int, int]] = []  # (last, offset, size) of what is alive
    top = 0
    for life in sorted(lives, key=lambda item: (item.first, -item.size)):
        while ends and ends[0][0] < life.first:
            _, offset, size = heappop(ends)
            _give_back(holes, offset, size)
        size = _rounded(life.size, alignment)
        found = next((i for i, (_, room) in enumerate(holes) if room >= size), None)
        if found is None:
            life.offset = top
            top += size
        else:
            life.offset, room = holes[found]
            holes[found : found + 1] = [(life.offset + size, room - size)] if room > size else []
        heappush(ends, (life.last, life.offset, size))
    return top


def _give_back(holes: list[tuple[int, int]], offset: int, size: int) -> None:
    """A hole more, joined with its neighbours."""
    at = bisect_left(holes, (offset, 0))
    if at < len(holes) and holes[at][0] == offset + size:
        size += holes.pop(at)[1]
    if at and sum(holes[at - 1]) == offset:
        offset, before = holes.pop(at - 1)
        size += before
        at -= 1
    holes.insert(at, (offset, size))


def _rounded(size: int, alignment: int) -> int:
    return max(-(-size // alignment), 1) * alignment
