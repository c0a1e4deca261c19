"""Named axes of vmap: examples that meet, against NumPy on whole arrays, and derivatives against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

X = np.array([1.0, 2.5, -3.0])
M = np.arange(12.0).reshape(3, 4) / 7 - 0.6
Q = np.arange(27.0).reshape(3, 3, 3) / 11 - 1
P = np.arange(54.0).reshape(3, 6, 3) / 11 - 1
N = np.arange(24.0).reshape(2, 3, 4) / 9 - 1.1
I2, I3 = np.arange(2.0)[:, None, None], np.arange(3.0)[:, None]

MEETINGS = [
    (lambda x: x / lg.psum(x, "i"), X, X / X.sum()),
    (lambda x: lg.psum({"a": (x, 2)}, "i")["a"][0] * lg.psum(1, "i"), X, np.full(3, 3 * X.sum())),
    (lambda r: r - lg.pmean(r, "i"), M, M - M.mean(0)),
    (lambda r: r == lg.pmax(r, "i"), M, M.max(0) == M),
    (lambda r: r * lg.pmin(r, "i"), M, M * M.min(0)),
    (lambda r: lg.all_gather(r, "i") * r, M, M * M[:, None]),
    (lambda r: lg.all_gather(r, "i", axis=1), M, np.tile(M.T, (3, 1, 1))),
    (lambda r: lg.all_gather(r, "i", axis=-1, tiled=True), M, np.tile(M.ravel(), (3, 1))),
    (lambda r: lg.psum_scatter(r, "i"), Q, Q.sum(0)),
    (lambda r: lg.psum_scatter(r, "i", scatter_dimension=1), Q, Q.sum(0).T),
    (lambda r: lg.psum_scatter(r, "i", tiled=True), P, P.sum(0).reshape(3, 2, 3)),
    (lambda r: lg.all_to_all(r, "i", 0, 1), Q, Q.transpose(1, 2, 0)),
    (lambda r: lg.all_to_all(r, "i", 1, 0), Q, Q.transpose(2, 0, 1)),
    (lambda r: lg.all_to_all(r, "i", 0, 1, tiled=True), P,
     P.reshape(3, 3, 2, 3).transpose(1, 2, 0, 3).reshape(3, 2, 9)),
    (lambda r: lg.pswapaxes(r, "i", 1), Q, Q.transpose(2, 1, 0)),
    (lambda r: lg.ppermute(r, "i", [(0, 1), (2, 0)]), M, np.stack([M[2], M[0], 0 * M[0]])),
    (lambda r: lg.pshuffle(r, "i", [2, 0, 1]), M, M[[2, 0, 1]]),
    (lambda r: r * lg.axis_index("i") * lg.axis_size("i"), M, M * 3 * I3),
    (lambda x: lg.psum(lg.asarray(2.0), "i") * x, X, 6 * X),
    (lambda x: lg.psum(x + 1j * x * x, "i"), X, np.full(3, (X + 1j * X * X).sum())),
    (lambda x: lg.fori_loop(0, 3, lambda _, v: v * v + lg.pmean(v, "i"), x), X, None),
    (lambda x: lg.while_loop(lambda v: lg.pmax(v, "i") > 0.1, lambda v: v / 2 + 0.1 * lg.pmean(v, "i"), x), X, None),
    (lambda x: lg.cond(lg.psum(x, "i") > 0, lambda v: v * lg.psum(v, "i"), lambda v: v + lg.psum(v, "i"), x), X,
     X * X.sum()),
    (lambda x: lg.checkpoint(lambda v: v * lg.psum(v * v, "i"))(x), X, X * (X * X).sum()),
]  # fmt: skip


def looped(k: int) -> Any:
    v = X
    if k == 20:
        for _ in range(3):
            v = v * v + v.mean()
        return v
    while v.max() > 0.1:
        v = v / 2 + 0.1 * v.mean()
    return v


def test_examples_meet(device: str) -> None:
    for k, (f, x, expected) in enumerate(MEETINGS):
        check(lg.vmap(f, axis_name="i")(lg.asarray(x)), looped(k) if expected is None else expected)


def test_names_inside_each_other(device: str) -> None:
    n = lg.asarray(N)

    def nested(f: Any) -> Any:
        return lg.vmap(lg.vmap(f, axis_name="j"), axis_name="i")(n)

    check(nested(lambda b: lg.psum(b * lg.axis_index("j"), "i") * b), (N * I3).sum(0) * N)
    check(nested(lambda b: lg.psum(b * lg.axis_index("i"), "j") * b), (N * I2).sum(1, keepdims=True) * N)
    check(nested(lambda b: lg.psum(b, ("i", "j")) + b), N.sum((0, 1)) + N)
    check(nested(lambda b: b + lg.axis_index(("i", "j"))), N + 3 * I2 + I3)
    check(nested(lambda b: b + lg.axis_index(("j", "i"))), N + I2 + 2 * I3)
    check(nested(lambda b: lg.all_gather(b, ("j", "i"))), np.tile(N.transpose(1, 0, 2).reshape(6, 4), (2, 3, 1, 1)))
    same = lg.vmap(lambda a: lg.psum(lg.vmap(lambda b: b * lg.psum(b, "i"), axis_name="i")(a), "i"), axis_name="i")
    check(same(n), np.tile((N * N.sum(1, keepdims=True)).sum(0), (2, 1, 1)))  # the innermost one has the name
    check(lg.vmap(lambda a: lg.vmap(lambda b: b * lg.psum(b, "i"))(a), axis_name="i")(n), N * N.sum(0))
    check(lg.vmap(lg.vmap(lambda b: b * lg.psum(b, "i"), axis_name="i"))(n), N * N.sum(1, keepdims=True))


DERIVED = [
    (lambda x: lg.sin(x) * lg.psum(x * x, "i"), X),
    (lambda x: lg.sin(x) * lg.pmax(x * x, "i") * lg.pmin(x, "i"), X),
    (lambda r: lg.sum(lg.sin(r + lg.axis_index("i")) * lg.all_gather(r * r, "i")), M),
    (lambda r: lg.sum(r[0] * lg.psum_scatter(r * r * (1.0 + lg.axis_index("i")), "i")), Q),
    (lambda r: lg.sum(lg.sin(r) * lg.all_to_all(r * r, "i", 0, 1)), Q),
    (lambda r: lg.sum(lg.sin(r) * lg.ppermute(r * r, "i", [(0, 1), (2, 0)])), M),
    (lambda r: lg.sum(((r - lg.pmean(r, "i")) / lg.sqrt(lg.pmean(r * r, "i") - lg.pmean(r, "i") ** 2 + 0.1)) ** 3), M),
    (lambda x: lg.fori_loop(0, 3, lambda k, v: lg.sin(v) + 0.1 * lg.psum(v * v, "i") * k, x), X),
    (lambda r: lg.sum(lg.scan(lambda c, x: (lg.sin(c + lg.pmean(x * c, "i")), c * x), lg.sum(r), r)[1]), M),
    (lambda x: lg.while_loop(lambda v: lg.pmax(v, "i") > 0.1, lambda v: v / 2 + 0.1 * lg.pmean(v * v, "i"), x), X),
    (lambda x: lg.checkpoint(lambda v: lg.sin(v) * lg.psum(lg.sin(v * v), "i"))(x), X),
    (lambda a: lg.sum(lg.vmap(lambda b: lg.psum(b * lg.axis_index("j"), "i") * lg.sin(b) * lg.psum(b, ("i", "j")),
                              axis_name="j")(a)), N),
]  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("case", range(len(DERIVED)))
def test_derivatives(device: str, case: int) -> None:
    """Inside and outside, both ways: those of the sum of what all examples have."""
    f, x = DERIVED[case]
    batch = lg.vmap(f, axis_name="i")
    direction, h = np.random.default_rng(case).normal(size=x.shape), 1e-6
    ahead, behind = (np.asarray(batch(lg.asarray(x + s * h * direction))) for s in (1, -1))
    expected = (ahead - behind) / (2 * h)
    along = lg.asarray(direction)
    np.testing.assert_allclose(np.asarray(lg.jvp(batch, (lg.asarray(x),), (along,))[1]), expected, 1e-6, 1e-8)
    inside = np.asarray(lg.vmap(lg.grad(f), axis_name="i")(lg.asarray(x)))
    np.testing.assert_allclose((inside * direction).sum(), expected.sum(), 1e-6, 1e-8)
    check(lg.grad(lambda x: lg.sum(batch(x)))(lg.asarray(x)), inside)
    tangents = lg.vmap(lambda v, t: lg.jvp(f, (v,), (t,))[1], axis_name="i")(lg.asarray(x), along)
    np.testing.assert_allclose(np.asarray(tangents), expected, 1e-6, 1e-8)


def test_second_derivatives_and_own_rules() -> None:
    f = lambda x: lg.sin(x) * lg.psum(x**3, "i")  # noqa: E731
    hessian = lg.hessian(lambda x: lg.sum(lg.vmap(f, axis_name="i")(x)))(lg.asarray(X))
    check(lg.vmap(lg.grad(lg.grad(f)), axis_name="i")(lg.asarray(X)), np.asarray(hessian).sum(0))
    ruled = lg.custom_vjp(lambda x: lg.sin(x) * lg.psum(x, "i"))
    ruled.defvjp(lambda x: (ruled(x), x), lambda x, ct: (ct * lg.psum(x, "i"),))
    check(lg.vmap(lg.grad(ruled), axis_name="i")(lg.asarray(X)), np.full(3, X.sum()))
    shared = lambda w, x: w * x * lg.psum(w * x, "i")  # noqa: E731  each example's own w
    expected = 2.0 * X * X.sum() + X * (2.0 * X).sum()
    check(lg.vmap(lg.grad(shared), in_axes=(None, 0), axis_name="i")(lg.asarray(2.0), lg.asarray(X)), expected)


def test_few_examples_and_results_of_all() -> None:
    check(lg.vmap(lambda x: x * lg.psum(x, "i"), axis_name="i")(lg.zeros((0, 2))), np.zeros((0, 2)))
    check(lg.vmap(lambda: lg.psum(lg.asarray(1.0), "i"), axis_name="i", axis_size=4, out_axes=None)(), 4.0)
    check(lg.vmap(lg.grad(lambda x: x * lg.psum(x, "i")), axis_name="i")(lg.ones(1)), [2.0])
    check(lg.vmap(lambda x: lg.psum(x, "i"), axis_name="i", out_axes=None)(lg.asarray(X)), X.sum())
    assert lg.vmap(lambda _: lg.psum(1, "i") + lg.axis_size("i"), axis_name="i", out_axes=None)(lg.ones(3)).shape == ()
    named = lg.compile(lg.vmap(lambda x: x / lg.psum(x, ("a", 1)[1]), axis_name=1))
    check(named(lg.asarray(X)), X / X.sum())
    check(lg.psum(lg.asarray(M)), M.sum(0))
    check(lg.pmin(lg.asarray(M)), M.min(0))


def test_refusals() -> None:
    x = lg.asarray(X)
    with pytest.raises(lg.NamedAxisError, match=r"named axis 'j', got 'i'; call it in"):
        lg.vmap(lambda x: lg.psum(x, "j"), axis_name="i")(x)
    with pytest.raises(NameError, match="no named axis around"):
        lg.axis_index("i")
    with pytest.raises(lg.NamedAxisError, match="run together where they meet"):
        lg.vmap(lambda x: lg.while_loop(lambda v: v > 1.0, lambda v: v / 2 + lg.psum(v, "i"), x), axis_name="i")(x)
    with pytest.raises(lg.NamedAxisError, match="run together where they meet"):
        lg.vmap(lambda x: lg.cond(x > 0, lambda v: lg.psum(v, "i"), lambda v: v, x), axis_name="i")(x)
    with pytest.raises(lg.ShapeError, match="an extent of 3 along axis 0"):
        lg.vmap(lambda r: lg.psum_scatter(r, "i"), axis_name="i")(lg.asarray(M))
    with pytest.raises(lg.ShapeError, match="an extent that 3 divides along axis 0"):
        lg.vmap(lambda r: lg.all_to_all(r, "i", 0, 0, tiled=True), axis_name="i")(lg.asarray(M))
    with pytest.raises(ValueError, match="different positions from 0 to 2"):
        lg.vmap(lambda r: lg.ppermute(r, "i", [(0, 1), (0, 2)]), axis_name="i")(x)
    with pytest.raises(lg.ShapeError, match="one that may differ"):
        lg.vmap(lambda _: lg.axis_index("i"), axis_name="i", out_axes=None)(x)
