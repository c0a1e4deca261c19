"""`lg.special` against SciPy: the whole range, corners, dtypes, shapes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.programs.special_cases import REFERENCE, SPECIAL, WITHOUT_DERIVATIVES

RNG = np.random.default_rng(11)
COUNT = 40


def spread(low: float, high: float) -> np.ndarray:
    """Numbers of all sizes."""
    return np.exp(RNG.uniform(np.log(low), np.log(high), COUNT))


def both(low: float, high: float) -> np.ndarray:
    return np.concatenate([spread(low, high), -spread(low, high)])


POSITIVE, UNIT = spread(1e-6, 500.0), np.concatenate([spread(1e-9, 0.5), 1.0 - spread(1e-9, 0.5)])
A, B = np.exp(RNG.normal(0.0, 2.5, (2, COUNT)))
MIDDLE = 1.0 / (1.0 + np.exp(np.log(B / A) + 2.0 * RNG.normal(size=COUNT) * np.sqrt(1.0 / A + 1.0 / B)))
AROUND = A * np.exp(np.minimum(2.0, 3.0 / np.sqrt(A)) * RNG.normal(size=COUNT))
# name -> arguments, and for float32 what is allowed beside 3e-6 of the value
CASES: dict[str, tuple[np.ndarray, ...]] = {
    **{name: (both(1e-6, 80.0),) for name in ("i0", "i0e", "i1", "i1e", "j0", "j1", "expit", "log_expit", "softplus")},
    **dict.fromkeys(("k0", "k0e", "k1", "k1e", "y0", "y1", "exp1"), (POSITIVE / 10.0,)),
    **dict.fromkeys(("logit", "ndtri", "erfcinv"), (UNIT,)),
    "erfinv": (2.0 * UNIT - 1.0,), "ndtr": (both(1e-3, 12.0),), "log_ndtr": (both(1e-3, 12.0),), "entr": (POSITIVE,),
    "erfcx": (np.concatenate([spread(1e-6, 1e6), -spread(1e-3, 9.0)]),), "expi": (both(1e-6, 80.0),),
    "sici": (both(1e-6, 1e3),), "spence": (spread(1e-9, 1e9),), "gamma": (np.concatenate([spread(1e-3, 30), -A % 30]),),
    "lambertw": (np.concatenate([spread(1e-6, 1e6), -spread(1e-6, 0.36)]),), "factorial": (POSITIVE % 30.0,),
    "gammasgn": (both(0.1, 30.0),), "digamma": (POSITIVE,), "psi": (POSITIVE,), "gammaln": (POSITIVE,),
    "xlogy": (A, B), "xlog1py": (A, B), "rel_entr": (A, B), "kl_div": (A, B), "beta": (A, B), "betaln": (A, B),
    "zeta": (1.0 + A, B), "gammainc": (A, AROUND), "gammaincc": (A, AROUND),
    "betainc": (A, B, MIDDLE), "betaincc": (A, B, MIDDLE), "erf": (both(1e-3, 5.0),), "erfc": (both(1e-3, 5.0),),
}  # fmt: skip
# by rounding alone these are sums of what has another sign
ABSOLUTE = ("j0", "j1", "y0", "y1", "expi", "sici", "digamma", "psi", "gammaln", "betaln", "entr", "xlogy", "rel_entr")
CORNERS = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan, 0.5, -0.5])


def near(name: str, found: object, expected: object, tolerance: float) -> None:
    for ours, theirs in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        floor = tolerance if name in ABSOLUTE else 1e-300 if tolerance < 1e-9 else 1e-36
        wide = np.asarray(ours, np.float64)
        np.testing.assert_allclose(wide, np.asarray(theirs, np.float64), tolerance, floor, err_msg=name)


def test_all_functions_are_tested() -> None:
    assert [n for n in lg.special.__all__ if n not in CASES] == ["log_softmax", "logsumexp", "polygamma", "softmax"]


@pytest.mark.costly
@pytest.mark.in_turns
@pytest.mark.parametrize("name", CASES)
def test_over_the_whole_range(device: str, name: str) -> None:
    arguments = CASES[name]
    near(name, getattr(lg.special, name)(*map(lg.asarray, arguments)), getattr(REFERENCE, name)(*arguments), 2e-13)


@pytest.mark.costly
@pytest.mark.in_turns
@pytest.mark.parametrize("name", CASES)
def test_of_narrow_floats(device: str, name: str) -> None:
    narrow = [x.astype(np.float32) for x in CASES[name]]
    expected = getattr(REFERENCE, name)(*[x.astype(np.float64) for x in narrow])
    near(name, getattr(lg.special, name)(*map(lg.asarray, narrow)), expected, 1e-5)


@pytest.mark.parametrize("name", ["betainc", "j0", "erfinv", "xlogy"])
def test_dtypes_and_shapes(name: str) -> None:
    function, count = getattr(lg.special, name), len(CASES[name])
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        one = [lg.asarray([[0.5], [0.25]]).astype(dtype) for _ in range(count)]
        assert function(*one).dtype is getattr(lg, dtype)
        assert function(*[x[:0] for x in one]).shape == (0, 1)
    ones = [lg.ones((2, 1), dtype=lg.int64), lg.ones(3, dtype=lg.int32), lg.ones((), dtype=lg.bool)][:count]
    assert function(*ones).dtype is lg.float64
    assert function(*ones).shape == ((2, 3) if count > 1 else (2, 1))
    assert (function(*[0.5] * count) * lg.ones(1, dtype=lg.float32)).dtype is lg.float32
    with pytest.raises(lg.DTypeError, match=name):
        function(*[lg.ones(2) * 1j] * count)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("digamma", "psi", "gammaln", "erf", "erfc")])
def test_corners_are_scipys(name: str) -> None:
    values = np.meshgrid(*[CORNERS] * len(CASES[name]))
    if name == "lambertw":
        values = [np.where(values[0] < -0.36, 1.0, values[0])]  # SciPy's are complex
    if name == "zeta":
        # SciPy's goes on below 1 where q is 1, and has poles for no s and at minus infinity
        values = [np.where(values[0] >= 1.0, values[0], 2.0), np.where(values[1] == -np.inf, 1.0, values[1])]
    if name.startswith("beta"):  # for us of positive numbers
        least = 0.0 if len(values) == 2 else 0.25
        values = [np.where(v >= least, np.minimum(v, 3.0), least) for v in values[:2]] + list(values[2:])
    with np.errstate(all="ignore"):
        expected = np.asarray(getattr(REFERENCE, name)(*values))
    found = np.asarray(getattr(lg.special, name)(*map(lg.asarray, values)))
    limit = np.isnan(expected) & np.any(np.isinf(values), axis=0) & ~np.any(np.isnan(values), axis=0)
    near(name, np.where(limit, np.nan, found), expected, 1e-12)  # where SciPy has no limit at infinity


# by the arguments' slopes, of functions in each of whose pieces a point lies
DERIVED = ("gammainc", "gammaincc", "betainc", "lambertw", "zeta", "j1", "spence", "log_ndtr", "kl_div", "gamma")


@pytest.mark.in_turns
@pytest.mark.parametrize("name", DERIVED)
def test_derivatives(name: str) -> None:
    """Both modes against central differences of SciPy's, of the sum of all results by one factor for each argument."""
    call, arrays = SPECIAL[name][0]

    def total(module: Any, sources: Sequence[Any], factors: Sequence[Any]) -> Any:
        return call(module, *[x * f for x, f in zip(sources, factors, strict=True)]).sum()

    with lg.default_device("interpreter"):
        tensors, ones = [lg.asarray(a) for a in arrays], tuple(lg.asarray(1.0) for _ in arrays)
        by_all = lg.grad(lambda *factors: total(lg, tensors, factors), tuple(range(len(ones))))
        slopes = np.asarray(lg.stack(by_all(*ones)))
        along = float(lg.jvp(lambda *factors: total(lg, tensors, factors), ones, ones)[1])
    scipys, expected = SimpleNamespace(special=REFERENCE), []
    for step in 1e-3 * np.eye(len(arrays)):
        ends = [(total(scipys, arrays, 1.0 + k * step) - total(scipys, arrays, 1.0 - k * step)) / k for k in (1, 2)]
        expected.append((4.0 * ends[0] - ends[1]) / 6e-3)
    np.testing.assert_allclose(slopes, expected, 2e-7, 1e-9)
    np.testing.assert_allclose(along, np.sum(expected), 1e-6)


