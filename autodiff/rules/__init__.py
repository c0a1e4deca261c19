"""The derivative tables of all families, merged.

Every primitive is handled exactly once per mode: by PARTIALS (elementwise, both modes), by VJP or ACCUMULATE
and JVP, by the loops (`autodiff.loops`: for, while, switch), or it stands in NONDIFFERENTIABLE with the reason.
"""

from __future__ import annotations

from typing import Final

from loopgrad.autodiff.rules import elementwise, indexing, linalg, movement, reduction, stack
from loopgrad.autodiff.rules.elementwise import LINEAR, PARTIALS, SINGULAR, guarded, is_singular
from loopgrad.autodiff.rules.indexing import ACCUMULATE
from loopgrad.autodiff.rules.movement import Rule

__all__ = ["ACCUMULATE", "JVP", "LINEAR", "NONDIFFERENTIABLE", "PARTIALS", "SINGULAR", "VJP", "guarded", "is_singular"]

VJP: Final[dict[str, Rule]] = {**movement.VJP, **reduction.VJP, **indexing.VJP, **linalg.VJP, **stack.VJP}

JVP: Final[dict[str, Rule]] = {**movement.JVP, **reduction.JVP, **indexing.JVP, **linalg.JVP, **stack.JVP}

NONDIFFERENTIABLE: Final[dict[str, str]] = {
    **elementwise.NONDIFFERENTIABLE,
    **movement.NONDIFFERENTIABLE,
    **reduction.NONDIFFERENTIABLE,
    **stack.NONDIFFERENTIABLE,
}
