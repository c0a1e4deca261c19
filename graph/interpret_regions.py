"""What region nodes mean: masked lockstep.

A lane loop (count, predicate or index of shape S) runs its body on whole tensors for as long as any lane is
active. A lane is active while its own condition has held from the start (`for`: while k < count[lane]) and
it is active in the enclosing lane loops whose lanes these lanes extend (where it stands for a row of their
lanes, while any in the row is). After each pass
  - carries of shape S + T take their new elements in active lanes only,
  - shared accumulators take their new value whole: their scatters dropped the updates of inactive lanes,
  - stacks take their new value whole: they are pushed and popped in lockstep.
A lane switch runs each branch that some lane chose and merges the results per lane; shared accumulators
and stacks go from one branch into the next. Scalar loops and switches (lanes = 0) inside a lane loop leave
the masks as they are.

Inactive lanes are part of the whole tensors: an operation that mixes lanes sees them. There, what a body or
branch computes is computed from the held carries, a switch gives what the chosen branch gives, and a lane
loop takes no trip and gives its initial carries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopgrad.graph.accumulators import passed
from loopgrad.graph.errors import IndexRangeError, LoopLimitError, VerifyError
from loopgrad.graph.location import describe
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.indexing import scatter_array
from loopgrad.graph.primitives.primitive import Array, Attrs
from loopgrad.graph.regions import Call, Loop, Region, Switch
from loopgrad.graph.types import StackType


@dataclass(frozen=True, slots=True, eq=False)
class Activation:
    """One run of a graph by `run`. `masks` are the active lanes of the enclosing lane loops, outermost
    first; `shared` are the values of this graph that are accumulators: their scatters obey the masks.
    `check_indices`: gathers and scatters raise where an active lane's index is out of range."""

    run: Callable[[Graph, list[Any], Activation], list[Any]]
    masks: tuple[Array, ...] = ()
    shared: set[Value] = field(default_factory=set)
    check_indices: bool = False


def run_region(node: Node, operands: list[Any], frame: Activation) -> list[Any]:
    """The results of a node with regions."""
    match Region.of(node):
        case Loop() as loop:
            return (run_for if loop.condition is None else run_while)(node, operands, frame)
        case Switch():
            return run_switch(node, operands, frame)
        case _:
            return run_call(node, operands, frame)


def run_for(node: Node, operands: list[Any], frame: Activation) -> list[Any]:
    """k counts up from 0 (`reverse`: down to 0) over the largest count of an active lane."""
    loop = Loop.of(node)
    (count,), carries, captures = loop.split(operands)
    enclosing = _combine(count.shape, frame.masks if loop.lanes else ())
    trips = int(np.max(count, where=enclosing, initial=0))
    for k in range(trips - 1, -1, -1) if node.attrs["reverse"] else range(trips):
        active = enclosing & (k < count)
        index = np.full(count.shape, k, dtype=count.dtype)
        results = _run_loop_region(loop, loop.body, [index, *carries, *captures], active, frame)
        carries = _merge(loop, active, carries, results, frame)
    _finish_loop(loop, frame)
    return list(carries)


def run_while(node: Node, operands: list[Any], frame: Activation) -> list[Any]:
    """Raises LoopLimitError where a condition still holds after max_steps passes."""
    loop = Loop.of(node)
    _, carries, captures = loop.split(operands)
    assert loop.condition is not None
    active = _combine(loop.decider.shape, frame.masks if loop.lanes else ())
    steps = 0
    while active.any():  # where no lane is active the condition doesn't run either
        active = active & _run_loop_region(loop, loop.condition, [*carries, *captures], active, frame)[0]
        if not active.any():
            break
        if steps == node.attrs["max_steps"]:
            raise LoopLimitError(steps, node.loc, node.attrs["name"])
        results = _run_loop_region(loop, loop.body, [*carries, *captures], active, frame)
        carries = _merge(loop, active, carries, results, frame)
        steps += 1
    _finish_loop(loop, frame)
    return list(carries)


def run_switch(node: Node, operands: list[Any], frame: Activation) -> list[Any]:
    switch = Switch.of(node)
    index, inputs = operands[0], operands[switch.first :]
    last = len(switch.branches) - 1
    chosen = np.clip(index.astype(np.float64), 0, last).astype(np.int64)  # any integer dtype, or bool
    threaded = {p: source - switch.offset for p, source in switch.threaded.items()}
    if switch.lanes == 0:
        results = _run_branch(switch, switch.branches[int(chosen)], inputs, frame.masks, threaded, frame)
    else:
        results = _run_lane_switch(switch, chosen, inputs, threaded, frame)
    entering = [i for i in switch.captured if node.operands[i] in frame.shared]
    frame.shared.update(node.results[c.output] for i in entering if (c := passed(node, i)) is not None)
    return results


def run_call(node: Node, operands: list[Any], frame: Activation) -> list[Any]:
    """Its function; the rules are for derivatives."""
    call = Call.of(node)
    results = _run_branch(call, call.function, operands, frame.masks, {p: call.source(p) for p in call.shared}, frame)
    entering = [i for i in call.captured if node.operands[i] in frame.shared]
    frame.shared.update(node.results[c.output] for i in entering if (c := passed(node, i)) is not None)
    return results


