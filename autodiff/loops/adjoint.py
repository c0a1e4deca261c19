"""The reverse of a loop, common to for and while.

A loop becomes two. The *augmented* loop is the original with extra carries: the stacks its reverse needs
(and, for a while, the trip count); it `replaces` the original. The *reverse* loop runs the saved number of
trips backwards, pops, and carries the cotangents of the carries and of what the body captured:

    for k < n: v = sin(v) * c

    v', s  = for k < n:          v, s = sin(v) * c, push(s, cos(v))            (sin(v) isn't pushed: c is
    v_adj, c_adj = for k = n-1 .. 0 (reverse):                                  no active value here)
                                 s, r = pop(s); v_adj = v_adj * c * r

Both come from one *joint* trace of the body and its pullback, cut in two by `loops.residuals`. Carries that
no derivative flows through have no cotangent carry; a cotangent that the body hands on unchanged (a sum's,
a scatter-add's) is captured by the reverse loop, not carried; a table that is gathered from accumulates by
scatters into one `shared` carry, everything else in its own shape.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from loopgrad.autodiff.activity import active_carries, active_values, differentiable, useful_carries
from loopgrad.autodiff.loops.counters import counters
from loopgrad.autodiff.loops.emission import (
    AdjointCarry,
    ReverseCarries,
    emit_augmented,
    emit_reverse,
    may_scatter,
)
from loopgrad.autodiff.loops.normal import (
    NormalCall,
    NormalLoop,
    NormalSwitch,
    NotLaneLocalError,
    looked_up,
    normal_loop,
)
from loopgrad.autodiff.loops.residuals import (
    Joint,
    JointValues,
    Split,
    chosen,
    demanded,
    forward_part,
    nbytes,
    reverse_part,
    split,
)
from loopgrad.autodiff.loops.revolve import Trip, emit_checkpointed, runs_forward, state_carries
from loopgrad.autodiff.pullback import Adjoints, Context, Cotangents, Freedom, explicit, pull, zero_cotangent
from loopgrad.graph import ops
from loopgrad.graph.accumulators import Uses, chain_from, value_uses
from loopgrad.graph.build import inline
from loopgrad.graph.extract import extract
from loopgrad.graph.lanes import lane_report
from loopgrad.graph.nodes import Graph, Node, Value, is_zero
from loopgrad.graph.passes.calls import without_plain
from loopgrad.graph.primitives import KEEPING_SPLATS
from loopgrad.graph.region_ops import tied
from loopgrad.graph.regions import Region, brings_rules
from loopgrad.graph.types import StackType, TensorType


class LoopJoint(NamedTuple):
    """The joint graph of a body, with the cotangents of the carries `carried` and the accumulators of the captures
    `captured`."""

    joint: Joint
    carried: list[int]
    captured: list[int]


# ---- what flows


def traced_joint(loop: NormalLoop, received: Cotangents, adjoints: Adjoints, context: Context) -> LoopJoint | None:
    """The body and its pullback in one graph; None where no cotangent gets through the loop."""
    adjoints.active |= active_hoisted(loop, adjoints)
    captures = [v in adjoints.active for v in loop.captures]
    carries = active_carries(loop, [v in adjoints.active for v in loop.inits], captures)
    useful, useful_captures = useful_carries(loop, [ct is not None for ct in received])
    carried = [j for j, v in enumerate(loop.inits) if carries[j] and useful[j] and differentiable(v.type)]
    captured = [i for i, flag in enumerate(captures) if flag and useful_captures[i]]
    if not carried:
        return None
    return LoopJoint(_traced(loop, carried, captured, context), carried, captured)


def active_hoisted(normal: NormalLoop | NormalSwitch | NormalCall, adjoints: Adjoints) -> set[Value]:
    """The values that normal form computes outside the node and that depend on differentiated ones."""
    graph = extract(normal.hoisted, normal.original.operands)
    return active_values(graph, [v in adjoints.active for v in graph.inputs])


def _traced(loop: NormalLoop, carried: list[int], captured: list[int], context: Context) -> Joint:
    _, own, outside = loop.split(loop.body.inputs)
    targets, tables = [own[j] for j in carried], [outside[i] for i in captured]
    lanes = loop.lane_shape
    per_trip = context.masked and _dense(loop.body, targets, tables, lanes)

    def function(given: JointValues) -> list[Value]:
        _, varying, captures = loop.split(given.primal)
        outputs = inline(loop.body, given.primal)
        freedom = Freedom(dict.fromkeys(varying, False))
        masked = context.masked and not per_trip
        inner = replace(context, nested=True, masked=masked, lanes=lanes or context.lanes, is_free=freedom)
        wrt = [*(varying[j] for j in carried), *(captures[i] for i in captured)]
        starts = [*given.cotangents, *given.accumulators]
        before = [*[None] * len(carried), *given.accumulators]
        found = explicit(starts, pull([outputs[j] for j in carried], given.cotangents, wrt, inner, before))
        if per_trip:
            found = _guarded_trip(given.cotangents, starts, found, lanes)
        return [*outputs, *found]

    inputs = JointValues(loop.body.inputs, targets, tables)
    graph = without_plain(inputs.traced(function))
    outputs = JointValues(loop.body.outputs, targets, tables)
    return Joint(graph, inputs.split(graph.inputs), outputs.split(graph.outputs))


def _dense(body: Graph, carried: Sequence[Value], captured: Sequence[Value], lanes: tuple[int, ...]) -> bool:
    """Whether all cotangents of a lane loop are tensors over its lanes, so that a whole trip can be guarded."""
    tables = any(looked_up(body, v) for v in captured)
    over_lanes = all(isinstance(v.type, TensorType) and v.shape[: len(lanes)] == lanes for v in (*carried, *captured))
    return bool(lanes) and over_lanes and not tables


def _guarded_trip(
    given: Sequence[Value], before: Sequence[Value], after: Sequence[Value], lanes: tuple[int, ...]
) -> list[Value]:
    """A lane whose cotangents are all 0 (its result is discarded further on) keeps zeros and its accumulators
    where infinite derivatives would make them NaN. One guard for the trip instead of one for each operation in it;
    like `rules.guarded` it asks for NaN too, to stay linear in the cotangents."""
    idle: Value | None = None
    for ct in given:
        zero = ops.reduce_and(ops.eq(ct, 0), range(len(lanes), len(ct.shape)))
        idle = zero if idle is None else ops.and_(idle, zero)
    assert idle is not None
    spoiled = [ops.and_(ops.broadcast_leading(idle, a.shape), ops.is_nan(a)) for a in after]
    return [b if a is b else ops.select(s, b, a) for s, b, a in zip(spoiled, before, after, strict=True)]


# ---- the reverse loop's carries


def reverse_carries(loop: NormalLoop, flow: LoopJoint, received: Cotangents, adjoints: Adjoints) -> ReverseCarries:
    """Sort the joint's cotangents into carried and handed on, its accumulators into touched and untouched."""
    (graph, inputs, outputs), lanes = flow.joint, loop.within
    uses = value_uses(graph) if may_scatter(graph) else None
    result = ReverseCarries()
    for j, before, after in zip(flow.carried, inputs.cotangents, outputs.cotangents, strict=True):
        known = received[j]
        init = zero_cotangent(before) if known is None else known
        if after is before or (loop.inits[j] not in adjoints.active and _erases_in_vain(loop, j, graph, before, after)):
            result.fixed[before] = init
        else:
            if lanes and j in loop.shared:
                raise NotLaneLocalError  # only the cotangent of a sum is handed on
            _require_lanes(lanes, before, False)
            result.carried.append(AdjointCarry(before, after, init, loop.inits[j]))
    targets = {c.target for c in result.carried}
    for i, before, after in zip(flow.captured, inputs.accumulators, outputs.accumulators, strict=True):
        if after is before:
            continue
        capture = loop.captures[i]
        table = uses is not None and scattered(graph, before, after, lanes, uses)
        _require_lanes(lanes, before, table)
        known = adjoints.get(capture) if table and capture not in targets else None
        init = ops.zeros_like(capture) if known is None else known
        result.carried.append(AdjointCarry(before, after, init, capture, known is not None))
        targets.add(capture)
    return result


