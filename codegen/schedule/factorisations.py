"""Who factorises: lanes, blocks, or the routine of a library.

    cholesky(a: f64[1000,4,4])     switch(0, a) { unrolled columns }: a lane for each matrix, fused with what is around
    cholesky(a: f64[1000,1000])    stays where the target calls a library for it; elsewhere blocks, if there is a form

Enters: a Graph after the passes. Leaves: one in which the factorisations that are left are done by the target, or by
the host. The choice depends on shapes, the target and where the operation stands, never on values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final

from loopgrad.codegen.factorisations import by_library, in_lanes, one_sided, reflections, rotations, whole
from loopgrad.codegen.factorisations.in_columns import in_columns
from loopgrad.codegen.factorisations.in_lanes import Form
from loopgrad.codegen.options import LANE_BYTES
from loopgrad.codegen.schedule.lane_bills import rolled_routine
from loopgrad.codegen.schedule.regions import Refusal, fits
from loopgrad.graph.build import at, emit, trace
from loopgrad.graph.complex_pairs import in_pairs
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import factorisations
from loopgrad.graph.primitives.factorisations import COMPLEX, batch_rank, extents, joined_type, part_count
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import TensorType, int64

FORMS: Final[dict[str, Form]] = {**in_lanes.FORMS, **reflections.FORMS, **rotations.FORMS, **one_sided.FORMS}
MADE_OF_OTHERS: Final[dict[str, Form]] = {"pinv": whole.pinv}
LARGEST: Final = 16  # rows of what a lane factorises by operations on elements
LARGEST_UNROLLED: Final = 8  # the same where a lane could do it in loops, which is little slower and much less code;
# complex rows count twice: their products are as much code as those of a real matrix of twice as many
LARGEST_BESIDE: Final = 8  # the same where a library is there, outside of loops
SMALLEST_CALLED: Final = 9  # rows or columns for which a device's library is called
LARGEST_CALLED: Final = 30_000  # those whose work the library's functions can count
MOST_CALLS: Final = 16  # matrices, one after the other
ROTATED: Final = ("eigh", "svd")  # of many small matrices, by rotations
WORTH_LANES: Final = 64  # matrices, for which lanes are better than a library
WORTH_LOOPS: Final = 8  # the same for lanes that factorise in loops, whose code is made sooner


def rewrite_factorisations(graph: Graph, library: frozenset[str]) -> Graph:
    """`library`: the routines that the target calls a library for."""
    if not _any(graph):
        return graph
    nodes = [node for node in graph.nodes if node.op in factorisations.ROWS]
    top = frozenset(nodes)

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        if node.op not in factorisations.ROWS:
            return None
        if node.op in MADE_OF_OTHERS:
            return inlined(node, builder, MADE_OF_OTHERS[node.op], library)
        if builder.original in top and in_columns(node, library):
            return None
        form = None if node.op in library else called_form(node, library)
        if form is not None and builder.original in top:
            return inlined(node, builder, form, library)
        called = node.op in library and builder.original in top
        found = _in_lanes(node, builder, called, builder.original not in top)
        if found is not None or node.op in library or (form is None and node.op not in forms_of(node, whole.FORMS)):
            return found
        return inlined(node, builder, form or whole.FORMS[node.op], library)

    return rebuild(graph, rewrite)


def called_form(node: Node, library: frozenset[str]) -> Form | None:
    """What a device's library does of it, where that is worth a call: small matrices are for lanes, and many that the
    library takes one after the other for operations on all of them."""
    if by_library.NEEDED not in library or node.op not in by_library.FORMS:
        return None
    a = node.operands[0].shape[batch_rank(node) :][:2]
    count, size = _count(node), max(a)
    if not min(*a, count, *node.results[0].shape) or not SMALLEST_CALLED <= size <= LARGEST_CALLED:
        return None
    together = node.op in in_lanes.FORMS or (node.op in ROTATED and size <= by_library.MOST_ROTATED)
    own = node.op in forms_of(node, whole.FORMS)
    return by_library.FORMS[node.op] if together or count <= MOST_CALLS or not own else None


def inlined(node: Node, builder: GraphBuilder, form: Form, library: frozenset[str]) -> Sequence[Value]:
    """What the form emits in place of the node; factorisations in that are rewritten, too."""
    return builder.inline(rewrite_factorisations(_traced(node, form), library), node.operands)


def _traced(node: Node, form: Form) -> Graph:
    """What the form emits, for the node's operands; of complex numbers for pairs of reals."""
    kinds = node.attrs.get("pairs", "r" * len(node.operands))
    types = [joined_type(v.type) if kind == COMPLEX else v.type for v, kind in zip(node.operands, kinds, strict=True)]
    attrs = {name: value for name, value in node.attrs.items() if name != "pairs"}
    with at(node.loc):
        graph, _ = trace(lambda *operands: form(attrs, operands), types)
    return in_pairs(graph)


def forms_of(node: Node, forms: Mapping[str, Form]) -> Mapping[str, Form]:
    """Those that the node can have: rotations and reflections are real."""
    return {op: forms[op] for op in in_lanes.FORMS} if "pairs" in node.attrs else forms


def _any(graph: Graph) -> bool:
    return any(node.op in factorisations.ROWS or any(map(_any, node.regions)) for node in graph.nodes)


def _small(node: Node, called: bool) -> bool:
    """Whether lanes may do it; `called`: a library would otherwise."""
    if called and _count(node) < WORTH_LANES:
        return False
    return node.op in forms_of(node, FORMS) and 0 < _largest(node) <= (LARGEST_BESIDE if called else LARGEST)


def _count(node: Node) -> int:
    """Matrices."""
    return prod(node.operands[0].shape[: batch_rank(node)])


def _largest(node: Node) -> int:
    """Rows or columns of its matrices; 0 where one has no elements."""
    sizes = [n for k in range(len(node.operands)) for n in extents(node, k)]
    return max(sizes) if min(sizes) > 0 else 0


def _in_lanes(node: Node, builder: GraphBuilder, called: bool, inside: bool) -> Sequence[Value] | None:
    """A region of its own, computed once by each lane: operations on elements where those are few, else a routine in
    loops; rotations and reflections in loops only `inside` of others, or where there is nothing else. None where that
    is too much for one."""
    forms = [(FORMS[node.op], True)] if _small(node, called) else []
    direct = node.op in in_lanes.FORMS
    wanted = inside or node.op not in forms_of(node, whole.FORMS)
    if rolled_routine(node) and ((direct and _count(node) >= WORTH_LOOPS) if called else (direct or wanted)):
        in_loops = (partial(_emitted, node.op), False)
        little = _largest(node) * part_count(node, 0) <= LARGEST_UNROLLED
        forms = [*forms, in_loops] if little else [in_loops, *forms]
    for form, unrolled in forms:
        region = _region(node, builder, _traced(node, form), unrolled)
        if region is not None:
            return region
    return None


def _emitted(op: str, attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    return emit(op, operands, attrs)


def _region(node: Node, builder: GraphBuilder, body: Graph, unrolled: bool) -> Sequence[Value] | None:
    lanes = node.operands[0].shape[: batch_rank(node)]
    zero = builder.const(0, TensorType(lanes, int64))
    attrs = {"lanes": len(lanes), "shared": (), "unrolled": unrolled}
    region = Node("switch", (zero, *node.operands), tuple([r.type for r in node.results]), attrs, (body,), node.loc)
    found = fits(region, lanes, None if unrolled else LANE_BYTES)
    if isinstance(found, Refusal):
        builder.nodes.pop()
        return None
    builder.nodes.append(region)
    return region.results
