"""The derivative tables of all families, merged.

Every primitive is handled exactly once per mode: by PARTIALS (elementwise, both modes), by VJP or ACCUMULATE
and JVP, by the loops (`autodiff.loops`: for, while, switch), or its record says why it has no derivative.
"""

from __future__ import annotations

from typing import Final

from loopgrad.autodiff.rules import (
    collectives,
    complex_parts,
    convolution,
    elementwise,
    factorisations,
    fourier,
    indexing,
    linalg,
    movement,
    named_axes,
    reduction,
    running,
    spectral,
    stack,
)
from loopgrad.autodiff.rules.elementwise import Partials, guarded, is_singular, pushed
from loopgrad.autodiff.rules.indexing import ACCUMULATE
from loopgrad.autodiff.rules.movement import Rule
from loopgrad.autodiff.rules.spectral import REFUSED
from loopgrad.graph.primitives import PRIMITIVES

__all__ = ["ACCUMULATE", "JVP", "NONDIFFERENTIABLE", "PARTIALS", "REFUSED", "VJP", "guarded", "is_singular", "pushed"]

PARTIALS: Final[dict[str, Partials]] = {**elementwise.PARTIALS, **complex_parts.PARTIALS}

VJP: Final[dict[str, Rule]] = {
    **movement.VJP, **reduction.VJP, **running.VJP, **indexing.VJP, **linalg.VJP, **convolution.VJP,
    **factorisations.VJP, **spectral.VJP, **fourier.VJP, **stack.VJP, **complex_parts.VJP,
    **collectives.VJP, **named_axes.VJP,
}  # fmt: skip

JVP: Final[dict[str, Rule]] = {
    **movement.JVP, **reduction.JVP, **running.JVP, **indexing.JVP, **linalg.JVP, **convolution.JVP,
    **factorisations.JVP, **spectral.JVP, **fourier.JVP, **stack.JVP, **complex_parts.JVP,
    **collectives.JVP, **named_axes.JVP,
}  # fmt: skip

NONDIFFERENTIABLE: Final[dict[str, str]] = {
    op: row.not_differentiable for op, row in PRIMITIVES.items() if row.not_differentiable
}
