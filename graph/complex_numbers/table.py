"""Which function a primitive's name means for complex numbers, where that isn't the same for both parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loopgrad.graph.build import emit
from loopgrad.graph.complex_numbers import arithmetic
from loopgrad.graph.nodes import Value

FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "mul": arithmetic.multiply,
    "div": arithmetic.divide,
}


def computed(op: str, *operands: Value) -> Value:
    """The result of an elementwise primitive for real or complex operands; DTypeError where it has no meaning."""
    if operands[0].dtype.kind == "c" and op in FUNCTIONS:
        return FUNCTIONS[op](*operands)
    return emit(op, operands)[0]
