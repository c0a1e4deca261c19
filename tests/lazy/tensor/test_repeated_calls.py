"""Calls that come again: noted as they were, of other operands; whatever else differs is made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import loopgrad as lg
from loopgrad.graph.ambient import AMBIENT
from loopgrad.lazy.stats import univariate
from loopgrad.lazy.tensor import repeated_calls

A = np.arange(12.0).reshape(3, 4) - 5.0
B = np.linspace(-1.0, 2.0, 12).reshape(3, 4)
vector = np.array([0.5, -1.0, 2.0, 3.0])


def thrice(function: Callable[..., Any], *cases: tuple[np.ndarray, ...]) -> None:
    """Compare each of several calls in a row with NumPy's: made, noted for the next ones, and noted again."""
    for _ in range(4):
        for arrays in cases:
            found = function(lg, *[lg.asarray(a) for a in arrays])
            np.testing.assert_allclose(np.asarray(found), function(np, *arrays), rtol=1e-12, strict=True)


CALLS: dict[str, Callable[..., Any]] = {
    "where": lambda xp, x, y: xp.where(x > y, x, y),
    "where with a number": lambda xp, x, y: xp.where(x > 0.0, y, 0.0),
    "maximum": lambda xp, x, y: xp.maximum(x, y),
    "product": lambda xp, x, y: xp.matmul(x, y.T),
    "sum": lambda xp, x, y: xp.sum(x, axis=0) + xp.sum(y, axis=-2) + xp.sum(x),
    "mean": lambda xp, x, y: xp.mean(x, axis=1, keepdims=True) - y,
    "extremes": lambda xp, x, y: xp.max(x, axis=1) - xp.min(y, axis=1),
    "rolled": lambda xp, x, y: xp.roll(x, 1, 0) - xp.roll(y, -1, axis=1),
    "joined": lambda xp, x, y: xp.stack([x, y, x]) + xp.concatenate([x, y, x]).reshape(3, 3, 4),
    "subscripts": lambda xp, x, y: x[1:, ::2] + y[:-1, 1:3] - xp.abs(x)[..., None, -1][1:],
    "views": lambda xp, x, y: xp.reshape(x.T, (2, 6)) + xp.transpose(y).reshape(2, 6) + xp.flip(x, 1).reshape(2, 6),
    "functions": lambda xp, x, y: xp.sin(x) + xp.exp(y) - abs(-x),
    "taken": lambda xp, x, y: xp.take(x, xp.asarray([2, -1, 0]), axis=1) + y[xp.asarray([-1, 1, 0]), 1:],
    "positions": lambda xp, x, y: x[xp.argsort(y[:, 0])] + xp.take_along_axis(y, xp.argsort(x, axis=0), axis=0),
    "made": lambda xp, x, y: xp.zeros(4) + xp.eye(3, 4) + x + xp.linspace(0, 1, 4) * xp.ones_like(y) + xp.arange(4),
    "quantiles": lambda xp, x, y: xp.median(x, axis=0) + xp.percentile(y, 30.0) + xp.interp(y, xp.sort(x[0]), y[0])[1],
    "searched": lambda xp, x, y: xp.searchsorted(xp.sort(x[:, 1]), y) + xp.digitize(x, xp.sort(y[0])),
    "statistics": lambda xp, x, y: xp.var(x, axis=1) + xp.std(y) + xp.cov(x, y)[0, 1] + xp.diff(y)[:, 1],
    "small arrays": lambda xp, x, y: xp.asarray([x[0, 0], y[0, 1] * 2.0, 3.0]) + xp.hstack([x[0, :1], y[1, :2]]),
    "outer": lambda xp, x, y: xp.kron(x[0], y[1]) + xp.convolve(x.ravel(), y.ravel()[:5]),
    "diagonals": lambda xp, x, y: xp.trace(x) + xp.diag(y) + xp.diag(xp.diag(x))[0] + xp.tril(y)[:, 0],
    "padded": lambda xp, x, y: xp.pad(x, 1)[1:-1, 1:-1] + xp.tile(y, 2)[:, 4:] + xp.repeat(y, 2, axis=0)[::2],
    "compared": lambda xp, x, y: xp.allclose(x, y) + xp.isclose(x, y) + xp.count_nonzero(x) + xp.isin(x, y),
    "complex": lambda xp, x, y: xp.abs(x + y * 1j) + xp.angle(x - 2j * y),
    "crossed": lambda xp, x, y: xp.cross(x[0, :3], y[1, :3]) + xp.dot(x, y[0])[:3] + xp.vstack([x[0], y])[1:, 1],
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_come_again_give_what_numpy_gives(name: str) -> None:
    single = A.astype(np.float32), B.astype(np.float32)
    thrice(CALLS[name], (A, B), (B, A), (A, A + 1.0), (A[:, ::-1].copy(), B))
    for _ in range(4):  # another dtype in between
        found = CALLS[name](lg, *[lg.asarray(a) for a in single])
        np.testing.assert_allclose(np.asarray(found), CALLS[name](np, *single), rtol=1e-5)
        thrice(CALLS[name], (A, B))


def test_one_tensor_for_two_operands_and_two_tensors_for_one() -> None:
    for _ in range(4):
        x, y = lg.asarray(A), lg.asarray(B)
        mask = x > y
        np.testing.assert_array_equal(lg.where(mask, x, x), A)
        np.testing.assert_array_equal(lg.where(mask, x, y), np.where(A > B, A, B))
        np.testing.assert_array_equal(lg.where(mask, y, x), np.where(A > B, B, A))


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_numbers_are_told_apart(zero: float) -> None:
    for _ in range(4):
        for number in (zero, -zero, 0, False, 1, True, 1.0, 2.5):
            found, expected = lg.maximum(lg.asarray(vector), number), np.maximum(vector, number)
            assert found.dtype == lg.float64
            np.testing.assert_array_equal(found, expected)
            chosen = np.asarray(lg.where(lg.asarray(vector) > 5.0, lg.asarray(vector), number))
            np.testing.assert_array_equal(np.signbit(chosen), np.signbit(np.where(vector > 5.0, vector, number)))


def test_settings_are_looked_at() -> None:
    for _ in range(4):
        whole = lg.asarray([1, 2, 4])
        assert lg.mean(whole).dtype == lg.float64
        with lg.options(check_indices=True):
            assert lg.mean(whole).dtype == lg.float64
        lg.set_default_dtype(lg.float32)
        try:
            assert lg.mean(whole).dtype == lg.float32
            assert lg.sin(whole).dtype == lg.float32
        finally:
            lg.set_default_dtype(lg.float64)


def test_out_is_written_to_each_time() -> None:
    for k in range(4):
        x, target = lg.asarray(vector + k), lg.zeros(4)
        alias = target[:]
        assert lg.add(x, x, out=target) is target
        assert lg.sum(lg.stack([x, x]), 0, out=target) is target
        np.testing.assert_array_equal(alias, 2.0 * (vector + k))


def test_views_share_memory_each_time() -> None:
    for k in range(5):
        x = lg.asarray(A)
        row, turned, flat = x[1:, 1], x.T, lg.reshape(x, (12,))
        row[...] = float(k)
        assert float(turned[1, 2]) == float(flat[9]) == k
        turned[0, 0] = -float(k)
        assert float(x[0, 0]) == -k
        copy = lg.reshape(x.T, (12,))  # which isn't in rows
        copy[...] = 100.0
        assert float(x[0, 0]) == -k
        wide = lg.expand_dims(x, 0)
        wide[...] = 7.0
        assert float(flat[0]) == 7.0
        lg.einsum("ij->ji", x)[0, 1] = 9.0
        assert float(x[1, 0]) == 9.0
        narrow = lg.expand_dims(x[:, 1], 0)
        narrow[...] = 8.0
        assert float(x[2, 1]) == 8.0


def test_numbers_share_no_memory_and_arrays_without_axes_do() -> None:
    for k in range(4):
        for number, array in ((lg.sum(lg.asarray(vector)), lg.asarray(vector)[1, ...]),):
            for function in (lambda x: lg.reshape(x, (1,)), lambda x: x[None], lambda x: lg.expand_dims(x, 0)):
                apart, shared = function(number), function(array)
                apart[0], shared[0] = float(k), float(k)
                assert float(number) == vector.sum()
                assert float(array) == k


def test_what_depends_on_elements_is_looked_at_each_time() -> None:
    for k in range(4):
        mask, shift = lg.asarray(vector > float(k) - 2.0), lg.asarray(k)
        np.testing.assert_array_equal(lg.asarray(vector)[mask], vector[vector > float(k) - 2.0])
        np.testing.assert_array_equal(lg.roll(lg.asarray(vector), shift), np.roll(vector, k))
        np.testing.assert_array_equal(lg.asarray(vector)[k % 2 : lg.asarray(k)], vector[k % 2 : k])
        (places,) = lg.where(lg.asarray(vector) > float(k))
        np.testing.assert_array_equal(places, np.flatnonzero(vector > float(k)))


def test_positions_computed_with_other_numbers() -> None:
    """Whether a position may be negative depends on numbers that expressions leave open."""
    line, places = np.arange(10.0), np.arange(3)
    for k in (-5, -4, -3, 3, 4, -3, -4, 5):
        x, at = lg.asarray(line), lg.asarray(places.astype(np.uint8)).astype(lg.int64) - k
        np.testing.assert_array_equal(lg.take(x, at), line[places - k])
        np.testing.assert_array_equal(x[at], line[places - k])
        np.testing.assert_array_equal(x.at[at].add(1.0), np.add(line, np.isin(np.arange(10), (places - k) % 10)))
        x[at] = -1.0
        np.testing.assert_array_equal(np.flatnonzero(np.asarray(x) < 0.0), np.sort((places - k) % 10))


def test_shapes_and_numbers_that_elements_decide() -> None:
    for k in range(5):
        counts, whole = np.array([k, 1, 2]), np.arange(4) + k
        np.testing.assert_array_equal(lg.repeat(lg.asarray(vector)[:3], lg.asarray(counts)), vector[:3].repeat(counts))
        np.testing.assert_array_equal(lg.bincount(lg.asarray(whole)), np.bincount(whole))
        np.testing.assert_array_equal(lg.arange(lg.asarray(k), 7), np.arange(k, 7))
        np.testing.assert_array_equal(lg.delete(lg.asarray(vector), lg.asarray(k % 4)), np.delete(vector, k % 4))
        np.testing.assert_array_equal(lg.resize(lg.asarray(vector), (k + 1,)), np.resize(vector, (k + 1,)))
        np.testing.assert_array_equal(lg.full(3, lg.asarray(float(k))) + lg.full(3, k), np.full(3, 2.0 * k))


def test_where_new_arrays_are_made() -> None:
    for _ in range(4):
        assert lg.zeros(2).device == "cpu"
        with lg.default_device("interpreter"):
            assert (lg.zeros(2) + 1.0).device == "interpreter"
            assert lg.linspace(0, 1, 3).device == "interpreter"
        lg.set_default_dtype(lg.float32)
        try:
            assert lg.zeros(2).dtype == lg.linspace(0, 1, 3).dtype == lg.float32
        finally:
            lg.set_default_dtype(lg.float64)
        first, second = lg.zeros(3), lg.zeros(3)
        first[1] = 1.0
        np.testing.assert_array_equal(second, np.zeros(3))


def test_writes_that_come_again() -> None:
    """To memory with and without views, of numbers, arrays, tensors, at places, in regions and by masks."""
    for k in range(6):
        x, y, value = np.arange(12.0).reshape(3, 4), np.full((3, 4), 0.5 * k), float(k)
        ours, row = lg.asarray(x), lg.asarray(y)[1]
        base = row if k % 2 else ours  # a view in turn
        shown = ours[:, 1]
        for a, b in ((ours, lg.asarray(y)), (x, y)):
            a[0, 1] = value
            a[k % 3] = b[0]
            a[:, 0] += b[:, 1]
            a[1:, ::2] *= 2.0
            a[a > 9.0] = -1.0
            a[a < -5.0] -= b[0, 0]
            if a is ours:
                a[lg.asarray([2, 0]), 3] = b[1, :2]
            else:
                a[[2, 0], 3] = b[1, :2]
        np.testing.assert_array_equal(ours, x)
        np.testing.assert_array_equal(shown, x[:, 1])
        base[...] = 3.0
        np.testing.assert_array_equal(shown, np.full(3, 3.0) if base is ours else x[:, 1])


def test_a_mask_without_axes_chooses_in_a_view_while_it_is_traced() -> None:
    def written(x: Any, chosen: Any) -> Any:
        y = x * 1.0
        row = y[1]
        row[chosen] = 7.0
        return y

    for chosen in (True, False):
        expected = A.copy()
        expected[1][chosen] = 7.0
        mask = lg.asarray(1) == lg.asarray(int(chosen))
        np.testing.assert_array_equal(written(lg.asarray(A), mask), expected)
        np.testing.assert_array_equal(lg.compile(written)(lg.asarray(A), mask), expected)


def test_a_result_that_was_a_view_of_nothing_else_has_its_own_memory() -> None:
    for k in range(5):
        x = lg.asarray(vector + k)
        product = lg.kron(x, x)
        part = product[:4]
        product[0] = 100.0
        assert float(part[0]) == 100.0
        np.testing.assert_array_equal(x, vector + k)
        lg.reshape(product, (4, 4))[1] = 0.0
        np.testing.assert_array_equal(product[4:8], np.zeros(4))


def test_complex_constants_of_other_numbers() -> None:
    for number in (1j, 2j, 1.5 + 1j, -2.5j, 3.0 + 0j):
        z = lg.asarray(vector) + 0j
        for _ in range(3):
            np.testing.assert_allclose(np.asarray(z ** lg.asarray(number)), (vector + 0j) ** number, rtol=1e-12)
            np.testing.assert_array_equal(lg.where(z == number, z, number), np.where(vector == number, vector, number))


def test_constants_of_other_numbers() -> None:
    small = np.arange(3, dtype=np.int8)
    for number in (1, 2, 3, 4, 300):
        x = lg.asarray(number)  # a Python number's dtype is open
        assert (
            lg.where(lg.asarray(vector) > 0.0, x, lg.asarray(vector)).tolist()
            == np.where(vector > 0.0, number, vector).tolist()
        )
        np.testing.assert_array_equal(lg.less(lg.asarray(small), number), small < number)


def test_in_traces_loops_and_derivatives() -> None:
    def loss(x: Any) -> Any:
        return lg.sum(lg.where(x > 0.0, lg.roll(x, 1) * x[::-1], lg.maximum(x, -0.5)))

    slope = lg.grad(loss)
    expected = np.asarray(slope(lg.asarray(vector)))
    for _ in range(4):
        loss(lg.asarray(vector))
        np.testing.assert_array_equal(lg.grad(loss)(lg.asarray(vector)), expected)
        np.testing.assert_array_equal(lg.compile(lg.grad(loss))(lg.asarray(vector)), expected)
        x = lg.asarray(vector)
        (found,) = lg.gradients(loss(x), [x])
        np.testing.assert_array_equal(found, expected)


def test_an_error_shows_the_line_each_time() -> None:
    for _ in range(4):
        with pytest.raises(lg.ShapeError, match="test_repeated_calls"):
            lg.asarray(A) @ lg.asarray(vector[:3])
        with pytest.raises(IndexError):
            lg.asarray(vector)[1:, 2]


def test_the_line_of_a_call_is_its_own() -> None:
    def explained(x: Any) -> str:
        return str(x._value.note[3])

    lines = []
    for _ in range(4):
        first = lg.roll(lg.asarray(A), 1, 0)
        second = lg.roll(lg.asarray(A), 1, 0)
        lines.append((explained(first), explained(second)))
    assert len(set(lines)) == 1
    assert lines[0][0] != lines[0][1]
    assert "test_repeated_calls" in lines[0][0]


def test_few_calls_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_calls, "MOST_KNOWN", 4)
    calls = repeated_calls.Calls()
    for k in range(40):
        calls.result(lg.roll.__wrapped__, (lg.asarray(vector), k), {})  # type: ignore[attr-defined]
        assert len(calls._known) <= 4


