"""Reverse of a function that is computed again: what it saves is its operands, and what a policy names.

The reverse node is a call of kind `again`, whose region computes the function once more and pulls back through it. It
takes the operands, the cotangents and the values that the policy saves, which are extra results of an augmented call:

    y = call(x) {recompute, save=("only", "h")}            y, h = call(x) {recompute}      replaces the original
      h = sin(x) named h                            ->     x_adj = call(x, y_adj, h) {again}
      return exp(h)                                          return y_adj * exp(h) * cos(x)

A later derivative of an `again` computes again too. `save` is a policy, () for nothing, as `loops.saveable` reads it.
What it saves inside loops and branches of the function comes out of them as told there, on stacks where it is of trips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from loopgrad.autodiff.loops.adjoint import active_hoisted, pull_hoisted
from loopgrad.autodiff.loops.normal import NormalCall, normal_call
from loopgrad.autodiff.loops.refill import Refill, reading, refills, settles, turned
from loopgrad.autodiff.loops.residuals import Joint, JointValues, split
from loopgrad.autodiff.loops.saveable import is_marked, marked_by, marked_reads, stack_like, unmarked
from loopgrad.autodiff.loops.sizes import depth_of
from loopgrad.autodiff.loops.switch import (
    Received,
    flow_of,
    only_scattered,
    require_lanes,
    settle_flow,
    starts_of,
    traced,
)
from loopgrad.autodiff.pullback import Adjoints, Context, explicit
from loopgrad.graph import region_ops
from loopgrad.graph.build import emit, inline, trace
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import dce
from loopgrad.graph.passes.carries import run as without_dead_carries
from loopgrad.graph.rebuild import read_values
from loopgrad.graph.regions import Call, Form, brings_rules, in_parts
from loopgrad.graph.signature import Signature
from loopgrad.graph.types import StackType


def recomputed(graph: Graph, operands: Sequence[Value], save: Sequence[str] = ()) -> tuple[Value, ...]:
    """The outputs of `graph`, whose reverse pass will compute everything in it again from `operands`. An operand
    that is an output stays what it is: a loop around it must see that it doesn't change."""
    handed = dict(zip(graph.inputs, operands, strict=True))
    looked_at = {v for node in graph.nodes for v in node.operands}
    read = [v for v in graph.inputs if v in looked_at]
    region = Graph(tuple(read), graph.nodes, tuple([v for v in graph.outputs if v not in handed]))
    made = iter(region_ops.call([handed[v] for v in read], [region], "recompute", save=save))
    return tuple([handed[v] if v in handed else next(made) for v in graph.outputs])


def pull_recomputed(node: Node, received: Received, adjoints: Adjoints, context: Context) -> bool:
    """Emit the augmented call, where the policy saves something, and the reverse, and add up its cotangents. False
    where that would have to pop once more from a stack that it was given."""
    call = normal_call(node, context.lanes)
    adjoints.active |= active_hoisted(call, adjoints)
    flow = flow_of(call, received, adjoints)
    (joint,), flow = traced(replace(call, node=_marked(call).node(node.loc)), flow, context)
    cotangents = explicit([node.results[r] for r in flow.results], [received[r] for r in flow.results])
    if flow.plain or flow.tables:
        require_lanes([joint], call, flow)
        starts = starts_of(call, flow, adjoints)
        given = JointValues(call.arguments, cotangents, list(starts.values()))
        found = _emit(call, joint, given, context.nested)
        if found is None:
            return False
        settle_flow(call, flow, starts, found, adjoints)
    for p, i in flow.handed.items():
        adjoints.add(call.arguments[p], cotangents[i])
    pull_hoisted(call, adjoints, context)
    return True


def _marked(call: NormalCall) -> Form:
    function = marked_by(call.node.attrs["save"], call.function)
    stacks = [v for v in function.inputs if isinstance(v.type, StackType)]
    return call.rebuilt(branches=[marked_reads(function, stacks) if stacks else function])


class SavedStack(NamedTuple):
    """A stack of saved values in a joint graph: where it is made, where forward leaves it, where reverse does."""

    made: Value
    filled: Value
    emptied: Value


