"""Which function a primitive's name means for complex numbers, where that isn't the same for both parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from loopgrad.graph.build import emit
from loopgrad.graph.complex_numbers import (
    arithmetic,
    exponential,
    hyperbolic,
    inverse,
    logarithmic,
    order,
    power,
    products,
    roots,
    updates,
)
from loopgrad.graph.nodes import NO_ATTRS, Value

FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "mul": arithmetic.multiply,
    "div": arithmetic.divide,
    "pow": power.power,
    "reduce_prod": products.product_over,
    "cumprod": products.running_product,
    "conv": products.convolution,
    "sort": order.in_order,
    "argsort": order.positions,
    "argmax": order.place_of_largest,
    "argmin": order.place_of_smallest,
    "reduce_max": order.largest,
    "reduce_min": order.smallest,
    "max": order.larger,
    "min": order.smaller,
    "lt": order.less,
    "le": order.less_equal,
    "gt": order.greater,
    "ge": order.greater_equal,
    "scatter": updates.updated,
    "round": arithmetic.rounded,
    "abs": roots.absolute,
    "sign": roots.direction,
    "sqrt": roots.square_root,
    "exp": exponential.exponential,
    "exp2": exponential.exponential_base_2,
    "expm1": exponential.exponential_minus_1,
    "log": logarithmic.logarithm,
    "log2": logarithmic.logarithm_base_2,
    "log10": logarithmic.logarithm_base_10,
    "log1p": logarithmic.logarithm_of_1_plus,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "tanh": hyperbolic.tanh,
    "sin": hyperbolic.sin,
    "cos": hyperbolic.cos,
    "tan": hyperbolic.tan,
    "asin": inverse.asin,
    "acos": inverse.acos,
    "atan": inverse.atan,
    "asinh": inverse.asinh,
    "acosh": inverse.acosh,
    "atanh": inverse.atanh,
}


def computed(op: str, *operands: Value, **attrs: Any) -> Value:
    """The result of a primitive for real or complex operands; DTypeError where it has no meaning."""
    if operands[0].dtype.kind == "c" and op in FUNCTIONS:
        return FUNCTIONS[op](*operands, **attrs)
    return emit(op, operands, attrs or NO_ATTRS)[0]