def test_after_many_unknown_calls_few_are_looked_at_until_one_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    words = repeated_calls.call_words
    calls, x = repeated_calls.Calls(), lg.asarray(vector)
    monkeypatch.setattr(repeated_calls, "call_words", lambda *args: looks.append(args) or words(*args))

    def times(k: int) -> Any:
        return calls.result(lambda t, n: t * float(n), (x, k), {})

    for k in range(repeated_calls.MOST_MISSED + 800):
        times(k)
    assert len(looks) == repeated_calls.MOST_MISSED + 100
    for _ in range(8 * repeated_calls.SELDOM):
        np.testing.assert_array_equal(times(3), vector * 3.0)
    looks.clear()
    times(5)
    assert len(looks) == 1


def test_formulas_of_numbers_that_differ_are_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[None] = []
    usual = univariate.of_domain
    monkeypatch.setattr(univariate, "of_domain", lambda *given: noted.append(None) or usual(*given))
    x = np.array([0.1, 0.4, 0.8])
    for dtype in (np.float64, np.float32):
        noted.clear()
        q = lg.asarray(x.astype(dtype))
        for k in range(10):
            a, scale = 1.25 + 0.3 * k, 2.0 - 0.1 * k
            found = lg.stats.gamma.logpdf(q, a, scale=scale)
            assert found.numpy().dtype == dtype
            np.testing.assert_allclose(
                found, stats.gamma.logpdf(x, a, scale=scale), rtol=2e-6 if dtype != np.float64 else 1e-12
            )
        assert len(noted) <= 4
    for k in range(5):  # numbers alone give a number, whose dtype gives way to others
        number = lg.special.betaln(1.5 + k, 2.5)
        np.testing.assert_allclose(number, special.betaln(1.5 + k, 2.5), rtol=1e-13)
        assert (lg.ones(2, dtype=lg.float32) * number).dtype is lg.float32
    slopes = [float(lg.grad(lambda v, a=a: lg.stats.norm.logpdf(v, a))(1.0)) for a in (0.25, 0.5, 0.75, 1.5, 2.5)]
    np.testing.assert_allclose(slopes, [a - 1.0 for a in (0.25, 0.5, 0.75, 1.5, 2.5)], rtol=1e-14)


