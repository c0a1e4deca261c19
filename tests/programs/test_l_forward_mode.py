"""Group L: forward mode. (L1, the other groups in jvp form, is the `mode` fixture in their files.)"""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check, direction

import loopgrad as lg

SLOPES = {
    "sin": np.cos,
    "cos": lambda x: -np.sin(x),
    "tan": lambda x: 1 / np.cos(x) ** 2,
    "exp": np.exp,
    "log": lambda x: 1 / x,
    "sqrt": lambda x: 0.5 / np.sqrt(x),
}


@pytest.mark.parametrize("name", list(SLOPES))
def test_l2_nonlinear_unaries(device, name):
    x = np.linspace(0.2, 1.2, 8)
    function = getattr(lg, name)
    _, tangent = lg.jvp(lambda x: lg.sum(function(x)), (lg.asarray(x),), (lg.ones((8,)),))
    check(tangent, SLOPES[name](x).sum(), 1e-13)


def test_l3_seeds_select_columns(device):
    x = lg.asarray([1.0, 2.0, 3.0, 4.0])
    unit = lambda *places: lg.asarray(np.isin(np.arange(4), places).astype(float))
    double = lambda x: lg.sum(2.0 * x)
    product = lambda x: x[2] * x[3]
    check(lg.jvp(double, (x,), (unit(3),))[1], 2.0)
    check(lg.jvp(product, (x,), (unit(2, 3),))[1], 7.0)


def test_l3_several_losses_and_parameters(device):
    a, b = lg.asarray(2.0), lg.asarray(3.0)
    both = lambda a, b: (a * b, a + lg.sin(b))
    values, tangents = lg.jvp(both, (a, b), (lg.asarray(1.0), lg.asarray(10.0)))
    check(values[0], 6.0)
    check(tangents[0], 3.0 + 20.0, 1e-14)
    check(tangents[1], 1.0 + 10 * np.cos(3.0), 1e-14)


@pytest.mark.parametrize("shape", [(), (1,), (4,)])
def test_l4_repeated_calls_do_not_accumulate(device, dtype, shape):
    x = lg.full(shape, 2.0, dtype=dtype)
    for _ in range(5):
        value, tangent = lg.jvp(lambda x: x * x, (x,), (lg.ones_like(x),))
        check(tangent, np.full(shape, 4.0))
        assert tangent.dtype is dtype
        assert value.shape == shape


def test_l5_modes_alternate_on_one_function(device):
    loss = lambda x: lg.sum(lg.fori_loop(0, 3, lambda _, v: v * v, x))
    x = np.array([0.9, 1.1])
    want = 8 * x**7
    along = direction((2,))
    for _ in range(3):
        check(lg.grad(loss)(lg.asarray(x)), want, 1e-13)
        check(lg.jvp(loss, (lg.asarray(x),), (lg.asarray(along),))[1], np.sum(want * along), 1e-13)


def test_l_forward_over_reverse_through_a_value_dependent_loop(device):
    """A Hessian-vector product of v^(2^k), where k depends on v."""

    def loss(x):
        return lg.sum(lg.while_loop(lambda v: v < 50.0, lambda v: v * v, x))

    x = np.array([1.5, 2.5, 3.0])
    trips = np.array([4, 3, 2])
    power = 2.0**trips
    along = direction((3,))
    _, product = lg.jvp(lg.grad(loss), (lg.asarray(x),), (lg.asarray(along),))
    check(loss(lg.asarray(x)), np.sum(x**power), 1e-12)
    check(product, power * (power - 1) * x ** (power - 2) * along, 1e-12)


def test_l_reverse_over_reverse_through_a_counted_loop(device):
    loss = lambda x: lg.sum(lg.fori_loop(0, lg.asarray([1, 2, 0]), lambda _, v: v * v, x))
    slope = lambda x: lg.sum(lg.grad(loss)(x) * lg.asarray([1.0, 10.0, 100.0]))
    x = np.array([0.7, 0.8, 0.9])
    check(lg.grad(slope)(lg.asarray(x)), [2.0, 10 * 12 * 0.8**2, 0.0], 1e-13)
