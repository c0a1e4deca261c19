"""Lane loops and switches whose derivative leaves the lanes: masked first, then differentiated.

Where an operation mixes lanes, a captured value without the lane dims gets cotangents that aren't scatters, or
lanes meet in a minimum or a product, the reverse of a lane loop isn't a lane loop. Such a node is rewritten as
the uniform loop over whole tensors that means the same (`graph.passes.mask`), and that one is differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.autodiff.loops.normal import NotLaneLocalError
from loopgrad.autodiff.pullback import Adjoints, Context, RegionRule, pull
from loopgrad.autodiff.pushforward import RegionRule as TangentRule
from loopgrad.autodiff.pushforward import RegionRules, push_forward
from loopgrad.graph.build import inline
from loopgrad.graph.extract import extract
from loopgrad.graph.lanes import lane_report
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.passes.mask import crosses_lanes
from loopgrad.graph.passes.mask import run as mask
from loopgrad.graph.regions import Loop, Region

Received = Sequence[Value | None]


def masked_where_needed(rule: RegionRule) -> RegionRule:
    """`rule`, with lane nodes that it can't treat as such masked. Only the outermost lane node is: what is
    local inside it keeps its lanes."""

    def pull_node(node: Node, received: Received, adjoints: Adjoints, context: Context) -> None:
        if context.lanes or not Region.of(node).lanes:
            rule(node, received, adjoints, context)
            return
        if not crosses_lanes(node) and not _compares_lanes(node, received):
            try:
                with adjoints.whole():
                    rule(node, received, adjoints, context)
            except NotLaneLocalError:
                pass
            else:
                return
        _pull_masked(node, received, adjoints, context)

    return pull_node


def _compares_lanes(node: Node, received: Received) -> bool:
    """Whether a derivative depends on what other active lanes put into an accumulator: the winners of a minimum, the
    other factors of a product. Those of a sum don't."""
    region = Region.of(node)
    asked = {region.source(r) for r in region.shared if received[r] is not None}
    return any(
        not found.exclusive and found.kinds != {"add"}
        for i, found in lane_report(node, region.lane_shape).accumulators.items()
        if i in asked
    )


def pushed_masked_where_needed(rule: TangentRule, inside: RegionRules) -> TangentRule:
    """The same for forward mode; `inside` are the rules for what stands in a lane node."""

    def push_node(node: Node, tangents: Received, rules: RegionRules) -> Received:
        if not Region.of(node).lanes:
            return rule(node, tangents, rules)
        try:
            return rule(node, tangents, inside)
        except NotLaneLocalError:
            operands, results = _masked(node)
            known = dict(zip(node.operands, tangents, strict=True))
            return push_forward(results, operands, [known[v] for v in operands], rules)

    return push_node


def _pull_masked(node: Node, received: Received, adjoints: Adjoints, context: Context) -> None:
    operands, results = _masked(node)
    wrt = [v for v in operands if v in adjoints.active]
    before = [adjoints.get(v) for v in wrt]
    for v, ct in zip(wrt, pull(results, received, wrt, context, before, operands), strict=True):
        if ct is not None:
            adjoints.put(v, ct)


def _masked(node: Node) -> tuple[list[Value], tuple[Value, ...]]:
    """The node's distinct operands, and its results computed in uniform form."""
    operands = list(dict.fromkeys(node.operands))
    masked = mask(extract(node.results, operands), lambda n: n is node or crosses_lanes(n), apart=True)
    results = inline(masked, operands)
    if isinstance(Region.of(node), Loop):
        loop = results[0].node
        assert loop is not None
        loop.replaces = node
    return operands, results
