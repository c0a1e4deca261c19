"""Scripts that evaluate in the middle compile once and compute nothing twice."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.nodes import Leaf, Node
from loopgrad.lazy.tensor import evaluation, liveness
from loopgrad.lazy.transforms import derivatives
from loopgrad.runtime.buffers import Buffer
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

    assert compiled_by(step, 14)[8:] == [0] * 6
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

    assert compiled_by(step, 14)[8:] == [0] * 6
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
    assert intermediate.known is None


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


# ---- loops whose state is never asked for itself


def live(*types: type) -> int:
    gc.collect()
    return sum([isinstance(o, types) for o in gc.get_objects()])


def loss_printed(x: Any, _: int) -> Any:
    loss, g = lg.value_and_grad(loss_of)(x)
    x = x - 0.05 * g
    float(loss)  # the caller still holds the x from which it was computed
    return x


def norm_printed_late(x: Any, i: int) -> Any:
    g = lg.grad(loss_of)(x)
    x = x - 0.05 * g
    if i % 3 == 0:
        g.numpy()
    return x


def state_evaluated(x: Any, _: int) -> Any:
    x = x - 0.05 * lg.grad(loss_of)(x)
    lg.eval(x)
    return x


@pytest.mark.in_turns
@pytest.mark.usefixtures("young_heap")
@pytest.mark.parametrize("step", [loss_printed, norm_printed_late, state_evaluated])
def test_a_long_loop_holds_no_more_than_a_short_one(step: Callable[[Any, int], Any]) -> None:
    x, held = lg.asarray(X), []
    for i in range(90):
        x = step(x, i)
        if i >= 60:  # two windows of 15 follow: evaluations come every 3 steps, every fifth ends the wait
            held.append(live(Node, Buffer))
    assert max(held[15:]) <= max(held[:15])


def test_a_state_in_a_local_variable_compiles_nothing_new(device: str) -> None:
    state = {"x": lg.asarray(X)}

    def step(i: int) -> None:
        state["x"] = loss_printed(state["x"], i)

    assert compiled_by(step, 20)[10:] == [0] * 10


def test_steps_with_a_state_that_is_never_asked_for_become_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[None] = []
    call = derivatives._call
    monkeypatch.setattr(derivatives, "_call", lambda *a, **k: traced.append(None) or call(*a, **k))
    x, m, (y, n) = lg.asarray(X), lg.zeros(4), (X, np.zeros(4))
    for i in range(20):
        before = len(traced)
        loss, g = lg.value_and_grad(lambda v: lg.sum((lg.tanh(v) - 0.5) ** 2))(x)
        m = 0.9 * m + g
        x = x - 0.05 * m
        report = lg.sum(x) * 2.0
        float(loss)
        n = 0.9 * n + 2 * (np.tanh(y) - 0.5) * (1 - np.tanh(y) ** 2)
        y = y - 0.05 * n
        if i >= 12:
            assert len(traced) == before
            assert isinstance(x._value, Leaf)
            assert isinstance(m._value, Leaf)
            assert not isinstance(report._value, Leaf)  # no later step is computed from it
    np.testing.assert_allclose(x.numpy(), y, rtol=1e-12)


def test_a_waiting_tensor_that_fails_does_no_harm(device: str) -> None:
    x = lg.asarray(X)
    for _ in range(8):
        broken = lg.while_loop(lambda v: v < 50, lambda v: v + 1, x.sum(), max_steps=2)
        previous, x = x, x * 1.0625
        np.testing.assert_allclose(previous.numpy(), previous.numpy())
        assert not isinstance(broken._value, Leaf)
    with pytest.raises(lg.LoopLimitError):
        broken.numpy()
    np.testing.assert_allclose(x.numpy(), X * 1.0625**8, rtol=1e-14)


def test_gradients_pass_what_was_computed_for_waiting(device: str) -> None:
    start = x = lg.asarray(X)
    states = []
    for _ in range(7):
        states.append(x)
        total = x.sum()
        x = x * 1.5
        float(total)
    (slope,) = lg.gradients(x.sum(), [start])
    np.testing.assert_allclose(slope.numpy(), np.full(4, 1.5**7))


def test_results_of_nested_derivatives_looked_at_one_by_one(device: str) -> None:
    """Evaluations that start from some results of a loop and need the others."""
    steps = np.array([3, 0, 2, 4])

    def value(xp: Any, a: Any, v: Any, last: Any) -> Any:
        return xp.sum(xp.sin(xp.arctan2(a, 1.5 + xp.square(last(v)))))

    def loops(e: Any) -> tuple[Any, Callable[[Any], Any]]:
        def last(v: Any) -> Any:
            start = (v, lg.zeros(4, dtype=lg.int64))
            return lg.fori_loop(0, lg.asarray(steps), lambda k, z: (lg.sin(v + z[0]), (z[1] + k) % 97), start)[0]

        return lg.broadcast_to(lg.tanh(lg.sum(e)), (4, 1)), last

    def ours(a: Any, e: Any) -> Any:
        v, last = loops(e)
        return value(lg, a, v, last)

    def theirs(x: np.ndarray) -> Any:
        v = np.broadcast_to(np.tanh(x[3:].sum()), (4, 1))

        def last(v: Any) -> Any:
            z = v.copy()
            for k in range(4):
                z = np.where(k < steps[:, None], np.sin(v + z), z)
            return z

        return value(np, x[:3], v, last)

    x, h = np.array([1.0, 1.0, 1.0, 0.1, 0.2]), 1e-3
    unit = np.eye(5) * h

    def slope(at: np.ndarray, s: np.ndarray) -> Any:
        return (theirs(at + s) - theirs(at - s)) / (2 * h)

    expected = np.array([[(slope(x + t, s) - slope(x - t, s)) / (2 * h) for s in unit] for t in unit]) @ x
    for order in (slice(None), slice(None, None, -1)):
        a, e = lg.asarray(x[:3]), lg.asarray(x[3:])
        found = list(lg.hvp(ours, (a, e), (a, e)))
        for product, part in list(zip(found, (expected[:3], expected[3:]), strict=True))[order]:
            np.testing.assert_allclose(np.asarray(product), part, rtol=1e-4, atol=1e-5)


def test_who_asks_for_a_list_one_by_one_looks_at_no_other_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []
    look = liveness.still_needed
    monkeypatch.setattr(evaluation, "still_needed", lambda walk, wanted: looks.append(walk) or look(walk, wanted))
    x = lg.asarray(X)
    numbers = [x[i] * 2.0 + 1.0 for i in range(4)]
    np.testing.assert_array_equal([float(v) for v in numbers], X * 2.0 + 1.0)
    assert not looks
    once = x * 2.0
    held, reader = once + 1.0, once * 3.0
    np.testing.assert_array_equal(np.asarray(held), X * 2.0 + 1.0)
    assert not looks
    assert isinstance(once._value, Leaf)  # which the tensor and `reader` have
    np.testing.assert_array_equal(np.asarray(reader), X * 2.0 * 3.0)


def test_what_reads_a_result_starts_there(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lg.asarray(X)
    y = lg.sin(x)
    z = y + 1.0
    np.asarray(y)
    known = y._value
    del y
    z.numpy()
    assert isinstance(known, Leaf)
    history = z._history
    assert history.value.node.operands[0].known is known


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Evaluations that look at the tensors that wait."""
    found: list[Any] = []
    usual = liveness.held_tensors

    def counted() -> Any:
        found.append(None)
        return usual()

    monkeypatch.setattr(liveness, "held_tensors", counted)
    return found


