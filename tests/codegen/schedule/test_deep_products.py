"""Products of few elements and many terms, in slices: which are, and that they are right."""

from math import prod

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.options import OwnProducts
from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.schedule.canonical import rewrite_block
from loopgrad.codegen.schedule.deep_products import own_slices
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import TensorType, float16, float32, float64, int64
from tests.codegen.schedule.test_shared_terms import product


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("batch", "k", "m", "n"), [((25,), 10_000, 10, 10), ((2, 3), 4096, 1, 70), ((4,), 5000, 64, 3)]
)
def test_slices_are_added_up(device, dtype, batch, k, m, n):
    rng = np.random.default_rng(k)
    x, y = (rng.integers(-3, 4, (*batch, k, width)).astype(dtype) for width in (m, n))
    got = np.asarray(lg.compile(lambda x, y: lg.matrix_transpose(x) @ y)(lg.asarray(x), lg.asarray(y)))
    np.testing.assert_array_equal(got, np.swapaxes(x, -1, -2) @ y)


@pytest.mark.parametrize(
    ("batch", "k", "dtype", "slices"),
    [(25, 10_000, float32, 20), (25, 10_007, float32, 1), (25, 1000, float64, 1), (1, 10_000, float32, 1),
     (80, 10_000, float32, 1), (25, 10_000, float16, 20), (25, 10_000, int64, 1)],
)  # fmt: skip
@pytest.mark.parametrize("turned", [(True, False), (True, True), (False, False)])
def test_which_are_by_libraries(batch, k, dtype, slices, turned):
    """Those whose slices lie one after the other, and that leave much of a device idle."""

    def program(x, y):
        x, y = (ops.transpose(v, (0, 2, 1)) if t else v for v, t in zip((x, y), turned, strict=True))
        return [ops.matmul(x, y)]

    types = [TensorType((batch, k, 10) if t else (batch, 10, k), dtype) for t in (turned[0], not turned[1])]
    (found,) = [node for node in rewrite_block(trace(program, types)[0]).nodes if node.op == "matmul"]
    apart = (slices,) if slices > 1 and turned == (True, False) else ()
    assert found.operands[0].shape == (batch, *apart, 10, k // prod(apart))


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("batch", "k"), [((), 4096), ((3,), 2051)])
def test_own_slices_are_the_product(batch, k, turned, rng):
    graph = product(batch, 9, k, 12, *turned)
    program = schedule(graph, own_products=OwnProducts.ALL)
    (step,) = [step for step in program.steps if isinstance(step, MatmulStep)]
    assert (step.batch, step.k) == ((16, 256) if k == 4096 else (24, 257))
    assert not any(isinstance(step, MatmulStep) and step.k < k for step in schedule(graph).steps)
    arrays = [rng.integers(-4, 5, v.shape).astype(np.float64) for v in graph.inputs]
    np.testing.assert_array_equal(interpret_program(program, arrays)[0], interpret(graph, arrays)[0])


@pytest.mark.parametrize(
    ("shape", "dtype", "count"),
    [((32, 61504, 144), float32, 64), ((256, 4096, 64), float64, 16), ((256, 2047, 64), float32, 0),
     ((7, 61504, 144), float32, 0), ((512, 61504, 512), float32, 0), ((32, 61504, 144), float16, 0)],
)  # fmt: skip
def test_which_are_by_own_kernels(shape, dtype, count):
    assert [own_slices(node) for node in product((), *shape, dtype=dtype).nodes if node.op == "matmul"] == [count]


@pytest.mark.parametrize(
    ("shape", "dtype", "slices"),
    [((16, 1 << 20, 16), float32, 2048), ((32, 1 << 18, 24), float32, 512), ((32, 1 << 18, 24), float64, 1),
     ((64, 1 << 15, 16), float32, 128), ((8, 1 << 15, 64), float32, 128), ((32, 1 << 14, 24), float32, 1),
     ((65, 1 << 18, 8), float32, 1), ((64, 1 << 18, 17), float32, 1)],
)  # fmt: skip
def test_which_are_in_slices_beside_a_library(shape, dtype, slices):
    program = schedule(product((), *shape, dtype=dtype), own_products=OwnProducts.IN_LOOPS)
    (step,) = [step for step in program.steps if isinstance(step, MatmulStep)]
    assert step.batch == slices
