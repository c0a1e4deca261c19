"""All primitives: one row each, merged from the family tables."""

from __future__ import annotations

from typing import Final

from loopgrad.graph.primitives import control, elementwise, indexing, linalg, movement, reduction, stack
from loopgrad.graph.primitives.primitive import Infer, Primitive, Reference

__all__ = ["FAMILIES", "INFER", "PRIMITIVES", "REFERENCE", "Primitive"]

FAMILIES: Final[dict[str, dict[str, Primitive]]] = {
    "elementwise": elementwise.ROWS,
    "movement": movement.ROWS,
    "reduction": reduction.ROWS,
    "indexing": indexing.ROWS,
    "linalg": linalg.ROWS,
    "control": control.ROWS,
    "stack": stack.ROWS,
}

PRIMITIVES: Final[dict[str, Primitive]] = {
    **elementwise.ROWS,
    **movement.ROWS,
    **reduction.ROWS,
    **indexing.ROWS,
    **linalg.ROWS,
    **control.ROWS,
    **stack.ROWS,
}

INFER: Final[dict[str, Infer]] = {op: row.infer for op, row in PRIMITIVES.items()}
REFERENCE: Final[dict[str, Reference]] = {
    op: row.reference for op, row in PRIMITIVES.items() if row.reference is not None
}
