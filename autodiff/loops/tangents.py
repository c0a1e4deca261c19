"""Forward mode of for, while and switch: tangent carries beside the primal ones, in one node.

The emitted node `replaces` the original: its first results are the primal ones, then the tangents of those
results that depend on a differentiated value (found by fixpoint over the carries).

    for k < n: v = sin(v)      ->      for k < n: v, v_tan = sin(v), v_tan * cos(v)
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.autodiff.activity import active_carries, active_results, differentiable
from loopgrad.autodiff.loops.normal import NotLaneLocalError
from loopgrad.autodiff.pullback import zero_cotangent
from loopgrad.autodiff.pushforward import RegionRules, Tangents, push_forward
from loopgrad.graph.accumulators import chain_from
from loopgrad.graph.build import emit, inline, trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Call, Loop, Region, Switch, in_parts
from loopgrad.graph.stacks import next_stack
from loopgrad.graph.types import StackType


def push_loop(node: Node, tangents: Tangents, rules: RegionRules) -> Tangents:
    loop = Loop.of(node)
    _, initial, outer = loop.split(tangents)
    flags = active_carries(loop, [t is not None for t in initial], [t is not None for t in outer])
    carried = [j for j, flag in enumerate(flags) if flag]
    captured = [i for i, t in enumerate(outer) if t is not None]
    if not carried:
        return [None] * loop.width
    body = _joint_body(loop, carried, captured, rules)
    starts = [_or_zero(initial[j], loop.init(j)) for j in carried]
    extra = [t for t in outer if t is not None]
    shared = _with_tangents(loop, carried)
    kept = [p for p in shared if (c := chain_from(body, loop.position(p))) is not None and c.output == p]
    _require_accumulators(loop, shared, kept)
    form = loop.rebuilt(
        inits=(*loop.inits, *starts),
        captures=(*loop.captures, *extra),
        condition=None if loop.condition is None else loop.taking(loop.condition, starts, extra),
        body=body,
        shared=kept,
    )
    return _placed(carried, emit(*form, node)[loop.width :], loop.width)


def _joint_body(loop: Loop, carried: Sequence[int], captured: Sequence[int], rules: RegionRules) -> Graph:
    """(leading, carries, tangents, captures, their tangents) -> (carries, tangents)"""
    lead, arguments, captures = loop.split(loop.body.input_types)
    segments = (lead, arguments, [arguments[j] for j in carried], captures, [captures[i] for i in captured])

    def function(*given: Value) -> list[Value]:
        index, state, state_tangents, outer, outer_tangents = in_parts(given, *map(len, segments))
        outputs = inline(loop.body, (*index, *state, *outer))
        wrt = [*(state[j] for j in carried), *(outer[i] for i in captured)]
        tangents = (*state_tangents, *outer_tangents)
        following = push_forward([outputs[j] for j in carried], wrt, tangents, rules)
        return [*outputs, *(_or_zero(t, outputs[j]) for t, j in zip(following, carried, strict=True))]

    return trace(function, [t for segment in segments for t in segment])[0]


def push_switch(node: Node, tangents: Tangents, rules: RegionRules) -> Tangents:
    """Of a switch, or of a call without rules."""
    switch = Region.of(node)
    assert isinstance(switch, Switch | Call)
    flags = active_results(node, [t is not None for t in tangents])
    results = [r for r, flag in enumerate(flags) if flag]
    if not results:
        return [None] * len(flags)

    def moves(operand: int) -> bool:
        """Whether an operand is a stack on which tangents are pushed."""
        if not isinstance(node.operands[operand].type, StackType):
            return False
        following = next_stack(node, operand)
        return following is not None and flags[following.index]

    given = [
        zero_cotangent(node.operands[i]) if tangents[i] is None and moves(i) else tangents[i] for i in switch.captured
    ]
    moved = [i for i, t in enumerate(given) if t is not None]
    branches = [_joint_branch(branch, moved, results, rules) for branch in switch.bodies]
    extra = [t for t in given if t is not None]
    shared = _with_tangents(switch, results)
    inputs = range(len(branches[0].inputs))
    ends = [{c.output for i in inputs if (c := chain_from(b, i)) is not None} for b in branches]
    kept = [p for p in shared if all(p in end for end in ends)]
    _require_accumulators(switch, shared, kept)
    form = switch.rebuilt(operands=(*switch.arguments, *extra), branches=branches, shared=kept)
    return _placed(results, emit(*form, node)[len(flags) :], len(flags))


def _joint_branch(branch: Graph, moved: Sequence[int], results: Sequence[int], rules: RegionRules) -> Graph:
    n = len(branch.inputs)
    types = [*branch.input_types, *(branch.inputs[i].type for i in moved)]

    def function(*arguments: Value) -> list[Value]:
        outputs = inline(branch, arguments[:n])
        wrt = [arguments[i] for i in moved]
        following = push_forward([outputs[r] for r in results], wrt, arguments[n:], rules)
        return [*outputs, *(_or_zero(t, outputs[r]) for t, r in zip(following, results, strict=True))]

    return trace(function, types)[0]


def _with_tangents(region: Region, moved: Sequence[int]) -> list[int]:
    """The shared positions and those of their tangents."""
    shared, n = region.shared, len(region.node.results)
    return [*shared, *(n + i for i, p in enumerate(moved) if p in shared)]


def _require_accumulators(region: Region, shared: Sequence[int], kept: Sequence[int]) -> None:
    """A tangent that reads the accumulator (of min, max or mul) can't be computed lane by lane."""
    if region.lanes and len(kept) < len(shared):
        raise NotLaneLocalError


def _or_zero(tangent: Value | None, like: Value) -> Value:
    return zero_cotangent(like) if tangent is None else tangent


def _placed(positions: Sequence[int], values: Sequence[Value], n: int) -> list[Value | None]:
    result: list[Value | None] = [None] * n
    for p, v in zip(positions, values, strict=False):
        result[p] = v
    assert all(v is None or differentiable(v.type) for v in result)
    return result
