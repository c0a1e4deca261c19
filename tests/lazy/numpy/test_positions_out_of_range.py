"""Positions out of range where a mode says what becomes of them. The expected numbers are JAX's, but that it clamps and
drops by default what we do, and takes a negative position from the end."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

X = np.arange(10.0, 16.0)
M = np.arange(6.0).reshape(2, 3)
PLACES = [1, 9, -1, -7]
NAN = np.nan


def test_reading(device):
    x, m, i = lg.asarray(X), lg.asarray(M), lg.asarray(PLACES)
    cases = [
        (lg.take(x, i, mode="fill"), [11, NAN, 15, NAN]),
        (lg.take(x, i, mode="fill", fill_value=0), [11, 0, 15, 0]),
        (lg.take(x.astype(lg.int64), i, mode="fill"), [11, -(2**63), 15, -(2**63)]),
        (lg.take(x.astype(lg.uint8), i, mode="fill"), [11, 255, 15, 255]),
        (lg.take(x > 100.0, i, mode="fill"), [False, True, False, True]),
        (lg.take(m, lg.asarray([[0, 3]]), axis=1, mode="fill"), [[[0, NAN]], [[3, NAN]]]),
        (lg.take(x[:0], i, mode="fill", fill_value=2.0), [2, 2, 2, 2]),
        (x.at[i].get(mode="fill", fill_value=7), [11, 7, 15, 7]),
        (x.at[i].get(fill_value=7), [11, 7, 15, 7]),
        (lg.take(x, i, fill_value=0), [11, 0, 15, 0]),
        (lg.take_along_axis(x, i, axis=0, fill_value=0), [11, 0, 15, 0]),
        (x.at[i].get(mode="drop"), [11, NAN, 15, NAN]),
        (x.at[i].get(mode="clip"), [11, 15, 15, 10]),
        (x.at[9].get(mode="fill", fill_value=7), 7),
        (x.at[9].get(mode="clip"), 15),
        (x.at[1:3].get(mode="fill"), [11, 12]),
        (m.at[:, lg.asarray([0, 5])].get(mode="fill", fill_value=-1), [[0, -1], [3, -1]]),
        (m.at[lg.asarray([0, 5]), :2].get(mode="fill"), [[0, 1], [NAN, NAN]]),
        (m.at[lg.asarray([0, 0, 2]), lg.asarray([0, 3, 0])].get(mode="fill"), [0, NAN, NAN]),
        (lg.take_along_axis(m, lg.asarray([[0, 9], [1, -1]]), axis=1, mode="fill"), [[0, NAN], [4, 5]]),
        (lg.take_along_axis(m, lg.asarray([[0, 9], [1, -1]]), axis=1, mode="clip"), [[0, 2], [4, 5]]),
    ]
    for n, (got, expected) in enumerate(cases):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected, str(got.dtype)), f"case {n}")


def test_writing(device):
    x, i, y = lg.asarray(X), lg.asarray(PLACES), lg.asarray([1.0, 2.0, 3.0, 4.0])
    cases = [
        (x.at[i].set(y, mode="drop"), [10, 1, 12, 13, 14, 3]),
        (x.at[i].set(y, mode="fill", indices_are_sorted=False, unique_indices=True), [10, 1, 12, 13, 14, 3]),
        (x.at[i].add(1.0, mode="clip"), [11, 12, 12, 13, 14, 17]),
        (x.at[9].set(1.0, mode="drop"), X),
        (x.at[9].multiply(2.0, mode="clip"), [10, 11, 12, 13, 14, 30]),
        (x.at[lg.asarray([1, 9])].apply(lg.negative, mode="drop"), [10, -11, 12, 13, 14, 15]),
    ]
    for n, (got, expected) in enumerate(cases):
        np.testing.assert_array_equal(np.asarray(got), expected, f"case {n}")


def test_what_is_out_of_range_has_no_gradient(device):
    slope = lg.grad(lambda x: lg.sum(lg.take(x, lg.asarray(PLACES), mode="fill", fill_value=3.0) ** 2))(lg.asarray(X))
    np.testing.assert_array_equal(np.asarray(slope), [0, 22, 0, 0, 0, 30])


def test_what_is_refused():
    x = lg.arange(3)
    with pytest.raises(ValueError, match="a mode among clip"):
        x.at[lg.asarray([1])].get(mode="wrap")
    with pytest.raises(ValueError, match="mode 'raise'"):
        lg.take(x, lg.asarray([1]), mode="drop")
    with pytest.raises(lg.DTypeError, match="a fill_value that fits int64"):
        lg.take(x, lg.asarray([5]), mode="fill", fill_value=0.5)
    for read in (lg.take, lg.take_along_axis):
        with pytest.raises(ValueError, match="mode 'fill', which reads fill_value=5"):
            read(x, lg.asarray([1]), axis=0, mode="clip", fill_value=5)
    with pytest.raises(TypeError, match="speed"):
        x.at[0].set(1, speed=1)
    with pytest.raises(IndexError):
        x.at[9].set(1)


@pytest.mark.parametrize("mode", [None, "clip", "wrap"])
def test_an_empty_axis_has_no_nearest_element(mode):
    x, i = lg.zeros((2, 0)), lg.asarray([0, 1])
    with pytest.raises(IndexError, match=r"no position along axis 1, got shape \(2, 0\)"):
        x[:, i] if mode is None else lg.take(x, i, axis=1, mode=mode)
    assert lg.take(x, i[:0], axis=1, mode=mode or "raise").shape == (2, 0)
