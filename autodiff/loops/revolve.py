"""Reverse of a loop within a memory budget: binomial checkpointing in ordinary nodes.

Instead of what each trip's adjoint needs, a few states of the loop are kept; everything between two of them
is computed again. With s states in memory, beta(s, r) = binomial(s + r, s) trips can be reversed without
computing any trip more than r times (Griewank and Walther, Algorithm 799: Revolve, 2000), which is optimal.

    for t = n-1 .. 0 (reverse):
        while p < t and states are free:        p, the base's position; its state x is carried
            push (p, x);  m = split(t + 1 - p, free);  x = m trips from x;  p = p + m
        x_adj, ... = pullback of one trip at (t - p trips from x)
        if p == t: pop (p, x)

The trip count is data (a while is run once more to count it), so the schedule is computed while it runs. It is
the same for all lanes of a lane loop: lanes that have finished stand still. The states in memory are one base
and what the stack holds, at most budget // (bytes of one state). A for stores its first states while it runs
for its value: the loop that `replaces` it makes the trips after the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from loopgrad.autodiff.loops.emission import Emptied, ReverseCarries, Saving, scatter_chains
from loopgrad.autodiff.loops.normal import NormalLoop
from loopgrad.autodiff.loops.residuals import JointValues, ReverseInputs, ReversePart, nbytes
from loopgrad.graph import ops
from loopgrad.graph.build import inline
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Value
from loopgrad.graph.primitives.primitive import tensor_type
from loopgrad.graph.rebuild import read_values
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.regions import in_parts
from loopgrad.graph.types import TensorType, int64

_COUNT: Final = TensorType((), int64)


@dataclass(frozen=True, slots=True)
class Trip:
    """One trip of the loop, whose results are `primal`, and its pullback `reverse`, as values computed from the body's
    inputs (and cotangents), with the values of the ambient scope that stand for the captures. `state`: the carries that
    the pullback, or a later trip, needs. `saving`: the trips, one or one per lane, and what a policy has saved of each
    on stacks."""

    loop: NormalLoop
    inputs: JointValues
    primal: Sequence[Value]
    carries: ReverseCarries
    reverse: ReversePart
    state: list[int]
    saving: Saving
    alone: bool  # not in the body of another loop, whose every trip would keep the states of a forward run

    @property
    def count(self) -> Value:
        return self.saving.count


def state_carries(loop: NormalLoop, inputs: JointValues, primal: Sequence[Value], reverse: ReversePart) -> list[int]:
    """The carries without which the pullback can't be computed trip by trip."""
    arguments = loop.split(inputs.primal).carries
    read = read_values(reverse.graph)
    needed = {j for j, v in enumerate(arguments) if v in read}
    while True:
        read = read_values(extract([primal[j] for j in sorted(needed)], inputs.values))
        grown = needed | {j for j, v in enumerate(arguments) if v in read}
        if grown == needed:
            return sorted(needed)
        needed = grown