def _erases_in_vain(loop: NormalLoop, carry: int, graph: Graph, before: Value, after: Value) -> bool:
    """Whether the cotangent's only change is that the row written in a trip is set to 0, where every trip writes
    its own row and reads none (a scan's outputs): no other trip looks at it, so it may stay as it is."""
    node = after.node
    if loop.count is None or node is None or node.op != "scatter" or node.attrs["kind"] != "set":
        return False
    base, *indices, updates = node.operands
    erased = base is before and is_zero(updates)
    if not erased or not any(_counts_trips(v, graph.inputs[0]) for v in indices):
        return False
    chain = chain_from(loop.body, loop.position(carry))
    return chain is not None and chain.output == carry and chain.scatters == 1


def _counts_trips(index: Value, k: Value) -> bool:
    while index is not k and index.node is not None and index.node.op in KEEPING_SPLATS:
        index = index.node.operands[0]
    return index is k


def _require_lanes(lanes: tuple[int, ...], carry: Value, shared: bool) -> None:
    if not shared and isinstance(carry.type, TensorType) and carry.shape[: len(lanes)] != lanes:
        raise NotLaneLocalError


def scattered(graph: Graph, before: Value, after: Value, lanes: tuple[int, ...], uses: Uses | None = None) -> bool:
    """Whether `after` comes from the input `before` by scatters alone, in each of which lanes choose positions."""
    chain = chain_from(graph, graph.inputs.index(before), uses)
    if chain is None or not chain.scatters or not chain.over(lanes):
        return False
    return graph.outputs[chain.output] is after


