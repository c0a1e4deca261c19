"""`lg.testing.check_grads` passes what is right and finds what is wrong, by a rule in each mode."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import loopgrad as lg

X = np.array([0.3, 1.2, 0.7])
check_grads = lg.testing.check_grads


@pytest.mark.costly
def test_right_derivatives_pass(device: str) -> None:
    def f(p, x):
        y = lg.while_loop(lambda v: lg.sum(v * v) < 50.0, lambda v: v * p["w"] + lg.sin(v), x)
        return {"y": y, "s": lg.sum(y) ** 2}

    check_grads(f, ({"w": lg.asarray(1.3)}, lg.asarray(X)), order=2)
    check_grads(lambda z: z * z * z / (1.0 + lg.real(z)), (lg.asarray(X + 0.5j),), order=2)
    check_grads(lambda x: lg.linalg.solve(x, lg.ones(2)), (lg.asarray([[2.0, 1.0], [0.5, 3.0]]),), 2, modes="rev")
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        check_grads(lambda x: lg.sin(x) * x, (lg.asarray(X.astype(dtype)),), order=1)
    check_grads(lambda x: x.astype(lg.float64) ** 2, (lg.asarray(X.astype(np.float32)),), order=1)
    check_grads(lambda x: lg.sum(x), (lg.zeros((0, 2)),), order=1)


def test_wrong_ones_are_found(device: str) -> None:
    wrong_forward = lg.custom_jvp(lambda x: lg.sin(x))
    wrong_forward.defjvp(lambda p, t: (lg.sin(p[0]), 1.01 * lg.cos(p[0]) * t[0]))
    wrong_backward = lg.custom_vjp(lambda x: lg.sin(x))
    wrong_backward.defvjp(lambda x: (lg.sin(x), x), lambda x, g: (lg.sin(x) * g,))
    wrong_second = lg.custom_jvp(lambda x: lg.sin(x))
    wrong_second.defjvp(lambda p, t: (lg.sin(p[0]), lg.stop_gradient(lg.cos(p[0])) * t[0]))
    x = (lg.asarray(X),)
    with pytest.raises(AssertionError, match="f, forward"):
        check_grads(wrong_forward, x, order=1)
    with pytest.raises(AssertionError, match="f, reverse"):
        check_grads(wrong_backward, x, order=1, modes=["rev"])
    check_grads(wrong_second, x, order=1)
    for mode, name in (("fwd", "derivative of f, forward"), ("rev", "gradient of f, reverse")):
        with pytest.raises(AssertionError, match=name):
            check_grads(wrong_second, x, order=2, modes=(mode,))
    with pytest.raises(AssertionError):
        check_grads(lambda x: lg.where(x > 0, x, 0.0), (lg.asarray([0.0]),), order=1)  # a kink
    check_grads(wrong_forward, x, order=1, atol=0.1, rtol=0.1)


def test_what_is_refused() -> None:
    for call in (
        lambda: check_grads(lg.sin, (1.0,), order=0),
        lambda: check_grads(lg.sin, (1.0,), order=1, modes=("forward",)),
        lambda: check_grads(lg.sin, 1.0, order=1),
        lambda: check_grads(lambda x: 2.0 * x, (1,), order=1),
    ):
        with pytest.raises(lg.GradientError):
            call()
