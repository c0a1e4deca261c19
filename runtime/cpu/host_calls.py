"""Library calls that a Program makes back into Python, on whole arrays.

Products of matrices are for machines without a usable BLAS; every other call is a primitive of the graph, computed
by its NumPy reference, or where that is faster as `host_sort`, `host_lapack` and `host_fourier` do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeGuard

import numpy as np

from loopgrad.codegen.program import MatmulStep, RoutineStep
from loopgrad.graph.primitives import REFERENCE, fourier
from loopgrad.runtime import host_fourier, host_lapack, pocketfft
from loopgrad.runtime.cpu import host_sort
from loopgrad.runtime.cpu.native_pool import NativePool

Array = np.ndarray[Any, Any]
Sort = Callable[[Mapping[str, Any], Array, Array, NativePool], None]
Call = Callable[[Callable[[int], Array]], None]
"""Does a step, where it is told how to get the memory of a slot."""


def _sort(attrs: Mapping[str, Any], x: Array, result: Array, pool: NativePool) -> None:
    places = attrs.get("places")  # as of codegen.schedule.selection
    if places is None:
        host_sort.sort(x, result, pool)
    else:
        host_sort.select(x, places, result, pool)


SORTS: Final[dict[str, Sort]] = {
    "sort": _sort,
    "argsort": lambda _, x, result, pool: host_sort.argsort(x, result, pool),
    "top_positions": lambda _, x, result, pool: host_sort.top_positions(x, result, pool),
}


def is_bindable(step: RoutineStep | MatmulStep) -> TypeGuard[RoutineStep]:
    """Whether looking at a step's memory takes about as long as the step, so that `bound` ones are worth keeping."""
    return isinstance(step, RoutineStep) and step.name in fourier.ROWS


def prepared(step: RoutineStep | MatmulStep, pool: NativePool) -> Call:
    """What does a step, as often as it comes."""
    if isinstance(step, MatmulStep):

        def multiply(array: Callable[[int], Array]) -> None:
            _store((product(step, array(step.left), array(step.right)),), [array(step.out)])

        return multiply
    attrs, sort = dict(step.attrs), SORTS.get(step.name)
    factorise, reference = host_lapack.routine(step.name), REFERENCE[step.name]

    def compute(array: Callable[[int], Array]) -> None:
        operands, targets = [array(slot) for slot in step.inputs], [array(slot) for slot in step.outputs]
        if sort is not None and _in_rows(attrs, operands[0]):
            sort(attrs, operands[0], targets[0], pool)
        elif factorise is not None:
            _store(factorise(attrs, operands, pool.threads), targets)
        else:
            _store(reference(attrs, *operands), targets)

    return compute


def _store(results: Sequence[Array], targets: Sequence[Array]) -> None:
    for result, target in zip(results, targets, strict=True):
        target[...] = result if np.shape(result) == target.shape else np.reshape(result, target.shape)


def bound(step: RoutineStep, array: Callable[[int], Array], pool: NativePool) -> Callable[[], object]:
    """What does a bindable step on this memory whenever it is called."""
    (given,), (result,) = step.inputs, step.outputs
    return host_fourier.bound(step.name, step.attrs, array(given), array(result), pool.each, pool.fourier)


def provider(name: str) -> tuple[str, str]:
    """Who does a routine, and why nobody better."""
    if name not in fourier.ROWS:
        return host_lapack.provider(name)
    others, why = pocketfft.provider()
    return f"own vector code, what it leaves {others}", why


def _in_rows(attrs: Mapping[str, Any], x: Array) -> bool:
    """Whether it is along the last axis, of a dtype of NumPy itself."""
    return attrs["axis"] == x.ndim - 1 and x.size > 0 and x.dtype.kind != "V"


def product(step: MatmulStep, left: Array, right: Array) -> Array:
    batch, m, k, n = step.batch, step.m, step.k, step.n
    left = left.reshape((batch, k, m) if step.transpose_left else (batch, m, k))
    right = right.reshape((batch, n, k) if step.transpose_right else (batch, k, n))
    left = left.swapaxes(-1, -2) if step.transpose_left else left
    right = right.swapaxes(-1, -2) if step.transpose_right else right
    result: Array = np.matmul(left, right)
    return result