# ---- the two loops


def pull_loop(node: Node, received: Cotangents, adjoints: Adjoints, context: Context) -> None:
    """Emit the augmented and the reverse loop of a for or while, and add up the cotangents they give."""
    loop = normal_loop(node, context.lanes)
    flow = traced_joint(loop, received, adjoints, context)
    if flow is None:
        return
    carries = reverse_carries(loop, flow, received, adjoints)
    if carries.carried:
        results, anchor = emit_loops(loop, flow.joint, carries, context)
        require_local(results[0], loop, received, context)
        results = tied(results, anchor) if anchor else results
        settle([(c.target, ct, c.continues) for c, ct in zip(carries.carried, results, strict=True)], adjoints)
    for j, ct in zip(flow.carried, flow.joint.inputs.cotangents, strict=True):
        if ct in carries.fixed:
            adjoints.add(loop.inits[j], received[j])
    pull_hoisted(loop, adjoints, context)


def settle(cotangents: Sequence[tuple[Value, Value, bool]], adjoints: Adjoints) -> None:
    """Enter (target, cotangent, whether it goes on from what the target had): replacements before additions,
    since a value may be several operands at once."""
    for target, ct, continues in cotangents:
        if continues:
            adjoints.put(target, ct)
    for target, ct, continues in cotangents:
        if not continues:
            adjoints.add(target, ct)


def require_local(result: Value, primal: Region, received: Cotangents, context: Context) -> None:
    """The reverse of an outermost lane node must be one too: no cotangent may meet those of other lanes, of
    which some aren't active (so even one that lies in memory counts as the lane's own, and so does what a lane
    looks up in the cotangent of an accumulator)."""
    node, lanes, shared = result.node, primal.lane_shape, primal.shared
    assert node is not None
    if lanes and not context.lanes:
        given = [(j in shared, ct) for j, ct in enumerate(received) if ct is not None]
        own, earned = [
            [i for i, v in enumerate(node.operands) if any(v is ct for accumulated, ct in given if accumulated is kind)]
            for kind in (False, True)
        ]
        if not lane_report(node, lanes, own, earned).local:
            raise NotLaneLocalError


