from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_switch
from loopgrad.graph.types import TensorType, float64

X = np.random.default_rng(0).normal(size=(4, 3))
FLAGS = [(True, True), (True, False), (False, True)]


def chosen(i, x):
    constant = TensorType(x.shape, float64)
    return traced_switch(i, [lambda v: [ops.sin(v), v], lambda v: [ops.full(2.0, constant), ops.neg(v)]], [x])


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("index", [np.array([0, 1, -4, 9]), np.array([True, False, True, True]),
                                   np.array([0, 1, 200, 0], np.uint8)])  # fmt: skip
def test_switch(same, nodes, flags, index):
    i, x = index if flags[0] else index[1], X if flags[1] else X[0]
    (switch,) = nodes(same(chosen, i, x, flags=flags), "switch")
    assert switch.attrs["lanes"] == flags[0]


@pytest.mark.parametrize("flags", FLAGS)
def test_lane_switch(same, nodes, flags):
    index = np.array([[0, 1, 5], [1, 1, 1], [0, 0, 0], [-1, 1, 0]])
    i, x = index if flags[0] else index[1], X if flags[1] else X[0]
    (switch,) = nodes(same(chosen, i, x, flags=flags), "switch")
    assert switch.attrs["lanes"] == 2


def test_results_common_to_the_batch(same, nodes):
    """The index is common, so results are batched only where a branch makes them so."""

    def function(i, x, w):
        return traced_switch(i, [lambda x, w: [x, w], lambda _x, w: [w, ops.neg(w)]], [x, w])

    (switch,) = nodes(same(function, np.array(1), X, X[0], flags=(False, True, False)), "switch")
    assert [r.shape for r in switch.results] == [(4, 3), (3,)]


def test_untaken_branches_do_not_poison(same):
    """A branch not taken may give NaN or divide by zero."""

    def function(x):
        return traced_switch(ops.gt(x, 0.0), [lambda v: [ops.neg(v)], lambda v: [ops.log(v)]], [x])

    same(function, X[:, 0])


@pytest.mark.parametrize("flags", [(True, True, True), (True, False, False), (False, True, True), (False, False, True)])
def test_shared_results(same, nodes, flags):
    """Accumulators of a lane switch: the branches update one table."""

    def function(i, table, x):
        rows = ops.iota(TensorType((3,), i.dtype), 0)
        return traced_switch(
            i,
            [lambda t, x: [t, x], lambda t, x: [ops.scatter("add", t, (rows,), x), ops.neg(x)]],
            [table, x],
            shared=(0,),
        )

    arrays = [np.array([[0, 1, 5], [1, 1, 1], [0, 0, 0], [-1, 1, 0]]), np.arange(20.0).reshape(4, 5), X]
    arrays = [v if f else v[0] for v, f in zip(arrays, flags, strict=True)]
    (switch,) = nodes(same(function, *arrays, flags=flags), "switch")
    assert (switch.attrs["lanes"], switch.attrs["shared"]) == (2, (0,))


def test_a_table_updated_in_one_branch(same):
    def function(p, table, i):
        one = ops.full(1.0, TensorType((), float64))
        return traced_switch(p, [lambda t, _i: [t], lambda t, i: [ops.scatter("add", t, (i,), one)]], [table, i])

    same(function, X[:, 0] > 0, np.arange(20.0).reshape(4, 5), np.arange(4))
    same(function, X[:, 0] > 0, np.arange(5.0), np.arange(4), flags=(True, False, True))


def test_switch_in_switch(same):
    def function(p, q, x):
        return traced_switch(p, [lambda _q, x: [ops.neg(x)], lambda q, x: [chosen(q, x)[0]]], [q, x])

    same(function, X[:, 0] > 0, np.array([0, 1, 1, 0]), X)
    same(function, X[:, 0] > 0, np.array(1), X, flags=(True, False, True))
    same(function, np.array(True), np.array([0, 1, 1, 0]), X[0], flags=(False, True, False))
