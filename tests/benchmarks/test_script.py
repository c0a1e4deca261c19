"""Programs that are one text: NumPy has the loops and updates, and checks derivatives that nobody wrote down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import place
from benchmarks.oracles import relative_error
from benchmarks.workloads.arrays.program import normal, sizes
from benchmarks.workloads.arrays.script import NUMPY, at, loss


def energy(xp, x, w):
    return xp.sum(xp.sin(x) ** 2 @ w) / 10


@pytest.fixture
def workload(monkeypatch):
    monkeypatch.setenv(place.VARIABLE, "cpu")

    def inputs(n):
        return dict(zip("xw", normal((n, 3), (3,)), strict=True))

    return loss("an energy", sizes(50, 50, 50), inputs, energy, wrt=(0, 1)).workload("programs", "energy")


def errors(workload, contender):
    arrays = workload.inputs(50)
    want, got = workload.oracle(arrays), contender.fetch(contender.run())
    return [relative_error(got[key], want[key]) / workload.tolerance[key] for key in want]


def test_derivatives_are_compared_along_directions(workload):
    built = workload.contenders["loopgrad"](workload.inputs(50))
    assert [np.shape(x) for x in built.run()[1]] == [(50, 3), (3,)]  # whole ones are computed
    assert len(errors(workload, built)) == 3
    assert max(errors(workload, built)) < 1


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_wrong_derivative_is_found(workload, wrong):
    built = workload.contenders["loopgrad"](workload.inputs(50))

    def run():
        value, slopes = built.run()
        slopes = [np.array(x) for x in slopes]
        slopes[wrong].reshape(-1)[1] *= 2
        return value, slopes

    found = errors(workload, replace(built, run=run))
    assert [error > 1 for error in found] == [False, wrong == 0, wrong == 1]


def test_derivatives_are_by_no_hand(workload):
    assert "numpy" not in workload.contenders
    assert set(workload.gpu_contenders) == {"loopgrad", "jax"}


def test_numpy_has_the_loops():
    assert NUMPY.fori_loop(2, 5, lambda k, c: c + k, 0) == 9
    assert NUMPY.while_loop(lambda c: c < 10, lambda c: 2 * c, 3) == 12
    last, all_of_them = NUMPY.scan(lambda c, row: (c + row, c), np.zeros(2), np.ones((3, 2)))
    assert last.tolist() == [3, 3]
    assert all_of_them[:, 0].tolist() == [0, 1, 2]
    last, none = NUMPY.scan(lambda c, rows: (c + rows[0] * rows[1], None), 0.0, (np.arange(3), np.arange(3)))
    assert (last, none) == (5, None)
    assert NUMPY.logsumexp(np.zeros((2, 4)), axis=1) == pytest.approx(np.log(4))
    with pytest.raises(AttributeError, match="expected a function of NumPy's or a loop, got 'softmax'"):
        NUMPY.softmax(np.ones(3))


def test_numpy_has_the_updates():
    x, index = np.array([1.0, 2.0, 3.0]), np.array([0, 2, 0])
    assert at(x, index).add(1.0).tolist() == [3, 2, 4]
    assert at(x, index).max(2.0).tolist() == [2, 2, 3]
    assert at(x, index).min(2.0).tolist() == [1, 2, 2]
    assert at(x, 1).set(7.0).tolist() == [1, 7, 3]
    assert x.tolist() == [1, 2, 3]