def snapshots(loop: NormalLoop, state: Sequence[int]) -> int:
    """How many states fit the budget; the one being worked on is free."""
    budget: int = loop.node.attrs["memory_budget"]
    return max(budget // max(sum(nbytes(loop.inits[j]) for j in state), 1), 1)


def runs_forward(loop: NormalLoop) -> bool:
    """Whether a run for the loop's value, which stands for the loop, can store the first states."""
    return loop.count is not None and not loop.shared


def emit_checkpointed(trip: Trip) -> Sequence[Value]:
    """The final values of the carries of the reverse loop."""
    loop, c = trip.loop, len(trip.carries.inits)
    available = snapshots(loop, trip.state)
    trips = _most(trip.count)
    depth = ops.min(ops.max(trips, 0), available)
    states = [loop.inits[j] for j in trip.state]
    elements = [_COUNT, *(tensor_type("push", v) for v in states)]
    stacks = [ops.stack_new(t, depth, "snapshot") for t in elements]
    zero = ops.full(0, _COUNT)
    start = Schedule(zero, zero, states, stacks)
    if trip.alone and runs_forward(loop):
        start, trips = _forward(trip, trips, stacks, available)

    saved = [*trip.saving.threaded, *trip.saving.pushed]

    def reverse_trip(t: Value, *carried: Value) -> list[Value]:
        adjoint, rest = in_parts(carried, c + len(saved), len(carried) - c - len(saved))
        base = _descend(trip, t, Schedule.of(rest, len(states)), available, range(len(states)))
        here = _advanced(trip, base.position, ops.sub(t, base.position), base.state)
        return [*_pulled(trip, t, here, adjoint), *_returned(t, base)]

    inits = [*trip.carries.inits, *saved, *start.values]
    return traced_for(trips, inits, reverse_trip, reverse=True, name=loop.node.attrs["name"])[:c]


def _most(count: Value) -> Value:
    """The trips of the longest lane; a bound, so that vmap keeps one schedule for all batch elements (stacks
    are pushed and popped in lockstep)."""
    count = ops.cast(count, int64)
    if 0 in count.shape:
        return ops.full(0, _COUNT)
    return ops.upper_bound(ops.reduce_max(count, range(len(count.shape))))


# ---- the schedule


class Schedule(NamedTuple):
    """What is carried besides the cotangents: the base, its position in trips, how many states are stored, and the
    stacks of positions and states that hold them."""

    position: Value
    stored: Value
    state: Sequence[Value]
    stacks: Sequence[Value]

    @staticmethod
    def of(values: Sequence[Value], states: int) -> Schedule:
        """Of `values` that belong together, where a state is so many."""
        (position, stored), state, stacks = in_parts(values, 2, states, len(values) - 2 - states)
        return Schedule(position, stored, state, stacks)

    @property
    def values(self) -> list[Value]:
        return [self.position, self.stored, *self.state, *self.stacks]


def _forward(trip: Trip, trips: Value, stacks: Sequence[Value], available: int) -> tuple[Schedule, Value]:
    """Run the loop for its value, with all its carries, and store the states that the last trip's pullback would
    look for first. Gives the schedule from there, and the trips as counted by the loop that stands for the
    original."""
    loop, n = trip.loop, trip.loop.width
    whole = replace(trip, state=list(range(n)))
    zero = ops.full(0, _COUNT)
    begin = Schedule(zero, zero, loop.inits, stacks)
    position, stored, state, filled = _descend(whole, ops.sub(trips, 1), begin, available, trip.state)
    graph = extract(trip.primal, trip.inputs.primal)
    done = ops.broadcast_to(position, trip.count.shape)
    left = ops.max(ops.sub(ops.cast(trip.count, int64), done), 0)

    def body(j: Value, *carried: Value) -> list[Value]:
        *own, made = carried
        inputs = _body_inputs(whole, ops.add(j, ops.broadcast_to(position, j.shape)), own)
        return [*inline(graph, inputs), ops.add(made, 1)]

    *_, made = traced_for(left, [*state, done], body, name=loop.node.attrs["name"], replaces=loop.original)
    return Schedule(position, stored, [state[j] for j in trip.state], filled), _most(made)


def _descend(trip: Trip, t: Value, schedule: Schedule, available: int, stored_state: Sequence[int]) -> Schedule:
    """Store the base and move on towards t, as long as states are free. Of the carries of `trip`, those at
    `stored_state` go onto the stacks."""
    n = len(trip.state)

    def more(position: Value, stored: Value, *rest: Value) -> Value:
        return ops.and_(ops.lt(position, t), ops.lt(stored, available - 1))

    def step(*values: Value) -> list[Value]:
        position, stored, state, stacks = Schedule.of(values, n)
        base = (position, *(state[i] for i in stored_state))
        filled = [ops.push(s, v) for s, v in zip(stacks, base, strict=True)]
        trips = split(ops.sub(ops.add(t, 1), position), ops.sub(available, stored))
        after = _advanced(trip, position, trips, state)
        return Schedule(ops.add(position, trips), ops.add(stored, 1), after, filled).values

    return Schedule.of(traced_while(schedule.values, more, step, name="checkpoints"), n)


def split(trips: Value, states: Value) -> Value:
    """How far to go before storing again, with `states` to hold the base and what follows: the least r with
    beta(states, r) >= trips, then the longest first part that r - 1 repetitions can reverse while the rest is
    no shorter than r - 1 repetitions could do with one state less."""

    def too_few(r: Value, reach: Value) -> Value:
        return ops.lt(reach, trips)

    def one_more(r: Value, reach: Value) -> list[Value]:
        following = ops.add(r, 1)
        return [following, ops.div(ops.mul(reach, ops.add(states, following)), following)]

    r, reach = traced_while([ops.full(0, _COUNT), ops.full(1, _COUNT)], too_few, one_more, name="repetitions")
    first = ops.div(ops.mul(reach, r), ops.max(ops.add(states, r), 1))  # beta(states, r - 1)
    rest = ops.div(ops.mul(first, states), ops.max(ops.sub(ops.add(states, r), 1), 1))  # beta(states - 1, r - 1)
    longest = ops.min(first, ops.sub(trips, rest))
    return ops.max(ops.min(longest, ops.sub(trips, 1)), 1)


def _returned(t: Value, schedule: Schedule) -> tuple[Value, ...]:
    """Take the last stored state as the base where the present one has been used up."""
    used_up = ops.and_(ops.ge(schedule.position, t), ops.gt(schedule.stored, 0))

    def keep(*values: Value) -> Sequence[Value]:
        return values

    def take(*values: Value) -> list[Value]:
        _, stored, _, stacks = Schedule.of(values, len(schedule.state))
        popped = [ops.pop(s) for s in stacks]
        below, *state = [v for _, v in popped]
        return Schedule(below, ops.sub(stored, 1), state, [s for s, _ in popped]).values

    return traced_switch(used_up, [keep, take], schedule.values)


# ---- trips


def _advanced(trip: Trip, position: Value, trips: Value, state: Sequence[Value]) -> Sequence[Value]:
    """`state` after this many trips from `position`; lanes stop at their own count."""
    loop = trip.loop
    graph = extract([trip.primal[j] for j in trip.state], trip.inputs.primal)
    left = ops.sub(ops.cast(trip.count, int64), ops.broadcast_to(position, trip.count.shape))
    trips = ops.max(ops.min(left, ops.broadcast_to(trips, left.shape)), 0)

    def body(j: Value, *carried: Value) -> Sequence[Value]:
        return inline(graph, _body_inputs(trip, ops.add(j, ops.broadcast_to(position, j.shape)), carried))

    shared = [i for i, j in enumerate(trip.state) if j in loop.shared]
    return traced_for(trips, state, body, shared=shared)


def _body_inputs(trip: Trip, t: Value, state: Sequence[Value]) -> list[Value]:
    """Values for the inputs of the body in trip t (counted in the order of execution)."""
    loop = trip.loop
    carried = dict(zip(trip.state, state, strict=True))
    leading = []
    if loop.count is not None:
        index = ops.sub(ops.sub(ops.cast(trip.count, int64), 1), t) if loop.node.attrs["reverse"] else t
        leading = [ops.cast(index, trip.count.dtype)]
    unread = loop.inits  # stand for carries that the trip doesn't need
    return [*leading, *(carried.get(j, unread[j]) for j in range(loop.width)), *loop.captures]


def _pulled(trip: Trip, t: Value, state: Sequence[Value], carried: Sequence[Value]) -> Sequence[Value]:
    """The cotangents before trip t, and the stacks without what it saved; those of lanes that didn't make it stay."""
    reverse, inputs = trip.reverse, trip.reverse.inputs
    fixed = list(trip.carries.fixed.values())
    everywhere = ops.broadcast_to(t, trip.count.shape)
    active = ops.cast(ops.lt(everywhere, ops.cast(trip.count, int64)), int64)
    given = Emptied(trip.carries.inits, trip.saving.threaded, trip.saving.pushed)

    def body(_: Value, *carried: Value) -> Sequence[Value]:
        own = given.split(carried)
        popped = [ops.pop(s) for s in own.popped]
        outside = (*_body_inputs(trip, everywhere, state), *fixed)
        made = reverse.inlined(ReverseInputs(outside, own.adjoint, [v for _, v in popped], own.threaded))
        return Emptied(made.adjoint, made.emptied, [s for s, _ in popped]).values

    shared = scatter_chains(reverse.graph, len(inputs.outside), range(len(inputs.adjoint)), trip.loop.within)
    return traced_for(active, carried, body, shared=shared)