class SavedByPolicy(NamedTuple):
    """What the policy saves of a joint graph: values, and stacks; and which of these the second run reads."""

    values: Sequence[Value] = ()
    stacks: Sequence[SavedStack] = ()
    refills: Sequence[Refill] = ()

    @property
    def made(self) -> list[Value]:
        return [s.made for s in self.stacks]

    @property
    def filled(self) -> list[Value]:
        return [s.filled for s in self.stacks]

    @property
    def popped(self) -> list[SavedStack]:
        """The stacks that only the reverse part reads, as the first run left them."""
        fed = {made for r in self.refills for made in r.made.values()}
        return [s for s in self.stacks if s.made not in fed]


class AgainInputs(Signature):
    """What a function that is computed again, and pulled back, takes."""

    operands: Sequence[Value]
    cotangents: Sequence[Value]
    accumulators: Sequence[Value]
    saved: Sequence[Value]
    stacks: Sequence[Value]


class AugmentedResults(Signature):
    """What the augmented call gives."""

    results: Sequence[Value]
    saved: Sequence[Value]
    stacks: Sequence[Value]


def _emit(call: NormalCall, joint: Joint, given: JointValues, nested: bool) -> Sequence[Value] | None:
    """Plain cotangents, accumulators, emptied stacks. `given`: operands, cotangents of results, accumulators."""
    save = call.node.attrs["save"]
    joint, found = _saved(joint) if save else (joint, SavedByPolicy())
    found = _worth_keeping(joint, found)
    primal, cotangents, accumulators = joint.inputs.segments
    taken = AgainInputs(primal, cotangents, accumulators, found.values, found.filled)
    again = unmarked(taken.traced(lambda handed: _second_run(joint, found, handed)), again=True)
    taken, read = taken.split(again.inputs), read_values(again)
    if any(i in read and isinstance(i.type, StackType) for i in taken.operands):
        return None
    found = found._replace(values=[v for v, i in zip(found.values, taken.saved, strict=True) if i in read])
    made, anchor = _emit_augmented(call, joint, found, nested)
    operands = {i: outer for i, outer in zip(taken.operands, given.primal, strict=True) if i in read}
    taken = taken.replaced(operands=list(operands), saved=[i for i in taken.saved if i in read])
    region = Graph(taken.values, again.nodes, again.outputs)
    handed = AgainInputs(list(operands.values()), given.cotangents, given.accumulators, made.saved, made.stacks)
    outputs = joint.outputs
    tables = [i for i in range(len(outputs.accumulators)) if only_scattered([joint], i, call.within)]
    shared = [len(outputs.cotangents) + i for i in tables]
    results = region_ops.call(handed.values, [region], "again", save=save, shared=shared)
    return region_ops.tied(results, anchor) if anchor else results


def _saved(joint: Joint) -> tuple[Joint, SavedByPolicy]:
    """What the policy saves of what the function computes, in its loops and branches too; the joint graph to which
    that belongs."""
    inputs, outputs = joint.inputs, joint.outputs
    parts = split(inputs, outputs.primal, (*outputs.cotangents, *outputs.accumulators))
    stacks = [SavedStack(*t) for t in zip(*parts.threads, strict=True) if is_marked(t[0])]
    values = [v for v in parts.saveable if v not in parts.graph.inputs]
    return Joint(parts.graph, inputs, outputs.split(parts.graph.outputs)), SavedByPolicy(values, stacks)