def test_the_largest_of_a_long_list_of_lazy_numbers_looks_at_few(looks: list[Any]) -> None:
    x = np.cos(np.arange(700.0))
    v = lg.asarray(x)
    numbers = [v[i] * 2.0 for i in range(700)]
    assert float(max(numbers)) == float(max(x * 2.0))
    assert [float(t) for t in sorted(numbers)] == sorted(x * 2.0)
    assert len(looks) < 10


def test_numbers_that_share_what_was_computed_look_at_few(looks: list[Any]) -> None:
    x = np.cos(np.arange(400.0))
    v = lg.asarray(x)
    length = lg.max(lg.abs(v))
    numbers = [[v[i] / length, v[i] * length] for i in range(400)]
    for i, (quotient, product) in enumerate(numbers):
        assert float(quotient) == x[i] / np.max(np.abs(x))
        assert float(product) == x[i] * np.max(np.abs(x))
    assert len(looks) < 40


def test_what_a_broadcast_that_somebody_holds_is_made_of_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lg.asarray(X)
    wide = lg.broadcast_to(x * 3.0 + 1.0, (5, 4))
    np.testing.assert_array_equal(lg.sum(wide, axis=0).numpy(), 5 * (X * 3.0 + 1.0))
    ran: list[Node] = []
    run = evaluation._run
    monkeypatch.setattr(evaluation, "_run", lambda values, walk: ran.extend(walk.nodes) or run(values, walk))
    np.testing.assert_array_equal(wide.numpy(), np.broadcast_to(X * 3.0 + 1.0, (5, 4)))
    assert not {"mul", "add"} & {node.op for node in ran}
