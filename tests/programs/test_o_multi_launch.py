"""Group O: chains, repeated runs, pytrees, memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from oracles import central_difference, check, check_gradient

import loopgrad as lg


def test_o1_chain_of_intermediates(device):
    x = lg.asarray(1.5)
    a = x * 1.0
    b = 2.0 * a
    c = 3.0 * b
    d = 4.0 * c
    e = 5.0 * d
    check(lg.gradients(e, [x])[0], 120.0)
    for value, want in zip(lg.gradients(e, [a, b, c, d, e]), (120.0, 60.0, 20.0, 5.0, 1.0), strict=True):
        check(value, want)


def test_o2_rebound_loss_is_seeded_once(device):
    x = lg.asarray(3.0)
    loss = x * 1.0
    loss = loss * 2.0
    loss = loss * 2.0
    check(lg.gradients(loss, [x])[0], 4.0)


def test_o3_same_gradient_twice(device):
    x = lg.asarray([0.5, 0.7])
    loss = lg.sum(lg.fori_loop(0, 3, lambda _, v: v * v, x))
    first, second = lg.gradients(loss, [x])[0], lg.gradients(loss, [x])[0]
    check(first, 8 * np.array([0.5, 0.7]) ** 7, 1e-13)
    assert np.array_equal(np.asarray(first), np.asarray(second))


def test_o3_gradient_after_evaluation(device):
    """The loss was printed before its gradient was asked for."""
    x = lg.asarray([0.5, 0.7])
    loss = lg.sum(lg.fori_loop(0, 3, lambda _, v: v * v, x))
    check(float(loss), (np.array([0.5, 0.7]) ** 8).sum(), 1e-13)
    check(lg.gradients(loss, [x])[0], 8 * np.array([0.5, 0.7]) ** 7, 1e-13)


@pytest.mark.parametrize("loss", [lambda x: x, lambda x: lg.sum(x) > 0, lambda x: (lg.sum(x), lg.sum(x))])
def test_o4_losses_that_are_not_one_float(device, loss):
    with pytest.raises((TypeError, ValueError)):
        lg.grad(loss)(lg.asarray([1.0, 2.0]))


def test_o5_gradients_of_two_launches_add(device):
    x = lg.asarray([1.0, 2.0])
    pieces = [lambda x, k=k: lg.cond(x[k] > 1.5, lambda x: x[k], lambda x: 2.0 * x[k], x) for k in range(2)]
    total = sum(np.asarray(lg.grad(piece)(x)) for piece in pieces)
    check(total, [2.0, 1.0])


def test_o6_pytrees_of_arrays(device):
    def loss(state):
        def step(_, state):
            position = state["position"] + 0.1 * state["motion"][0]
            return {"position": position, "motion": (state["motion"][0] - 0.1 * lg.sin(position), None)}

        return lg.sum(lg.fori_loop(0, 5, step, state)["position"])

    def value(position, velocity):
        for _ in range(5):
            position = position + 0.1 * velocity
            velocity = velocity - 0.1 * np.sin(position)
        return position.sum()

    p, v = np.array([0.1, 0.9]), np.array([1.0, -0.5])
    gradient = lg.grad(loss)({"position": lg.asarray(p), "motion": (lg.asarray(v), None)})
    check(gradient["position"], central_difference(lambda p: value(p, v), p), 1e-8)
    check(gradient["motion"][0], central_difference(lambda v: value(p, v), v), 1e-8)
    assert gradient["motion"][1] is None


def test_o8_methods_of_two_instances(device):
    class Oscillator:
        def __init__(self, stiffness):
            self.stiffness = lg.asarray(stiffness)

        def energy(self, x):
            return lg.sum(0.5 * self.stiffness * x * x)

    x = lg.asarray([1.0, 2.0])
    for stiffness in (3.0, 7.0):
        check(lg.grad(Oscillator(stiffness).energy)(x), stiffness * np.array([1.0, 2.0]), 1e-14)


@pytest.mark.usefixtures("young_heap")
def test_o9_p90_repeats_do_not_keep_arrays(device):
    loss = lambda x: lg.sum(lg.fori_loop(0, 4, lambda _, v: lg.sin(v), x))

    def live():
        gc.collect()
        return sum(isinstance(o, lg.Tensor) for o in gc.get_objects())

    def once():
        check(lg.grad(loss)(lg.asarray(np.zeros(64))), np.ones(64))

    once()
    before = live()
    for _ in range(10):
        once()
    assert live() <= before


def test_o11_neo_hookean_energy(device, mode):
    """Σ V·φ over triangles; forces are the gradient scattered to shared vertices."""
    triangles = np.array([[0, 1, 2], [1, 3, 2], [2, 3, 4], [3, 5, 4]])
    rest = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]], dtype=float)
    inverse = np.linalg.inv(np.stack([rest[triangles[:, 1]] - rest[triangles[:, 0]],
                                      rest[triangles[:, 2]] - rest[triangles[:, 0]]], axis=-1))  # fmt: skip
    mu, lam = 1.0, 2.0

    def energy(np_or_lg, position):
        edges = [position[triangles[:, k]] - position[triangles[:, 0]] for k in (1, 2)]
        f = np_or_lg.matmul(np_or_lg.stack(edges, axis=-1), inverse)
        j = f[:, 0, 0] * f[:, 1, 1] - f[:, 0, 1] * f[:, 1, 0]
        first = np_or_lg.sum(f * f, axis=(1, 2))
        log_j = np_or_lg.log(j)
        return np_or_lg.sum(0.5 * (0.5 * mu * (first - 2.0) - mu * log_j + 0.5 * lam * log_j * log_j))

    position = rest + 0.1 * np.random.default_rng(11).normal(size=rest.shape)
    want = central_difference(lambda p: energy(np, p), position)
    assert np.isfinite(want).all()
    check_gradient(lambda p: energy(lg, p), (lg.asarray(position),), want, mode=mode, rtol=1e-6, atol=1e-8)
