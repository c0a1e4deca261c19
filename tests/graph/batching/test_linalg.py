from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.types import float32

FLAGS = [(True, True), (True, False), (False, True)]


def pair(flags, a, b):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(4, *s) if f else s) for f, s in zip(flags, (a, b), strict=True)]


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(("a", "b"), [((2, 3), (3, 4)), ((5, 2, 3), (5, 3, 1)), ((20, 20), (20, 17)), ((2, 0), (0, 3))])
def test_matmul(same, flags, a, b):
    same(lambda x, y: [ops.matmul(x, y)], *pair(flags, a, b), flags=flags)


@pytest.mark.parametrize("flags", FLAGS[1:])
def test_a_large_shared_matrix_is_not_repeated(same, nodes, flags):
    graph = same(lambda x, y: [ops.matmul(x, y)], *pair(flags, (20, 20), (20, 20)), flags=flags)
    assert not nodes(graph, "broadcast")
    assert nodes(graph, "matmul")[0].results[0].shape == (80, 20)


def test_a_matrix_by_itself(same):
    same(lambda x: [ops.matmul(x, x)], np.random.default_rng(0).normal(size=(4, 3, 3)))


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("size", [3, 20])
def test_sums_that_stay_float32(same, flags, size):
    arrays = [np.rint(4 * x).astype(np.float16) for x in pair(flags, (size, size), (size, size))]  # exact in any order
    graph = same(lambda x, y: [ops.matmul(x, y, float32)], *arrays, flags=flags)
    assert graph.outputs[0].dtype is float32
