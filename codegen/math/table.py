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
    trigonometric,
)

RECIPES: Final[dict[str, Any]] = {
    **trigonometric.RECIPES,
    "asin": inverse_trigonometric.asin,
    "acos": inverse_trigonometric.acos,
    "atan": inverse_trigonometric.atan,
    "atan2": inverse_trigonometric.atan2,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "log": logarithmic.log,
    "log2": logarithmic.log2,
    "log10": logarithmic.log10,
    "log1p": logarithmic.log1p,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "tanh": hyperbolic.tanh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "lgamma": gamma.lgamma,
    "digamma": gamma.digamma,
    "pow": power.pow,
    "rem": remainder.rem,
    "mod": remainder.mod,
    "floordiv": remainder.floordiv,
}