def _run_lane_switch(
    switch: Switch, chosen: Array, inputs: list[Any], threaded: dict[int, int], frame: Activation
) -> list[Any]:
    merged: list[Any] = [
        inputs[threaded[p]] if p in threaded else np.zeros(r.shape, dtype=r.dtype.np)
        for p, r in enumerate(switch.node.results)
    ]
    for number, branch in enumerate(switch.branches):
        active = chosen == number  # in every lane: what doesn't loop is computed in inactive lanes too
        if not active.any():
            continue
        results = _run_branch(switch, branch, inputs, (*frame.masks, active), threaded, frame)
        for position, result in enumerate(results):
            if position in threaded:
                merged[position] = inputs[threaded[position]] = result
            else:
                merged[position] = _where(active, result, merged[position])
    return merged


def _run_branch(
    switch: Region,
    branch: Graph,
    inputs: list[Any],
    masks: tuple[Array, ...],
    threaded: dict[int, int],
    frame: Activation,
) -> list[Any]:
    declared = {threaded[p] for p in switch.shared}
    accumulators = {
        value
        for position, (value, operand) in enumerate(zip(branch.inputs, switch.arguments, strict=True))
        if operand in frame.shared or position in declared
    }
    return frame.run(branch, inputs, Activation(frame.run, masks, accumulators, frame.check_indices))


def _run_loop_region(loop: Loop, region: Graph, inputs: list[Any], active: Array, frame: Activation) -> list[Any]:
    """A body or a condition: the carries that accumulate are shared in it too."""
    carries = loop.split(region.inputs).carries
    accumulators = {v for j, v in enumerate(carries) if _accumulates(loop, j, frame)}
    masks = frame.masks if loop.lanes == 0 else (*frame.masks, active)
    return frame.run(region, inputs, Activation(frame.run, masks, accumulators, frame.check_indices))


def _accumulates(loop: Loop, carry: int, frame: Activation) -> bool:
    return carry in loop.shared or loop.init(carry) in frame.shared


def _finish_loop(loop: Loop, frame: Activation) -> None:
    """A shared value that went through the loop is still shared after it."""
    pairs = zip(loop.node.results, loop.inits, strict=True)
    frame.shared.update([result for result, init in pairs if init in frame.shared])


def _merge(loop: Loop, active: Array, old: Sequence[Any], new: list[Any], frame: Activation) -> list[Any]:
    if loop.lanes == 0:
        return new
    return [
        b if isinstance(loop.node.results[p].type, StackType) or _accumulates(loop, p, frame) else _where(active, b, a)
        for p, (a, b) in enumerate(zip(old, new, strict=True))
    ]


def _where(active: Array, new: Array, old: Array) -> Array:
    return np.where(active.reshape(active.shape + (1,) * (new.ndim - active.ndim)), new, old)


def _combine(lanes: tuple[int, ...], masks: tuple[Array, ...]) -> Array:
    """The lanes of shape `lanes` that are active in the enclosing loops whose lanes they extend; a lane that
    stands for a row of an enclosing loop's lanes is active while any of these is."""
    active = np.ones(lanes, dtype=np.bool_)
    for mask in masks:
        if lanes[: mask.ndim] == mask.shape:
            active &= mask.reshape(mask.shape + (1,) * (len(lanes) - mask.ndim))
        elif lanes and mask.shape[: len(lanes)] == lanes:
            active &= mask.any(axis=tuple(range(len(lanes), mask.ndim)))
    return active


def scatter_under(masks: tuple[Array, ...], attrs: Attrs, x: Array, *rest: Array) -> Array:
    """A scatter into an accumulator: inactive lanes' updates are dropped."""
    *indices, updates = rest
    lanes = indices[0].shape
    if masks and lanes[: masks[-1].ndim] != masks[-1].shape:
        raise VerifyError(
            f"scatter into an accumulator: expected indices over the lanes {masks[-1].shape}, got {lanes}"
        )
    return scatter_array(attrs["kind"], x, tuple(indices), updates, _combine(lanes, masks))


def check_indices(node: Node, operands: list[Any], masks: tuple[Array, ...]) -> None:
    """Raise IndexRangeError where an active lane of a gather or scatter is out of range."""
    table, *indices = operands[:-1] if node.op == "scatter" else operands
    if not indices:
        return
    active = _combine(indices[0].shape, masks)
    for extent, index in zip(table.shape, indices, strict=False):
        wrong = np.flatnonzero(active & ((index < 0) | (index >= extent)))
        if wrong.size:
            fallback = "clamp" if node.op == "gather" else "drop"
            raise IndexRangeError(
                f"{node.op}: expected an index in [0, {extent}), got {index.reshape(-1)[wrong[0]]} in lane {wrong[0]}; "
                f"fix the index, or turn check_indices off to {fallback} it\n{describe(node.loc)}"
            )
