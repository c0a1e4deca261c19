"""Reverse of a function that is computed again: what it saves is its operands, and what a policy names.

The reverse node is a call of kind `again`, whose region computes the function once more and pulls back through it. It
takes the operands, the cotangents and the values that the policy saves, which are extra results of an augmented call:

    y = call(x) {recompute, save=("only", "h")}            y, h = call(x) {recompute}      replaces the original
      h = sin(x) named h                            ->     x_adj = call(x, y_adj, h) {again}
      return exp(h)                                          return y_adj * exp(h) * cos(x)

A later derivative of an `again` computes again too. `save` is () for nothing, or what `saves` reads. Names count where
the function itself gives them, not inside its loops: there, recompute the body.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.autodiff.loops.adjoint import active_hoisted, pull_hoisted
from loopgrad.autodiff.loops.normal import NormalCall, normal_call, without_inputs
from loopgrad.autodiff.loops.switch import (
    Flow,
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
from loopgrad.graph.build import emit
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import dce
from loopgrad.graph.passes.carries import run as without_dead_carries
from loopgrad.graph.rebuild import read_values
from loopgrad.graph.regions import brings_rules


def saves(policy: Sequence[str], node: Node) -> bool:
    """Whether a policy keeps the results of a node: `only` these names, any name `except` these, those of `dots`, or
    what one of several joined by `or` keeps."""
    if "or" in policy:
        place = policy.index("or")
        return saves(policy[:place], node) or saves(policy[place + 1 :], node)
    name = node.attrs.get("name") if node.op == "alias" else None
    match policy[:1]:
        case ("only",):
            return name in policy[1:]
        case ("except",):
            return name is not None and name not in policy[1:]
        case ("dots",):
            return node.op == "matmul"
    return False


def recomputed(graph: Graph, operands: Sequence[Value], save: Sequence[str] = ()) -> tuple[Value, ...]:
    """The outputs of `graph`, whose reverse pass will compute everything in it again from `operands`. An operand
    that is an output stays what it is: a loop around it must see that it doesn't change."""
    handed = dict(zip(graph.inputs, operands, strict=True))
    looked_at = {v for node in graph.nodes for v in node.operands}
    read = [v for v in graph.inputs if v in looked_at]
    region = Graph(tuple(read), graph.nodes, tuple([v for v in graph.outputs if v not in handed]))
    made = iter(region_ops.call([handed[v] for v in read], [region], "recompute", save=save))
    return tuple([handed[v] if v in handed else next(made) for v in graph.outputs])


def pull_recomputed(node: Node, received: Received, adjoints: Adjoints, context: Context) -> None:
    """Emit the augmented call, where the policy saves something, and the reverse, and add up its cotangents."""
    call = normal_call(node, context.lanes)
    adjoints.active |= active_hoisted(call, adjoints)
    flow = flow_of(call, received, adjoints)
    (joint,), flow = traced(call, flow, context)
    cotangents = explicit([node.results[r] for r in flow.results], [received[r] for r in flow.results])
    if flow.plain or flow.tables:
        require_lanes([joint], call, flow)
        starts = starts_of(call, flow, adjoints)
        settle_flow(call, flow, starts, _emit(call, joint, flow, (*cotangents, *starts.values())), adjoints)
    for p, i in flow.handed.items():
        adjoints.add(call.arguments[p], cotangents[i])
    pull_hoisted(call, adjoints, context)


def _emit(call: NormalCall, joint: Graph, flow: Flow, given: Sequence[Value]) -> Sequence[Value]:
    """Plain cotangents, accumulators. `given`: cotangents of results, accumulators."""
    n, results = len(call.arguments), len(call.node.results)
    kept = _kept(call, joint)
    reverse = _needed_only(extract(joint.outputs[results:], (*joint.inputs, *kept)))
    read = read_values(reverse)
    unread = {i for i, v in enumerate(reverse.inputs) if v not in read and not n <= i < len(joint.inputs)}
    saved, anchor = _emit_augmented(call, joint, [v for v in kept if v in read])
    operands = [v for i, v in enumerate((*call.arguments, *given)) if i not in unread]
    shared = [len(flow.plain) + i for i in range(len(flow.tables)) if only_scattered([joint], call, flow, i)]
    region, save = without_inputs(reverse, unread), call.node.attrs["save"]
    found = region_ops.call([*operands, *saved], [region], "again", save=save, shared=shared)
    return region_ops.tied(found, anchor) if anchor else found


def _kept(call: NormalCall, joint: Graph) -> list[Value]:
    """What the policy saves of what the function computes."""
    save = call.node.attrs["save"]
    if not save:
        return []
    function = extract(joint.outputs[: len(call.node.results)], joint.inputs[: len(call.arguments)])
    kept = [inner for inner in function.nodes if saves(save, inner)]
    # of what is named itself: whatever computed it may read its result for the derivative, and knows no name
    values = [n.operands[0] if n.op == "alias" else n.results[0] for n in kept]
    return [v for v in dict.fromkeys(values) if v not in function.inputs]


def _emit_augmented(
    call: NormalCall, joint: Graph, saved: Sequence[Value]
) -> tuple[Sequence[Value], Sequence[Value]]:
    """The saved values; where none are, and the function calls others whose rules are inline here, a result."""
    if not saved and not brings_rules(call.function):
        return (), ()
    results = len(call.node.results)
    region = extract((*joint.outputs[:results], *saved), joint.inputs[: len(call.arguments)])
    made = emit(*call.rebuilt(branches=[region]), call.original)
    return made[results:], () if saved else made[:1]


def _needed_only(part: Graph) -> Graph:
    """Without dead carries of loops and dead results of branches, in each other to any depth: an accumulator needn't
    be there again, nor need what only scatters into it."""
    while True:
        smaller = dce.run(without_dead_carries(dce.run(part)))
        if smaller is part:
            return part
        part = smaller
