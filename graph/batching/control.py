"""Loops and branches.

A count, predicate or index that is the same for the whole batch stays as it is: the region runs for all batch
elements together and batched carries have the batch axis in front. One that differs makes every batch element
a lane of its own (`lanes` grows by one): masked lockstep gives each its own trips or branch. The batch axis
then leads the lanes, so that everything carried must have it.

Carries that a loop only scatters into become shared accumulators when the loop gets lanes: their updates
start with the iota of the batch axis, so every lane owns its row, and nothing needs to be masked or copied.

    while x > 1: x = x / 2            x: f[]  ->  x: f[B], lanes=1
    for k < n: h = h.at[i[k]].add(1)  n batched: h: f[B,N] shared, scatter(h, iota[B], i[k], 1), lanes=1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.accumulators import is_accumulator, passed, readers, value_uses
from loopgrad.graph.batching.analysis import RegionPlan
from loopgrad.graph.batching.row import BatchContext, Row, batched_type, expanded
from loopgrad.graph.batching.walk import replacement, walk_region
from loopgrad.graph.build import emit, trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Call, Form, Loop, Region, Switch

Values = Sequence[Value]


def _loop(node: Node, operands: Values, context: BatchContext) -> Values:
    loop = Loop.of(node)
    plan = context.flow.plan(node, context.flags(node.operands), context.mask > 0)
    lead, inits, captures = loop.split(_given(node, operands, plan, context))
    shared, lanes = _shared_carries(loop, plan, context), loop.lanes + plan.per_lane
    mask = max(context.mask, lanes if plan.per_lane else 0)

    def batched(region: Graph, wanted: Sequence[bool]) -> Graph:
        return _region(region, plan.operands, wanted, mask, [loop.position(j) for j in shared], context)

    context.shared.update([r for r, v in zip(node.results, loop.inits, strict=True) if v in context.shared])
    form = loop.rebuilt(
        count=lead[0] if lead else None,
        inits=inits,
        captures=captures,
        condition=None if loop.condition is None else batched(loop.condition, (plan.per_lane,)),
        body=batched(loop.body, plan.results),
        shared=shared,
        lanes=lanes,
    )
    return _emitted(node, form, plan, context)


def _switch(node: Node, operands: Values, context: BatchContext) -> Values:
    switch = Switch.of(node)
    plan = context.flow.plan(node, context.flags(node.operands), context.mask > 0)
    index, *given = _given(node, operands, plan, context)
    shared, lanes = _shared_results(switch, context), switch.lanes + plan.per_lane
    mask = max(context.mask, lanes if plan.per_lane else 0)
    flags, inputs = plan.operands[switch.first :], [source - switch.offset for source in shared.values()]
    branches = [_region(b, flags, plan.results, mask, inputs, context) for b in switch.branches]
    context.shared.update([node.results[p] for p, source in shared.items() if node.operands[source] in context.shared])
    form = switch.rebuilt(index=index, operands=given, branches=branches, shared=list(shared), lanes=lanes)
    return _emitted(node, form, plan, context)


def _call(node: Node, operands: Values, context: BatchContext) -> Values:
    call = Call.of(node)
    plan = context.flow.plan(node, context.flags(node.operands), context.mask > 0)
    given = _given(node, operands, plan, context)
    shared = _shared_results(call, context)
    rules = call.rules
    regions = [_region(call.function, plan.operands, plan.results, context.mask, list(shared.values()), context)]
    moved = tuple([plan.results[i] for i in call.moving_results])
    own = tuple([plan.operands[i] for i in call.moving_operands])
    if call.kind == "jvp":
        regions.append(_region(rules[0], plan.operands + own, plan.results + moved, context.mask, (), context))
    elif rules:
        forward, backward = rules
        inside = context.flow.batched(forward, plan.operands, context.mask > 0)
        saved = tuple([v in inside for v in forward.outputs[len(plan.results) :]])
        regions.append(_region(forward, plan.operands, plan.results + saved, context.mask, (), context))
        regions.append(_region(backward, saved + moved, own, context.mask, (), context, summed=True))
    context.shared.update([node.results[p] for p, source in shared.items() if node.operands[source] in context.shared])
    return _emitted(node, call.rebuilt(operands=given, branches=regions, shared=list(shared)), plan, context)


def _given(node: Node, operands: Values, plan: RegionPlan, context: BatchContext) -> list[Value]:
    """The operands, expanded where the plan wants them batched."""
    have = context.flags(node.operands)
    missing = [want and not b for want, b in zip(plan.operands, have, strict=True)]
    return [expanded(v, not m, context.size) for v, m in zip(operands, missing, strict=True)]


def _region(
    region: Graph, flags: tuple[bool, ...], wanted: Sequence[bool], mask: int, shared: Sequence[int],
    context: BatchContext, summed: bool = False,
) -> Graph:  # fmt: skip
    """`summed`: outputs that aren't `wanted` batched and are, are added up: cotangents of what the batch shares."""
    inner = context.region(region, flags, mask, shared)
    types = [batched_type(v.type, b, context.size) for v, b in zip(region.inputs, flags, strict=True)]

    def function(*arguments: Value) -> list[Value]:
        outputs = walk_region(region, arguments, wanted, inner)
        if not summed:
            return outputs
        flags = zip(outputs, wanted, inner.flags(region.outputs), strict=True)
        return [ops.reduce_sum(v, (0,)) if b and not w else v for v, w, b in flags]

    graph, captures = trace(function, types)
    assert not captures, "a closed region stays closed"
    return graph


