from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special

from loopgrad.graph import types as T
from loopgrad.graph.errors import DTypeError, ShapeError
from loopgrad.graph.primitives import elementwise
from loopgrad.graph.primitives.elementwise import BINARY, COMPARE, UNARY

INT = np.array([-7, -2, -1, 0, 1, 2, 7], dtype=np.int32)
INT_MIN, INT_MAX = np.iinfo(np.int32).min, np.iinfo(np.int32).max
EDGES = np.array([-np.inf, -2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5, np.inf, np.nan])

ORACLES = {
    "rsqrt": lambda x: 1 / np.sqrt(x), "round": np.round, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": scipy.special.erf,
    "erfc": scipy.special.erfc, "lgamma": scipy.special.gammaln, "neg": lambda x: -x,
    "sign": lambda x: np.where(np.isnan(x), np.nan, (x > 0) * 1.0 - (x < 0)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("op", [op for op in UNARY if op not in ("invert", "digamma", "bit_count")])
def test_unary_float_functions_follow_numpy_on_edges(apply, op, dtype):
    x = EDGES.astype(dtype)
    with np.errstate(all="ignore"):
        expected = (ORACLES.get(op) or getattr(np, op))(x)
    got = apply(op, x)
    assert got.dtype == x.dtype
    if op == "lgamma":  # libraries disagree about -inf; ours says inf
        x, got, expected = x[1:], got[1:], expected[1:]
    np.testing.assert_allclose(got, expected, rtol=1e-6 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", [op for op, row in {**UNARY, **BINARY, **COMPARE}.items() if "f" in row.kinds])
def test_every_row_keeps_half_precision_types(apply, op, dtype):
    x = np.array([0.5, 1.0, 2.0]).astype(T.dtype_named(dtype).np)
    got = apply(op, x) if op in UNARY else apply(op, x, x)
    assert got.dtype == (np.bool_ if op in COMPARE else x.dtype)


def test_round_is_half_to_even(apply):
    np.testing.assert_array_equal(apply("round", np.array([0.5, 1.5, 2.5, -0.5, -1.5])), [0, 2, 2, -0.0, -2])


def test_digamma_matches_scipy_and_has_nan_poles(apply):
    x = np.concatenate([np.linspace(-5.3, 30, 200), [1e-8, 1e5, 1e300, np.inf]])
    np.testing.assert_allclose(apply("digamma", x), scipy.special.digamma(x), rtol=1e-12, atol=1e-13)
    assert np.isnan(apply("digamma", np.array([-1.0, -7.0, -np.inf, np.nan]))).all()
    assert apply("digamma", np.array([0.0, -0.0])).tolist() == [-np.inf, np.inf]


def test_lgamma_is_infinite_at_its_poles_and_on_overflow(apply):
    assert np.isposinf(apply("lgamma", np.array([0.0, -1.0, -8.0, np.inf, -np.inf, 1e308]))).all()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integer_division_by_zero_gives_zero_everywhere(apply, dtype):
    x = np.array([5, 0, 7], dtype=dtype)
    for op in ("div", "floordiv", "rem", "mod"):
        np.testing.assert_array_equal(apply(op, x, np.zeros(3, dtype)), [0, 0, 0])


def test_integer_division_rounds_as_named(apply):
    x, y = (a.ravel() for a in np.meshgrid(INT, INT[INT != 0]))
    exact = [(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(apply("div", x, y), [math.trunc(a / b) for a, b in exact])
    np.testing.assert_array_equal(apply("floordiv", x, y), [a // b for a, b in exact])
    np.testing.assert_array_equal(apply("rem", x, y), [int(math.fmod(a, b)) for a, b in exact])
    np.testing.assert_array_equal(apply("mod", x, y), [a % b for a, b in exact])


def test_integer_division_of_the_least_number_by_minus_one_wraps(apply):
    x, y = np.array([INT_MIN], np.int32), np.array([-1], np.int32)
    assert apply("div", x, y)[0] == INT_MIN
    assert apply("floordiv", x, y)[0] == INT_MIN
    assert apply("rem", x, y)[0] == 0
    assert apply("mod", x, y)[0] == 0


def test_float_division_keeps_ieee_rules(apply):
    x, y = np.array([1.0, -1.0, 0.0, 5.5, -5.5, 1.0]), np.array([0.0, 0.0, 0.0, 2.0, 2.0, 0.1])
    np.testing.assert_array_equal(apply("div", x, y), [np.inf, -np.inf, np.nan, 2.75, -2.75, 10.0])
    np.testing.assert_array_equal(apply("floordiv", x, y)[3:], [2.0, -3.0, 9.0])
    np.testing.assert_array_equal(apply("rem", x, y)[3:5], [1.5, -1.5])
    np.testing.assert_array_equal(apply("mod", x, y)[3:5], [1.5, 0.5])
    assert np.isnan(apply("mod", x, y)[:3]).all()


def test_floordiv_and_mod_put_a_number_together_again(apply):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=100) * 50, rng.normal(size=100) * 3
    np.testing.assert_allclose(apply("floordiv", x, y) * y + apply("mod", x, y), x, rtol=1e-12)


def test_integer_pow_of_negative_exponents_truncates_and_wraps(apply):
    x = np.array([2, -2, 1, -1, -1, 0, 3, 10], np.int32)
    y = np.array([-1, -3, -5, -3, -4, -1, 4, 10], np.int32)
    wrapped = (10**10 + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(apply("pow", x, y), [0, 0, 1, -1, 1, 0, 81, wrapped])


@pytest.mark.parametrize("op", ["min", "max"])
def test_min_and_max_propagate_nan(apply, op):
    got = apply(op, np.array([np.nan, 1.0, 2.0]), np.array([0.0, np.nan, 3.0]))
    np.testing.assert_array_equal(got, [np.nan, np.nan, 2.0 if op == "min" else 3.0])


def test_shifts_beyond_the_width_shift_everything_out(apply):
    x, y = np.array([1, -1, 5, -8, -8], np.int32), np.array([31, 40, -1, 2, 99], np.int32)
    np.testing.assert_array_equal(apply("shl", x, y), [INT_MIN, 0, 0, -32, 0])
    np.testing.assert_array_equal(apply("shr", x, y), [0, -1, 0, -2, -1])


def test_logic_on_bools_and_bits(apply):
    p, q = np.array([True, True, False, False]), np.array([True, False, True, False])
    np.testing.assert_array_equal(apply("and", p, q), p & q)
    np.testing.assert_array_equal(apply("or", p, q), p | q)
    np.testing.assert_array_equal(apply("xor", p, q), p ^ q)
    np.testing.assert_array_equal(apply("invert", p), ~p)
    np.testing.assert_array_equal(apply("invert", INT), ~INT)
    np.testing.assert_array_equal(apply("xor", INT, INT), np.zeros_like(INT))
    counted = apply("bit_count", INT.astype(np.uint32))
    np.testing.assert_array_equal(counted, [bin(x).count("1") for x in INT.astype(np.uint32)])
    assert counted.dtype == np.uint32


def test_comparisons_with_nan_are_false_except_ne(apply):
    x = np.array([np.nan, 1.0])
    for op in COMPARE:
        got = apply(op, x, x)
        assert got.dtype == np.bool_
        assert bool(got[0]) == (op == "ne")
    np.testing.assert_array_equal(apply("is_nan", x), [True, False])
    np.testing.assert_array_equal(apply("is_inf", np.array([np.inf, -np.inf, np.nan, 0])), [True, True, False, False])


@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
@pytest.mark.parametrize("target", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_cast_of_floats_to_integers_truncates_and_saturates(apply, source, target):
    x = np.array([np.nan, -np.inf, np.inf, -1.9, 1.9, -0.5, 60000.0]).astype(source)
    low, high = np.iinfo(target).min, np.iinfo(target).max
    expected = [0, low, high, max(-1, low), 1, 0, min(60000, high)]
    if source == "float16":
        expected[-1] = min(int(np.float16(60000.0)), high)
    got = apply("cast", x, dtype=T.dtype_named(target))
    assert got.tolist() == expected


@pytest.mark.parametrize("target", ["int64", "uint64"])
def test_cast_saturates_at_the_border_floats_cannot_hold(apply, target):
    high = np.iinfo(target).max
    border = float(high)  # rounds up to the power of two
    below = np.nextafter(border, 0)
    assert apply("cast", np.array([border, below]), dtype=T.dtype_named(target)).tolist() == [high, int(below)]


def test_cast_between_integers_wraps_and_to_bool_compares(apply):
    assert apply("cast", np.array([300, -1], np.int32), dtype=T.uint8).tolist() == [44, 255]
    assert apply("cast", np.array([0.0, -0.0, 0.1, np.nan]), dtype=T.bool_).tolist() == [False, False, True, True]
    assert apply("cast", np.array([True, False]), dtype=T.float32).tolist() == [1.0, 0.0]
    assert np.isposinf(apply("cast", np.array([1e300]), dtype=T.float32))[0]


def test_select_ignores_the_other_branch(apply):
    got = apply("select", np.array([True, False]), np.array([1.0, np.nan]), np.array([np.nan, 2.0]))
    np.testing.assert_array_equal(got, [1.0, 2.0])


@pytest.mark.parametrize("op", ["stop_gradient", "alias"])
def test_identities(apply, op):
    np.testing.assert_array_equal(apply(op, INT), INT)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 1, 2)])
def test_scalars_and_empty_arrays(apply, shape):
    x = np.ones(shape, np.float32)
    for op, row in {**UNARY, **BINARY}.items():
        if "f" in row.kinds:
            got = apply(op, x) if op in UNARY else apply(op, x, x)
            assert got.shape == shape
            assert got.dtype == np.float32


def test_no_row_gives_a_warning_on_extreme_integers(apply):
    for dtype in ("int8", "uint8", "int64", "uint64"):
        limits = np.iinfo(dtype)
        x = np.array([limits.min, limits.max, limits.max], dtype)
        for op, row in {**UNARY, **BINARY}.items():
            if limits.kind in row.kinds:
                assert (apply(op, x) if op in UNARY else apply(op, x, x)).dtype == x.dtype


def test_operands_that_do_not_fit_are_refused_with_the_reason(apply):
    x = np.ones(3, np.float32)
    with pytest.raises(
        ShapeError, match=r"add: expected operands of one shape, got float32\[3\], float32\[4\]; broadc"
    ):
        apply("add", x, np.ones(4, np.float32))
    with pytest.raises(DTypeError, match=r"add: expected operands of one dtype, got float32\[3\], float64\[3\]; cast"):
        apply("add", x, np.ones(3))
    with pytest.raises(DTypeError, match=r"add: .* or complex elements, got bool\[1\]"):
        apply("add", np.array([True]), np.array([True]))
    with pytest.raises(DTypeError, match=r"sin: expected float elements, got int32\[7\]"):
        apply("sin", INT)
    with pytest.raises(DTypeError, match=r"lt: expected operands of one dtype"):
        apply("lt", INT, INT.astype(np.int64))
    with pytest.raises(ShapeError, match="select: expected operands of one shape"):
        apply("select", np.array(True), x, x)
    with pytest.raises(DTypeError, match="select: expected bool elements"):
        apply("select", x, x, x)


def test_errors_are_also_the_built_in_ones_and_name_the_line(apply):
    with pytest.raises(ValueError, match=__name__.rsplit(".", 1)[-1] + r"\.py:\d+|conftest\.py:\d+") as raised:
        apply("add", np.ones(3), np.ones(4))
    assert isinstance(raised.value, ShapeError)
    with pytest.raises(TypeError):
        apply("sin", INT)


def test_stacks_are_refused(leaf):
    stack = elementwise.Value(T.StackType(T.TensorType((), T.float32)))
    x = leaf("float32")
    for operands in ((stack, stack), (x, stack), (stack, x)):
        with pytest.raises(DTypeError, match="add: expected a tensor, got stack"):
            elementwise.ROWS["add"].infer(operands, {}, ())
    with pytest.raises(DTypeError, match="sin: expected a tensor"):
        elementwise.ROWS["sin"].infer((stack,), {}, ())


def test_inference_hands_the_operand_type_on(leaf):
    x = leaf("float32", 3)
    assert elementwise.ROWS["add"].infer((x, x), {}, ())[0] is x.type
    assert elementwise.ROWS["lt"].infer((x, x), {}, ())[0] is elementwise.ROWS["ge"].infer((x, x), {}, ())[0]
