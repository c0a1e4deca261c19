"""All primitives, merged from the family tables, and the sets of names that share a trait.

A set is here if several modules ask it; `PRIMITIVES[op]` answers everything else. Names of primitives aren't
listed anywhere else.
"""

from __future__ import annotations

from typing import Final

from loopgrad.graph.primitives import (
    attention,
    collectives,
    complex_parts,
    control,
    convolution,
    elementwise,
    factorisations,
    fourier,
    indexing,
    lapack,
    linalg,
    movement,
    named_axes,
    random,
    reduction,
    running,
    segments,
    shards,
    stack,
    window_products,
)
from loopgrad.graph.primitives.primitive import Infer, Kind, Primitive, Reference, Silent

__all__ = [
    "ARRANGING", "BARE", "BY_HOST", "COMBINES", "COMMUTATIVE", "ELEMENTWISE", "FAMILIES", "INDEXING", "INFER",
    "KEEPING_SPLATS", "LIBRARY", "NAMED_AXES", "NULLARY", "PRIMITIVES", "REDUCTIONS", "REFERENCE", "REGIONS",
    "RUNNING_TOTALS", "STACKS", "UPDATES", "Kind", "Primitive",
]  # fmt: skip

FAMILIES: Final[dict[str, dict[str, Primitive]]] = {
    "elementwise": elementwise.ROWS,
    "movement": movement.ROWS,
    "reduction": reduction.ROWS,
    "indexing": indexing.ROWS,
    "linalg": linalg.ROWS,
    "convolution": convolution.ROWS,
    "factorisations": factorisations.ROWS,
    "lapack": lapack.ROWS,
    "attention": attention.ROWS,
    "window_products": window_products.ROWS,
    "fourier": fourier.ROWS,
    "control": control.ROWS,
    "random": random.ROWS,
    "running": running.ROWS,
    "segments": segments.ROWS,
    "shards": shards.ROWS,
    "stack": stack.ROWS,
    "complex_parts": complex_parts.ROWS,
    "collectives": collectives.ROWS,
    "named_axes": named_axes.ROWS,
}

PRIMITIVES: Final[dict[str, Primitive]] = {
    **elementwise.ROWS,
    **movement.ROWS,
    **reduction.ROWS,
    **indexing.ROWS,
    **linalg.ROWS,
    **convolution.ROWS,
    **factorisations.ROWS,
    **lapack.ROWS,
    **attention.ROWS,
    **window_products.ROWS,
    **fourier.ROWS,
    **control.ROWS,
    **random.ROWS,
    **running.ROWS,
    **segments.ROWS,
    **shards.ROWS,
    **stack.ROWS,
    **complex_parts.ROWS,
    **collectives.ROWS,
    **named_axes.ROWS,
}

INFER: Final[dict[str, Infer]] = {op: row.infer for op, row in PRIMITIVES.items()}
REFERENCE: Final[dict[str, Reference]] = {
    op: row.reference for op, row in PRIMITIVES.items() if row.reference is not None
}

BARE: Final[dict[str, Reference]] = {op: r.bare if isinstance(r, Silent) else r for op, r in REFERENCE.items()}
"""For those who run many in a row, with NumPy's warnings off."""


def _of(*kinds: Kind) -> frozenset[str]:
    return frozenset(op for op, row in PRIMITIVES.items() if row.kind in kinds)


NULLARY: Final = _of(Kind.NULLARY)
ELEMENTWISE: Final = _of(Kind.ELEMENTWISE)
RUNNING_TOTALS: Final = _of(Kind.RUNNING_TOTAL)
INDEXING: Final = _of(Kind.INDEXING)
LIBRARY: Final = _of(Kind.LIBRARY)
BY_HOST: Final = LIBRARY.difference(attention.ROWS, window_products.ROWS)
"""Those that a CPU takes, by a library or by code of its own. What the others stand for is products and kernels, which
are faster there than arrays of whole scores or windows."""
NAMED_AXES: Final = _of(Kind.NAMED_AXIS)
STACKS: Final = _of(Kind.STACK)
REGIONS: Final = _of(Kind.REGION)

COMBINES: Final[dict[str, str]] = {op: row.combine for op, row in PRIMITIVES.items() if row.combine}
REDUCTIONS: Final = frozenset(COMBINES) & _of(Kind.REDUCTION)
"""Over any axes (attrs axes): without argmin and argmax."""
COMMUTATIVE: Final = frozenset(op for op, row in PRIMITIVES.items() if row.commutes)
KEEPING_SPLATS: Final = frozenset(op for op, row in PRIMITIVES.items() if row.keeps_splats)
ARRANGING: Final = KEEPING_SPLATS & _of(Kind.MOVEMENT)
"""The movement of one operand's elements."""
UPDATES: Final = frozenset(op for op, row in PRIMITIVES.items() if row.updates)