def test_every_function_is_in_the_table() -> None:
    assert [n for n in lg.special.__all__ if n not in SPECIAL and n not in WITHOUT_DERIVATIVES] == []
    for name, cases in SPECIAL.items():
        if name not in CASES:
            for call, arrays in cases:
                near(name, call(lg, *map(lg.asarray, arrays)), call(SimpleNamespace(special=REFERENCE), *arrays), 1e-13)


def test_what_is_refused() -> None:
    for call, error in (
        (lambda: lg.special.polygamma(-1, 1.0), ValueError), (lambda: lg.special.polygamma(1.0, 1.0), TypeError),
        (lambda: lg.special.polygamma(200, 1.0), ValueError), (lambda: lg.special.lambertw(1.0, 2), ValueError),
        (lambda: lg.special.beta(lg.ones(2), lg.ones(3)), lg.ShapeError), (lambda: lg.i0(1j), lg.DTypeError),
        (lambda: lg.isposinf(1j), lg.DTypeError), (lambda: lg.isneginf(lg.ones(2) * 1j), lg.DTypeError),
        (lambda: lg.full_like(lg.ones(2), 1j), lg.DTypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()


@pytest.mark.costly
def test_in_loops_and_lanes(device: str) -> None:
    """A quantile by Newton's method, each lane its own steps, and its derivative by the shape."""
    shapes = np.array([0.7, 2.0, 5.5, 30.0])

    def median(a: lg.Tensor) -> lg.Tensor:
        def better(x: lg.Tensor) -> lg.Tensor:
            density = lg.exp((a - 1.0) * lg.log(x) - x - lg.special.gammaln(a))
            return lg.maximum(x - (lg.special.gammainc(a, x) - 0.5) / density, 0.1 * x)

        return lg.while_loop(lambda x: lg.abs(lg.special.gammainc(a, x) - 0.5) > 1e-12, better, a)

    value, slope = lg.value_and_grad(lambda a: lg.sum(median(a)))(lg.asarray(shapes))
    inverse = REFERENCE.gammaincinv
    np.testing.assert_allclose(float(value), inverse(shapes, 0.5).sum(), 1e-10)
    step = 1e-5
    expected = (inverse(shapes + step, 0.5) - inverse(shapes - step, 0.5)) / (2 * step)
    np.testing.assert_allclose(np.asarray(slope), expected, 1e-5)


def test_slopes_are_nan_where_values_are() -> None:
    """Of all functions but digamma (infinite slopes at its poles), in both modes and in second order."""
    s, nan = lg.special, np.nan
    outside = [
        (s.gamma, -2.0), (s.i0, nan), (s.k1e, -0.5), (s.exp1, -2.0), (s.logit, 2.0), (s.spence, -1.0),
        (lambda x: s.betaln(x, 0.7), -1.0), (s.lambertw, -np.inf),
    ]  # fmt: skip
    inside = [(s.gamma, 2.0), (lambda x: s.betaln(x, 0.7), 1.0)]  # which the rule must leave alone

    def orders(x: lg.Tensor) -> lg.Tensor:
        rows = []
        for k, (f, _) in enumerate(outside + inside):
            rows += [f(x[k]), lg.grad(f)(x[k]), lg.jvp(lg.grad(f), (x[k],), (1.0,))[1]]
        return lg.stack(rows)

    with lg.default_device("interpreter"):
        found = np.asarray(orders(lg.asarray([point for _, point in outside + inside])))
    assert np.isnan(found[: 3 * len(outside)]).all()
    assert np.isfinite(found[3 * len(outside) :]).all()


def test_gamma_at_whole_numbers_and_its_end() -> None:
    whole = np.arange(1.0, 17.0)
    expected = np.cumprod(np.concatenate([[1.0], whole[:-1]]))
    assert (np.asarray(lg.special.gamma(whole)) == expected).all()
    assert (np.asarray(lg.special.factorial(np.arange(8.0, dtype=np.float32))) == expected[:8]).all()
    narrow = lg.special.gamma(lg.asarray([35.0, 40.0, 100.0, 170.5, 1e30, -171.5], dtype=lg.float32))
    np.testing.assert_allclose(narrow, [2.952328e38, np.inf, np.inf, np.inf, np.inf, 0.0], 1e-5)
    slope, second = lg.grad(lg.special.gamma)(170.0), lg.grad(lg.grad(lg.special.gamma))(170.0)
    np.testing.assert_allclose([float(slope), float(second)], [2.191250441608612e305, 1.1249888037385308e306], 1e-11)


def test_infinite_shapes_and_zero() -> None:
    inf = np.inf
    a, b, x = np.array([[inf, 2, inf, 2, 2, inf], [2, inf, inf, inf, inf, 2], [0.5, 0.5, 0.5, 0.0, 1.0, 1.0]])
    np.testing.assert_array_equal(lg.special.betainc(a, b, x), REFERENCE.betainc(a, b, x))
    np.testing.assert_array_equal(lg.special.polygamma(0, [0.0, -0.0, -1.0]), [-inf, inf, np.nan])
    assert float(lg.special.lambertw(-0.2, k=-1)) == pytest.approx(-2.5426413577735265)


@pytest.mark.in_turns
def test_slopes_at_borders_and_beyond(device: str) -> None:
    cases = (
        (lg.special.erfinv, (2.0, np.nan), (-1.5, np.nan), (1.0, np.inf), (-1.0, np.inf)),
        (lg.special.erfcinv, (-1.0, np.nan), (2.5, np.nan), (0.0, -np.inf), (2.0, -np.inf)),
        (lg.special.ndtri, (-1.0, np.nan), (1.5, np.nan), (0.0, np.inf), (1.0, np.inf)),
        (lg.special.i0, (np.inf, np.inf), (-np.inf, -np.inf)),
        (lg.special.i1, (np.inf, np.inf), (-np.inf, np.inf)),
        (lg.grad(lg.special.i0e), (1e-300, 1.5)),
    )
    for function, *points in cases:
        x, expected = np.array(points).T
        slope = lg.vmap(lg.grad(function))(lg.asarray(x))
        np.testing.assert_allclose(np.asarray(slope), expected, rtol=1e-14, err_msg=str(function))


STEEP = {  # where pieces of the formula overflow; slopes by mpmath
    "erfcinv": (1e-300, -1.9063218669084346e298), "ndtri": (1e-300, 2.6973044650426122e298),
    "k1": (5e-324, -np.inf), "k1e": (5e-324, -np.inf),
    "lambertw": (-1e-300, -1.0014361155975969e300),
}  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("name", STEEP)
def test_slopes_next_to_a_border(device: str, name: str) -> None:
    """They overflow where they are that large, and not before, in both modes and dtypes."""
    x, expected = STEEP[name]
    f = partial(lg.special.lambertw, k=-1) if name == "lambertw" else getattr(lg.special, name)
    for found in (lg.grad(f)(lg.asarray(x)), lg.jvp(f, (lg.asarray(x),), (lg.asarray(1.0),))[1]):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-14)
    for dtype, least in ((lg.float64, 5e-324), (lg.float32, 1e-45)):
        smallest = lg.asarray(np.copysign(least, x), dtype)
        slopes = [lg.grad(f)(smallest), lg.jvp(f, (smallest,), (lg.ones((), dtype=dtype),))[1]]
        assert [float(s) for s in slopes] == [np.copysign(np.inf, expected)] * 2


def test_polygamma_far_below_zero(device: str) -> None:
    """By reflection, with slopes; mpmath's values."""
    x = lg.asarray([-10.5, -37.90, -1e9 + 0.25])
    expected = [
        [9.7787577398148124, 103.32979891497094, 19.739208801178717],
        [-0.0082474690506522171, -1998.6603383879341, -124.02510672119928],
    ]
    for n, values in enumerate(expected, 1):
        np.testing.assert_allclose(np.asarray(lg.special.polygamma(n, x)), values, rtol=1e-12)
    slope = lg.grad(lambda x: lg.sum(lg.special.polygamma(1, x)))(x)
    np.testing.assert_allclose(np.asarray(slope), expected[1], rtol=1e-12)


def test_zeta_far_below_zero_and_at_its_poles(device: str) -> None:
    """By the sum over all whole numbers; mpmath's values, and slopes to the right of poles."""
    s, q = (
        lg.asarray([2.0, 3.0, 4.0, 5.0, 3.0, 2.5]),
        lg.asarray([-1e5 - 0.3, -20.3, -20.25, -2.5e8 + 0.25, -1e7, -2e6 - 0.5]),
    )
    expected = [15.079403702681995, -34.41761682891865, 259.7575388239817, 1020.0656159509382, np.inf, np.nan]
    np.testing.assert_allclose(np.asarray(lg.special.zeta(s, q)), expected, rtol=1e-13)
    slopes = np.asarray(lg.grad(lambda q: lg.sum(lg.special.zeta(s, q)))(q))
    np.testing.assert_allclose(slopes[:3], [68.83754371219696, -384.51034617035768, 4080.2624584199557], rtol=1e-12)
    np.testing.assert_array_equal(slopes[4:], [-np.inf, np.nan])
    np.testing.assert_allclose(float(lg.special.zeta(2.0, 1e200)), 1e-200, rtol=1e-14)


SECOND = {  # at points where the first slope is infinite, or the function overflows
    "digamma": (lg.digamma, -1.0, -np.inf),
    "polygamma": (partial(lg.special.polygamma, 1), 0.0, np.inf),
    "i0": (lg.special.i0, 800.0, np.inf),
    "i1": (lg.special.i1, -800.0, -np.inf),
    "expi": (lg.special.expi, 800.0, np.inf),
    "asin": (lg.asin, -1.0, -np.inf),
    "acos": (lg.acos, 1.0, -np.inf),
    "acosh": (lg.acosh, 1.0, -np.inf),
    "atanh": (lg.atanh, 1.0, np.inf),
    "zeta": (lambda x: lg.special.zeta(x, 1.0), 1.0, np.inf),
}


@pytest.mark.in_turns
@pytest.mark.parametrize("name", SECOND)
def test_second_slopes_agree_in_all_modes(name: str) -> None:
    f, x, expected = SECOND[name]

    def forward(f: Any) -> Any:
        return lambda x: lg.jvp(f, (x,), (lg.ones_like(x),))[1]

    with lg.default_device("interpreter"):
        x = lg.asarray(x)
        found = [float(one(two(f))(x)) for one in (lg.grad, forward) for two in (lg.grad, forward)]
    assert found == [expected] * 4
