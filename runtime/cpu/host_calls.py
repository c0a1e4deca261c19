"""Library calls that a Program makes back into Python, on whole arrays.

`matmul` serves machines without a usable BLAS; every other name is a primitive of the graph, computed
by its NumPy reference (sorts, for example, which NumPy does with vector code).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loopgrad.graph.primitives import REFERENCE

Array = np.ndarray[Any, Any]


def call(name: str, attrs: Mapping[str, Any], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The results of one library call."""
    if name == "matmul" and "batch" in attrs:
        return (_matmul(attrs, arrays[0], arrays[1]),)
    return tuple(REFERENCE[name](attrs, *arrays))


def _matmul(attrs: Mapping[str, Any], left: Array, right: Array) -> Array:
    batch, m, k, n = (int(attrs[name]) for name in ("batch", "m", "k", "n"))
    left = left.reshape((batch, k, m) if attrs["transpose_left"] else (batch, m, k))
    right = right.reshape((batch, n, k) if attrs["transpose_right"] else (batch, k, n))
    left = left.swapaxes(-1, -2) if attrs["transpose_left"] else left
    right = right.swapaxes(-1, -2) if attrs["transpose_right"] else right
    product: Array = np.matmul(left, right)
    return product
