"""Running totals against NumPy: exclusive, from nothing, backwards, logarithms of sums of exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

CUBE = np.cos(np.arange(60.0) * 1.3).reshape(3, 4, 5)
NEUTRAL = {"cumsum": 0, "cumprod": 1}


def before(name: str, x: np.ndarray, axis: int, reverse: bool, drop: bool) -> np.ndarray:
    x = np.flip(x, axis) if reverse else x
    x = x.astype(np.int64) if x.dtype.kind in "bi" else x
    first = np.full_like(np.take(x, [0], axis), NEUTRAL[name])
    kept = np.take(x, range(x.shape[axis] - drop), axis)
    found = getattr(np, name)(np.concatenate([first, kept], axis), axis=axis, dtype=x.dtype)
    return np.flip(found, axis) if reverse else found


@pytest.mark.in_turns
@pytest.mark.parametrize("name", NEUTRAL)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_exclusive_and_from_nothing(device: str, name: str, axis: int, reverse: bool) -> None:
    for x in (CUBE, (CUBE * 5).astype(np.int32), CUBE > 0):
        t, run = lg.asarray(x), getattr(lg, name)
        check(run(t, axis, reverse=reverse, exclusive=True), before(name, x, axis, reverse, True))
        check(run(t, axis, reverse=reverse, include_initial=True), before(name, x, axis, reverse, False))


def test_exclusive_of_few(device: str) -> None:
    check(lg.cumsum(lg.ones(0), exclusive=True), np.ones(0))
    check(lg.cumsum(lg.ones(0), include_initial=True), np.zeros(1))
    check(lg.cumprod(lg.full(1, 5.0), exclusive=True), np.ones(1))
    check(lg.cumsum(lg.full((2, 1), 5.0), 1, exclusive=True, reverse=True), np.zeros((2, 1)))


def test_both_forms_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="include_initial or exclusive"):
        lg.cumsum(lg.ones(3), include_initial=True, exclusive=True)
    with pytest.raises(ValueError, match="exclusive"):
        lg.cummin(lg.ones(3), exclusive=True)


@pytest.mark.in_turns
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_logarithms_of_sums_of_exponentials(device: str, axis: int | None) -> None:
    x = CUBE * 400
    expected = np.logaddexp.accumulate(x.reshape(-1) if axis is None else x, axis=axis or 0)
    check(lg.logcumsumexp(lg.asarray(x), axis), expected)
    if axis is not None:
        expected = np.flip(np.logaddexp.accumulate(np.flip(x, axis), axis=axis), axis)
        check(lg.logcumsumexp(lg.asarray(x), axis, reverse=True), expected)
    check(lg.logcumsumexp(lg.asarray([0, 0, 0])), np.log([1.0, 2.0, 3.0]))
    z = CUBE + 1j * np.flip(CUBE)
    check(lg.exp(lg.logcumsumexp(lg.asarray(z), axis)), np.cumsum(np.exp(z), axis))


@pytest.mark.in_turns
def test_long_sums_of_exponentials_keep_their_digits(device: str) -> None:
    """Of rows that rise slowly, where each element is larger than all before, and of what lies far apart."""
    n = 300 if device.startswith("emulator") else 20_000
    slow, steps = np.linspace(-3.0, 8.0, n), np.repeat([0.0, 4.1, 8.2, 12.3], n // 4)
    x = np.stack([slow, slow[::-1], steps, np.sin(np.arange(n)) * 300, np.full(n, -1e30), np.zeros(n)])
    for dtype, tolerance in ((np.float32, 3e-7), (np.float64, 1e-15)):
        given = x.astype(dtype)
        for reverse in (False, True):
            along = given[:, ::-1] if reverse else given
            exact = np.logaddexp.accumulate(along.astype(np.longdouble), axis=1)
            found = np.asarray(lg.logcumsumexp(lg.asarray(given), 1, reverse=reverse))[:, :: -1 if reverse else 1]
            assert np.max(np.abs(found - exact) / np.maximum(np.abs(exact), 1)) < tolerance
        alone = given[3, :1] / 1e4  # one term, and what is far below it
        assert np.array_equal(np.asarray(lg.logcumsumexp(lg.asarray([alone[0], -np.inf], dtype=dtype)))[1:], alone)
    tiny = np.asarray(lg.logcumsumexp(lg.asarray([0.0, -20.0], dtype=lg.float32)))
    assert abs(tiny[1] - np.log1p(np.exp(-20.0))) < 1e-15
    half = np.sin(np.arange(n)).astype(np.float16)
    close = np.logaddexp.accumulate(half.astype(np.float64))
    assert np.max(np.abs(np.asarray(lg.logcumsumexp(lg.asarray(half))) - close) / np.maximum(close, 1)) < 6e-4


@pytest.mark.in_turns
@pytest.mark.parametrize("reverse", [False, True])
def test_slopes_of_sums_of_exponentials(device: str, reverse: bool) -> None:
    """Against the matrix of all shares, where exp(x) over- and underflows; in one lane, too."""
    x, w, v = (np.random.default_rng(i).normal(size=(3, 21)) for i in range(3))
    x *= 500

    def run(t: lg.Tensor) -> lg.Tensor:
        return lg.logcumsumexp(t, 1, reverse=reverse)

    y = np.asarray(run(lg.asarray(x)))
    seen = np.tril(np.ones((21, 21)))[:: -1 if reverse else 1, :: -1 if reverse else 1]
    shares = np.exp(np.where(seen, x[:, None, :] - y[:, :, None], -np.inf))
    check(lg.grad(lambda t: lg.sum(run(t) * lg.asarray(w)))(lg.asarray(x)), np.einsum("rij,ri->rj", shares, w))
    check(lg.jvp(run, (lg.asarray(x),), (lg.asarray(v),))[1], np.einsum("rij,rj->ri", shares, v))
    check(lg.vmap(lambda t: lg.logcumsumexp(t, reverse=reverse))(lg.asarray(x)), y)
    slopes = lg.grad(lambda t: lg.sum(run(t) * lg.asarray(w)))
    second = np.einsum("rij,ri,rij->rj", shares, w, v[:, None] - np.einsum("rij,rj->ri", shares, v)[:, :, None])
    check(lg.grad(lambda t: lg.sum(slopes(t) * lg.asarray(v)))(lg.asarray(x)), second)
    pushed = lg.grad(lambda t: lg.sum(lg.jvp(run, (t,), (lg.asarray(v),))[1] * lg.asarray(w)))
    check(pushed(lg.asarray(x)), second)

    def looped(row: lg.Tensor) -> lg.Tensor:
        return lg.fori_loop(0, 2, lambda _, t: lg.logcumsumexp(t, reverse=reverse) - 1.0, row)

    twice = looped(lg.asarray(x[:, :5])[0])
    rows = lg.vmap(looped)(lg.asarray(x[:, :5]))
    once = lg.logcumsumexp(lg.asarray(x[:, :5]), 1, reverse=reverse) - 1.0
    expected = np.asarray(lg.logcumsumexp(once, 1, reverse=reverse) - 1.0)
    check(rows, expected)
    check(twice, expected[0])


@pytest.mark.parametrize("special", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize("places", [[0], [0, 1, 2], [5], [9, 30], list(range(40))])
def test_infinities(device: str, special: float, places: list[int]) -> None:
    x = np.sin(np.arange(40.0))
    x[places] = special
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp.accumulate(x)
    check(lg.logcumsumexp(lg.asarray(x)), expected)


def test_slopes_beside_minus_infinity(device: str) -> None:
    """d y[i] / d x[j] = exp(x[j] - y[i]); what is no part of a total has no slope, and spoils none."""
    x = np.array([-np.inf, -np.inf, 0.3, -np.inf, -1.2, 2.0, *np.sin(np.arange(20.0))])
    y = np.logaddexp.accumulate(x)
    w = np.cos(np.arange(len(x)))
    got = lg.grad(lambda v: lg.sum((lg.logcumsumexp(v) * lg.asarray(w))[2:]))(lg.asarray(x))
    expected = [sum(w[i] * np.exp(x[j] - y[i]) for i in range(max(j, 2), len(x))) for j in range(len(x))]
    check(got, np.array(expected))


@pytest.mark.parametrize("pair", [(-np.inf, -np.inf), (np.inf, np.inf), (np.inf, 1.0), (-np.inf, 1.0)])
def test_slopes_of_logaddexp_are_numbers(device: str, pair: tuple[float, float]) -> None:
    slopes: list[Any] = lg.grad(lg.logaddexp, argnums=(0, 1))(*map(lg.asarray, pair))
    assert sum(float(s) for s in slopes) == 1.0
    assert float(slopes[0]) == {(np.inf, 1.0): 1.0, (-np.inf, 1.0): 0.0}.get(pair, 0.5)
