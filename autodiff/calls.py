"""Derivatives of calls: by the rules they bring, or by computing the function again.

A rule is emitted inline, so that its values are those of the program around it: what a forward rule saves goes onto
stacks through the minimum cut like anything else, and further derivatives go through the rule's own operations.

    y = call(x) {vjp}                  y, r = forward(x)             replaces the original
                                ->     x_adj = backward(r, y_adj)
    y = call(x) {jvp}                  y, y_tan = tangent(x, x_tan)
                                       x_adj: the walk back through the tangent rule by x_tan, in which it is linear
    y = call(x) {vjp, linear}          y_tan = call(x_tan)            in forward mode; others of kind vjp have none

A call of kind `plain` that hands on its operands (`region_ops.tied`) stands for the original wherever a graph has both;
what a backward rule gives is tied to it, so that a graph which has the derivative has the results of the rule too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopgrad.autodiff.activity import active_outputs
from loopgrad.autodiff.loops.recompute import pull_recomputed
from loopgrad.autodiff.loops.tangents import push_switch
from loopgrad.autodiff.pullback import Adjoints, Context, Cotangents, explicit, pull
from loopgrad.autodiff.pushforward import RegionRules, Tangents
from loopgrad.graph import ops, region_ops
from loopgrad.graph.build import inline
from loopgrad.graph.errors import GradientError, explained
from loopgrad.graph.extract import extract
from loopgrad.graph.lanes import lane_report
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.region_ops import tied
from loopgrad.graph.regions import Call


def pull_call(node: Node, received: Cotangents, adjoints: Adjoints, context: Context) -> None:
    """Add up the cotangents of the operands."""
    match Call.of(node).kind:
        case "vjp":
            _pull_by_rule(node, received, adjoints, context)
        case "jvp":
            _pull_by_tangents(node, received, adjoints, context)
        case "opaque":
            raise _too_often(node)
        case "plain" | "routine":
            _pull_through(node, received, adjoints, context)
        case _:
            if not pull_recomputed(node, received, adjoints, context):
                _pull_inline(node, received, adjoints, context)


def push_call(node: Node, tangents: Tangents, rules: RegionRules) -> Tangents:
    """The tangents of the results."""
    call = Call.of(node)
    kind = call.kind
    if kind == "opaque":
        raise _too_often(node)
    if not call.own:
        return push_switch(node, tangents, rules)
    _refuse_captured(node, lambda v: tangents[node.operands.index(v)] is not None)
    if kind == "vjp" and node.attrs.get("linear"):
        return _push_linear(node, tangents)
    if kind == "vjp":
        fix = "use lg.grad or lg.vjp, or give the function a jvp rule by lg.custom_jvp, which serves both"
        raise GradientError(explained(_called(node), "reverse mode: it has a vjp rule only", "forward mode", fix))
    arguments = call.moving_operands
    given = explicit([node.operands[i] for i in arguments], [tangents[i] for i in arguments])
    made = tied(inline(call.rules[0], (*node.operands, *given)), replaces=node)
    found: list[Value | None] = [None] * len(node.results)
    for i, tangent in zip(call.moving_results, made[len(node.results) :], strict=True):
        found[i] = tangent
    return found


def _push_linear(node: Node, tangents: Tangents) -> Tangents:
    """The tangents of the results are the function of those of its arguments."""
    call = Call.of(node)
    moved = explicit(call.own_arguments, tangents[: len(call.own_arguments)])
    count, name = len(moved), node.attrs["name"]
    return region_ops.call((*moved, *call.captures), node.regions, "vjp", arguments=count, name=name, linear=True)


def _too_often(node: Node) -> GradientError:
    fix = "state rules that don't call the function itself"
    expected = "no higher derivative than its rules, which call it again, were traced for"
    return GradientError(explained(_called(node), expected, "one more", fix))


def _called(node: Node) -> str:
    return node.attrs["name"] or "call"


def _refuse_captured(node: Node, moving: Callable[[Value], bool]) -> None:
    """The rules know nothing of what the functions read besides their arguments."""
    call = Call.of(node)
    for v in call.captures:
        if v not in call.own_arguments and moving(v):
            fix = "pass it as an argument, for which the rule gives a derivative, or wrap it in lg.stop_gradient"
            got = f"a tensor of type {v.type} from outside that is being differentiated"
            raise GradientError(explained(_called(node), "only arguments to be differentiated", got, fix))


# ---- reverse


def _pull_by_rule(node: Node, received: Cotangents, adjoints: Adjoints, context: Context) -> None:
    _refuse_captured(node, lambda v: v in adjoints.active)
    forward, backward = Call.of(node).rules
    made = tied(inline(forward, node.operands), replaces=node)
    results = Call.of(node).moving_results
    given = explicit([node.results[i] for i in results], [received[i] for i in results])
    found = inline(backward, (*made[len(node.results) :], *given))
    if context.masked and not node.attrs.get("linear"):  # of zeros that makes zeros
        found = _guarded(backward, given, found)
    _settle(node, found, made, adjoints)


def _settle(node: Node, found: Cotangents, made: Sequence[Value], adjoints: Adjoints) -> None:
    """Enter the cotangents of the arguments, tied to the results that the rule gave."""
    present = [(i, ct) for i, ct in zip(Call.of(node).moving_operands, found, strict=True) if ct is not None]
    for (i, _), ct in zip(present, tied([ct for _, ct in present], made[:1]), strict=True):
        adjoints.add(node.operands[i], ct)


def _guarded(backward: Graph, given: Sequence[Value], found: Sequence[Value]) -> tuple[Value, ...]:
    """NaN becomes 0 where all cotangents that it comes from are 0: a result that is discarded further on may have been
    computed where the derivative is infinite. Asked for each element of the axes along which the rule mixes none."""
    shape = _alone(backward, given, found)
    idle: Value | None = None
    for ct in given:
        zero = ops.reduce_and(ops.eq(ct, 0), range(len(shape), len(ct.shape)))
        idle = zero if idle is None else ops.and_(idle, zero)
    if idle is None:
        return tuple(found)
    return tuple([ops.select(ops.and_(ops.broadcast_leading(idle, v.shape), ops.is_nan(v)), 0, v) for v in found])


def _alone(backward: Graph, given: Sequence[Value], found: Sequence[Value]) -> tuple[int, ...]:
    """The longest leading shape of all cotangents for which no element of it looks at another one."""
    values = [*given, *found]
    shape = values[0].shape
    while shape and any(v.shape[: len(shape)] != shape for v in values):
        shape = shape[:-1]
    first = len(backward.inputs) - len(given)
    while shape and not lane_report(backward, shape, range(first, len(backward.inputs))).local:
        shape = shape[:-1]
    return shape


def _pull_by_tangents(node: Node, received: Cotangents, adjoints: Adjoints, context: Context) -> None:
    _refuse_captured(node, lambda v: v in adjoints.active)
    tangents = [ops.alias(ops.zeros_like(node.operands[i])) for i in Call.of(node).moving_operands]
    made = inline(Call.of(node).rules[0], (*node.operands, *tangents))
    results = tied(made[: len(node.results)], replaces=node)
    given = [received[i] for i in Call.of(node).moving_results]
    found = pull(made[len(node.results) :], given, tangents, context, (), node.operands)
    graph = extract([ct for ct in found if ct is not None], (*tangents, *node.operands))
    if any(active_outputs(graph, [v in tangents for v in graph.inputs])):
        fix = "compute the tangent of the result as a sum of products with the tangents of the arguments"
        raise GradientError(explained(_called(node), "a jvp rule linear in the tangents", "one that isn't", fix))
    _settle(node, found, results, adjoints)


def _pull_through(node: Node, received: Cotangents, adjoints: Adjoints, context: Context) -> None:
    """What stands for its region is differentiated as if the region stood there."""
    outputs = inline(Call.of(node).function, node.operands)
    for v, ct in _pulled(node, outputs, received, adjoints, context).items():
        adjoints.put(v, ct)


def _pull_inline(node: Node, received: Cotangents, adjoints: Adjoints, context: Context) -> None:
    """What can't be computed again is differentiated as if it stood there, which it does from now on."""
    outputs = inline(Call.of(node).function, node.operands)
    made = tied(outputs, replaces=node)
    found = _pulled(node, outputs, received, adjoints, context)
    for v, ct in zip(found, tied(list(found.values()), made[:1]), strict=True):
        adjoints.put(v, ct)


def _pulled(
    node: Node, outputs: Sequence[Value], received: Cotangents, adjoints: Adjoints, context: Context
) -> dict[Value, Value]:
    """The cotangents of the operands, with what they had before."""
    wrt = [v for v in dict.fromkeys(node.operands) if v in adjoints.active]
    before = [adjoints.get(v) for v in wrt]
    found = zip(wrt, pull(outputs, received, wrt, context, before, node.operands), strict=True)
    return {v: ct for v, ct in found if ct is not None}
