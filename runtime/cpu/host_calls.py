"""Library calls that a Program makes back into Python, on whole arrays.

Products of matrices are for machines without a usable BLAS; every other call is a primitive of the graph, computed
by its NumPy reference, or where that is faster as `host_sort`, `host_lapack` and `host_fourier` do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeGuard

import numpy as np

from loopgrad.codegen.program import MatmulStep, RoutineStep
from loopgrad.graph.primitives import REFERENCE, fourier
from loopgrad.runtime import host_fourier, host_lapack, pocketfft
from loopgrad.runtime.cpu import host_sort
from loopgrad.runtime.cpu.native_pool import NativePool

Routine = Callable[[Mapping[str, Any], Any, int], Any]


Array = np.ndarray[Any, Any]


def _sort(attrs: Mapping[str, Any], x: Any, threads: int) -> Any:
    places = attrs.get("places")  # as of codegen.schedule.selection
    return host_sort.sort(x, threads) if places is None else host_sort.select(x, places, threads)


SORTS: Final[dict[str, Routine]] = {
    "sort": _sort,
    "argsort": lambda _, x, threads: host_sort.argsort(x, threads),
    "top_positions": lambda attrs, x, threads: host_sort.top_positions(x, attrs["k"], threads),
}


def is_bindable(step: RoutineStep | MatmulStep) -> TypeGuard[RoutineStep]:
    """Whether looking at a step's memory takes about as long as the step, so that `bound` ones are worth keeping."""
    return isinstance(step, RoutineStep) and step.name in fourier.ROWS


def call(step: RoutineStep | MatmulStep, array: Callable[[int], Array], threads: int) -> None:
    """Do one step; `array(slot)` is the memory of a slot. A routine may use so many threads."""
    if isinstance(step, MatmulStep):
        outputs: tuple[int, ...] = (step.out,)
        results: tuple[Array, ...] = (product(step, array(step.left), array(step.right)),)
    else:
        outputs, results = step.outputs, routine(step, [array(slot) for slot in step.inputs], threads)
    for slot, result in zip(outputs, results, strict=True):
        target = array(slot)
        target[...] = np.asarray(result).reshape(target.shape)


def bound(step: RoutineStep, array: Callable[[int], Array], pool: NativePool) -> Callable[[], object]:
    """What does a bindable step on this memory whenever it is called."""
    (given,), (result,) = step.inputs, step.outputs
    return host_fourier.bound(step.name, step.attrs, array(given), array(result), pool.each)


def provider(name: str, dtype: np.dtype[Any]) -> tuple[str, str]:
    """Who does a routine of elements of this dtype, and why nobody better."""
    return pocketfft.provider(dtype) if name in fourier.ROWS else host_lapack.provider(name)


def routine(step: RoutineStep, operands: list[Array], threads: int) -> tuple[Array, ...]:
    attrs, x = dict(step.attrs), operands[0]
    of_rows = step.name in SORTS and attrs["axis"] == x.ndim - 1 and x.size
    if of_rows and x.dtype.kind != "V":  # the dtypes of NumPy itself
        return (SORTS[step.name](attrs, x, threads),)
    factorise = host_lapack.routine(step.name)
    return REFERENCE[step.name](attrs, *operands) if factorise is None else factorise(attrs, operands, threads)


def product(step: MatmulStep, left: Array, right: Array) -> Array:
    batch, m, k, n = step.batch, step.m, step.k, step.n
    left = left.reshape((batch, k, m) if step.transpose_left else (batch, m, k))
    right = right.reshape((batch, n, k) if step.transpose_right else (batch, k, n))
    left = left.swapaxes(-1, -2) if step.transpose_left else left
    right = right.swapaxes(-1, -2) if step.transpose_right else right
    result: Array = np.matmul(left, right)
    return result
