"""Elementwise functions against NumPy, on every device."""

from __future__ import annotations

import math

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import both, check

WIDE = np.array([-3.7, -1.0, -0.5, -0.0, 0.0, 0.3, 0.5, 1.0, 1.5, 2.5, 7.25])
UNIT = np.array([-0.99, -0.5, -0.0, 0.0, 0.25, 0.99])
POSITIVE = np.array([0.01, 0.5, 1.0, 2.0, 40.0])
ABOVE_ONE = np.array([1.0, 1.5, 3.0, 20.0])
INTS = np.array([-7, -1, 0, 1, 3, 100], np.int32)

UNARY = {
    "negative": WIDE, "absolute": WIDE, "sign": WIDE, "floor": WIDE, "ceil": WIDE, "trunc": WIDE, "round": WIDE,
    "sqrt": POSITIVE, "exp": WIDE, "exp2": WIDE, "expm1": WIDE, "log": POSITIVE, "log2": POSITIVE, "log10": POSITIVE,
    "log1p": POSITIVE, "sin": WIDE, "cos": WIDE, "tan": UNIT, "asin": UNIT, "acos": UNIT, "atan": WIDE, "sinh": WIDE,
    "cosh": WIDE, "tanh": WIDE, "asinh": WIDE, "acosh": ABOVE_ONE, "atanh": UNIT, "square": WIDE, "cbrt": WIDE,
    "reciprocal": POSITIVE, "signbit": WIDE, "isnan": WIDE, "isinf": WIDE, "isfinite": WIDE, "logical_not": WIDE,
    "positive": WIDE,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unary(device: str, name: str, dtype: str) -> None:
    both(name, UNARY[name].astype(dtype), rtol=2e-5 if dtype == "float32" else 1e-11)


@pytest.mark.parametrize("name", ["erf", "erfc", "lgamma", "rsqrt", "sigmoid"])
def test_functions_that_numpy_lacks(device: str, name: str) -> None:
    reference = {
        "erf": math.erf, "erfc": math.erfc, "lgamma": math.lgamma, "rsqrt": lambda v: v**-0.5,
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
    }  # fmt: skip
    check(getattr(lg, name)(lg.asarray(POSITIVE)), [reference[name](v) for v in POSITIVE], rtol=1e-11)


BINARY = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power", "minimum", "maximum",
    "atan2", "hypot", "copysign", "logaddexp", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor",
]  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binary_floats(device: str, name: str, dtype: str) -> None:
    x = np.array([[0.5, 2.0, 3.5, -1.5]], dtype)
    y = np.array([[1.0], [-2.0], [3.0]], dtype)
    both(name, np.abs(x) if name == "power" else x, y, rtol=2e-5 if dtype == "float32" else 1e-11)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", [n for n in BINARY if n not in ("power", "copysign", "logaddexp", "hypot", "atan2")])
def test_binary_integers(device: str, name: str) -> None:
    both(name, INTS, np.array([[2], [-3], [7]], np.int32))


@pytest.mark.parametrize("name", [f"bitwise_{op}" for op in ("and", "or", "xor", "left_shift", "right_shift")])
def test_bitwise(device: str, name: str) -> None:
    both(name, np.array([1, 6, 200, 7], np.int64), np.array([1, 3, 2, 0], np.int64))


@pytest.mark.parametrize("name", ["add", "multiply", "minimum", "maximum", "logical_and", "bitwise_xor", "equal"])
def test_bools(device: str, name: str) -> None:
    both(name, np.array([True, True, False, False]), np.array([True, False, True, False]))


def test_bools_have_no_difference() -> None:
    with pytest.raises(lg.DTypeError, match="bool"):
        lg.subtract(lg.asarray([True]), lg.asarray([False]))


def test_nan_propagates_through_minimum_and_maximum(device: str) -> None:
    both("minimum", np.array([np.nan, 1.0, 2.0]), np.array([1.0, np.nan, 3.0]))
    both("maximum", np.array([np.nan, 1.0, 2.0]), np.array([1.0, np.nan, 3.0]))


def test_special_values(device: str) -> None:
    special = np.array([np.nan, np.inf, -np.inf, -0.0])
    for name in ("isnan", "isinf", "isfinite", "signbit"):
        if name != "signbit":
            both(name, special)
    both("hypot", np.array([np.inf, 3.0, 0.0, 1e300]), np.array([np.nan, 4.0, 0.0, 1e300]))
    both("logaddexp", np.array([-np.inf, np.inf, 1000.0]), np.array([-np.inf, np.inf, 1000.0]))


def test_integers_become_the_default_float(device: str) -> None:
    check(lg.sin(lg.asarray(np.array([0, 1], np.int32))), np.sin([0.0, 1.0]))
    check(lg.asarray(INTS) / lg.asarray(np.int32(3)), INTS / np.int32(3))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 5, 0.5, -1, 2.5, -2])
def test_powers_by_python_numbers(device: str, exponent: float) -> None:
    x = np.array([0.5, 1.0, 2.5])
    check(lg.asarray(x) ** exponent, x**exponent)


def test_integer_powers(device: str) -> None:
    check(lg.asarray(INTS) ** 3, INTS**3)
    check(lg.asarray(INTS) ** lg.asarray(np.full(6, 2, np.int32)), INTS**2)
    check(2 ** lg.asarray(np.array([0, 5], np.int64)), [1, 32])
    with pytest.raises(ValueError, match="non-negative"):
        lg.asarray(INTS) ** -1


