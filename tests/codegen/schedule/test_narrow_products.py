"""Products of 16-bit floats: which are read as they are, what they leave, and that they are rounded once."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.steps import all_steps
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, bfloat16, float16, float32, int64

M, K, N = 20, 300, 24
NARROW = [bfloat16, float16]


def types_of(dtype):
    return [TensorType((M, K), dtype), TensorType((K, N), dtype)]


def products(program):
    """The dtypes of the factors and of the result of each product."""
    steps = [step for step in all_steps(program.steps) if isinstance(step, MatmulStep)]
    return [tuple(program.slots[slot].type.dtype for slot in (s.left, s.right, s.out)) for s in steps]


def turned(a):
    return ops.transpose(a, (1, 0))


@pytest.fixture
def arrays(rng):
    return [rng.normal(size=(M, K)), rng.normal(size=(K, N))]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_factors_and_result_are_narrow(check, arrays, dtype):
    built = check(lambda a, b: [ops.matmul(a, b)], types_of(dtype), arrays, kernels=0)
    assert products(built) == [(dtype, dtype, dtype)]


def test_every_result_is_the_sum_rounded_once(arrays):
    from loopgrad.codegen.interpret_program import interpret_program

    graph, _ = trace(lambda a, b: [ops.matmul(a, b)], types_of(bfloat16))
    a, b = (x.astype(bfloat16.np) for x in arrays)
    sums = a.astype(np.float64) @ b.astype(np.float64)
    for wide_products in (False, True):
        (got,) = interpret_program(schedule(graph, DEFAULT_OPTIONS, wide_products=wide_products), [a, b])
        error = np.abs(got.astype(np.float64) - sums)
        assert (error <= np.abs(sums) * 2.0**-8 + 1e-4).all()  # half of what the last digit counts, and float32's sums


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_target_with_wide_products_is_given_float32(dtype):
    graph, _ = trace(lambda a, b: [ops.matmul(a, b)], types_of(dtype))
    assert products(schedule(graph, DEFAULT_OPTIONS, wide_products=True)) == [(float32, float32, float32)]


def test_factors_that_are_cast_stay_narrow_and_the_result_is_not_rounded(check, arrays):
    def program(a, b):
        return [ops.matmul(ops.cast(a, float32), ops.cast(b, float32))]

    built = check(program, types_of(bfloat16), arrays, kernels=0, rtol=1e-5, atol=1e-4)
    assert products(built) == [(bfloat16, bfloat16, float32)]


def test_a_cast_that_was_moved_is_found(check, arrays, rng):
    def program(a, b):
        flat = ops.reshape(turned(ops.cast(a, float32)), (M, K))
        return [ops.matmul(flat, ops.cast(b, float32))]

    types = [TensorType((K, M), bfloat16), types_of(bfloat16)[1]]
    built = check(program, types, [rng.normal(size=(K, M)), arrays[1]], rtol=1e-5, atol=1e-4)
    assert products(built) == [(bfloat16, bfloat16, float32)]


def test_a_result_that_is_read_wide_and_narrow_is_made_once(check, arrays):
    def program(a, b):
        product = ops.matmul(ops.cast(a, float32), ops.cast(b, float32))
        return [ops.cast(product, bfloat16), ops.sin(product)]

    built = check(program, types_of(bfloat16), arrays, rtol=1e-2, atol=1e-3)
    assert products(built) == [(bfloat16, bfloat16, float32)]


def test_a_result_of_another_16_bit_dtype_is_rounded_behind_the_product(check, arrays):
    def program(a, b):
        return [ops.cast(ops.matmul(ops.cast(a, float32), ops.cast(b, float32)), float16)]

    built = check(program, types_of(bfloat16), arrays, rtol=1e-2, atol=1e-3)
    assert products(built) == [(bfloat16, bfloat16, float32)]


def test_factors_of_two_dtypes_are_multiplied_wide(check, arrays):
    def program(a, b):
        return [ops.matmul(ops.cast(a, float32), ops.cast(b, float32))]

    types = [types_of(bfloat16)[0], types_of(float16)[1]]
    built = check(program, types, arrays, rtol=1e-5, atol=1e-4)
    assert products(built) == [(float32, float32, float32)]


def test_transposed_operands_and_results_are_nowhere_stored(check, rng):
    types = [TensorType((K, M), bfloat16), TensorType((N, K), bfloat16)]
    arrays = [rng.normal(size=t.shape) for t in types]
    built = check(lambda a, b: [turned(ops.matmul(turned(a), turned(b)))], types, arrays, kernels=0)
    (step,) = built.steps
    assert (step.m, step.n, step.transpose_left, step.transpose_right) == (N, M, False, False)


def test_products_of_a_loop(check, rng):
    def program(n, x, w):
        return traced_for(n, [x], lambda _, v: [ops.tanh(ops.matmul(v, w))])

    types = [TensorType((), int64), TensorType((4096, 64), bfloat16), TensorType((64, 64), bfloat16)]
    graph, _ = trace(program, types)
    assert products(schedule(graph, DEFAULT_OPTIONS)) == [(bfloat16, bfloat16, bfloat16)]


def test_slices_of_deep_products_are_added_wide(check, rng):
    def program(x, y):
        return [ops.matmul(ops.transpose(x, (0, 2, 1)), y)]

    types = [TensorType((25, 5000, 4), bfloat16), TensorType((25, 5000, 5), bfloat16)]
    built = check(program, types, [rng.integers(-2, 3, t.shape) for t in types], rtol=0, atol=0)
    assert products(built) == [(bfloat16, bfloat16, float32)]