def pull_hoisted(normal: NormalLoop | NormalSwitch | NormalCall, adjoints: Adjoints, context: Context) -> None:
    """Pass the cotangents of hoisted values on to what they were computed from."""
    node = normal.original
    found = [v for v in normal.hoisted if adjoints.get(v) is not None and v not in node.operands]
    bases = [v for v in dict.fromkeys(node.operands) if v in adjoints.active and isinstance(v.type, TensorType)]
    if not found:
        return
    before = [adjoints.get(v) for v in bases]
    masked = replace(context, masked=True)
    given = [adjoints.get(v) for v in found]
    for v, ct in zip(bases, pull(found, given, bases, masked, before, node.operands), strict=True):
        if ct is not None:
            adjoints.put(v, ct)


def emit_loops(
    loop: NormalLoop, joint: Joint, carries: ReverseCarries, context: Context
) -> tuple[Sequence[Value], Sequence[Value]]:
    """The final values of `carries`, and what they must be tied to."""
    index, state, captures = loop.split(joint.inputs.primal)
    parts = split(joint.inputs, joint.outputs.primal, carries.outputs)
    counted = counters(loop, state)
    paid = {*state} - counted.keys()
    if loop.node.attrs["memory_budget"] is not None and not _fits_budget(loop, parts, paid, context):
        return _emit_within_budget(loop, joint, carries, parts, context)
    values = chosen(parts, paid)
    forward = forward_part(parts, values.all)
    saving = emit_augmented(loop, forward, parts.threads, values, context, brings_rules(loop.body))
    outer = dict(zip((*state, *captures), loop.arguments, strict=True)) | carries.fixed
    reverse = reverse_part(parts, (*index, *captures, *carries.fixed, *counted), carries.inputs, values.saved)
    return emit_reverse(loop, reverse, carries, saving, outer, counted, context.nested), saving.anchor


def _fits_budget(loop: NormalLoop, parts: Split, paid: Set[Value], context: Context) -> bool:
    """Whether the loop may save what it likes besides what a policy saves; inner loops save an amount that isn't known
    here. Inside lanes a budget is not for one lane to keep, and a stack that is carried can't be one of the states that
    are kept."""
    asked, least = demanded(parts, paid)
    saved = [v for v in chosen(parts, paid).saved if v not in least.saved]
    inner = len(parts.threads.made) > len(asked.threads.made)
    if not (saved or inner) or context.lanes or any(isinstance(v.type, StackType) for v in loop.inits):
        return True
    count = None if loop.count is None else loop.count.node
    if inner or count is None or count.op != "const":
        return False
    return bool(count.attrs["value"] * sum(nbytes(v) for v in saved) <= loop.node.attrs["memory_budget"])


def _emit_within_budget(
    loop: NormalLoop, joint: Joint, carries: ReverseCarries, parts: Split, context: Context
) -> tuple[Sequence[Value], Sequence[Value]]:
    """Keep a few states of the loop and compute the rest again (`loops.revolve`), but for what a policy saves."""
    parts, values = demanded(parts, set(loop.split(joint.inputs.primal).carries))
    settled = [replace(c, after=v) for c, v in zip(carries.carried, parts.adjoint, strict=True)]
    carries = replace(carries, carried=settled)
    reverse = reverse_part(parts, (*joint.inputs.primal, *carries.fixed), carries.inputs, values.saved)
    state = state_carries(loop, joint.inputs, parts.primal, reverse)
    forward = forward_part(parts, values.all)
    alone = not context.nested
    anyway = brings_rules(loop.body) and not (alone and runs_forward(loop))
    saving = emit_augmented(loop, forward, parts.threads, values, replace(context, nested=True), anyway)
    trip = Trip(loop, joint.inputs, parts.primal, carries, reverse, state, saving, alone)
    return emit_checkpointed(trip), saving.anchor
