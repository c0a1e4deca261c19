"""Statistics against NumPy, with NaN, axes and empty corners."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import both, check

rng = np.random.default_rng(7)
X = rng.normal(size=(3, 4, 5))
HOLES = np.where(rng.random((3, 6)) < 0.4, np.nan, rng.normal(size=(3, 6)))
EMPTY_ROW = np.where(np.arange(3)[:, None] == 1, np.nan, HOLES)
COUNTS = np.array([3, 0, 1, 1, 5, 3])


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "name", ["nansum", "nanprod", "nanmean", "nanstd", "nanvar", "nanmax", "nanmin", "nanmedian", "nancumsum",
             "nancumprod"]
)  # fmt: skip
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.filterwarnings("ignore")
def test_what_skips_nan(device: str, name: str, axis: int | None) -> None:
    both(name, HOLES, axis=axis)
    both(name, EMPTY_ROW, axis=axis)
    both(name, np.arange(6).reshape(2, 3), axis=axis)


def test_positions_that_skip_nan(device: str) -> None:
    with_elements = np.where(np.isnan(HOLES).all(axis=1, keepdims=True), 0.0, HOLES)
    both("nanargmax", with_elements, axis=1)
    both("nanargmin", with_elements, axis=1)


@pytest.mark.in_turns
@pytest.mark.parametrize("axis", [None, 1, (0, 2), (2, 0), -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_quantiles(device: str, axis: object, keepdims: bool) -> None:
    for q in (0.0, 0.3, 1.0, [0.25, 0.5]):
        check(lg.quantile(lg.asarray(X), q, axis, keepdims=keepdims), np.quantile(X, q, axis, keepdims=keepdims))
    check(lg.percentile(lg.asarray(X), 35, axis, keepdims=keepdims), np.percentile(X, 35, axis, keepdims=keepdims))
    both("median", X, axis=axis, keepdims=keepdims)
    both("ptp", X, axis=axis, keepdims=keepdims)


@pytest.mark.filterwarnings("ignore")
def test_quantiles_and_nan(device: str) -> None:
    both("median", HOLES, axis=1)
    check(lg.nanquantile(lg.asarray(EMPTY_ROW), [0.2, 0.9], axis=1), np.nanquantile(EMPTY_ROW, [0.2, 0.9], axis=1))
    check(lg.nanpercentile(lg.asarray(HOLES), 20.0), np.nanpercentile(HOLES, 20.0))
    with pytest.raises(lg.ShapeError, match="at least one element"):
        lg.quantile(lg.zeros((0,)), 0.5)


@pytest.mark.filterwarnings("ignore")
def test_medians_and_quantiles_of_nothing() -> None:
    """NaN in NumPy's shapes, which haven't the quantiles' axis."""
    for shape, axis, keepdims in product([(0,), (0, 3), (3, 0), (2, 0, 3)], [None, 0, -1], [False, True]):
        for dtype in ("float32", "int64"):
            nothing, options = np.zeros(shape, dtype), {"axis": axis, "keepdims": keepdims}
            for function in ("median", "nanmedian"):
                check(getattr(lg, function)(lg.asarray(nothing), **options), getattr(np, function)(nothing, **options))
            for q in (0.5, [0.25, 0.5], []):
                check(lg.nanquantile(lg.asarray(nothing), q, **options), np.nanquantile(nothing, q, **options))


def test_a_median_has_a_gradient(device: str) -> None:
    slope = lg.grad(lambda x: lg.median(x))(lg.asarray([5.0, 1.0, 3.0, 9.0]))
    assert slope.tolist() == [0.5, 0.0, 0.5, 0.0]


def test_averages(device: str) -> None:
    w = np.array([1.0, 2.0, 3.0, 4.0])
    check(lg.average(lg.asarray(X), axis=1, weights=w), np.average(X, axis=1, weights=w))
    check(lg.average(lg.asarray(X), weights=X * X), np.average(X, weights=X * X))
    both("average", X, axis=0)
    with pytest.raises(lg.ShapeError, match="weights that fit"):
        lg.average(X, axis=0, weights=w)
    both("cov", X[0])
    both("cov", X[0, 0])
    both("cov", X[0], rowvar=False, ddof=0)
    both("corrcoef", X[0])


