"""Gather and scatter rows: clamped and dropped indices, updates that meet, winners that share."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops

X = np.array([[0.3, -1.2], [1.4, 0.2], [-0.7, 1.9], [0.5, 0.1]])
ONCE = np.array([2, 0, 3])
MEETING = np.array([2, 0, 2, 1, 2])
OUTSIDE = np.array([-1, 1, 7, 0, 1])
KINDS = ["add", "mul", "min", "max", "set"]


@pytest.mark.parametrize("index", [ONCE, MEETING, OUTSIDE], ids=["once", "meeting", "outside"])
def test_gather_rows(derivatives, index):
    derivatives.check(lambda x, i: [ops.sin(ops.gather(x, i))], [X, index], order=2)


def test_gather_elements(derivatives):
    arrays = [X, np.array([[0, 3], [2, 9]]), np.array([[1, 0], [1, 1]])]
    derivatives.check(lambda x, i, j: [ops.sin(ops.gather(x, i, j))], arrays, order=2)


def test_gather_with_a_narrow_index_dtype(derivatives):
    table = np.linspace(0, 1, 300)
    derivatives.check(lambda x, i: [ops.sin(ops.gather(x, i))], [table, np.array([3, 127, -2], dtype=np.int8)])


def test_several_gathers_chain_their_scatters(derivatives):
    def function(x, i):
        return [ops.mul(ops.gather(x, i), ops.gather(x, ops.add(i, 1)))]

    graph = derivatives.graph_of(derivatives.gradient_of(function, [0]), [X[:, 0], ONCE])
    nodes = [n.op for n in graph.nodes]
    assert nodes.count("scatter") == 2
    assert nodes.count("add") == 1  # i + 1: the table's cotangents aren't added up as dense arrays


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [ONCE, MEETING, OUTSIDE], ids=["once", "meeting", "outside"])
def test_scatter(derivatives, kind, index):
    rng = np.random.default_rng(3)
    updates = rng.standard_normal((len(index), 2))
    derivatives.check(lambda x, i, u: [ops.sin(ops.scatter(kind, x, [i], u))], [X, index, updates], [0, 2], order=2)


@pytest.mark.parametrize("zeros", [1, 2])
def test_scatter_mul_with_zero_updates(derivatives, zeros):
    updates = np.array([0.5, 2.0, 3.0, 0.7, -1.5])
    updates[0] = 0
    if zeros == 2:
        updates[2] = 0
    derivatives.check(lambda x, i, u: [ops.scatter("mul", x, [i], u)], [X[:, 0], MEETING, updates], [0, 2], order=2)


def test_the_last_update_of_a_set_wins(derivatives):
    x, u = derivatives.gradients(
        lambda x, i, u: [ops.scatter("set", x, [i], u)], [np.ones(3), np.array([1, 1, 5, 0]), np.ones(4)], [0, 2]
    )
    np.testing.assert_array_equal(x, [0, 0, 1])
    np.testing.assert_array_equal(u, [0, 1, 0, 1])


@pytest.mark.parametrize("kind", ["min", "max"])
def test_equal_winners_share(derivatives, kind):
    x, u = derivatives.gradients(
        lambda x, i, u: [ops.scatter(kind, x, [i], u)], [np.ones(2), np.array([0, 0, 1]), np.ones(3)], [0, 2]
    )
    np.testing.assert_allclose(x, [1 / 3, 1 / 2])
    np.testing.assert_allclose(u, [1 / 3, 1 / 3, 1 / 2])


def test_own_rows_need_no_check_for_meeting_updates(derivatives):
    """An index that counts along its axis can't meet itself and can't leave the table."""

    def function(x, j, u):
        return [ops.scatter("set", x, [ops.iota(j.type, 0), j], u)]

    arrays = [X, np.array([0, 1, 1, 0]), np.ones(4)]
    graph = derivatives.graph_of(derivatives.gradient_of(function, [0, 2]), arrays)
    assert [n.op for n in graph.nodes].count("scatter") == 1
    derivatives.check(function, arrays, [0, 2], order=2)
