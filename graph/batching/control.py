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
from typing import Any, Final

from loopgrad.graph.accumulators import accumulator_input, first_carry, is_accumulator, passed, readers, value_uses
from loopgrad.graph.batching.flow import RegionPlan
from loopgrad.graph.batching.row import Context, Row, batched_type, expanded
from loopgrad.graph.batching.walk import replacement, walk_region
from loopgrad.graph.build import emit, trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Loop

Values = Sequence[Value]


def _loop(node: Node, operands: Values, context: Context) -> Values:
    plan = context.flow.plan(node, context.flags(node.operands), context.mask > 0)
    given = _given(node, operands, plan, context)
    first, n = first_carry(node), node.attrs["carries"]
    shared = _shared_carries(node, plan, context)
    attrs = {**node.attrs, "lanes": node.attrs["lanes"] + plan.per_lane, "shared": shared}
    mask = max(context.mask, attrs["lanes"] if plan.per_lane else 0)
    inputs = [first + j for j in shared]
    regions: list[Graph] = []
    if node.op == "while":
        regions.append(_region(node.regions[0], plan.operands, (plan.per_lane,), mask, inputs, context))
    regions.append(_region(node.regions[-1], plan.operands, plan.results, mask, inputs, context))
    context.shared.update([node.results[j] for j in range(n) if node.operands[first + j] in context.shared])
    return _emitted(node, given, attrs, regions, plan, context)


def _switch(node: Node, operands: Values, context: Context) -> Values:
    plan = context.flow.plan(node, context.flags(node.operands), context.mask > 0)
    given = _given(node, operands, plan, context)
    shared = _shared_results(node, context)
    attrs = {"lanes": node.attrs["lanes"] + plan.per_lane, "shared": tuple(shared)}
    mask = max(context.mask, attrs["lanes"] if plan.per_lane else 0)
    regions = [_region(b, plan.operands[1:], plan.results, mask, list(shared.values()), context) for b in node.regions]
    continued = [p for p, source in shared.items() if node.operands[1 + source] in context.shared]
    context.shared.update([node.results[p] for p in continued])
    return _emitted(node, given, {**node.attrs, **attrs}, regions, plan, context)


def _given(node: Node, operands: Values, plan: RegionPlan, context: Context) -> list[Value]:
    """The operands, expanded where the plan wants them batched."""
    have = context.flags(node.operands)
    missing = [want and not b for want, b in zip(plan.operands, have, strict=True)]
    return [expanded(v, not m, context.size) for v, m in zip(operands, missing, strict=True)]


def _region(
    region: Graph, flags: tuple[bool, ...], wanted: Sequence[bool], mask: int, shared: Sequence[int], context: Context
) -> Graph:
    inner = context.region(region, flags, mask, shared)
    types = [batched_type(v.type, b, context.size) for v, b in zip(region.inputs, flags, strict=True)]
    graph, captures = trace(lambda *arguments: walk_region(region, arguments, wanted, inner), types)
    assert not captures, "a closed region stays closed"
    return graph


def _emitted(
    node: Node, operands: Values, attrs: dict[str, Any], regions: Sequence[Graph], plan: RegionPlan, context: Context
) -> Values:
    old = replacement(node, context)
    types = [batched_type(r.type, b, context.size) for r, b in zip(node.results, plan.results, strict=True)]
    if old is not None and [r.type for r in old.results] != types[: len(old.results)]:
        old = None  # batched otherwise: the results aren't the same values
    return emit(node.op, operands, attrs, tuple(regions), old)


# ---- accumulators


def _shared_carries(loop: Node, plan: RegionPlan, context: Context) -> tuple[int, ...]:
    """Those declared, those that continue an accumulator from outside, and those that the batch axis allows.

    Under a mask with lanes besides the batch axis nothing new is shared: scatters of lanes that don't run in
    the loop around count for a carry, but not for an accumulator.
    """
    first = first_carry(loop)
    positions = set(loop.attrs["shared"])
    for j in range(loop.attrs["carries"]):
        if loop.operands[first + j] in context.shared or (
            plan.per_lane
            and loop.attrs["lanes"] == 0
            and context.mask <= 1
            and is_accumulator(Loop.of(loop), j)
            and _unmasked(loop.regions[-1], first + j)
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
            if node.attrs["lanes"] and step.output not in node.attrs["shared"]:
                return False
            inner = operand - 1 if node.op == "switch" else operand
            bodies = node.regions if node.op == "switch" else node.regions[-1:]
            if not all(_unmasked(body, inner) for body in bodies):
                return False
        value = node.results[step.output]


def _shared_results(switch: Node, context: Context) -> dict[int, int]:
    """Result position -> branch input that it accumulates into."""
    shared = {p: accumulator_input(switch, p) for p in switch.attrs["shared"]}
    for i, operand in enumerate(switch.operands[1:]):
        if operand in context.shared:
            chain = passed(switch, 1 + i)
            if chain is not None:  # else no branch looks at it: what reads an accumulator makes it none
                shared[chain.output] = i
    return dict(sorted(shared.items()))


ROWS: Final[dict[str, Row]] = {"for": _loop, "while": _loop, "switch": _switch}
