from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph.build import emit

X = np.random.default_rng(0).normal(size=(4, 3, 2))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("op", ["reduce_sum", "reduce_prod", "reduce_min", "reduce_max", "reduce_and", "reduce_or"])
def test_reduce(same, op, axes):
    x = X > 0 if op in ("reduce_and", "reduce_or") else X
    same(lambda v: emit(op, (v,), {"axes": axes}), x)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", ["argmin", "argmax", "sort", "argsort"])
def test_along(same, op, axis):
    same(lambda v: emit(op, (v,), {"axis": axis}), X)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "cummin"])
def test_cumulative(same, op, axis, reverse):
    same(lambda v: emit(op, (v,), {"axis": axis, "reverse": reverse}), X)
