"""Calls give way to what they call.

Enters: a Graph. Leaves: a Graph whose calls are replaced by the nodes of their first region; rules of derivatives have
done their work. `again` stays until the last pass has run: what a reverse pass computes again must not be merged with
what was computed before, which would then be kept for it. `routine` stays for scheduling, which knows whether the
device has one. `separate` makes a switch of one branch of it, which is what
scheduling and lowering know.

    %1 = call(%x) {kind="vjp"}                       %1 = sin(%x)
      primal (%a)
        %2 = sin(%a)                         ->
        return %2
      forward ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.regions import Call
from loopgrad.graph.types import TensorType, int64

STAYING: Final = ("again", "routine")


def run(graph: Graph) -> Graph:
    """`graph` with calls replaced by the function they call, in regions too."""
    return rebuild(graph, _inlined)


def without_plain(graph: Graph) -> Graph:
    """`graph` without those calls that stand for their function in every derivative too."""
    return rebuild(graph, _inlined_if_plain)


def separate(graph: Graph) -> Graph:
    """`graph` with the calls that are left as switches of one branch."""
    return rebuild(graph, _as_switch)


def _inlined(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    if node.op != "call" or Call.of(node).kind in STAYING:
        return None
    return builder.inline(Call.of(node).function, node.operands)


def _inlined_if_plain(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    if node.op != "call" or Call.of(node).kind != "plain":
        return None
    return builder.inline(Call.of(node).function, node.operands)


def _as_switch(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    if node.op != "call":
        return None
    index = builder.const(0, TensorType((), int64))
    return builder.emit("switch", (index, *node.operands), {"lanes": 0, "shared": Call.of(node).shared}, node.regions)