def test_numbers_of_formulas_keep_their_digits_beside_wider_tensors_than_the_default() -> None:
    x = np.array([0.5, 2.0])
    lg.set_default_dtype(lg.float32)
    try:
        for k in (0.1, 0.2, 0.7, 1e300, 0.3):
            np.testing.assert_allclose(lg.special.xlogy(k, lg.asarray(x)), special.xlogy(k, x), rtol=1e-15, strict=True)
        for k in (0.1, 0.2, 1e300):  # beyond the largest float32, without a warning
            narrow = lg.special.xlogy(k, lg.asarray(x, dtype=lg.float32))
            np.testing.assert_allclose(narrow, (k if k < 1e38 else np.inf) * np.log(x), rtol=1e-6)
    finally:
        lg.set_default_dtype(lg.float64)


def test_calls_of_one_tensor_are_found_beside_its_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_calls, "MOST_MISSED", 1 << 30)  # whatever other tests have called
    looked: list[Any] = []
    words = repeated_calls.call_words
    monkeypatch.setattr(repeated_calls, "call_words", lambda *given: looked.append(given) or words(*given))
    x = lg.asarray(A)
    for k in range(6):
        looked.clear()
        y = x * (1.5 + k)
        np.testing.assert_allclose(lg.sum(lg.sin(y) + -y), np.sum(np.sin(A * (1.5 + k)) - A * (1.5 + k)), rtol=1e-13)
        if k >= 3:
            assert not looked
    corner = x[:2, :2]  # shares memory, what is computed of it doesn't
    for k in range(5):
        corner += 1.0
        made = lg.abs(corner)
        made += 100.0
        np.testing.assert_array_equal(x[:2, :2], A[:2, :2] + k + 1)
        np.testing.assert_array_equal(made, np.abs(A[:2, :2] + k + 1) + 100.0)
    number, array = lg.asarray(2.0), lg.asarray(A)[1:2, 0].reshape(())
    for _ in range(5):
        assert np.asarray(lg.exp(number)) == np.exp(2.0)
        assert lg.exp(2.0)._weak
        assert not lg.exp(array)._weak
        np.testing.assert_allclose(lg.grad(lambda v: lg.sum(lg.sin(v)))(x), np.cos(np.asarray(x)), rtol=1e-13)
        with lg.default_device("interpreter"):
            assert lg.cos(x).device == "interpreter"


