"""Who factorises: lanes, blocks, or the routine of a library.

    cholesky(a: f64[1000,4,4])     switch(0, a) { unrolled columns }: a lane for each matrix, fused with what is around
    cholesky(a: f64[1000,1000])    stays where the target calls a library for it; elsewhere blocks, if there is a form

Enters: a Graph after the passes. Leaves: one in which the factorisations that are left are done by the target, or by
the host. The choice depends on shapes, the target and where the operation stands, never on values.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from loopgrad.codegen.factorisations import in_lanes
from loopgrad.codegen.schedule.regions import Refusal, fits
from loopgrad.graph.build import at, trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import factorisations
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import TensorType, int64

LARGEST: Final = 16  # rows of what a lane factorises
LARGEST_BESIDE: Final = 8  # the same where a library is there, outside of loops
WORTH_LANES: Final = 64  # matrices, for which lanes are better than a library


def rewrite_factorisations(graph: Graph, library: frozenset[str]) -> Graph:
    """`library`: the routines that the target calls a library for."""
    if not _any(graph):
        return graph
    nodes = [node for node in graph.nodes if node.op in factorisations.ROWS]
    top = frozenset(nodes)

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        if node.op not in factorisations.ROWS:
            return None
        called = node.op in library and builder.original in top
        return _in_lanes(node, builder) if _small(node, called) else None

    return rebuild(graph, rewrite)


def _any(graph: Graph) -> bool:
    return any(node.op in factorisations.ROWS or any(map(_any, node.regions)) for node in graph.nodes)


def _small(node: Node, called: bool) -> bool:
    """Whether lanes may do it; `called`: a library would otherwise."""
    sizes = [n for v in node.operands for n in v.shape[_batch(node) :]]
    if called and prod(node.results[0].shape[: _batch(node)]) < WORTH_LANES:
        return False
    return node.op in in_lanes.FORMS and min(sizes) > 0 and max(sizes) <= (LARGEST_BESIDE if called else LARGEST)


def _batch(node: Node) -> int:
    return len(node.results[0].shape) - 2


def _in_lanes(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    """A region of its own, computed once by each lane; None where that is too much for one."""
    form = in_lanes.FORMS[node.op]
    with at(node.loc):
        body, _ = trace(lambda *operands: form(node.attrs, operands), [v.type for v in node.operands])
    lanes = node.results[0].shape[: _batch(node)]
    zero = builder.const(0, TensorType(lanes, int64))
    attrs = {"lanes": len(lanes), "shared": ()}
    region = Node("switch", (zero, *node.operands), tuple([r.type for r in node.results]), attrs, (body,), node.loc)
    if isinstance(fits(region, lanes), Refusal):
        builder.nodes.pop()
        return None
    builder.nodes.append(region)
    return region.results
