"""Second derivatives through loops in branches, also where a reverse pass computes them again."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check

import loopgrad as lg

X = np.array([0.4, -0.7, 0.2])
TRIPS = np.array([2, 0, 3])


def repeated_tanh(x, trips):
    """tanh applied `trips` times, its first and second derivative."""
    value, slope, bend = x.copy(), np.ones_like(x), np.zeros_like(x)
    for k in range(trips.max(initial=0)):
        y = np.tanh(value)
        d = 1 - y * y
        on = k < trips
        bend = np.where(on, d * bend - 2 * y * d * slope**2, bend)
        slope = np.where(on, d * slope, slope)
        value = np.where(on, y, value)
    return value, slope, bend


def loop_in_branch(chosen, trips):
    """Identity where not chosen."""
    return lambda v: lg.cond(
        lg.asarray(chosen), lambda v: lg.fori_loop(0, lg.asarray(trips), lambda _, v: lg.tanh(v), v), lambda v: v, v
    )


AROUND = {
    "plain": lambda f: f,
    "checkpoint": lg.checkpoint,
    "budget": lambda f: lambda v: lg.fori_loop(0, lg.asarray(2), lambda _, v: f(v), v, memory_budget=1),
    "budget in a checkpoint": lambda f: lg.checkpoint(AROUND["budget"](f)),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("lanes", [False, True], ids=["uniform", "lanes"])
def test_a_loop_in_a_branch(device, around, lanes):
    """Both switches hand their stacks on to the end, the emptied ones too: a further derivative follows them."""
    chosen = np.array([True, True, True]) if lanes else np.array(True)
    trips = TRIPS if lanes else np.array(2)
    times = 2 if "budget" in around else 1
    _, _, bend = repeated_tanh(X, times * np.broadcast_to(trips, X.shape))
    function = AROUND[around](loop_in_branch(chosen, trips))
    gradient = lg.grad(lambda x: lg.sum(function(x)))
    check(lg.jvp(gradient, (lg.asarray(X),), (lg.ones(3),))[1], bend, 1e-12, 1e-15)
    check(lg.grad(lambda x: lg.sum(gradient(x)))(lg.asarray(X)), bend, 1e-12, 1e-15)
