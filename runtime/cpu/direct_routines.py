"""What works on whole arrays at once, for programs that run directly: products of matrices, factorisations and Fourier
transforms, done by who does them for compiled programs, on the same memory order: to the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np

from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.targets.cpu.entry.call_context import HEADER
from loopgrad.codegen.targets.cpu.products.products_interface import SHAPE, shape_words
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives import PRIMITIVES, factorisations
from loopgrad.graph.primitives.primitive import Array, Attrs
from loopgrad.graph.types import TensorType
from loopgrad.runtime import host_lapack
from loopgrad.runtime.buffers import address_of
from loopgrad.runtime.cpu import host_calls
from loopgrad.runtime.cpu.context import release
from loopgrad.runtime.cpu.native_pool import NEVER_DUE, NativePool
from loopgrad.runtime.cpu.scheduling import await_scheduling

PRODUCT: Final = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 6)
PRODUCTS: Final = 1024  # that are remembered
TERM: Final = 0.1  # nanoseconds of a multiplication in a product, about
ROTATION: Final = 2.0  # of one of a factorisation

Routine = Callable[..., tuple[Array, ...]]
"""Takes attributes first, then arrays."""


# ---- products


def product(node: Node, turned: tuple[bool, bool], pool: NativePool) -> Callable[[Any, Any], Array]:
    """What multiplies matrices of float32 or float64; of an operand that is `turned` the transpose lies in memory."""
    left, right = node.operands
    *batch, m, k = left.shape
    type = node.results[0].type
    assert isinstance(type, TensorType)
    step = MatmulStep(0, 1, 2, prod(batch), m, k, right.shape[-1], *turned)
    return _product(step, type, pool, pool.threads)


@lru_cache(maxsize=PRODUCTS)
def _product(step: MatmulStep, type: TensorType, pool: NativePool, threads: int) -> Callable[[Any, Any], Array]:
    """As above, for so many threads."""
    words = shape_words(step)
    shape = (ctypes.c_int64 * len(words))(*words)
    address = ctypes.addressof(shape)
    multiply = PRODUCT(pool.products(threads)[type.dtype.name])
    run = pool.run_short if words[SHAPE["short"]] else pool.run
    flip_left, flip_right = step.transpose_left, step.transpose_right

    def compute(a: Any, b: Any) -> Array:
        assert shape is not None  # whose address it is
        first = np.ascontiguousarray(np.swapaxes(a, -1, -2) if flip_left else a)
        second = np.ascontiguousarray(np.swapaxes(b, -1, -2) if flip_right else b)
        result = np.empty(type.shape, type.dtype.np)
        context = (ctypes.c_int64 * len(HEADER))()  # of a context that nobody polls for
        context[HEADER["polled"]] = NEVER_DUE
        heap = ctypes.addressof(context) + ctypes.sizeof(ctypes.c_int64) * HEADER["heap_base"]
        refused = multiply(run, heap, address_of(first), address_of(second), address_of(result), address)
        release(context, ())
        return host_calls.product(step, first, second).reshape(type.shape) if refused else result

    return compute


# ---- factorisations and transforms


def factorisation_is_settled(node: Node) -> bool:
    """Whether a factorisation stays one, done on whole matrices, whatever is around it outside of loops."""
    await_scheduling()
    from loopgrad.codegen.schedule.factorisations import MADE_OF_OTHERS, WORTH_LOOPS  # late: few programs factorise

    count = prod(node.operands[0].shape[: factorisations.batch_rank(node)])
    whole = all(prod(v.shape) for v in (*node.operands, *node.results))
    return whole and count < WORTH_LOOPS and node.op not in MADE_OF_OTHERS


def factorisation(node: Node, pool: NativePool) -> tuple[Routine, int]:
    """What factorises, and its work."""
    types = [v.type for v in node.results if isinstance(v.type, TensorType)]
    factorise = host_lapack.routine(node.op)
    assert factorise is not None

    def compute(attrs: Attrs, *arrays: Any) -> tuple[Array, ...]:
        results = factorise(attrs, [np.ascontiguousarray(a) for a in arrays], pool.threads)
        return tuple(map(_of_type, results, types))

    shape = node.operands[0].shape
    return compute, int(prod(shape) * max(shape) * ROTATION)


def _of_type(result: Array, type: TensorType) -> Array:
    if result.shape == type.shape and result.dtype == type.dtype.np:
        return result
    return np.asarray(result, type.dtype.np).reshape(type.shape)


def transform(node: Node, pool: NativePool) -> tuple[Callable[[Any], Array], int]:
    """What makes a Fourier transform, and its work."""
    from loopgrad.runtime.host_fourier import transform as transformed  # late: most programs have none

    type, attrs = node.results[0].type, tuple(node.attrs.items())
    assert isinstance(type, TensorType)

    def compute(x: Any) -> Array:
        result = np.empty(type.shape, type.dtype.np)
        transformed(node.op, attrs, np.ascontiguousarray(x), result, _one_by_one, pool.fourier)
        return result

    return compute, int(type.size * max(PRIMITIVES[node.op].cost, 1.0))


def _one_by_one(count: int, part: Callable[[int], None]) -> None:
    for number in range(count):
        part(number)