def test_a_call_is_remembered_without_those_that_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    words = repeated_calls.call_words
    monkeypatch.setattr(repeated_calls, "call_words", lambda *given: looked.append(given) or words(*given))
    a = np.cos(np.arange(34.0)).reshape(2, 17)
    x = lg.asarray(a)
    for _ in range(4):
        looked.clear()
        variance = lg.var(x, axis=1)
        assert len(looked) == 1
        np.testing.assert_allclose(variance, np.var(a, axis=1), rtol=1e-12)
        np.testing.assert_allclose(lg.mean(x, axis=1), np.mean(a, axis=1), rtol=1e-12)
    for _ in range(2):
        with pytest.raises(ValueError, match="axis"):
            lg.var(x, axis=2)
        assert not AMBIENT.within_call
    looked.clear()
    lg.mean(x, axis=0)
    assert looked, "after an error calls are remembered as before"


def test_calls_within_one_that_is_made_anew_each_time_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a function that looks at elements nothing is noted again, but what it calls."""

    @repeated_calls.repeated
    def scaled(x: Any) -> Any:
        return lg.where(x > 0.0, x, 0.5) * float(lg.max(x))

    made: list[Any] = []
    again = repeated_calls.made_again
    monkeypatch.setattr(repeated_calls, "made_again", lambda *given: made.append(given) or again(*given))
    for k in range(6):
        a = np.array([0.0, -3.5, 1.5 + k, -2.0, 0.25])
        np.testing.assert_array_equal(scaled(lg.asarray(a)), np.where(a > 0.0, a, 0.5) * a.max())
    assert made
