"""Products of few elements and many terms, in slices: which are, and that they are right."""

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.schedule.canonical import rewrite_block
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float16, float32, float64, int64


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
def test_which_are(batch, k, dtype, slices, turned):
    """Those whose slices lie one after the other, and that leave much of a device idle."""

    def program(x, y):
        x, y = (ops.transpose(v, (0, 2, 1)) if t else v for v, t in zip((x, y), turned, strict=True))
        return [ops.matmul(x, y)]

    types = [TensorType((batch, k, 10) if t else (batch, 10, k), dtype) for t in (turned[0], not turned[1])]
    (product,) = [node for node in rewrite_block(trace(program, types)[0]).nodes if node.op == "matmul"]
    slices = slices if turned == (True, False) else 1
    assert product.operands[0].shape == (batch * slices, 10, k // slices)
