"""Matrix products that a library computes: it reads the source of a transposed operand, which is never stored."""

from __future__ import annotations

import pytest

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.steps import all_steps
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64

SIZE = 40
SQUARE = TensorType((SIZE, SIZE), float64)
COUNT = TensorType((), int64)


def turned(a):
    return ops.transpose(a, (1, 0))


def test_the_source_of_a_transposed_operand_is_computed_first(check, rng):
    """The second product would be a step of the first level, since nothing stores its operand."""

    def program(a, b):
        return [ops.matmul(turned(ops.sin(ops.matmul(a, b))), b)]

    built = check(program, [SQUARE, SQUARE], [rng.normal(size=SQUARE.shape) for _ in range(2)], kernels=1)
    assert isinstance(built.steps[-1], MatmulStep)


def test_a_scatter_waits_for_a_product_that_reads_its_table_transposed(check, rng):
    def body(k, table, total):
        product = ops.matmul(turned(table), total)
        new = ops.scatter("set", table, (k,), ops.full(0.5, TensorType((SIZE,), float64)))
        return [new, ops.mul(product, 0.1)]

    arrays = [3, *[rng.normal(size=SQUARE.shape) for _ in range(2)]]
    check(lambda n, a, b: traced_for(n, [a, b], body), [COUNT, SQUARE, SQUARE], arrays)


def test_a_large_product_is_not_left_to_lanes():
    """Of rows times one matrix in a loop, which lanes could make row by row: each would read the whole matrix."""

    def products(rows):
        def program(n, x, w):
            return traced_for(n, [x], lambda _, v: [ops.tanh(ops.matmul(v, w))])

        types = [COUNT, TensorType((rows, 64), float64), TensorType((64, 64), float64)]
        steps = schedule(trace(program, types)[0], DEFAULT_OPTIONS, in_order=True).steps
        return large_products(all_steps(steps))

    assert products(256) == []
    assert len(products(4096)) == 1


def large_products(graph_steps):
    return [step for step in graph_steps if isinstance(step, MatmulStep)]


def test_a_product_that_only_its_transpose_reads_is_made_transposed(check, rng):
    types = [TensorType((3, 20, 30), float64), TensorType((3, 30, 10), float64)]
    arrays = [rng.normal(size=t.shape) for t in types]
    built = check(lambda a, b: [ops.transpose(ops.matmul(a, b), (0, 2, 1))], types, arrays, kernels=0)
    (step,) = built.steps
    assert (step.m, step.k, step.n, step.transpose_left, step.transpose_right) == (10, 30, 20, True, True)


def test_a_product_with_other_readers_is_made_once(check, rng):
    def program(a, b):
        product = ops.matmul(a, b)
        return [turned(product), ops.sin(product)]

    built = check(program, [SQUARE, SQUARE], [rng.normal(size=SQUARE.shape) for _ in range(2)])
    assert len(large_products(built.steps)) == 1


def test_a_transposed_product_of_transposed_operands_reads_them_as_they_are(check, rng):
    def program(a, b):
        return [turned(ops.matmul(turned(a), turned(ops.sin(b))))]

    built = check(program, [SQUARE, SQUARE], [rng.normal(size=SQUARE.shape) for _ in range(2)], kernels=1)
    (step,) = large_products(built.steps)
    assert (step.transpose_left, step.transpose_right) == (False, False)


def test_products_share_an_operand_transposed_in_two_ways(check, rng):
    """(n, k, d) as (k, n, d) and as (k, d, n): one of them is stored."""
    types = [TensorType((50, 3, 10), float64), TensorType((3, 10, 12), float64), TensorType((3, 50, 12), float64)]

    def program(x, b, c):
        y = ops.sin(x)
        return [ops.matmul(ops.transpose(y, (1, 0, 2)), b), ops.matmul(ops.transpose(y, (1, 2, 0)), c)]

    built = check(program, types, [rng.normal(size=t.shape) for t in types], kernels=1)
    first, second = large_products(built.steps)
    assert first.left == second.left
    assert (first.transpose_left, second.transpose_left) == (False, True)
    assert sum(slot.kind == "temp" and slot.type.size == 1500 for slot in built.slots) == 1


def test_a_product_that_is_a_result_is_kept_beside_its_transpose(check, rng):
    def program(a, b):
        product = ops.matmul(a, b)
        return [product, turned(product)]

    check(program, [SQUARE, SQUARE], [rng.normal(size=SQUARE.shape) for _ in range(2)])


@pytest.mark.parametrize("shape", [(SIZE * SIZE,), (5, 8, SIZE)])
def test_a_product_in_another_shape_is_not_copied(check, rng, shape):
    arrays = [rng.normal(size=SQUARE.shape) for _ in range(2)]
    built = check(lambda a, b: [ops.reshape(ops.matmul(a, b), shape)], [SQUARE, SQUARE], arrays, kernels=0)
    assert len(built.steps) == 1


def test_a_product_that_is_a_result_in_two_shapes_is_made_once(check, rng):
    def program(a, b):
        product = ops.matmul(a, b)
        return [ops.reshape(product, (SIZE * SIZE,)), product, ops.reshape(product, (4, 10, SIZE))]

    built = check(program, [SQUARE, SQUARE], [rng.normal(size=SQUARE.shape) for _ in range(2)])
    assert len(large_products(built.steps)) == 1
