"""Forward mode of for, while and switch: tangent carries beside the primal ones, in one node.

The emitted node `replaces` the original: its first results are the primal ones, then the tangents of those
results that depend on a differentiated value (found by fixpoint over the carries).

    for k < n: v = sin(v)      ->      for k < n: v, v_tan = sin(v), v_tan * cos(v)
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.autodiff.activity import active_carries, active_results, differentiable
from loopgrad.autodiff.loops.normal import NotLaneLocalError, with_inputs
from loopgrad.autodiff.loops.residuals import next_stack
from loopgrad.autodiff.pullback import zero_cotangent
from loopgrad.autodiff.pushforward import RegionRules, Tangents, push_forward
from loopgrad.graph.accumulators import chain_from, first_carry
from loopgrad.graph.build import emit, inline, trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.types import StackType


def push_loop(node: Node, tangents: Tangents, rules: RegionRules) -> Tangents:
    first, n = first_carry(node), node.attrs["carries"]
    inits, captures = node.operands[first : first + n], node.operands[first + n :]
    moving = [t is not None for t in tangents]
    flags = active_carries(node.regions[-1], first, moving[first : first + n], moving[first + n :])
    carried = [j for j, flag in enumerate(flags) if flag]
    captured = [i for i, flag in enumerate(moving[first + n :]) if flag]
    if not carried:
        return [None] * n
    body = _joint_body(node, carried, captured, rules)
    starts = [_or_zero(tangents[first + j], inits[j]) for j in carried]
    extra = [t for i in captured if (t := tangents[first + n + i]) is not None]
    regions = [with_inputs(with_inputs(r, len(r.inputs), extra), n, starts) for r in node.regions[:-1]]
    shared = _with_tangents(node, carried, n)
    kept = [p for p in shared if (c := chain_from(body, first + p)) is not None and c.output == p]
    _require_accumulators(node, shared, kept)
    attrs = {**node.attrs, "carries": n + len(carried), "shared": tuple(kept)}
    operands = (*node.operands[:first], *inits, *starts, *captures, *extra)
    results = emit(node.op, operands, attrs, (*regions, body), node)
    return _placed(carried, results[n:], n)


def _joint_body(node: Node, carried: Sequence[int], captured: Sequence[int], rules: RegionRules) -> Graph:
    """(leading, carries, tangents, captures, their tangents) -> (carries, tangents)"""
    body, first, n = node.regions[-1], first_carry(node), node.attrs["carries"]
    own, c = first + n, len(carried)
    ins = body.input_types
    types = [*ins[:own], *(ins[first + j] for j in carried), *ins[own:], *(ins[own + i] for i in captured)]

    def function(*arguments: Value) -> list[Value]:
        primal = (*arguments[:own], *arguments[own + c : len(ins) + c])
        outputs = inline(body, primal)
        wrt = [*(primal[first + j] for j in carried), *(primal[own + i] for i in captured)]
        given = (*arguments[own : own + c], *arguments[len(ins) + c :])
        following = push_forward([outputs[j] for j in carried], wrt, given, rules)
        return [*outputs, *(_or_zero(t, outputs[j]) for t, j in zip(following, carried, strict=True))]

    return trace(function, types)[0]


def push_switch(node: Node, tangents: Tangents, rules: RegionRules) -> Tangents:
    flags = active_results(node, [t is not None for t in tangents])
    tangents = [
        zero_cotangent(v) if t is None and isinstance(v.type, StackType) and flags[next_stack(node, i).index] else t
        for i, (v, t) in enumerate(zip(node.operands, tangents, strict=True))
    ]
    moving = [t is not None for t in tangents]
    results = [r for r, flag in enumerate(flags) if flag]
    if not results:
        return [None] * len(flags)
    moved = [i for i, flag in enumerate(moving[1:]) if flag]
    branches = [_joint_branch(branch, moved, results, rules) for branch in node.regions]
    extra = [t for t in tangents[1:] if t is not None]
    shared = _with_tangents(node, results, len(flags))
    inputs = range(len(branches[0].inputs))
    ends = [{c.output for i in inputs if (c := chain_from(b, i)) is not None} for b in branches]
    kept = [p for p in shared if all(p in end for end in ends)]
    _require_accumulators(node, shared, kept)
    emitted = emit("switch", (*node.operands, *extra), {**node.attrs, "shared": tuple(kept)}, tuple(branches), node)
    return _placed(results, emitted[len(flags) :], len(flags))


def _joint_branch(branch: Graph, moved: Sequence[int], results: Sequence[int], rules: RegionRules) -> Graph:
    n = len(branch.inputs)
    types = [*branch.input_types, *(branch.inputs[i].type for i in moved)]

    def function(*arguments: Value) -> list[Value]:
        outputs = inline(branch, arguments[:n])
        wrt = [arguments[i] for i in moved]
        following = push_forward([outputs[r] for r in results], wrt, arguments[n:], rules)
        return [*outputs, *(_or_zero(t, outputs[r]) for t, r in zip(following, results, strict=True))]

    return trace(function, types)[0]


def _with_tangents(node: Node, moved: Sequence[int], n: int) -> list[int]:
    """The shared positions and those of their tangents."""
    shared = node.attrs["shared"]
    return [*shared, *(n + i for i, p in enumerate(moved) if p in shared)]


def _require_accumulators(node: Node, shared: Sequence[int], kept: Sequence[int]) -> None:
    """A tangent that reads the accumulator (of min, max or mul) can't be computed lane by lane."""
    if node.attrs["lanes"] and len(kept) < len(shared):
        raise NotLaneLocalError


def _or_zero(tangent: Value | None, like: Value) -> Value:
    return zero_cotangent(like) if tangent is None else tangent


def _placed(positions: Sequence[int], values: Sequence[Value], n: int) -> list[Value | None]:
    result: list[Value | None] = [None] * n
    for p, v in zip(positions, values, strict=False):
        result[p] = v
    assert all(v is None or differentiable(v.type) for v in result)
    return result
