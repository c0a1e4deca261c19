"""`lg.gradients`: graphs that were built, and partly evaluated, already."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

X = np.array([0.1, 0.2, 0.3])


def test_of_a_graph(device: str) -> None:
    x, y = lg.asarray(X), lg.asarray(X + 1)
    loss = (x * lg.sin(y)).sum()
    gx, gy = lg.gradients(loss, [x, y])
    check(gx, np.sin(X + 1))
    check(gy, X * np.cos(X + 1))
    check(lg.gradients(loss, [lg.ones(2)])[0], np.zeros(2))
    check(lg.gradients(loss, [x, x])[1], np.sin(X + 1))


def test_evaluating_changes_nothing(device: str) -> None:
    x = lg.asarray(X)
    h = lg.sin(x)
    h.numpy()
    loss = (h * h).sum() + x.sum()
    loss.numpy()
    check(lg.gradients(loss, [x])[0], 2 * np.sin(X) * np.cos(X) + 1)
    check(lg.gradients(loss, [h])[0], 2 * np.sin(X))


def test_xs_that_were_computed(device: str) -> None:
    x = lg.asarray(X)
    h = x * 2
    early = (h * 3).sum()
    h.numpy()
    late = (h * 5).sum()
    check(lg.gradients(early + late, [h])[0], np.full(3, 8.0))
    gx, gh = lg.gradients(early + late, [x, h])
    check(gx, np.full(3, 16.0))
    check(gh, np.full(3, 8.0))


def test_a_lost_way_is_an_error(device: str) -> None:
    def loss_of(x: Any) -> Any:
        h = lg.sin(x)
        repr(h)
        return (h * h).sum() + x.sum()

    x = lg.asarray(X)
    with pytest.raises(lg.HistoryError, match=r"lg.grad(.|\n)*test_gradients_of_tensors.py"):
        lg.gradients(loss_of(x), [x])
    with pytest.raises(lg.HistoryError):
        lg.gradients(lg.compile(lambda v: v * v)(x).sum(), [x])
    check(lg.grad(loss_of)(x), 2 * np.sin(X) * np.cos(X) + 1)


def test_training_loop(device: str) -> None:
    """Tensors of earlier steps are gone; what they were computed from doesn't matter for later ones."""
    w, b = lg.asarray(X), lg.zeros(3)
    for _ in range(4):
        loss = ((w - 1 + b) ** 2).sum()
        gw, gb = lg.gradients(loss, [w, b])
        w, b = w - 0.1 * gw, b - 0.1 * gb
        lg.eval(w, b, loss)
    only_w = lg.gradients(((w - 1 + b) ** 2).sum(), [w])[0]
    check(only_w, 2 * (w.numpy() - 1 + b.numpy()))


def test_while_tracing(device: str) -> None:
    def loss(v: Any) -> Any:
        return (lg.sin(v) ** 2).sum()

    expected = 2 * np.sin(X) * np.cos(X)
    check(lg.compile(lambda v: lg.gradients(loss(v), [v])[0])(X), expected)
    check(lg.fori_loop(0, 1, lambda _, v: v - lg.gradients(loss(v), [v])[0], lg.asarray(X)), X - expected)
    outside = lg.asarray(X)
    with pytest.raises(lg.GradientError, match="argument"):
        lg.fori_loop(0, 2, lambda _, v: v + lg.gradients((outside * v).sum(), [outside])[0], lg.asarray(X))


def test_refusals() -> None:
    x = lg.asarray(X)
    for loss, xs in ((x, [x]), (x.sum(), x), (x.sum(), [lg.arange(3)]), (3.0, [x]), ((x > 0).sum(), [x])):
        with pytest.raises(lg.GradientError):
            lg.gradients(loss, xs)  # type: ignore[arg-type]


def test_a_result_of_a_loop_is_where_its_gradient_ends_whichever_is_read_first(device: str) -> None:
    x = lg.asarray(2.0)
    a, b = lg.fori_loop(0, 3, lambda _, c: (c[0] * 2, c[1] * c[1]), (x, x * 0.5))
    for loss in (b * 3 + a * 2, a * 2 + b * 3, lg.stack([b, a]) @ np.array([3.0, 2.0])):
        for xs, expected in (([a], [2.0]), ([b], [3.0]), ([a, b], [2.0, 3.0])):
            assert [float(g) for g in lg.gradients(loss, xs)] == expected
