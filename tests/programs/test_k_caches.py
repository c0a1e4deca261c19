"""Group K: cached sizes and kernels follow the data they were computed from."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check

import loopgrad as lg
from loopgrad.runtime.session import SESSION


def squares(x, trips):
    """Each of 4 lanes adds x[j]² for j < trips[lane]; with equal trips the gradient is .8 below it."""
    lane = lambda i: lg.fori_loop(0, trips[i], lambda j, acc: acc + x[j] * x[j], lg.zeros((), dtype=lg.float64))
    return lg.sum(lg.vmap(lane)(lg.arange(4)))


def below(n):
    return np.where(np.arange(16) < n, 0.8, 0.0)


def test_k1_k2_trip_counts_change_between_launches(device):
    x = lg.full((16,), 0.1)
    gradient = lg.compile(lg.grad(squares))
    trips = np.full(4, 8)
    check(gradient(x, lg.asarray(trips)), below(8), 1e-13)
    trips[:] = 16
    check(gradient(x, lg.asarray(trips)), below(16), 1e-13)
    doubled = lg.asarray(np.full(4, 2)) * 2
    check(gradient(x, doubled), below(4), 1e-13)


def test_k1_host_array_changed_after_it_was_taken(device):
    """`asarray` copies unless told otherwise: later writes to the NumPy array are not seen."""
    x = np.full(16, 0.1)
    trips = np.full(4, 8)
    taken, tensor = lg.asarray(trips), lg.asarray(x)
    trips[:] = 16
    x[:] = 5.0
    check(lg.grad(squares)(tensor, taken), below(8), 1e-13)


def test_k4_two_instances_of_one_function(device):
    """The same Python function over other shapes and dtypes keeps sizes of its own."""
    gradient = lg.compile(lg.grad(lambda x, n: lg.sum(lg.fori_loop(0, n, lambda _, v: lg.sin(v) + 0.1, x))))

    def slope(x, trips):
        want = np.ones_like(x)
        for _ in range(trips):
            want, x = want * np.cos(x), np.sin(x) + 0.1
        return want

    few, many = np.linspace(0.1, 0.4, 3), np.linspace(0.1, 0.9, 7)
    for x, trips in ((few, 50), (many, 3), (few, 2), (many, 60)):
        check(gradient(lg.asarray(x), lg.full(x.shape, trips)), slope(x, trips), 1e-12)
        single = gradient(lg.asarray(x, dtype=lg.float32), lg.full(x.shape, trips))
        assert single.dtype is lg.float32
        check(single, slope(x, trips), 1e-3)


def test_k7_recycled_objects(device):
    """Functions that die and are born at the same address do not inherit each other's kernels."""
    x = lg.asarray([0.5, 0.7])
    for factor in range(1, 8):
        gradient = lg.compile(lg.grad(lambda x, k=float(factor): lg.sum(k * x * x)))
        check(gradient(x), 2 * factor * np.array([0.5, 0.7]), 1e-14)
        del gradient


def test_k9_repeated_gradients_compile_once(device):
    gradient = lg.compile(lg.grad(lambda x: lg.sum(lg.fori_loop(0, 5, lambda _, v: v * v, x))))
    for start in (0.9, 0.8, 0.7, 0.6):
        check(gradient(lg.asarray([start])), [32 * start**31], 1e-12)
    assert gradient.explain().count("compiled") <= 1


def block(x, i):
    return x.reshape(4, 5)[:, i % 3 : i % 3 + 2]


CHANGING = {
    "element": (lambda x, i: x[i] * 2, lambda x, i: x[i] * 2),
    "from the end": (lambda x, i: x[-i] * 2, lambda x, i: x[-i] * 2),
    "slice": (lambda x, i: lg.sum(x[i : i + 3]), lambda x, i: x[i : i + 3].sum()),
    "set": (lambda x, i: x.at[i].set(5.0), lambda x, i: np.where(np.arange(20) == i, 5.0, x)),
    "gradient": (lambda x, i: lg.grad(lambda v: v[i] ** 2)(x), lambda x, i: np.where(np.arange(20) == i, 2 * x, 0.0)),
    "trips": (lambda x, i: lg.fori_loop(0, i, lambda _, v: v + x, x), lambda x, i: x * (i + 1)),
    "mask": (lambda x, i: lg.where(lg.arange(20) < i, x, 0.0), lambda x, i: np.where(np.arange(20) < i, x, 0.0)),
    "block": (lambda x, i: block(x, i) * 1.5, lambda x, i: block(x, i) * 1.5),
}


@pytest.mark.parametrize("name", CHANGING)
def test_python_integers_that_change_are_compiled_a_few_times(device, name):
    function, reference = CHANGING[name]
    array = np.random.default_rng(1).normal(size=20)
    x, compiled = lg.asarray(array), []
    for i in range(3, 15):
        before = SESSION.compiled
        np.testing.assert_allclose(function(x, i), reference(array, i), rtol=1e-12)
        compiled.append(SESSION.compiled - before)
    assert compiled[4:] == [0] * 8


def test_two_cases_keep_their_numbers_in_the_code(compiled_device):
    x, before = lg.asarray(np.arange(9.0)), SESSION.compiled
    for i in (3, 5) * 3:
        np.testing.assert_array_equal(x[i : i + 2] * x[i - 3 : i - 1], [i * (i - 3), (i + 1) * (i - 2)])
    assert SESSION.compiled - before == 2  # and no third that would take them as inputs
