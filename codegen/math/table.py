"""Primitive name -> recipe: f(ops, *operands) -> result."""

from __future__ import annotations

from typing import Any, Final

from loopgrad.codegen.math import (
    error_function,
    exponential,
    gamma,
    hyperbolic,
    inverse_trigonometric,
    logarithmic,
    power,
    remainder,
    roots,
    trigonometric,
)

RECIPES: Final[dict[str, Any]] = {
    **trigonometric.RECIPES,
    **inverse_trigonometric.RECIPES,
    **exponential.RECIPES,
    **logarithmic.RECIPES,
    **hyperbolic.RECIPES,
    **error_function.RECIPES,
    **gamma.RECIPES,
    **power.RECIPES,
    **remainder.RECIPES,
    **roots.RECIPES,
}
REGISTERS: Final[dict[str, dict[int, int]]] = {**logarithmic.REGISTERS, **power.REGISTERS}
"""How many registers of 32 bits a GPU's invocation does best with, by the bits of the operands, where a compiler that
may choose takes a worse number."""
SINE_COSINE: Final = "sine_cosine"


def outlined_part(name: str) -> str:
    """What of a recipe becomes a function where copies of it would be long: all of it; of sin, cos and tan, what those
    of one value share."""
    return SINE_COSINE if name in trigonometric.RECIPES else name
