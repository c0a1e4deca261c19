"""Library calls that a Program makes back into Python, on whole arrays.

Products of matrices are for machines without a usable BLAS; every other call is a primitive of the graph, computed
by its NumPy reference (sorts, for example, which NumPy does with vector code).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopgrad.codegen.program import MatmulStep, RoutineStep
from loopgrad.graph.primitives import REFERENCE

Array = np.ndarray[Any, Any]


def call(step: RoutineStep | MatmulStep, array: Callable[[int], Array]) -> None:
    """Do one step; `array(slot)` is the memory of a slot."""
    if isinstance(step, MatmulStep):
        outputs: tuple[int, ...] = (step.out,)
        results: tuple[Array, ...] = (product(step, array(step.left), array(step.right)),)
    else:
        outputs, results = step.outputs, REFERENCE[step.name](dict(step.attrs), *map(array, step.inputs))
    for slot, result in zip(outputs, results, strict=True):
        target = array(slot)
        target[...] = np.asarray(result).reshape(target.shape)


def product(step: MatmulStep, left: Array, right: Array) -> Array:
    batch, m, k, n = step.batch, step.m, step.k, step.n
    left = left.reshape((batch, k, m) if step.transpose_left else (batch, m, k))
    right = right.reshape((batch, n, k) if step.transpose_right else (batch, k, n))
    left = left.swapaxes(-1, -2) if step.transpose_left else left
    right = right.swapaxes(-1, -2) if step.transpose_right else right
    result: Array = np.matmul(left, right)
    return result
