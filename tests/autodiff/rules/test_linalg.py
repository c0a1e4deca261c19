"""matmul rows, batched and with empty dims."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph import ops
from loopgrad.graph.types import float32
from loopgrad.lazy.tensor.core import wrap


@pytest.mark.parametrize("shapes", [((2, 3), (3, 4)), ((5, 2, 3), (5, 3, 1)), ((2, 0), (0, 3))])
def test_matmul(derivatives, shapes):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) for s in shapes]
    derivatives.check(lambda a, b: [ops.sin(ops.matmul(a, b))], arrays, order=2)


@pytest.mark.parametrize("active", [[0], [1]])
def test_one_side_only(derivatives, active):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 3)), rng.standard_normal((3, 4))]
    derivatives.check(lambda a, b: [ops.matmul(a, b)], arrays, active)


def test_derivatives_of_sums_that_stay_float32_are_added_up_so():
    """By float32's rule for the same numbers, rounded to the factors' dtype at the end."""
    rng = np.random.default_rng(1)
    x, y = (lg.asarray(rng.normal(size=s)).astype(lg.bfloat16) for s in ((4, 300), (300, 5)))
    ct, p, q = (lg.asarray(rng.normal(size=s).astype(np.float32)) for s in ((4, 5), (4, 300), (300, 5)))

    def product(a, b):
        return wrap(ops.matmul(a._value, b._value, float32))

    value, pull = lg.vjp(product, x, y)
    assert value.dtype is lg.float32
    wide = [v.astype(lg.float32) for v in (x, y)]
    wanted_value, wanted_pull = lg.vjp(lg.matmul, *wide)
    np.testing.assert_allclose(np.asarray(value), np.asarray(wanted_value), rtol=1e-5, atol=1e-5)
    for got, wanted in zip(pull(ct), wanted_pull(ct), strict=True):
        assert got.dtype is lg.bfloat16
        np.testing.assert_allclose(np.asarray(got.astype(lg.float32)), np.asarray(wanted), rtol=2.0**-8, atol=1e-5)
    tangents = [v.astype(lg.bfloat16) for v in (p, q)]
    _, got = lg.jvp(product, (x, y), tuple(tangents))
    _, wanted = lg.jvp(lg.matmul, tuple(wide), tuple([t.astype(lg.float32) for t in tangents]))
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-5, atol=1e-4)
