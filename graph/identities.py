"""What combines with x to x, and what a reduction of nothing gives."""

from __future__ import annotations

from loopgrad.graph.ranges import limits
from loopgrad.graph.types import DType


def identity(kind: str, dtype: DType) -> float | int | bool:
    """Of add, mul, min, max, and, or, xor (for a float sum -0.0: x + -0.0 is x also for -0.0)."""
    low, high = (float("-inf"), float("inf")) if dtype.is_float else limits(dtype)
    match kind:
        case "add":
            return -0.0 if dtype.is_float else 0
        case "or" | "xor":
            found: float = 0
        case "mul":
            found = 1
        case "and":
            found = -1
        case _:
            found = high if kind == "min" else low
    return bool(found) if dtype.kind == "b" else found


def of_nothing(kind: str, dtype: DType) -> float | int | bool:
    """The reduction of no elements: as `identity`, but a sum is 0.0."""
    return 0 if kind == "add" else identity(kind, dtype)
