"""Running totals of every shape, dtype and direction against NumPy's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import loopgrad as lg

# rows, one long row, columns, few and many columns; around the sizes of tiles and of spans of them
SHAPES = [
    ((0,), 0), ((4, 0), 1), ((4, 0), 0), ((1,), 0), ((5, 1, 3), 1), ((255,), 0), ((257,), 0), ((3840,), 0),
    ((3841,), 0), ((20011,), 0), ((90, 7), 1), ((7, 90), 0), ((700, 3), 1), ((40, 257), 1), ((3, 9001), 1),
    ((3, 800, 3), 1), ((2, 70, 131), 1), ((2, 5, 40, 6), 2), ((4001, 20), 0),
]  # fmt: skip
UFUNCS = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}
FLOATS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}


def few(device: str, cases: Sequence[Any], first: int = 0) -> Sequence[Any]:
    """All of them where that is quick."""
    if device in ("interpreter", "cpu"):
        return cases
    return cases[first::7] if device.startswith("emulator") else cases[first::2]


def expected(name: str, x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    y = np.flip(x, axis) if reverse else x
    with np.errstate(all="ignore"):
        found = UFUNCS[name].accumulate(y, axis=axis, dtype=y.dtype)
    return np.flip(found, axis) if reverse else found


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_integers(device: str, dtype: str, reverse: bool) -> None:
    rng = np.random.default_rng(3)
    for i, (shape, axis) in enumerate(few(device, SHAPES, int(reverse))):
        x = rng.integers(0, 120, shape).astype(dtype)
        names = list(UFUNCS)
        for name in names if device == "interpreter" else names[i % 2 :: 2]:
            got = np.asarray(getattr(lg, name)(lg.asarray(x), axis, reverse=reverse, dtype=dtype))
            np.testing.assert_array_equal(got, expected(name, x, axis, reverse), f"{name} {shape} {axis}")


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_floats_are_rounded_about_once(device: str, dtype: str, reverse: bool) -> None:
    rng = np.random.default_rng(4)
    unit = np.finfo(dtype).eps / 2
    for shape, axis in few(device, SHAPES, int(not reverse)):
        x = (rng.normal(size=shape) * 10).astype(dtype)
        exact = expected("cumsum", x.astype(np.longdouble), axis, reverse)
        got = np.asarray(lg.cumsum(lg.asarray(x), axis, reverse=reverse))
        assert got.dtype == x.dtype
        largest = np.abs(x).max(initial=0.0)
        assert (np.abs(got - exact) <= 1.01 * unit * np.abs(exact) + 4 * unit * largest).all(), (shape, axis)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize(("shape", "axis"), [((200_003,), 0), ((3, 70_001), 1), ((65_536,), 0), ((131_071, 1), 0)])
def test_rows_of_several_threads(device: str, shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 9, shape)
    for dtype in ("float32", "int32"):
        for name in few(device, ["cumsum", "cummax"], int(dtype == "int32")):
            for reverse in (False, True):
                got = np.asarray(getattr(lg, name)(lg.asarray(x.astype(dtype)), axis, reverse=reverse, **(
                    {"dtype": dtype} if name == "cumsum" else {})))  # fmt: skip
                np.testing.assert_array_equal(got, expected(name, x, axis, reverse).astype(dtype))
    total = lg.cumsum(lg.exp(lg.asarray(x / 9.0)), axis, reverse=True)
    np.testing.assert_allclose(np.asarray(total), expected("cumsum", np.exp(x / 9.0), axis, True), rtol=1e-11)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("dtype", FLOATS)
def test_other_totals_of_floats(device: str, dtype: str) -> None:
    rng = np.random.default_rng(6)
    for i, (shape, axis) in enumerate(few(device, SHAPES)):
        x = rng.normal(size=shape).astype(FLOATS[dtype])
        for name in few(device, ["cummax", "cummin"], i % 2):
            got = np.asarray(getattr(lg, name)(lg.asarray(x), axis))
            wide = expected(name, x.astype(np.float64), axis, False)
            np.testing.assert_array_equal(got.astype(np.float64), wide, f"{name} {shape} {axis}")
    exact = (2.0 ** rng.integers(-1, 2, 300)).astype(FLOATS[dtype])
    exact[1::2] = 1 / exact[::2]
    got = np.asarray(lg.cumprod(lg.asarray(exact))).astype(np.float64)
    np.testing.assert_array_equal(got, np.cumprod(exact.astype(np.float64)))
    halves = (rng.normal(size=3000) * 3).astype(FLOATS[dtype])
    got = np.asarray(lg.cumsum(lg.asarray(halves))).astype(np.float64)
    unit = float(ml_dtypes.finfo(FLOATS[dtype]).eps) / 2
    wide = np.cumsum(halves.astype(np.float64))
    largest = np.abs(halves.astype(np.float64)).max() * 4 * 2.0**-24 if dtype != "float64" else 1e-12
    assert (np.abs(got - wide) <= 1.01 * unit * np.abs(wide) + largest).all()


@pytest.mark.in_turns
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("places", [[0], [4000], [4000, 9001], [9001]])
def test_what_is_no_number_stays(device: str, special: float, places: list[int]) -> None:
    x = np.sin(np.arange(9002.0)).astype(np.float32)
    x[places] = special
    for name in ("cumsum", "cummax", "cummin"):
        got = np.asarray(getattr(lg, name)(lg.asarray(x)))
        wide = expected(name, x.astype(np.float64), 0, False)
        np.testing.assert_allclose(got, wide, rtol=1e-5, atol=1e-5, err_msg=name)
    signs = np.sign(x + 0.5).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(lg.cumprod(lg.asarray(signs))), np.cumprod(signs))


@pytest.mark.parametrize(("shape", "axis"), [((300,), 0), ((5, 70), 1), ((5, 70, 3), 1), ((200, 40), 0)])
def test_products_beyond_the_range_on_the_host(device: str, shape: tuple[int, ...], axis: int) -> None:
    """There they go from left to right, bit for bit; products of stretches would overflow elsewhere."""
    if device not in ("interpreter", "cpu"):
        pytest.skip("products of products")
    x = (10.0 ** np.random.default_rng(2).uniform(-9, 9, shape)).astype(np.float32)
    for reverse in (False, True):
        got = np.asarray(lg.cumprod(lg.asarray(x), axis, reverse=reverse))
        np.testing.assert_array_equal(got, expected("cumprod", x, axis, reverse))


def test_a_total_of_what_is_computed_there(device: str) -> None:
    """Shifts, rows that are shared, a lookup, a sum, and a total of a total."""
    x = np.sin(np.arange(6000.0)).reshape(40, 150)
    t = lg.asarray(x)
    np.testing.assert_allclose(np.asarray(lg.cumsum(lg.exp(t[:, ::-1]) * t[:, :1], 1)),
                               np.cumsum(np.exp(x[:, ::-1]) * x[:, :1], 1), rtol=1e-12, atol=1e-12)  # fmt: skip
    np.testing.assert_allclose(np.asarray(lg.cumsum(lg.sum(t, axis=1))), np.cumsum(x.sum(1)), rtol=1e-12, atol=1e-12)
    where = np.arange(6000) * 7 % 40
    np.testing.assert_allclose(np.asarray(lg.cummax(t[lg.asarray(where)], 0)), np.maximum.accumulate(x[where], 0))
    twice = lg.cumsum(lg.cumsum(t, 0), 1) * 2.0
    np.testing.assert_allclose(np.asarray(twice), 2 * np.cumsum(np.cumsum(x, 0), 1), rtol=1e-11, atol=1e-11)


def test_totals_that_others_read_and_share(device: str) -> None:
    x = np.cos(np.arange(5000.0))

    @lg.compile
    def several(v: Any) -> Any:
        wave = lg.sin(v)
        total = lg.cumsum(wave)
        return wave, total, lg.cumsum(wave, reverse=True), lg.cummax(total), lg.sum(total), total[::2]

    wave = np.sin(x)
    total = np.cumsum(wave)
    wanted = wave, total, np.cumsum(wave[::-1])[::-1], np.maximum.accumulate(total), total.sum(), total[::2]
    for got, want in zip(several(lg.asarray(x)), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-11, atol=1e-11)


def test_in_loops_and_lanes(device: str) -> None:
    x = np.cos(np.arange(2000.0)).reshape(10, 200)
    whole = lg.fori_loop(0, 3, lambda _, v: lg.cumsum(v, 1) * 0.1, lg.asarray(x))
    want = x
    for _ in range(3):
        want = np.cumsum(want, 1) * 0.1
    np.testing.assert_allclose(np.asarray(whole), want, rtol=1e-11, atol=1e-11)

    row = np.cos(np.arange(20_000.0))
    again = lambda c: (c[0] + 1, lg.cumsum(c[1]) * 1e-3)
    step = lg.compile(lambda v, n: lg.while_loop(lambda c: c[0] < n, again, (0, v)))
    for n in (3, 0, 1):
        want = row
        for _ in range(n):
            want = np.cumsum(want) * 1e-3
        np.testing.assert_allclose(np.asarray(step(lg.asarray(row), lg.asarray(n))[1]), want, rtol=1e-10, atol=1e-12)

    def lane(row: Any, trips: Any) -> Any:
        return lg.fori_loop(0, trips, lambda _, v: lg.cumsum(v) * 0.5, row)

    trips = np.arange(10) % 4
    small = x[:, :6]
    got = np.asarray(lg.vmap(lane)(lg.asarray(small), lg.asarray(trips)))
    for row, n, found in zip(small, trips, got, strict=True):
        for _ in range(n):
            row = np.cumsum(row) * 0.5
        np.testing.assert_allclose(found, row, rtol=1e-12, atol=1e-12)


def test_checked_indices(device: str) -> None:
    """A lookup out of range is found, once, though terms are computed for the spans' totals as well."""
    table, place = lg.asarray(np.arange(10.0)), np.arange(30_000) % 10
    with lg.options(check_indices=True):
        np.testing.assert_allclose(np.asarray(lg.cumsum(table[lg.asarray(place)])), np.cumsum(place))
        place[29_000] = 77
        with pytest.raises(lg.IndexRangeError):
            np.asarray(lg.cumsum(table[lg.asarray(place)]))