def test_operators_and_reflections(device: str) -> None:
    x, y = np.array([1.5, -2.5, 4.0]), np.array([2.0, 3.0, -1.5])
    a, b = lg.asarray(x), lg.asarray(y)
    for f in (
        lambda p, q: p + q, lambda p, q: p - q, lambda p, q: p * q, lambda p, q: p / q, lambda p, q: p // q,
        lambda p, q: p % q, lambda p, q: p < q, lambda p, q: p == q, lambda p, q: divmod(p, q)[1],
    ):  # fmt: skip
        check(f(a, b), f(x, y))
        check(f(a, 2.0), f(x, 2.0))
        check(f(3, b), f(3, y))
        check(f(x, b), f(x, y))
        check(f(a, y), f(x, y))
    check(-a, -x)
    check(abs(a), abs(x))
    check(round(a), np.round(x))
    check(~(a > 0), ~(x > 0))
    check((a > 0) & (b > 0), (x > 0) & (y > 0))
    check(np.float32(2) * lg.asarray(np.ones(2, np.float32)), np.full(2, 2, np.float32))


def test_unknown_operand_is_left_to_the_other_side() -> None:
    class Other:
        def __radd__(self, other: object) -> str:
            return "mine"

    assert lg.ones(2) + Other() == "mine"
    with pytest.raises(TypeError):
        lg.ones(2) + object()


def test_where_and_clip(device: str) -> None:
    x = np.linspace(-2, 2, 9)
    a = lg.asarray(x)
    check(lg.where(a > 0, a, 0), np.where(x > 0, x, 0))
    check(lg.where(a > 0, 1, 2), np.where(x > 0, 1, 2))
    check(lg.where(lg.asarray([[True], [False]]), a, -a), np.where([[True], [False]], x, -x))
    check(a.clip(-1, 1), x.clip(-1, 1))
    check(lg.clip(a, max=0.5), np.clip(x, None, 0.5))
    check(lg.asarray(INTS).clip(0, 3), INTS.clip(0, 3))
    for few, upper in ((INTS > 0, np.uint8(1)), (INTS > 0, np.float32(0.5)), (INTS.astype(np.uint8), np.float32(7))):
        check(lg.clip(lg.asarray(few), 0, upper), np.clip(few, 0, upper))  # of one dtype, not of two in turn


@pytest.mark.parametrize("name", ["round", "floor", "ceil", "trunc"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_has_numpys_bits(device: str, name: str, dtype: str) -> None:
    most = {"float32": 2.0**23, "float64": 2.0**52}[dtype]
    sizes = np.array([0.0, 0.3, 0.5, 1.0, 1.5, 2.5, most / 2 + 0.5, most / 2 + 1.5, most - 0.5, most, np.inf])
    x = np.concatenate([sizes, -sizes]).astype(dtype)
    got = np.asarray(getattr(lg, name)(lg.asarray(x)))
    assert got.tobytes() == getattr(np, {"round": "rint"}.get(name, name))(x).tobytes()


@pytest.mark.parametrize("decimals", [0, 1, 2, -1])
def test_round(device: str, decimals: int) -> None:
    x = np.array([0.125, 2.675, -1.5, 0.5, 1234.5])
    check(lg.round(lg.asarray(x), decimals), np.round(x, decimals))
    check(lg.round(lg.asarray(np.array([14, 15, 26])), decimals), np.round(np.array([14, 15, 26]), decimals))
    z = np.array([1.26 + 14.35j, complex(np.inf, 1.06), complex(-2.34, np.nan), complex(-0.0, -np.inf)])
    check(lg.round(lg.asarray(z), decimals), np.round(z, decimals))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rounding_to_more_places_than_a_number_has(device: str, dtype: str) -> None:
    """NumPy's are NaN; Python's round is the oracle, of float64 to all places, of others to those that they have."""
    x = np.array([1.5, -2.25, 3e-6, 6e4, 0.0, -0.0, np.inf, -np.inf], dtype)
    for decimals in (20, 309, 400, 2**70):
        check(lg.round(lg.asarray(x), decimals), x)
        check(lg.round(lg.asarray(x), -decimals), np.where(np.isinf(x), x, np.copysign(x.dtype.type(0), x)))
    check(lg.round(lg.asarray(np.array([-(2**63), 7])), -400), np.zeros(2, np.int64))
    if dtype == "float64":
        sizes = np.array([1e300, -1.25e-310, 5e-324])
        for decimals in (8, 10, 311, 322, 330):
            expected = np.array([round(float(v), decimals) for v in sizes])
            np.testing.assert_allclose(np.asarray(lg.round(lg.asarray(sizes), decimals)), expected, rtol=1e-15)


@pytest.mark.parametrize("source", ["int32", "uint8", "float32", "float64", "bool"])
@pytest.mark.parametrize("target", ["int8", "int64", "uint16", "float32", "float64", "bool"])
def test_astype(device: str, source: str, target: str) -> None:
    x = np.array([0, 1, 2, 100]).astype(source)
    check(lg.asarray(x).astype(target), x.astype(target))


def test_float_to_integer_saturates_and_nan_is_zero(device: str) -> None:
    x = lg.asarray([np.nan, np.inf, -np.inf, 1e30, -1.9])
    assert x.astype(lg.int32).tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1, -1]


@pytest.mark.parametrize("shape", [(0,), (3, 0), ()])
def test_empty_and_scalar_operands(device: str, shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    check(lg.sin(lg.asarray(x)) * 2 + lg.asarray(x), np.sin(x) * 2 + x)


def test_shapes_that_do_not_meet() -> None:
    with pytest.raises(lg.ShapeError, match=r"\(3,\) and \(4,\)") as caught:
        lg.ones(3) + lg.ones(4)
    assert "test_elementwise.py" in str(caught.value)


def test_functions_are_called_as_users_call_them():
    for name in ("isnan", "isinf", "isfinite", "signbit", "subtract", "power", "sin"):
        assert getattr(lg, name).__name__ == name
