"""Elementwise rows against central differences, forward against reverse, and the points without a derivative."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.autodiff.rules import PARTIALS
from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.primitives import PRIMITIVES, Kind
from loopgrad.graph.types import float32, int64

SMOOTH = np.array([-1.7, -0.6, 0.3, 0.9, 2.4])
POSITIVE = np.array([0.2, 0.7, 1.3, 4.0])
INSIDE = np.array([-0.8, -0.2, 0.1, 0.6])

DOMAIN = {
    **dict.fromkeys(("sqrt", "rsqrt", "cbrt", "log", "log2", "log10", "log1p", "lgamma", "digamma"), POSITIVE),
    **dict.fromkeys(("asin", "acos", "atanh"), INSIDE),
    "acosh": POSITIVE + 1.1,
}
UNARY = [
    op for op, partials in PARTIALS.items()
    if len(partials) == 1 and op != "cast" and PRIMITIVES[op].kind is not Kind.PARTS
]  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_unary(derivatives, op):
    derivatives.check(lambda x: emit(op, (x,)), [DOMAIN.get(op, SMOOTH)], order=2)


@pytest.mark.parametrize("op", ["lgamma", "digamma"])
def test_gamma_functions_at_negative_arguments(derivatives, op):
    derivatives.check(lambda x: emit(op, (x,)), [np.array([-0.3, -1.6, 0.2, 12.5])], rtol=1e-4)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "rem", "mod", "atan2", "min", "max"])
def test_binary(derivatives, op):
    a, b = np.array([1.3, -2.6, 5.2, 0.4]), np.array([0.7, 1.1, -1.9, -0.3])
    derivatives.check(lambda x, y: emit(op, (x, y)), [a, b], order=2)


def test_pow_of_both_operands(derivatives):
    derivatives.check(lambda x, y: [ops.pow(x, y)], [np.array([0.3, 1.2, 2.5]), np.array([1.7, -0.6, 2.0])], order=2)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -2, 0.5, 2.5])
def test_pow_of_a_constant_exponent(derivatives, exponent):
    derivatives.check(lambda x: [ops.pow(x, exponent)], [np.array([0.4, 1.5, 3.0])], order=2)


@pytest.mark.parametrize("exponent", [2, 3])
def test_pow_of_negative_bases(derivatives, exponent):
    derivatives.check(lambda x: [ops.pow(x, exponent)], [np.array([-1.4, -0.2, 0.7])], order=2)


def test_select_and_cast(derivatives):
    def function(p, a, b):
        return [ops.cast(ops.cast(ops.select(ops.gt(p, 0), ops.sin(a), b), float32), a.dtype)]

    arrays = [np.array([1, -1, 0]), np.array([0.2, 0.4, 0.6]), np.array([1.0, 2.0, 3.0])]
    a, b = derivatives.gradients(function, arrays)
    np.testing.assert_allclose(a, [np.cos(0.2), 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(b, [0, 1, 1])


def test_casts_to_integers_and_back_stop(derivatives):
    def function(x):
        return [ops.mul(ops.cast(ops.cast(x, int64), x.dtype), ops.sin(x))]

    (gradient,) = derivatives.gradients(function, [np.array([1.5, 2.5])])
    np.testing.assert_allclose(gradient, [np.cos(1.5), 2 * np.cos(2.5)])


def test_stop_gradient(derivatives):
    x = np.array([3.0, -2.0])
    (gradient,) = derivatives.gradients(lambda x: [ops.mul(ops.stop_gradient(x), ops.alias(x))], [x])
    np.testing.assert_array_equal(gradient, x)


# ---- where there is no derivative


def test_abs_at_zero_gives_zero(derivatives):
    (gradient,) = derivatives.gradients(lambda x: [ops.abs(x)], [np.array([-2.0, 0.0, 3.0])])
    np.testing.assert_array_equal(gradient, [-1.0, 0.0, 1.0])


@pytest.mark.parametrize("op", [ops.min, ops.max])
def test_ties_are_split_in_halves(derivatives, op):
    a, b = derivatives.gradients(lambda x, y: [op(x, y)], [np.array([1.0]), np.array([1.0])])
    assert (a, b) == (0.5, 0.5)


def test_power_zero_is_flat_even_at_zero(derivatives):
    zeros, ones = np.zeros(3), np.array([0.0, 1.0, 2.0])
    x, n = derivatives.gradients(lambda x, n: [ops.pow(x, n)], [zeros, ones])
    np.testing.assert_array_equal(x, [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(n, [0.0, 0.0, 0.0])
    for exponent, slope in ((0, 0.0), (1, 1.0), (2, 0.0), (3, 0.0)):
        (g,) = derivatives.gradients(lambda x, e=exponent: [ops.pow(x, e)], [np.zeros(1)])
        assert g == slope


def test_atan2_at_the_origin_gives_zero(derivatives):
    y, x = derivatives.gradients(lambda y, x: [ops.atan2(y, x)], [np.zeros(1), np.zeros(1)])
    assert (y, x) == (0, 0)


def test_sqrt_at_zero_is_infinite_where_it_counts(derivatives):
    (gradient,) = derivatives.gradients(lambda x: [ops.sqrt(x)], [np.array([0.0, 4.0])])
    np.testing.assert_array_equal(gradient, [np.inf, 0.25])


SINGULAR_AT_ZERO = {
    "sqrt": lambda x: ops.sqrt(x),
    "log": lambda x: ops.log(x),
    "reciprocal": lambda x: ops.div(1.0, x),
    "rsqrt": lambda x: ops.rsqrt(x),
    "pow": lambda x: ops.pow(x, 0.5),
    "product of infinities": lambda x: ops.mul(x, ops.exp(ops.div(1.0, x))),
    "overflow": lambda x: ops.exp(ops.mul(ops.exp(ops.div(1.0, ops.abs(x))), x)),
}


@pytest.mark.parametrize("name", SINGULAR_AT_ZERO)
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_select_never_lets_the_discarded_side_poison(derivatives, name, mode):
    def function(x):
        return [ops.select(ops.gt(x, 0), SINGULAR_AT_ZERO[name](x), ops.mul(x, 3))]

    x = np.array([0.0, 1.5])
    if mode == "reverse":
        (gradient,) = derivatives.gradients(function, [x])
    else:
        (_, gradient) = derivatives.run_jvp(function, [x], [0], [np.ones(2)])
    assert gradient[0] == 3
    assert np.isfinite(gradient[1])


def test_second_derivative_passes_through_a_zero_cotangent(derivatives):
    """(sqrt(x) - 1)**2 at x = 1: the first cotangent of sqrt is exactly 0, the second derivative is not."""

    def function(x):
        r = ops.sub(ops.sqrt(x), 1)
        return [ops.mul(r, r)]

    (second,) = derivatives.gradients(derivatives.gradient_of(function, [0]), [np.array([1.0])])
    np.testing.assert_allclose(second, 0.5)
    _, tangent = derivatives.run_jvp(derivatives.gradient_of(function, [0]), [np.array([1.0])], [0], [np.ones(1)])
    np.testing.assert_allclose(tangent, 0.5)


@pytest.mark.parametrize(
    ("function", "guards"),
    [
        (lambda x: ops.div(x, 3.0), 0),
        (lambda x: ops.div(1.0, x), 1),
        (lambda x: ops.pow(x, 2.0), 0),
        (lambda x: ops.pow(x, 0.5), 1),
        (lambda x: ops.sin(x), 0),
    ],
)
def test_only_singular_derivatives_are_guarded(derivatives, function, guards):
    graph = derivatives.graph_of(derivatives.gradient_of(lambda x: [function(x)], [0]), [np.array([0.5, 1.5])])
    assert [n.op for n in graph.nodes].count("is_nan") == guards


@pytest.mark.parametrize(("kept", "guards"), [(False, 2), (True, 0)])
def test_only_what_a_select_may_discard_altogether_is_guarded(derivatives, kept, guards):
    def function(x, c):
        product = ops.mul(x, c)
        chosen = ops.select(ops.gt(c, 1.0), product, 0.0)
        return [ops.add(chosen, product) if kept else chosen]

    arrays = [np.array([0.5, 1.5]), np.array([0.7, 1.7])]
    graph = derivatives.graph_of(derivatives.gradient_of(function, [0, 1]), arrays)
    assert [n.op for n in graph.nodes].count("is_nan") == guards
    derivatives.check(function, arrays, order=2)


def over_rows(x, y):
    return [ops.mul(ops.div(x, ops.broadcast(y, x.shape, (0,))), 1e-4)]


def test_divisors_of_whole_rows_are_inverted_once(derivatives):
    arrays = [np.array([[1.3, -2.6, 5.2], [0.4, 0.0, -3.1]]), np.array([0.7, -1.9])]
    derivatives.check(over_rows, arrays, order=2)
    graph = derivatives.graph_of(derivatives.gradient_of(over_rows, [0, 1]), arrays)
    shapes = [n.results[0].shape for n in graph.nodes if n.op == "div"]
    assert shapes.count((2, 3)) == 1  # the quotient itself


def test_divisors_of_halves_whose_inverse_is_beyond_their_range(derivatives):
    x, y = np.ones((2, 3), np.float16), np.array([6e-7, 2.0], np.float16)
    slope, _ = derivatives.gradients(over_rows, [x, y])
    np.testing.assert_allclose(slope[:, 0], np.float16(1e-4) / y, rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_divisors_whose_inverse_is_no_normal_number(derivatives, dtype):
    """A subnormal one's inverse is infinite though the derivative is finite, one of the largest loses bits."""
    limits = np.finfo(dtype)
    y = np.array([limits.smallest_subnormal * 24, -limits.tiny / 8, limits.max, 2.0, np.inf, 0.0], dtype)
    scales = np.array([limits.tiny, limits.tiny, 1e30, 1e-4, 1, 1], dtype)

    def over(x, y, z):
        return [ops.mul(ops.div(x, ops.broadcast(y, x.shape, (0,))), ops.broadcast(z, x.shape, (0,)))]

    slope, *_ = derivatives.gradients(over, [np.ones((6, 3), dtype), y, scales])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(slope[:, 0], scales / y, rtol=4 * limits.eps)