def test_gradients(device: str) -> None:
    """Of a sum backwards; of a product beside zeros; of extrema to those that lead."""
    rng = np.random.default_rng(7)
    x, w = rng.normal(size=(3, 700)), rng.normal(size=(3, 700))
    t, v = lg.asarray(x), lg.asarray(w)
    got = lg.grad(lambda t: lg.sum(lg.cumsum(t, 1) * v))(t)
    np.testing.assert_allclose(np.asarray(got), np.flip(np.cumsum(np.flip(w, 1), 1), 1), rtol=1e-11, atol=1e-11)
    got = np.asarray(lg.grad(lambda t: lg.sum(lg.cummax(t, 1) * v))(t))
    want = np.zeros_like(x)
    for i in range(3):
        lead = 0
        for j in range(700):
            lead = j if x[i, j] >= x[i, lead] else lead
            want[i, lead] += w[i, j]
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("zeros", [[], [0], [17], [17, 60], [64]])
def test_gradients_of_products(device: str, zeros: list[int]) -> None:
    """d p[i] / d x[j] is the product of the others up to i."""
    rng = np.random.default_rng(8)
    x, w = rng.uniform(0.5, 1.5, 65), rng.normal(size=65)
    x[zeros] = 0.0
    want = [sum(w[i] * np.prod(np.delete(x[: i + 1], j)) for i in range(j, 65)) for j in range(65)]
    got = lg.grad(lambda t: lg.sum(lg.cumprod(t) * lg.asarray(w)))(lg.asarray(x))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-10, atol=1e-10)


def test_the_same_bits_every_time(device: str) -> None:
    x = np.random.default_rng(9).normal(size=30_011).astype(np.float32)
    first = np.asarray(lg.cumsum(lg.asarray(x)))
    for _ in range(3):
        assert np.asarray(lg.cumsum(lg.asarray(x))).tobytes() == first.tobytes()