def _emit_augmented(
    call: NormalCall, joint: Joint, found: SavedByPolicy, nested: bool
) -> tuple[AugmentedResults, Sequence[Value]]:
    """What is saved; where nothing is, and the function calls others whose rules are inline here, a result."""
    made, operands = found.made, joint.inputs.primal
    if not found.values and not made and not brings_rules(call.function):
        return AugmentedResults((), (), ()), ()
    wanted = AugmentedResults(joint.outputs.primal, found.values, found.filled)
    part = unmarked(_needed_only(extract(wanted.values, (*operands, *made))))
    region, _ = trace(lambda *arguments: inline(part, arguments), part.input_types)
    augmented = Call.of(call.rebuilt(branches=[region]).node(call.node.loc))
    depths = [None if nested else depth_of(augmented, len(operands) + i) for i in range(len(made))]
    stacks = [stack_like(v, d, marked=False) for v, d in zip(made, depths, strict=True)]
    form = call.rebuilt(operands=(*call.arguments, *stacks), branches=[region])
    given = wanted.split(emit(*form, call.original))
    return given, () if found.values or made else given.results[:1]


# ---- the second run


def _worth_keeping(joint: Joint, found: SavedByPolicy) -> SavedByPolicy:
    """The stacks that the second run reads, and those that the reverse pops."""
    for able in (refills(joint.graph, found.made, found.values), ()):
        trial = _second_part(joint, found._replace(refills=able), found.stacks)
        read, emptied = read_values(trial.graph), trial.graph.outputs[len(trial.graph.outputs) - len(found.stacks) :]
        fed = {made for made, queue in trial.queues.items() if queue in read}
        left = [s for s, v in zip(found.stacks, emptied, strict=True) if s.made in fed or v not in trial.graph.inputs]
        used = [r for r in (r.only(fed) for r in able) if r.made]
        worth = found._replace(stacks=left, refills=used)
        second = _second_part(joint, worth, worth.popped)
        if settles(second.graph, second.queues.values()):
            break
    return worth


class SecondPart(NamedTuple):
    """(joint inputs, a stack that feeds each of `queues`, trips, saved values, filled stacks) -> (cotangents,
    accumulators, emptied stacks)"""

    graph: Graph
    queues: dict[Value, Value]


def _second_part(joint: Joint, found: SavedByPolicy, popped: Sequence[SavedStack]) -> SecondPart:
    """`popped`: the filled stacks that it takes."""
    graph, outputs = joint.graph, (*joint.outputs.cotangents, *joint.outputs.accumulators)
    watched = (*(s.filled for s in popped), *(s.emptied for s in popped))
    graph, queues = reading(Graph(graph.inputs, graph.nodes, (*outputs, *found.values, *watched)), found.refills)
    lengths = (len(outputs), len(found.values), len(popped), len(popped))
    wanted, seen, filled, emptied = in_parts(graph.outputs, *lengths)
    part = _needed_only(extract((*wanted, *emptied), (*graph.inputs, *seen, *filled)))
    return SecondPart(part, queues)


def _second_run(joint: Joint, found: SavedByPolicy, given: AgainInputs) -> list[Value]:
    """Cotangents, accumulators, emptied stacks."""
    part = _second_part(joint, found, found.popped).graph
    own = (*given.operands, *given.cotangents, *given.accumulators)
    known, values = dict(zip(joint.graph.inputs, own, strict=True)), dict(zip(found.values, given.saved, strict=True))
    handed = dict(zip(found.made, given.stacks, strict=True))
    emptied, queues, trips = dict[Value, Value](), list[Value](), list[Value]()
    for r in found.refills:
        trips += [values[r.trips]] if isinstance(r.trips, Value) else []
        count = values[r.trips] if isinstance(r.trips, Value) else inline(r.trips, own)[0]
        for made, (rest, queue) in turned(joint.graph, r, handed, count, known).items():
            emptied[made] = rest
            queues.append(queue)
    outputs = inline(part, (*own, *queues, *trips, *given.saved, *(handed[s.made] for s in found.popped)))
    cotangents, left = in_parts(outputs, len(outputs) - len(found.popped), len(found.popped))
    emptied.update(zip([s.made for s in found.popped], left, strict=True))
    return [*cotangents, *(emptied[v] for v in found.made)]


def _needed_only(part: Graph) -> Graph:
    """Without dead carries of loops and dead results of branches, in each other to any depth: an accumulator needn't
    be there again, nor need what only scatters into it."""
    while True:
        smaller = dce.run(without_dead_carries(dce.run(part)))
        if smaller is part:
            return part
        part = smaller
