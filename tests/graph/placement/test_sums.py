"""Sums over lanes: how much is lost, and what cannot be added up."""

from __future__ import annotations

import math

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.placement.places import Place
from loopgrad.lazy.tensor.graph_export import graph_of
from tests.graph.placement.processes import compiled, run_parts, together

RNG = np.random.default_rng(0)


@pytest.mark.in_turns
@pytest.mark.parametrize("n", [3, 100, 5000])
def test_sums_lose_nothing_that_matters(n):
    """Terms of 1e16 that cancel: sums of 5,000 without rests are off by 1,600, NumPy's by 340, one device's by 17,
    which is what is lost of four at a time. Where nothing is added up within a shard or a lane, nothing is."""
    run = {"run": compiled} if n > 3 else {}
    arrays, results, wanted = [], [], []
    for dtype, large, small in ((np.float64, 1e16, 300.0), (np.float32, 1e7, 300.0)):
        x = RNG.random(n) * large
        x[n // 3 : n // 3 * 2] = -x[: n // 3]
        x[n // 3 * 2 :] = 1.0
        x = RNG.permutation(x).astype(dtype)
        tensor = lg.asarray(x)
        columns = lg.broadcast_to(tensor[:, None], (n, 3))
        results += [lg.sum(tensor), lg.sum(columns, axis=0), lg.sum(columns) / 3.0]
        wanted += [(math.fsum(x.astype(float)), small if n > 3 or i == 2 else 0.0) for i in range(3)]
        arrays.append(x)
    graph = graph_of(*results)
    given = [arrays[v.dtype.bits == 32] for v in graph.inputs]
    for size in (1, 3):
        found = together(*run_parts(graph, (Place(0),) * 2, given, size, **run)[:2])
        for result, (exact, small) in zip(found, wanted, strict=True):
            np.testing.assert_allclose(result, exact, atol=small, rtol=1e-6)


def test_sums_of_infinities_and_negative_zeros():
    for given, expected in (
        ([np.inf, 1.0, 2.0], np.inf), ([np.inf, -np.inf, 1.0], np.nan), ([1e308, 1e308, 1.0], np.inf),
        ([-0.0, -0.0, -0.0], -0.0), ([-0.0, 0.0, -0.0], 0.0), ([1.0, -1.0], 0.0),
    ):  # fmt: skip
        graph = graph_of(lg.sum(lg.asarray(given)))
        for size in (1, 2):
            (result,) = together(*run_parts(graph, (Place(0),), [np.array(given)], size)[:2])
            np.testing.assert_array_equal(result, expected)
            assert np.signbit(result) == np.signbit(expected) or np.isnan(expected), given
