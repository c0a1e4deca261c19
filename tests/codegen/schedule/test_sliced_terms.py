"""Products with few results and many terms in slices: which are, and that they are right."""

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.options import OwnProducts
from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.schedule.sliced_terms import slices
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import float16, float32, float64
from tests.codegen.schedule.test_shared_terms import product


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("batch", "k"), [((), 4096), ((3,), 2051)])
def test_slices_are_the_product(batch, k, turned, rng):
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
def test_which_are(shape, dtype, count):
    assert [slices(node) for node in product((), *shape, dtype=dtype).nodes if node.op == "matmul"] == [count]
