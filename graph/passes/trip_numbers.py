"""What a loop's trips are numbered by lies between 0 and their count, which answers some questions about it.

Enters: a Graph. Leaves: a Graph in which, in `for` loops of known count, comparisons of integers that come out the same
in all trips are constants, and an element of 0, 1, 2 ... at a place that is surely there is that place.

    for(8, ...)                                       for(8, ...)
      body(%k, ...)                                     body(%k, ...)
        %1 = lt(%k, const 8);  %2 = ge(%k, const 0) ->    %1 = const {value=True};  %2 = const {value=True}
        %3 = gather(iota[8], %k)                          %3 is %k

Derivatives of rows that a loop writes ask such questions in each trip, since a scatter drops what is out of range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes.fold import known_scalar
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.primitives.intervals import Interval
from loopgrad.graph.ranges import bounds_where
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.regions import Loop
from loopgrad.graph.types import TensorType

Ranges = Mapping[Value, Interval]


def run(graph: Graph) -> Graph:
    """See the module's text."""
    return rebuild(graph, _answered)


def _answered(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    if node.op != "for":
        return None
    loop = Loop.of(node)
    count = known_scalar(loop.decider)
    if count is None or count < 1:
        return None
    index = loop.body.inputs[0]
    ranges = {index: (0, count - 1)}
    body = rebuild(loop.body, lambda inner, made: _known(inner, made, ranges), inner=False)
    if body is loop.body:
        return None
    made = loop.rebuilt(body=body).node(node.loc)
    builder.nodes.append(made)
    return made.results


def _known(node: Node, builder: GraphBuilder, ranges: Ranges) -> Sequence[Value] | None:
    """What stands for a node whose result is known or there already."""
    if _orders(node):
        (least, most), (low, high) = [bounds_where(v, ranges) for v in node.operands]
        holds = PRIMITIVES[node.op].python
        type = node.results[0].type
        assert holds is not None, "comparisons are Python's, too"
        assert isinstance(type, TensorType)
        if holds(least, high) == holds(most, low):  # the extremes of what grows with one side and falls with the other
            return [builder.const(holds(least, low), type)]
    if node.op == "gather" and len(node.operands) == 2 and _counts(node.operands[0]):
        low, high = bounds_where(node.operands[1], ranges)
        if low >= 0 and high < node.operands[0].shape[0] and node.operands[1].dtype is node.results[0].dtype:
            return [node.operands[1]]
    return None


def _orders(node: Node) -> bool:
    """Whether it says which of two integers is larger."""
    return PRIMITIVES[node.op].mirrored not in ("", node.op) and all(v.dtype.kind in "iu" for v in node.operands)


def _counts(table: Value) -> bool:
    return table.node is not None and table.node.op == "iota" and len(table.shape) == 1
