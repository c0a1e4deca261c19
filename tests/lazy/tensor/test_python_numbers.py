"""Python numbers beside arrays: NumPy's result, or an OverflowError where integers are too narrow; never wrapped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

UNSIGNED = np.array([0, 1, 200, 255], np.uint8)
SIGNED = np.array([-128, -1, 5, 127], np.int8)
WIDE = np.array([0, 5, 2**63, 2**64 - 1], np.uint64)

AS_NUMPY = [
    "xp.searchsorted(x, -1)", "xp.searchsorted(x, 300, side='right')", "xp.searchsorted(x, [-1, 2**40])",
    "xp.digitize(x, [-1, 3, 1000])", "xp.digitize(x, [1000, 3, -1])", "xp.isin(x, -1)", "xp.isin(x, [300, -200, 5])",
    "xp.append(x, 300)", "xp.append(x, -1).dtype", "xp.hstack([x, -1])", "xp.stack([x[0], 300])",
    "xp.asarray([x[1], 300])", "xp.dot(x, 300)", "xp.inner(x, -1)", "xp.outer(x, 300)", "xp.kron(x, -300)",
    "xp.einsum('i,->i', x, 300)", "xp.tensordot(x, 300, 0)", "xp.convolve(x, [300, -1])", "xp.diff(x, prepend=300)",
    "xp.where(x > 3, -1, 0) + x", "xp.select([x > 3], [-1], 300) + x", "xp.add(100, 200) + x",
    "xp.reshape(300, (1,)) + x", "xp.expand_dims(300, 0) < x", "xp.broadcast_to(-1, (4,)) == x",
    "xp.reshape(-1, (1,)) < x", "xp.clip(x, -200, 3)", "xp.clip(x, 3, 300)", "x.clip(-2**70, 2**70)", "x < -300",
    "300 >= x", "x != 2**64", "xp.equal(x, 2**63)", "xp.average(x, weights=[1000, 2, 3, 4])",
    "xp.interp(x, [-1, 300], [0, 1])",
    "xp.isin(x, 2**63)", "xp.searchsorted(x, 2**63)",
    "xp.append(x, 2**64 - 1)", "xp.isin(2**63, x)", "xp.dot(x, 2**63)", "xp.outer(x, 2**63)",
    "xp.concat([x, x[0], 3], axis=None).dtype", "xp.select([x > 3], [x], 7).dtype", "x + xp.asarray(3)",
]  # fmt: skip
OVERFLOWS = [
    "x + 300", "-300 * x", "xp.maximum(x, 300)", "xp.where(x > 3, x, 300)", "xp.select([x > 3], [x], 300)",
    "xp.full_like(x, 300)", "xp.clip(x, 300, None)", "xp.clip(x, None, -300)", "xp.copy(x).__setitem__(0, 300)",
    "xp.copy(x).__iadd__(300)", "xp.pad(x, 1, constant_values=300)", "xp.max(x, initial=300)",
]  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("x", [UNSIGNED, SIGNED, WIDE], ids=["uint8", "int8", "uint64"])
@pytest.mark.parametrize("text", AS_NUMPY)
def test_as_in_numpy(text: str, x: np.ndarray) -> None:
    with lg.default_device("interpreter"):
        got = eval(text, {"xp": lg, "x": lg.asarray(x)})
    want = eval(text, {"xp": np, "x": x})
    if isinstance(want, np.dtype):
        assert got == want
    else:
        check(got, want)


@pytest.mark.parametrize("x", [UNSIGNED, SIGNED], ids=["uint8", "int8"])
@pytest.mark.parametrize("text", OVERFLOWS)
def test_what_does_not_fit_is_refused(text: str, x: np.ndarray) -> None:
    with pytest.raises(OverflowError, match="use a wider dtype"):
        eval(text, {"xp": lg, "x": lg.asarray(x)})


@pytest.mark.in_turns
@pytest.mark.parametrize("op", ["<", "<=", "==", "!=", ">", ">="])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_signed_integers_compare_with_uint64_exactly(device: str, op: str, dtype: Any) -> None:
    """In float64, to which they promote, neighbours beyond 2**53 are one."""
    signed = np.array([-1, 0, 5, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    unsigned = np.array([2**64 - 1, 0, 6, np.iinfo(dtype).max, 2**63], np.uint64)
    for a, b in ((signed, unsigned), (unsigned, signed), (signed[:, None], unsigned)):
        got = eval(f"a {op} b", {"a": lg.asarray(a), "b": lg.asarray(b)})
        check(got, eval(f"a {op} b", {"a": a, "b": b}))


def test_numbers_of_open_dtype_keep_it_beside_floats() -> None:
    x = lg.asarray([1.0, 2.0], dtype=lg.float32)
    for made in (lg.append(x, 3), lg.dot(x, 3), lg.where(x > 1, 0.5, 1.5) * x, lg.sqrt(2.0) * x, lg.asarray([x[0], 1])):
        assert made.dtype == lg.float32


def test_subtract_of_numbers_from_unsigned_elements() -> None:
    x = lg.asarray(UNSIGNED)
    assert x.at[2].subtract(100).tolist() == [0, 1, 100, 255]
    assert x.at[[0, 0, 3]].subtract(lg.asarray([1, 2, 5], dtype=lg.uint8)).tolist() == [253, 1, 200, 250]
    with pytest.raises(OverflowError):
        x.at[0].subtract(300)


def test_counts_of_narrow_integers() -> None:
    """There may be more bins than the largest number of the dtype."""
    for x in (np.array([127, 127, 3], np.int8), UNSIGNED):
        check(lg.bincount(lg.asarray(x)), np.bincount(x))
        check(lg.bincount(lg.asarray(x), minlength=300), np.bincount(x, minlength=300))


def test_arguments_of_compiled_functions_are_checked(device: str) -> None:
    """What was a Python int in one call is data of the program: another call's may not fit."""
    x = lg.asarray(UNSIGNED)
    for text in ("x + n", "lg.maximum(n, x)", "x.at[0].set(n)", "lg.full_like(x, n)", "lg.where(x > 3, x, n)",
                 "lg.fori_loop(0, 2, lambda _, v: v + n, x)"):  # fmt: skip
        function = lg.compile(eval(f"lambda x, n: {text}", {"lg": lg}))
        for n in (0, 100, 255):
            check(function(x, n), np.asarray(eval(text, {"lg": lg, "x": x, "n": n})))
        for n in (300, -1):
            with pytest.raises(OverflowError, match="from 0 to 255 for argument 1"):
                function(x, n)
        assert function.versions == 1
    recorded = lg.compile(lambda x, n: x + n).capture(x, 3)
    assert recorded.replay(x, 5).tolist() == [5, 6, 205, 4]
    with pytest.raises(OverflowError):
        recorded.replay(x, 500)


