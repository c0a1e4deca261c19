"""Which loops a recording has trip by trip, launches of one behind those of the other, rather than as loops.

Where it is known how many trips a loop makes, it is known when what it does with addresses happens: which slots have
changed places, what number a trip has, which row of a stack it pushes or pops. Then nothing is left to decide or to
update between launches, which takes 6 us a trip on an H200, as long as three small kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

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
)
from loopgrad.codegen.steps import all_steps
from loopgrad.codegen.targets.gpu.record import ProgramRecord

MOST: Final = 2048  # steps of all trips of a program; a recording is made of them by the host

Known = Callable[[int], int | None]  # what integer a slot holds in each run, if that is known


def written_out(program: ProgramRecord, known: Known) -> dict[int, int]:
    """Trips of loops among the program's own steps, by the `id` of their step."""
    trips, room = dict[int, int](), MOST
    loops = {id(step): step for step in program.steps if isinstance(step, ForStep)}
    for number, step in loops.items():
        count = max(known(step.count) or 0, 0)
        needed = count * len(step.body)
        if 0 < needed <= room and _is_straight(step, program):
            trips[number] = count
            room -= needed
    while True:
        kept = {number: n for number, n in trips.items() if _stacks(loops[number]) <= _static(program, trips, known)}
        if len(kept) == len(trips):
            return trips
        trips = kept


def _is_straight(loop: ForStep, program: ProgramRecord) -> bool:
    """Launches and stacks; what changes places does so in pairs, and nothing else moves it."""
    kinds = (LaunchStep, CopyStep, MatmulStep, RoutineStep, PushStep, PopStep)
    if not all(isinstance(step, kinds) for step in loop.body):
        return False
    pairs = Counter([slot for pair in loop.rotate for slot in pair])
    rows = {step.slot for step in _moves(loop.body) if isinstance(step, PopStep) or step.in_place}
    return max(pairs.values(), default=1) == 1 and loop.index not in program.moved and rows.isdisjoint(pairs)


def _moves(steps: Sequence[Step]) -> Iterator[PushStep | PopStep]:
    return (step for step in steps if isinstance(step, PushStep | PopStep))


def _stacks(loop: ForStep) -> set[int]:
    return {step.stack for step in _moves(loop.body)}


def _static(program: ProgramRecord, trips: dict[int, int], known: Known) -> set[int]:
    """Stacks that nothing but these loops pushes to and pops from, never beyond what was reserved, nor below 0."""
    reserved = {step.stack: known(step.depth) or 0 for step in program.steps if isinstance(step, ReserveStep)}
    found = set(reserved)
    for step in program.steps:
        if id(step) not in trips:
            found -= {move.stack for move in _moves(tuple(all_steps((step,))))}
    depth = Counter[int]()
    for step in program.steps:
        if id(step) not in trips or not isinstance(step, ForStep):
            continue
        for stack in _stacks(step):
            changes = [1 if isinstance(move, PushStep) else -1 for move in _moves(step.body) if move.stack == stack]
            within = trips[id(step)] * sum(changes)
            alike = len(set(changes)) == 1  # else a trip is deeper in its middle
            if not (alike and 0 <= depth[stack] + within <= reserved.get(stack, 0)):
                found.discard(stack)
            depth[stack] += within
    return found
