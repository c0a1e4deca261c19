"""Loops longer than a driver allows (lavapipe: 65,535 trips of all loops together) run to their own end."""

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.vulkan.api import device_count

pytestmark = pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")
TRIPS = np.array([3, 200_000, 0, 5, 70_000, 100])
X = np.linspace(0.5, 1.2, TRIPS.size)


@pytest.fixture(autouse=True)
def on_vulkan():
    with lg.default_device("vulkan:0"):
        yield


def loss(x, n):
    def lane(v, trips):
        return lg.fori_loop(0, trips, lambda i, s: 0.5 * lg.cos(s) * v + 1.0 / (1.0 + i), v)

    return lg.sum(lg.vmap(lane)(x, n))


def cpu(fun, *arrays):
    with lg.default_device("cpu"):
        return np.asarray(fun(*[lg.asarray(a) for a in arrays]))


def test_a_gradient_through_long_loops():
    gradient = lg.grad(loss)
    compiled = lg.compile(gradient)
    for trips in (TRIPS % 50, TRIPS, TRIPS % 20, TRIPS):
        got = compiled(lg.asarray(X), lg.asarray(trips))
        np.testing.assert_allclose(np.asarray(got), cpu(gradient, X, trips), rtol=1e-9)
    if not get_device("vulkan:0").gpu.features.endless_loops:
        assert "the host launches them again" in str(compiled.explain())
        assert "library calls" not in str(compiled.explain())


def test_a_replay_whose_loops_become_long():
    compiled = lg.compile(loss)
    captured = compiled.capture(lg.asarray(X), lg.asarray(TRIPS % 30))
    for trips in (TRIPS % 30, TRIPS, TRIPS % 7):
        got = captured.replay(lg.asarray(X), lg.asarray(trips))
        np.testing.assert_allclose(np.asarray(got), cpu(loss, X, trips), rtol=1e-12)


def test_long_loops_inside_a_loop_of_the_host():
    def rounds(x, n):
        def step(_, v):
            return lg.vmap(lambda u: lg.fori_loop(0, n, lambda _, s: 0.5 * s + u, u))(lg.roll(v, 1))

        return lg.sum(lg.fori_loop(0, 3, step, x))

    got = lg.compile(rounds)(lg.asarray(X), lg.asarray(100_000))
    np.testing.assert_allclose(np.asarray(got), cpu(rounds, X, 100_000), rtol=1e-12)