@pytest.mark.in_turns
@pytest.mark.parametrize("n", [-(2**40), -1, 0, 127, 128, 300, 2**40])
def test_numbers_that_are_data_compare_exactly(device: str, n: int) -> None:
    for x in (UNSIGNED, SIGNED, WIDE):
        for op in ("<", "<=", "==", "!=", ">", ">="):
            want = eval(f"x {op} n", {"x": x, "n": n})
            check(lg.compile(eval(f"lambda x, n: x {op} n"))(lg.asarray(x), n), want)
            check(lg.compile(eval(f"lambda x, n: n {op} x"))(lg.asarray(x), n), eval(f"n {op} x", {"x": x, "n": n}))
    counted = lg.fori_loop(0, 3, lambda _, count: count + 100, 0)
    check(lg.asarray(UNSIGNED) < counted, np.ones(4, bool))


def test_indices_of_loops_that_grow_beyond_a_dtype_are_refused() -> None:
    x = lg.asarray(UNSIGNED)
    assert lg.fori_loop(0, 256, lambda k, v: lg.maximum(v, k), x).tolist() == [255] * 4
    with pytest.raises(OverflowError, match="got 256"):
        lg.fori_loop(0, 257, lambda k, v: lg.maximum(v, k), x)
    with pytest.raises(OverflowError, match="got -1"):
        lg.fori_loop(-1, 2, lambda k, v: lg.fori_loop(0, 2, lambda _, w: w + k, v), x)


OF_INTS = ["abs(-300)", "negative(300)", "square(20)", "sign(-300)", "positive(300)", "bitwise_invert(3)",
           "clip(300, 0, 400)", "floor(300)"]  # fmt: skip


@pytest.mark.parametrize("text", OF_INTS)
def test_what_is_computed_of_python_ints_is_an_int64(text: str) -> None:
    with lg.default_device("interpreter"):
        got = eval(f"lg.{text} + x", {"lg": lg, "x": lg.asarray(UNSIGNED)})
    check(got, eval(f"np.{text} + x", {"np": np, "x": UNSIGNED}))


def test_one_number_beside_operands_of_many_kinds() -> None:
    """An operator knows the number that it met last beside operands alike, by its identity."""
    numbers = [2.5, 3, 0.0, -0.0, 1.0, 1, math.nan, math.inf, True, 2.5]
    operands = [np.array([1.5, -0.0]), np.array([1.5], np.float32), np.array(2.0), np.array([3, 4]), np.array([True])]
    operations = [
        lambda x, n: x + n, lambda x, n: n - x, lambda x, n: x * n, lambda x, n: n / x, lambda x, n: x < n,
        lambda x, n: x == n, lambda x, n: (x * n + n) * n - n,
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        for _ in range(3):
            for array in operands:
                x = lg.asarray(array)
                for operation in operations:
                    for n in numbers:
                        try:
                            expected = operation(array, n)
                        except TypeError:  # NumPy subtracts no bools
                            continue
                        got = np.asarray(operation(x, n))
                        assert got.dtype == expected.dtype
                        np.testing.assert_array_equal(got, expected)
                        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
