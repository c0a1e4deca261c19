"""Searches for minima against SciPy's and known minima; the line search against the conditions that it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import loopgrad as lg
from loopgrad.lazy.optim.lbfgs import descent, no_memory, remembered
from loopgrad.lazy.optim.strong_wolfe import search
from tests.lazy.oracle import check

pytestmark = pytest.mark.costly  # whole searches, which a driver takes seconds for


def rosenbrock(x):
    return lg.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@pytest.mark.in_turns
@pytest.mark.parametrize(("n", "most"), [(2, 45), (10, 100)])
def test_rosenbrock(device: str, n: int, most: int) -> None:
    x0 = np.where(np.arange(n) % 2, 1.0, -1.2)
    found = lg.optim.minimize(rosenbrock, lg.asarray(x0))
    check(found.x, np.ones(n), 1e-7)
    assert found.converged
    assert found.iterations.item() < most
    scipys = optimize.minimize(optimize.rosen, x0, jac=optimize.rosen_der, method="L-BFGS-B", options={"ftol": 1e-15})
    assert found.iterations.item() <= 1.25 * scipys.nit


def test_the_direction_is_that_of_the_two_loops(device: str) -> None:
    """Nocedal and Wright, algorithm 7.4, through fewer pairs than rows, more, and one that is refused."""
    random = np.random.default_rng(0)
    matrix = np.diag(np.linspace(1.0, 20.0, 6)) + 0.1
    memory, pairs = no_memory(3, lg.zeros(6)), []
    for k in range(6):
        step = random.standard_normal(6)
        change = -step if k == 2 else matrix @ step  # of negative curvature
        memory = remembered(memory, lg.asarray(step), lg.asarray(change))
        pairs = [*pairs, (step, change)][-3:] if k != 2 else pairs
        g = random.standard_normal(6)
        q, shares = g, []
        for s, y in reversed(pairs):
            shares.append(s @ q / (s @ y))
            q = q - shares[-1] * y
        s, y = pairs[-1]
        q = q * (s @ y) / (y @ y)
        for (s, y), share in zip(pairs, reversed(shares), strict=True):
            q = q + s * (share - y @ q / (s @ y))
        check(descent(memory, lg.asarray(g)), -q, 1e-9)
    assert memory.count.item() == 3


LINES = {  # functions of one step, with the first trial
    "quadratic": (lambda t: (t - 3.0) ** 2, 1.0),
    "far": (lambda t: (t - 3000.0) ** 2, 0.01),
    "near": (lambda t: (t - 3e-4) ** 2, 100.0),
    "two dips": (lambda t: -t / (t * t + 2.0) + 0.05 * lg.sin(5.0 * t), 3.0),  # Moré and Thuente, 1994, and a wave
    "edge": (lambda t: -lg.log(2.0 - t) - 3.0 * t, 10.0),  # NaN beyond 2
    "quartic": (lambda t: (t - 1.0) ** 4, 1e-3),
}


@pytest.mark.parametrize("name", LINES)
def test_the_line_search_ends_where_the_conditions_hold(name: str, device: str) -> None:
    f, first = LINES[name]
    both = lg.value_and_grad(lambda x: f(x[0]))
    x = lg.zeros(1)
    value, gradient = both(x)
    found = search(both, x, value, gradient, lg.ones(1), lg.asarray(first), 30)
    f0, slope, ft, st = (np.asarray(v).item() for v in (value, gradient, found.low_value, found.low_slope))
    assert found.found
    assert slope < 0
    assert ft <= f0 + 1e-4 * found.low.item() * slope
    assert abs(st) <= 0.9 * abs(slope)
    check(f(found.low), ft, 1e-12)


def test_lanes_search_by_themselves(device: str) -> None:
    """Compiled once, on several starts, which take their own numbers of steps."""
    starts = np.random.default_rng(1).uniform(-2.0, 2.0, (7, 2))
    many = lg.compile(lg.vmap(lambda x: lg.optim.minimize(rosenbrock, x)))
    found = many(lg.asarray(starts))
    check(found.x, np.ones((7, 2)), 1e-6)
    assert len(set(found.iterations.tolist())) > 1
    one = lg.optim.minimize(rosenbrock, lg.asarray(starts[3]))
    assert abs(one.iterations.item() - found.iterations[3].item()) <= 2
    many(lg.asarray(starts + 0.1))
    assert many.versions == 1


@pytest.mark.in_turns
def test_trees_dtypes_and_ends(device: str) -> None:
    found = lg.optim.minimize(
        lambda p, shift: lg.sum((p["a"] - shift) ** 2) + lg.cosh(p["b"]), {"a": lg.zeros((2, 2)), "b": 1.0}, (3.0,)
    )
    check(found.x["a"], np.full((2, 2), 3.0), 1e-7)
    check(found.grad["b"], np.sinh(found.x["b"].item()), 1e-12)
    single = lg.optim.minimize(lambda x: lg.sum((x - 1.0) ** 2), lg.full((3,), 5.0, dtype=lg.float32))
    check(single.x, np.ones(3, np.float32))
    nothing = lg.optim.minimize(lambda x: lg.sum(x), lg.zeros(0))
    assert nothing.converged
    unbounded = lg.optim.minimize(lambda x: lg.sum(x), lg.ones(2), max_iterations=3)
    assert (unbounded.converged.item(), unbounded.iterations.item()) == (False, 3)
    bad = lg.optim.minimize(lambda x: lg.sum(x) * lg.nan, lg.ones(2))
    assert (bad.converged.item(), bad.iterations.item()) == (False, 0)
    start = lg.optim.minimize(lambda x: lg.sum(x * x), lg.zeros(2))
    assert (start.converged.item(), start.iterations.item()) == (True, 0)
    for call in (
        lambda: lg.optim.minimize(lambda x: x * 1.0, True),
        lambda: lg.optim.minimize(lambda z: lg.abs(z), 3.0j),
        lambda: lg.optim.minimize(lambda x: x, lg.ones(2)),
        lambda: lg.optim.lbfgs().update(lg.ones(2), lg.optim.lbfgs().init(lg.ones(2)), lg.ones(2)),
    ):
        with pytest.raises(lg.GradientError):
            call()
    with pytest.raises(ValueError, match="memory_size"):
        lg.optim.lbfgs(0).init(lg.ones(2))


def test_single_steps_are_those_of_the_search(device: str) -> None:
    optimizer, x = lg.optim.lbfgs(), lg.asarray([-1.2, 1.0])
    state = optimizer.init(x)

    @lg.compile
    def step(x, state):
        value, grads = lg.value_and_grad(rosenbrock)(x)
        updates, state = optimizer.update(grads, state, x, value=value, value_fn=rosenbrock)
        return lg.optim.apply_updates(x, updates), state

    for _ in range(12):
        x, state = step(x, state)
    check(x, np.asarray(lg.optim.minimize(rosenbrock, lg.asarray([-1.2, 1.0]), max_iterations=12).x), 1e-6)
    assert step.versions == 1


def test_the_minimum_as_a_function(device: str) -> None:
    """Its derivatives by the implicit function theorem: x = log(a) where exp(x) - a x is least."""
    fun = lambda x, a: lg.exp(x) - a * x  # noqa: E731

    def minimum(a, order=1):
        x = lg.optim.minimize(lambda x: fun(x, a), 0.0).x
        return lg.optim.implicit_minimum(lambda x: fun(x, a), x, order=order)

    check(minimum(lg.asarray(2.5)), np.log(2.5), 1e-9)
    check(lg.grad(minimum)(2.5), 1 / 2.5, 1e-7)
    check(lg.jvp(minimum, (2.5,), (1.0,))[1], 1 / 2.5, 1e-7)
    check(lg.grad(lg.grad(lambda a: minimum(a, order=2)))(2.5), -1 / 2.5**2, 1e-6)
    check(lg.vmap(lg.grad(minimum))(lg.asarray([2.0, 4.0])), [0.5, 0.25], 1e-7)


def test_integers_stand_for_floats_at_the_start(device: str) -> None:
    def rosenbrock(p: Any) -> Any:
        return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2

    found = lg.optim.minimize(rosenbrock, np.array([-1, 1]))
    check(found.x, optimize.minimize(rosenbrock, np.array([-1, 1])).x, 1e-4)
    check(found.x, lg.optim.minimize(rosenbrock, np.array([-1.0, 1.0])).x, 0.0)
    found = lg.optim.minimize(lambda p: (p["a"] - 0.5) ** 2 + p["b"] ** 2, {"a": 3, "b": np.float32(1)})
    check(found.x["a"], 0.5, 1e-6)
    fit = lg.optim.levenberg_marquardt(lambda p: p - np.array([0.5, 2.5]), np.array([0, 7]))
    check(fit.x, np.array([0.5, 2.5]), 1e-8)
    for start in (np.array([True]), np.array([1j])):
        with pytest.raises(lg.GradientError, match="minimize: expected parameters of real float"):
            lg.optim.minimize(lambda p: lg.sum(p * p).real, start)


@dataclass
class Named:
    w: Any
    name: str


def test_what_is_no_number_among_parameters_is_named() -> None:
    for start in (
        lambda p: lg.optim.minimize(lambda p: lg.sum(p.w**2), p),
        lambda p: lg.optim.levenberg_marquardt(lambda p: p.w, p),
        lambda p: lg.optim.adam(0.1).init(p),
        lambda p: lg.optim.lbfgs().init(p),
    ):
        with pytest.raises(lg.DTypeError, match=r"parameters\.name, got 'layer'.*\"static\": True"):
            start(Named(lg.ones(2), "layer"))