def test_counts(device: str) -> None:
    both("bincount", COUNTS)
    both("bincount", COUNTS, minlength=9)
    check(lg.bincount(lg.asarray(COUNTS), weights=np.arange(6.0)), np.bincount(COUNTS, weights=np.arange(6.0)))
    count = lg.compile(lambda x: lg.bincount(x, length=4))
    assert count(lg.asarray([3, 0, 5, -1, 3])).tolist() == [2, 0, 0, 2]  # as JAX: -1 counts as 0
    with pytest.raises(lg.DTypeError, match="pass length="):
        lg.compile(lambda x: lg.bincount(x))(lg.asarray(COUNTS))
    with pytest.raises(ValueError, match="at least 0"):
        lg.bincount([-1, 2])
    with pytest.raises(lg.DTypeError, match="vector of integers"):
        lg.bincount([0.5])


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_bins_of_what_lies_beside_their_edges(device: str, dtype: Any) -> None:
    """A bin is computed and then put right: of the edges, of the numbers next to them, and of what is in none."""
    ends = {1: (0.0, 1.0), 7: (-3.0, 5.0), 100: (1e-3, 1e-2), 1000: (1000.0, 1001.0), 64: (-1e37, 2e37)}
    for bins, (low, high) in ends.items():
        if dtype is np.int32:
            low, high = low * 10, high * 1000 if high < 1e30 else low + 1e6
            low, high = (-50.0, 1e6) if low < -1e30 else (low, high)
        edges = np.asarray(lg.histogram_bin_edges(lg.asarray(np.zeros(1, dtype)), bins, (low, high)))
        near = [edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)]
        more = np.array([np.nan, np.inf, -np.inf, 0.0], edges.dtype)
        x = np.concatenate([*near, np.linspace(low, high, 333), more]).astype(edges.dtype)
        x = np.rint(x[np.isfinite(x)]).astype(dtype) if dtype is np.int32 else x
        x = x[~((x != 0) & (np.abs(x) < 1e-37))]  # subnormal numbers, which some drivers take for 0
        inside = x[(x >= edges[0]) & (x <= edges[-1])].astype(edges.dtype)
        counts, found = lg.histogram(lg.asarray(x), bins, (low, high))
        assert np.array_equal(np.asarray(found), edges)
        assert np.array_equal(np.asarray(counts), np.histogram(inside, edges)[0])


def test_histograms(device: str) -> None:
    flat = X.ravel()
    for options in ({}, {"bins": 4}, {"bins": 5, "range": (-1.0, 1.0)}, {"bins": np.array([-2.0, -0.5, 0.0, 2.5])}):
        for got, expected in zip(lg.histogram(lg.asarray(flat), **options), np.histogram(flat, **options), strict=True):
            check(got, expected)
    w = np.arange(60.0)
    check(lg.histogram(lg.asarray(flat), weights=w)[0], np.histogram(flat, weights=w)[0])
    both("digitize", flat, np.array([-1.0, 0.0, 0.5]))
    edges = np.array([-1.0, 0.0, 0.5])
    check(lg.digitize(edges, edges, right=True), np.digitize(edges, edges, right=True))


@pytest.mark.in_turns
@pytest.mark.parametrize("axis", [None, 0, (0, 2)])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "all", "any"])
def test_reductions_of_chosen_elements(device: str, name: str, axis: object) -> None:
    where = X > -0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = getattr(np, name)(X, axis=axis, where=where)
    check(getattr(lg, name)(lg.asarray(X), axis=axis, where=lg.asarray(where)), expected)


def test_initial_elements(device: str) -> None:
    x = lg.asarray(X)
    check(lg.sum(x, axis=0, initial=3.0), np.sum(X, axis=0, initial=3.0))
    check(lg.prod(x, initial=2.0), np.prod(X, initial=2.0))
    check(lg.max(x, axis=1, initial=0.5), np.max(X, axis=1, initial=0.5))
    check(lg.min(x, axis=1, initial=9.0, where=X > 0), np.min(X, axis=1, initial=9.0, where=X > 0))
    check(lg.max(lg.zeros((0, 3)), axis=0, initial=-1.0), np.max(np.zeros((0, 3)), axis=0, initial=-1.0))
    check(lg.min(lg.asarray([3, 5]), initial=4), np.min([3, 5], initial=4))
    check(lg.sum(x, where=X[0] > 0), np.sum(X, where=X[0] > 0))
    with pytest.raises(ValueError, match="`initial` beside `where`"):
        lg.max(x, where=X > 0)
    with pytest.raises(lg.ShapeError, match="a mask for"):
        lg.sum(lg.ones(3), where=lg.asarray([[True], [False]]))


def test_running_sums_from_nothing(device: str) -> None:
    both("cumulative_sum", X, axis=1, include_initial=True)
    check(lg.cumprod([2, 3], include_initial=True), [1, 2, 6])
    check(lg.cumsum([2, 3], include_initial=True, reverse=True), [5, 3, 0])
    both("diff", X, prepend=0.0)
    check(lg.diff(lg.asarray(X), axis=0, append=X[:1]), np.diff(X, axis=0, append=X[:1]))
    with pytest.raises(ValueError, match="include_initial"):
        lg.cummax([1, 2], include_initial=True)


@pytest.mark.parametrize("options", [{}, {"axis": 1}, {"axis": 0, "keepdims": True}, {"method": "nearest", "axis": 1}])
def test_quantiles_at_arrays_of_several_axes(options: dict[str, Any]) -> None:
    rows, parts = np.random.default_rng(4).normal(size=(5, 41)), np.array([[0.1, 0.5, 0.9], [0.2, 0.3, 1.0]])
    check(lg.quantile(rows, parts, **options), np.quantile(rows, parts, **options))
    check(lg.nanpercentile(rows, parts * 100, **options), np.nanpercentile(rows, parts * 100, **options))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_quantiles_of_16_bits_lie_at_parts_of_more(dtype: str) -> None:
    """The part 0.9999 is 1 in as few bits, and 0.3 is 78 elements further in bfloat16."""
    rows = lg.asarray(np.random.default_rng(5).normal(size=(2, 60_001))).astype(dtype)
    elements = np.asarray(rows.astype(lg.float64))
    for q in (0.3, 0.999, 0.9999):
        found = lg.quantile(rows, q, axis=1, method="lower")
        check(found.astype(lg.float64), np.quantile(elements, q, axis=1, method="lower"))
