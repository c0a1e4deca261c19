"""Which temporary lives where: offsets into one block of memory per running call.

Enters: a Program, its kernels' scratch sizes and an alignment. Leaves: an `Arena`: an aligned offset for
every slot that needs memory of its own and for every kernel's scratch blocks; two of them share
bytes only when they are never alive at the same time.

Slots that change places in a rotation may hold each other's memory ever after, so they live and die together.
Placement is greedy, largest first (of very many: in the order of first use), lowest free offset.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from loopgrad.codegen.lifetimes import Lifetimes
from loopgrad.codegen.program import ALIGNMENT, Program

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


def plan_arena(
    program: Program, scratch: Sequence[Sequence[int]], owned: frozenset[int], alignment: int = ALIGNMENT
) -> Arena:
    """Place the slots of `owned` and all scratch blocks; `scratch[kernel]` are the sizes of its blocks."""
    lifetimes = Lifetimes(program.kernels)
    lifetimes.steps(program.steps)
    for slot in program.outputs:
        lifetimes.touch(slot, True)
    companions = _companions(lifetimes.rotations)
    lives = [
        _Life(slot, program.slots[slot].type.nbytes, *lifetimes.life(companions.get(slot, {slot})))
        for slot in owned.intersection(lifetimes.used())
    ]
    for kernel, positions in lifetimes.launches.items():
        for block, size in enumerate(scratch[kernel]):
            lives += (
                [_Life((kernel, block), size, positions[0], positions[-1])] if size else []
            )  # 0: nobody looks there
    size = _place(lives, alignment)
    offsets = {life.item: life.offset for life in lives}
    slots = {slot: offsets.get(slot, 0) for slot in sorted(owned)}
    blocks = tuple(
        tuple(offsets.get((kernel, block), 0) for block in range(len(sizes))) for kernel, sizes in enumerate(scratch)
    )
    return Arena(slots, blocks, size)


def _companions(rotations: Sequence[tuple[int, int]]) -> dict[int, set[int]]:
    """Slot -> all slots whose memory it may hold after rotations, itself included."""
    groups: dict[int, set[int]] = {}
    for pair in rotations:
        merged = set(pair).union(*(groups.get(slot, set()) for slot in pair))
        groups.update((slot, merged) for slot in merged)
    return groups


def _place(lives: Sequence[_Life], alignment: int) -> int:
    """Set every offset; the number of bytes needed."""
    if len(lives) > MANY:
        return _place_in_order(lives, alignment)
    placed: list[_Life] = []  # by offset
    total = 0
    for life in sorted(lives, key=lambda item: (-item.size, item.first)):
        size = _rounded(life.size, alignment)
        offset = 0
        for other in placed:
            if other.last < life.first or life.last < other.first:
                continue
            if offset + size <= other.offset:
                break
            offset = max(offset, other.offset + _rounded(other.size, alignment))
        life.offset = offset
        insort(placed, life, key=lambda item: item.offset)
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
