"""Sums of floats are rounded about once, however many terms they have: against NumPy's in more digits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import loopgrad as lg

# of one rounding a half, and of the terms that are added up first
ERROR = {"float16": 5.0e-4, "bfloat16": 4.0e-3, "float32": 1.2e-7, "float64": 2.3e-16}
DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}


def terms(kind: str, dtype: str, size: int) -> np.ndarray:
    """Equal ones, whose roundings all go the same way, periodic ones, and any."""
    match kind:
        case "equal":
            values = np.full(size, 0.1)
        case "periodic":
            values = np.resize([1.0, 1 / 3, 0.7, 0.1, 2.9], size)
        case _:
            values = np.random.default_rng(size).uniform(size=size)
    return values.astype(DTYPES[dtype])


def check(got: lg.Tensor, wanted: np.ndarray, error: float) -> None:
    elements = np.asarray(got)
    np.testing.assert_allclose(elements.astype(np.longdouble), wanted, rtol=error)


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", ["equal", "periodic", "any"])
def test_whole_arrays(device: str, kind: str) -> None:
    size = 300_007 if device in ("interpreter", "cpu") else 50_021
    for dtype, error in ERROR.items():
        a = terms(kind, dtype, size if dtype[-2:] != "16" else 20_000)
        exact, x = a.astype(np.longdouble), lg.asarray(a)
        check(lg.sum(x), exact.sum(), error)
        check(lg.mean(x), exact.mean(), error)


@pytest.mark.parametrize("shape", [(3, 7001), (601, 41), (4099, 33), (20_011, 3), (24, 50, 31)])
def test_axes(device: str, shape: tuple[int, ...]) -> None:
    for kind in ("equal", "periodic", "any"):
        a = terms(kind, "float32", int(np.prod(shape))).reshape(shape)
        exact, x = a.astype(np.longdouble), lg.asarray(a)
        for axis in range(len(shape)):
            check(lg.sum(x, axis=axis), exact.sum(axis), 2.5e-7 if shape[axis] < 64 else 1.2e-7)
        if len(shape) == 3:
            check(lg.sum(x, axis=(0, 2)), exact.sum((0, 2)), 1.8e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_running_totals(device: str, dtype: str) -> None:
    a = terms("equal", dtype, 6_000).reshape(2, 3_000)
    exact = a.astype(np.longdouble)
    check(lg.cumsum(lg.asarray(a), axis=1), exact.cumsum(1), ERROR[dtype])
    check(lg.cumsum(lg.asarray(a.T), axis=0), exact.T.cumsum(0), ERROR[dtype])


@pytest.mark.parametrize("product", [lg.vecdot, lg.dot, lg.inner, lambda x, y: lg.einsum("i,i->", x, y)])
def test_products_of_vectors(device: str, product: object) -> None:
    a = terms("equal", "float32", 50_000)
    check(product(lg.asarray(a), lg.asarray(a)), (a * a).astype(np.longdouble).sum(), 1.2e-7)


@pytest.mark.parametrize("dtype", sorted(ERROR))
def test_terms_that_meet_in_a_few_elements(device: str, dtype: str) -> None:
    size = 40_000 if device in ("interpreter", "cpu") else 5_000
    a, bins = terms("equal", dtype, size), np.arange(size) % 3
    wanted = [a.astype(np.longdouble)[bins == b].sum() for b in range(3)]
    error = 1e-12 if dtype == "float64" and device == "cpu" else ERROR[dtype]  # added up as float64 there
    check(lg.zeros(3, dtype=getattr(lg, dtype)).at[lg.asarray(bins)].add(lg.asarray(a)), wanted, error)


def test_gradients_of_what_is_spread(device: str) -> None:
    a = terms("equal", "float32", 60_000)
    slope = lg.grad(lambda s: lg.sum(s * lg.asarray(a)))(lg.asarray(np.float32(2.0)))
    check(slope, a.astype(np.longdouble).sum(), 1.2e-7)


def test_sums_inside_of_lanes(device: str) -> None:
    """Beside a loop, and in it; and a loop of additions, which is the user's own order."""
    a, trips = terms("any", "float32", 20 * 601).reshape(20, 601), np.arange(20) % 3 + 1
    exact = a.astype(np.longdouble).sum(1)

    def lane(row: lg.Tensor, count: lg.Tensor) -> lg.Tensor:
        return lg.fori_loop(0, count, lambda _k, v: v * 0.0 + lg.sum(row + 0.0 * v), lg.sum(row))

    check(lg.vmap(lane)(lg.asarray(a), lg.asarray(trips)), exact, 1.2e-7)
    x = np.full(1000, 0.1, np.float32)
    chain = lg.fori_loop(0, 1000, lambda k, s: s + lg.asarray(x)[k], lg.asarray(np.float32(0)))
    assert np.asarray(chain) == np.cumsum(x)[-1]


@pytest.mark.parametrize("size", [1, 3, 9, 70, 3000])
def test_zeros_infinities_and_nan(device: str, size: int) -> None:
    for dtype in ("float16", "float32", "float64"):
        for first, last in ((-0.0, -0.0), (0.0, -0.0), (np.inf, 1), (-np.inf, 1), (np.inf, -np.inf), (np.nan, 1)):
            a = np.full((size, 2), last, dtype)
            a[0] = first
            for axis in (0, None):
                with np.errstate(invalid="ignore"):
                    wanted = a.sum(axis, initial=-0.0)
                got = np.asarray(lg.sum(lg.asarray(a), axis=axis))
                np.testing.assert_array_equal(got, wanted)
                either = np.isnan(wanted) | ((wanted == 0) & (size > 1000))  # long sums on GPUs start from a zero
                assert (either | (np.signbit(got) == np.signbit(wanted))).all()
        large = np.full(size + 1, np.finfo(dtype).max, dtype)
        assert np.asarray(lg.sum(lg.asarray(large))) == np.inf
