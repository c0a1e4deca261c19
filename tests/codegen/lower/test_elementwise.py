"""Products that a derivative adds up are fused with their sums; what the user wrote is left as it is."""

from collections import Counter

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.schedule import schedule
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, bfloat16, float16, float32, float64, int32
from tests.codegen.lower.test_kernel import all_ops

ROW = TensorType((7,), float64)


def opcodes(function, count=3, type=ROW):
    """How often each operation comes, after comparing the program with the graph, both interpreted."""
    graph, _ = trace(function, [type] * count)
    program = schedule(graph)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=type.shape).astype(type.dtype.np) for _ in range(count)]
    for got, wanted in zip(interpret_program(program, arrays), interpret(graph, arrays), strict=True):
        tolerance = 4 * float(np.finfo(np.float64).eps) if type.dtype is float64 else 1e-2
        np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=tolerance, atol=tolerance)
    return Counter(op.opcode for kernel in program.kernels for op in all_ops(kernel))


FUSED = {
    "the term": lambda x, y, z: ops.accumulate(x, ops.mul(y, z)),
    "the total": lambda x, y, z: ops.accumulate(ops.mul(y, z), x),
    "the opposite of a product": lambda x, y, z: ops.accumulate(x, ops.neg(ops.mul(y, z))),
    "less than a product": lambda x, y, z: ops.accumulate(ops.mul(y, z), ops.neg(x)),
    "the opposite of a product less": lambda x, y, z: ops.accumulate(ops.neg(ops.mul(y, z)), ops.neg(x)),
}


@pytest.mark.parametrize("form", FUSED)
def test_a_product_and_a_sum_of_a_derivative_are_one(form):
    found = opcodes(lambda *xs: [FUSED[form](*xs)])
    assert found["fma"] == 1
    assert not found["add"] + found["sub"]


def test_a_product_before_a_loop_is_added_to_products_in_it_as_any_number_is():
    """As where another kernel has stored it."""

    def function(y, z, n):
        return traced_for(n, [z], lambda _, v: [ops.accumulate(ops.mul(v, z), ops.mul(y, y))])

    graph, _ = trace(function, [TensorType((7,), float32), TensorType((7,), float32), TensorType((7,), int32)])
    (kernel,) = schedule(graph).kernels
    found = Counter(op.opcode for op in all_ops(kernel))
    assert (found["fma"], found["add"]) == (1, 0)


def test_what_a_user_wrote_is_rounded_twice():
    found = opcodes(lambda x, y, z: [ops.add(x, ops.mul(y, z)), ops.sub(x, ops.mul(y, z))])
    assert (found["fma"], found["add"], found["sub"]) == (0, 1, 1)


def test_two_products_stay_apart():
    """Fused, x*y - y*x would be the rounding error of one of them."""
    found = opcodes(lambda x, y, z: [ops.accumulate(ops.mul(x, y), ops.mul(y, z))])
    assert (found["fma"], found["mul"]) == (0, 2)


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_halves_are_rounded_after_each_operation(dtype):
    found = opcodes(lambda x, y, z: [ops.accumulate(x, ops.mul(y, z))], type=TensorType((7,), dtype))
    assert (found["fma"], found["add"]) == (0, 1)


def test_a_product_that_does_not_change_stays_in_front_of_its_loop():
    def function(x, y, n):
        return traced_for(n, [x], lambda _, v: [ops.accumulate(v, ops.mul(y, y))])

    graph, _ = trace(function, [TensorType((7,), float32), TensorType((7,), float32), TensorType((7,), int32)])
    (kernel,) = schedule(graph).kernels
    (loop,) = [op for op in kernel.body.ops if op.opcode == "for"]
    assert [op.opcode for op in loop.blocks[0].ops] == ["add"]
