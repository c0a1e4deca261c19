"""Shapes of draws."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.tensor.operands import Shape, joined_shape, normal_shape


def shape_of(size: Any) -> Shape:
    """NumPy's argument `size` as a shape."""
    return () if size is None else normal_shape("size", size)


def size_of(shape: Shape) -> int:
    """How many elements an array of that shape has."""
    return prod(shape)


def drawn_shape(what: str, parameters: Sequence[Shape], size: Any, lanes: Shape = ()) -> Shape:
    """The shape of a draw: the parameters broadcast to the size, where there is one."""
    if size is None:
        return joined_shape(what, [lanes, *parameters])
    shape = (*lanes, *shape_of(size))
    joined = joined_shape(what, [shape, *parameters])
    if joined != shape:
        fix = "leave size out, or make it that shape"
        raise ShapeError(explained(what, f"parameters that broadcast to the size {shape}", joined, fix))
    return shape
