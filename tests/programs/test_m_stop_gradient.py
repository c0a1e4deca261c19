"""Group M: gradients that stop, arguments without gradients."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check, check_gradient

import loopgrad as lg


def zero():
    return lg.zeros((), dtype=lg.float64)


def test_m3_region_without_gradient(device, mode):
    def loss(x):
        unseen = lg.fori_loop(0, 4, lambda _, v: v * v, lg.stop_gradient(x))
        return lg.sum(unseen) + lg.sum(5.0 * x)

    check_gradient(loss, (lg.asarray([0.5, 0.7]),), [5.0, 5.0], mode=mode)


def test_m3_only_a_region_without_gradient(device):
    check(lg.grad(lambda x: lg.sum(lg.stop_gradient(x) * 2.0))(lg.asarray([1.0, 2.0])), [0.0, 0.0])


@pytest.mark.parametrize(("stopped", "factor"), [((True, True), 0.0), ((True, False), 2.0), ((False, False), 4.0)])
def test_m4_stopped_in_some_loops(device, mode, stopped, factor):
    i = np.arange(5.0)

    def loss(x):
        total = zero()
        for stop in stopped:
            seen = lg.stop_gradient(x) if stop else x
            total = total + lg.fori_loop(0, 5, lambda k, y, seen=seen: y + seen[k] * seen[k], zero())
        return total

    check_gradient(loss, (lg.asarray(i),), factor * i, mode=mode)


def test_m4_stopped_inside_the_body(device, mode):
    """P46: the stop is seen only in the second trip's value."""

    def loss(x):
        body = lambda _, c: (c[0] * x, c[1] + lg.stop_gradient(c[0]))
        return lg.fori_loop(0, 3, body, (x, zero()))[1]

    check_gradient(loss, (lg.asarray(2.0),), 0.0, mode=mode)


def test_m5_m6_arguments_that_are_not_differentiated(device):
    def loss(x, w):
        return lg.sum(x * w)

    x, w = lg.asarray([1.0, 2.0]), lg.asarray([3.0, 4.0])
    check(lg.grad(loss, argnums=0)(x, w), [3.0, 4.0])
    both = lg.grad(loss, argnums=(0, 1))(x, w)
    check(both[0], [3.0, 4.0])
    check(both[1], [1.0, 2.0])


def test_p4_integer_arguments_refuse_to_be_differentiated(device):
    with pytest.raises(TypeError, match="int64"):
        lg.grad(lambda n: lg.sum(n * 1.5))(lg.asarray([1, 2, 3]))
