"""What combines with x to x, and what a reduction of nothing gives."""

from __future__ import annotations

from loopgrad.graph.ranges import limits
from loopgrad.graph.types import DType


def identity(kind: str, dtype: DType) -> float | int | bool:
    """Of add, mul, min, max, and, or, xor (for a float sum -0.0: x + -0.0 is x also for -0.0)."""
    if kind == "add":
        return -0.0 if dtype.is_float else 0
    if dtype.kind == "b":
        return kind in ("and", "mul", "min")
    if kind in ("or", "xor"):
        return 0
    if kind == "mul":
        return 1
    if kind == "and":
        return -1
    if dtype.is_float:
        return float("inf") if kind == "min" else float("-inf")
    low, high = limits(dtype)
    return high if kind == "min" else low


def of_nothing(kind: str, dtype: DType) -> float | int | bool:
    """The reduction of no elements: as `identity`, but a sum is 0.0."""
    return 0 if kind == "add" else identity(kind, dtype)
