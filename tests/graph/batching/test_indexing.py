from __future__ import annotations

import itertools

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.lanes import iota_axis

RNG = np.random.default_rng(0)


def given(flags, *samples):
    """Copies of the arrays, with a batch of 4 in front where flagged."""
    return [
        np.stack([np.roll(s, k) if s.shape else s + k for k in range(4)]) if f else s
        for f, s in zip(flags, samples, strict=True)
    ]


SOME = [f for f in itertools.product([True, False], repeat=3) if any(f)]


@pytest.mark.parametrize("flags", SOME)
def test_gather(same, flags):
    x, i, j = RNG.normal(size=(5, 3, 2)), np.array([[0, 4, 9], [-1, 2, 2]]), np.array([[0, 1, 2], [5, 0, -3]])
    same(lambda x, i, j: [ops.gather(x, i), ops.gather(x, i, j)], *given(flags, x, i, j), flags=flags)


@pytest.mark.parametrize("flags", SOME[:2] + SOME[3:4])
def test_gather_by_scalars(same, flags):
    x, i, j = RNG.normal(size=(5, 3)), np.array(1), np.array(2)
    same(lambda x, i, j: [ops.gather(x, i), ops.gather(x, i, j)], *given(flags, x, i, j), flags=flags)


def test_a_table_common_to_the_batch_is_gathered_as_it_is(same, nodes):
    graph = same(lambda x, i: [ops.gather(x, i)], RNG.normal(size=(5, 3)), np.arange(4), flags=(False, True))
    (gather,) = nodes(graph, "gather")
    assert len(gather.operands) == 2
    assert not nodes(graph, "broadcast")


def test_a_batched_table_is_addressed_by_the_batch_iota(same, nodes):
    graph = same(lambda x, i: [ops.gather(x, i)], RNG.normal(size=(4, 5)), np.arange(4))
    (gather,) = nodes(graph, "gather")
    assert iota_axis(gather.operands[1]) == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_batches_have_more_rows_than_narrow_indices_count(same, dtype):
    size = 130 if dtype == "int8" else 260
    x, i = RNG.normal(size=(size, 3)), RNG.integers(0, 3, size).astype(dtype)
    same(lambda x, i: [ops.gather(x, i), ops.scatter("add", x, (i,), ops.gather(x, i))], x, i)


def test_empty_table(same):
    same(lambda x, i: [ops.gather(x, i)], np.zeros((4, 0, 2)), np.zeros((4, 3), int))


@pytest.mark.parametrize("flags", SOME)
@pytest.mark.parametrize("kind", ["add", "mul", "min", "max", "set"])
def test_scatter(same, kind, flags):
    x, i, u = RNG.normal(size=(5, 2)), np.array([0, 4, 9, 4, -1]), RNG.normal(size=(5, 2))
    same(lambda x, i, u: [ops.scatter(kind, x, (i,), u)], *given(flags, x, i, u), flags=flags)


def test_scatter_of_elements(same):
    x, i, j, u = RNG.normal(size=(4, 5, 3)), np.array([1, 2]), np.array([[0, 2]] * 4), np.array([[1.0, 2.0]] * 4)
    same(lambda x, i, j, u: [ops.scatter("add", x, (i, j), u)], x, i, j, u, flags=(True, False, True, True))


def test_scatter_at_a_scalar_index(same):
    same(lambda x, i, u: [ops.scatter("set", x, (i,), u)], RNG.normal(size=(4, 5)), np.arange(4), np.ones(4))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_indices_too_narrow_for_the_batch(vmapped, traced, dtype):
    size = 300
    x, i = RNG.normal(size=(size, 3)), RNG.integers(0, 3, size).astype(dtype)
    graph = traced(lambda x, i: [ops.gather(x, i), ops.scatter("add", x, (i,), ops.gather(x, i))], [x[0], i[0]])
    vmapped(graph, [x, i], [True, True], size)
