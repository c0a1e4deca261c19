"""Totals with rests, in float32, against exact sums of fractions."""

from fractions import Fraction

import numpy as np
import pytest

from loopgrad.codegen.math.compensated import added, balanced, merged, rounded, two_sum

ONE = np.float32(1)
NOTHING = (np.float32(-0.0), np.float32(-0.0))


class Single:
    """Arithmetic of NumPy's float32 scalars."""

    add = staticmethod(np.add)
    sub = staticmethod(np.subtract)
    lt = staticmethod(np.less)
    either = staticmethod(np.logical_or)

    @staticmethod
    def select(m, x, y):
        return x if m else y


def summed(terms):
    pair = NOTHING
    with np.errstate(all="ignore"):
        for x in terms:
            pair = added(Single, *pair, np.float32(x))
        return rounded(Single, *pair)


def test_two_numbers_and_what_their_sum_loses():
    rng = np.random.default_rng(0)
    for x, y in rng.normal(size=(500, 2)) * 10.0 ** rng.integers(-9, 9, (500, 2)):
        x, y = np.float32(x), np.float32(y)
        total, lost = two_sum(Single, x, y)
        assert total == x + y
        assert Fraction(float(total)) + Fraction(float(lost)) == Fraction(float(x)) + Fraction(float(y))


@pytest.mark.parametrize("signed", [False, True])
def test_the_error_does_not_grow_with_the_number_of_terms(signed):
    rng = np.random.default_rng(1)
    terms = rng.uniform(-1 if signed else 0, 1, 20_000).astype(np.float32)
    exact = sum(map(Fraction, terms.tolist()))
    sizes = sum(map(abs, map(Fraction, terms.tolist())))
    halves = [NOTHING, NOTHING]
    for n, x in enumerate(terms):
        halves[n % 2] = added(Single, *halves[n % 2], x)
    for got in (summed(terms), rounded(Single, *merged(Single, *halves[0], *halves[1]))):
        assert abs(Fraction(float(got)) - exact) <= abs(exact) / 2**24 + sizes / 2**40


@pytest.mark.parametrize(
    ("terms", "wanted"),
    [
        ([-0.0] * 3, -0.0), ([0.0, -0.0], 0.0), ([1.0, -1.0], 0.0), ([np.inf, 1.0], np.inf), ([1.0, -np.inf], -np.inf),
        ([np.inf, -np.inf], np.nan), ([1.0, np.nan, 2.0], np.nan), ([3e38, 3e38, 1.0], np.inf),
        ([1e30, 1.0, -1e30], 1.0),
    ],
)  # fmt: skip
def test_special_terms(terms, wanted):
    got = summed(terms)
    np.testing.assert_equal(got, np.float32(wanted))
    assert np.signbit(got) == np.signbit(wanted) or np.isnan(wanted)


def test_joined_sums_keep_zeros_and_infinities():
    with np.errstate(all="ignore"):
        zero = rounded(Single, *merged(Single, *NOTHING, *NOTHING))
        large = rounded(Single, *merged(Single, np.float32(np.inf), np.float32(np.nan), ONE, ONE))
    assert zero == 0 and np.signbit(zero)  # noqa: PT018
    assert large == np.inf


def test_a_balanced_tree():
    assert balanced(lambda a, b: f"({a}{b})", list("abcde")) == "(((ab)(cd))e)"
    assert balanced(lambda a, b: a + b, [7]) == 7
