from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph.errors import DTypeError, ShapeError

X = np.array([[3.0, -1.0, 2.0], [0.5, 7.0, -4.0]], np.float32)
REDUCE = {"reduce_sum": np.sum, "reduce_prod": np.prod, "reduce_min": np.min, "reduce_max": np.max}


@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("op", REDUCE)
def test_reduce_over_any_axes_keeps_the_dtype(apply, op, axes):
    for x in (X, X.astype(np.int8), X.astype(np.float16)):
        got = apply(op, x, axes=axes)
        assert got.dtype == x.dtype
        np.testing.assert_allclose(got, REDUCE[op](x.astype(np.float64), axis=axes))


def test_reduce_of_bools(apply):
    p = np.array([[True, False], [True, True]])
    assert apply("reduce_and", p, axes=(1,)).tolist() == [False, True]
    assert apply("reduce_or", ~p, axes=(0,)).tolist() == [False, True]


def test_reduce_of_nothing(apply):
    empty = np.zeros((0, 2), np.float32)
    for dtype in (np.float16, np.float32, np.float64):
        total = apply("reduce_sum", empty.astype(dtype), axes=(0,))
        assert total.tolist() == [0, 0]
        assert not np.signbit(total).any()  # as NumPy's, whereas the sum of -0.0 is -0.0
    assert apply("reduce_prod", empty, axes=(0, 1)) == 1
    assert apply("reduce_and", empty != 0, axes=(0,)).tolist() == [True, True]
    assert apply("reduce_or", empty != 0, axes=(0,)).tolist() == [False, False]
    assert apply("reduce_max", empty, axes=(1,)).shape == (0,)
    for op in ("reduce_min", "reduce_max"):
        with pytest.raises(ShapeError, match="at least one element to reduce"):
            apply(op, empty, axes=(0,))
    with pytest.raises(ShapeError, match="at least one element"):
        apply("argmax", empty, axis=0)


def test_reduce_of_integers_wraps_and_of_nan_propagates(apply):
    assert apply("reduce_sum", np.array([100, 100], np.int8), axes=(0,)) == -56
    x = np.array([1.0, np.nan, 3.0])
    assert np.isnan(apply("reduce_min", x, axes=(0,)))
    assert np.isnan(apply("reduce_max", x, axes=(0,)))


def test_arg_takes_the_first_and_prefers_nan(apply):
    x = np.array([[1.0, 5.0, 5.0], [np.nan, 9.0, np.nan]])
    assert apply("argmax", x, axis=1).tolist() == [1, 0]
    assert apply("argmin", x, axis=1).tolist() == [0, 0]
    got = apply("argmax", np.array([2, 2], np.uint8), axis=0)
    assert got.dtype == np.int64
    assert got.shape == ()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("op", "ufunc"),
    [("cumsum", np.add), ("cumprod", np.multiply), ("cummax", np.maximum), ("cummin", np.minimum)],
)
def test_scans_run_both_ways(apply, op, ufunc, reverse):
    for x in (X, X.astype(np.int16), X[:0]):
        for axis in (0, 1):
            expected = np.flip(ufunc.accumulate(np.flip(x, axis), axis), axis) if reverse else ufunc.accumulate(x, axis)
            got = apply(op, x, axis=axis, reverse=reverse)
            assert got.dtype == x.dtype
            np.testing.assert_array_equal(got, expected)


def test_sort_is_stable_with_nan_last(apply):
    x = np.array([2.0, np.nan, 1.0, 2.0, -np.inf])
    np.testing.assert_array_equal(apply("sort", x, axis=0), [-np.inf, 1, 2, 2, np.nan])
    assert apply("argsort", x, axis=0).tolist() == [4, 2, 0, 3, 1]
    assert apply("argsort", np.zeros((2, 0)), axis=1).shape == (2, 0)


def test_refusals(apply):
    with pytest.raises(ShapeError, match=r"an axis in 0\.\.1"):
        apply("reduce_sum", X, axes=(2,))
    with pytest.raises(ShapeError, match="each axis once"):
        apply("reduce_sum", X, axes=(1, 1))
    with pytest.raises(ShapeError, match="an axis"):
        apply("cumsum", X, axis=-1, reverse=False)
    with pytest.raises(DTypeError, match="cast the operand first"):
        apply("reduce_sum", X > 0, axes=(0,))
    with pytest.raises(DTypeError, match="expected bool elements"):
        apply("reduce_and", X, axes=(0,))
