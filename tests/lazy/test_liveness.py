"""Scripts that evaluate in the middle compile once and compute nothing twice."""

from __future__ import annotations

from typing import Any

import numpy as np

import loopgrad as lg
from loopgrad.graph.nodes import Leaf
from loopgrad.runtime.session import SESSION

X = np.array([0.1, 0.2, 0.3, 0.4])


def loss_of(v: Any) -> Any:
    n = lg.asarray([0, 1, 3, 2])
    return ((lg.fori_loop(0, n, lambda _, w: lg.sin(w) + 0.1, v) - 1) ** 2).sum()


def compiled_by(step: Any, rounds: int) -> list[int]:
    counts = []
    for i in range(rounds):
        before = SESSION.compiled
        step(i)
        counts.append(SESSION.compiled - before)
    return counts


def test_an_optimiser_that_prints_only_its_loss(device: str) -> None:
    state = {"x": lg.asarray(X), "m": lg.zeros(4)}
    losses = []

    def step(_: int) -> None:
        loss, g = lg.value_and_grad(loss_of)(state["x"])
        state["m"] = 0.9 * state["m"] + g
        state["x"] = state["x"] - 0.05 * state["m"]
        losses.append(float(loss))

    assert compiled_by(step, 8)[4:] == [0, 0, 0, 0]
    x, m = X.copy(), np.zeros(4)
    for expected in losses:
        value, g = lg.value_and_grad(loss_of)(lg.asarray(x))
        np.testing.assert_allclose(expected, value.numpy(), rtol=1e-12)
        m = 0.9 * m + g.numpy()
        x = x - 0.05 * m


def test_a_state_that_moves_before_its_energy_is_printed(device: str) -> None:
    state = {"x": lg.asarray(X)}
    energies = []

    def step(_: int) -> None:
        energy = (state["x"] ** 2).sum()
        state["x"] = lg.fori_loop(0, 3, lambda i, v: v * 0.9 + 0.01 * i, state["x"])
        energies.append(float(energy))

    assert compiled_by(step, 8)[4:] == [0, 0, 0, 0]
    x = X.copy()
    for e in energies:
        np.testing.assert_allclose(e, (x**2).sum(), rtol=1e-12)
        for i in range(3):
            x = x * 0.9 + 0.01 * i


def test_results_of_one_call_are_computed_together(device: str) -> None:
    value, gradient = lg.value_and_grad(loss_of)(lg.asarray(X))
    value.numpy()
    assert isinstance(gradient._value, Leaf)
    a, b = lg.fori_loop(0, 3, lambda _, c: (c[0] + 1, c[1] * 2), (lg.zeros(2), lg.ones(2)))
    a.numpy()
    assert isinstance(b._value, Leaf)


def test_tensors_on_the_way_are_kept(device: str) -> None:
    x = lg.asarray(X)
    h = lg.sin(x)
    total = (h * 2).sum()
    total.numpy()
    assert isinstance(h._value, Leaf)
    np.testing.assert_allclose(h.numpy(), np.sin(X))


def test_what_nobody_holds_is_not_kept(device: str) -> None:
    x = lg.asarray(X)
    y = lg.sin(x) * 2
    intermediate = y._value.node.operands[0]  # type: ignore[union-attr]
    y.numpy()
    assert not hasattr(intermediate, "known")


def test_unrelated_tensors_stay_lazy(device: str) -> None:
    x = lg.asarray(X)
    other = lg.while_loop(lambda v: v < 5, lambda v: v + 1, 0, max_steps=2)  # would raise
    (x + 1).numpy()
    assert not isinstance(other._value, Leaf)


def test_dependents_that_fail_do_no_harm(device: str) -> None:
    start = lg.asarray(X).sum()
    broken = lg.while_loop(lambda v: v < 50, lambda v: v + 1, start, max_steps=2)
    np.testing.assert_allclose(start.numpy(), X.sum())
    assert not isinstance(broken._value, Leaf)