def _emitted(node: Node, form: Form, plan: RegionPlan, context: BatchContext) -> Values:
    old = replacement(node, context)
    types = [batched_type(r.type, b, context.size) for r, b in zip(node.results, plan.results, strict=True)]
    if old is not None and [r.type for r in old.results] != types[: len(old.results)]:
        old = None  # batched otherwise: the results aren't the same values
    return emit(*form, old)


# ---- accumulators


def _shared_carries(loop: Loop, plan: RegionPlan, context: BatchContext) -> tuple[int, ...]:
    """Those declared, those that continue an accumulator from outside, and those that the batch axis allows.

    Under a mask with lanes besides the batch axis nothing new is shared: scatters of lanes that don't run in
    the loop around count for a carry, but not for an accumulator.
    """
    positions = set(loop.shared)
    for j, init in enumerate(loop.inits):
        if init in context.shared or (
            plan.per_lane
            and loop.lanes == 0
            and context.mask <= 1
            and is_accumulator(loop, j)
            and _unmasked(loop.body, loop.position(j))
        ):
            positions.add(j)
    return tuple(sorted(positions))


def _unmasked(region: Graph, position: int) -> bool:
    """Whether no lane loop or switch in the chain of scatters from this input treats it as a lane's own value
    (its scatters may then update any lane's rows)."""
    uses = value_uses(region)
    value = region.inputs[position]
    while True:
        ((node, operand),) = readers(region, value, uses)
        if node is None:
            return True
        step = passed(node, operand)
        assert step is not None
        if node.regions:
            inner = Region.of(node)
            if inner.lanes and step.output not in inner.shared:
                return False
            if not all(_unmasked(body, operand - inner.offset) for body in inner.bodies):
                return False
        value = node.results[step.output]


def _shared_results(switch: Region, context: BatchContext) -> dict[int, int]:
    """Result position -> the operand that it accumulates into."""
    shared = {p: switch.source(p) for p in switch.shared}
    for i in switch.captured:
        if switch.node.operands[i] in context.shared:
            chain = passed(switch.node, i)
            if chain is not None:  # else no branch looks at it: what reads an accumulator makes it none
                shared[chain.output] = i
    return dict(sorted(shared.items()))


ROWS: Final[dict[str, Row]] = {"for": _loop, "while": _loop, "switch": _switch, "call": _call}
