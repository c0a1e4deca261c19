"""What passes over a graph leave of operations, whatever the inputs are: who runs these one by one has to know.

Values that vary surely are no constants: something of them that depends on the inputs is left, so that what is computed
of such a value is computed as it is noted. A product of matrices is left in the order of terms that follows from its
extents alone, but where one side is narrow: there it follows from how the long factor lies in memory, and that from
transpositions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from loopgrad.codegen.targets.cpu.products.products_interface import NARROW
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import KEEPING_SPLATS, PRIMITIVES, Kind
from loopgrad.runtime.cpu.scheduling import await_scheduling

FOLDED: Final = frozenset({Kind.REDUCTION, Kind.RUNNING_TOTAL, Kind.CONTRACTION})

MadeBy = Callable[[Value], Node | None]


def note_varying(node: Node, varying: set[Value]) -> None:
    """Put a node's results among the values that vary, where they do."""
    if node.operands and _varies(node, varying):
        varying.update(node.results)


def _varies(node: Node, varying: set[Value]) -> bool:
    """Whether the result is one of `varying`, when these are."""
    operands, row = node.operands, PRIMITIVES[node.op]
    if row.kind is Kind.ELEMENTWISE and node.op != "cast" and node.op not in KEEPING_SPLATS:
        floats = len(node.results) == 1 and all(v.dtype.kind == "f" for v in (*operands, *node.results))
        return floats and node.op != "pow" and any(v in varying for v in operands)
    if len(operands) == 1 or row.kind in FOLDED or row.kind is Kind.INDEXING:
        return operands[0] in varying and 0 not in operands[0].shape
    return all(v in varying for v in operands)


def may_be_contracted(node: Node, made_by: MadeBy) -> bool:
    """Whether generated code may see a product that it would contract this sum of derivatives with."""
    pending = [*node.operands]
    while pending:
        made = made_by(pending.pop())
        if made is None:
            continue
        row = PRIMITIVES[made.op]
        of_two = row.kind is Kind.ELEMENTWISE and len(made.operands) == 2
        if of_two and not row.linear:  # products, and what passes make products of
            return True
        if row.kind is Kind.MOVEMENT or (row.linear and not of_two):
            pending += made.operands
    return False


def turned_factors(node: Node, made_by: MadeBy) -> tuple[bool, bool] | None:
    """Whether each factor of a product is the transpose of what lies in memory; None where passes may leave either, and
    the order of terms follows from it."""
    await_scheduling()
    from loopgrad.codegen.schedule.deep_products import DEEP  # late: small products need neither
    from loopgrad.codegen.schedule.products import turns  # late: as above

    left, right = node.operands
    *batch, m, k = left.shape
    n = right.shape[-1]
    if k >= DEEP and prod(batch) > 1:
        return None  # it may be cut into slices
    makers = made_by(left), made_by(right)
    turned = turns(makers[0]), turns(makers[1])
    if min(m, n) >= NARROW:
        return turned
    long = int(m < n)
    made = makers[long]
    source = node.operands[long] if made is None or not turned[long] else made.operands[0]
    return None if m == n or _may_be_turned(source, made_by) else turned


def _may_be_turned(value: Value, made_by: MadeBy) -> bool:
    """Whether passes may find that a value is another one, transposed."""
    pending, seen = [value], {value}
    while pending:
        made = made_by(pending.pop())
        if made is None:
            continue
        kind = PRIMITIVES[made.op].kind
        if made.regions or kind is Kind.INDEXING or made.op in ("transpose", "concat"):  # of pieces that are joined
            return True
        if kind in (Kind.MOVEMENT, Kind.ELEMENTWISE):
            fresh = [v for v in made.operands if v not in seen]
            seen.update(fresh)
            pending += fresh
    return False
