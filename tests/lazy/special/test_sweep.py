"""All functions of numbers in `lg.special` at random points of all sizes, whole and half numbers, at the ends of the
range, at 0, infinities and NaN: both modes have the same slopes, NaN where the value is and only there, and those that
SciPy's functions have in closed form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import special

import loopgrad as lg
from tests.programs.special_cases import REFERENCE

pytestmark = pytest.mark.usefixtures("formulas_alone")
S = lg.special
ROOT_PI, INF, NAN = np.sqrt(np.pi), np.inf, np.nan
Slope = Callable[[Any, Any], Any]


# name -> the slope by x and the value
SLOPES: dict[str, Slope] = {
    "i0": lambda x, _: special.i1(x), "i1": lambda x, _: special.i0(x) - special.i1(x) / x,
    "i0e": lambda x, v: special.i1e(x) - np.sign(x) * v, "i1e": lambda x, v: special.i0e(x) - v / x - np.sign(x) * v,
    "j0": lambda x, _: -special.j1(x), "j1": lambda x, v: special.j0(x) - v / x, "y0": lambda x, _: -special.y1(x),
    "y1": lambda x, v: special.y0(x) - v / x, "k0": lambda x, _: -special.k1(x),
    "k1": lambda x, v: -special.k0(x) - v / x, "k0e": lambda x, v: v - special.k1e(x),
    "k1e": lambda x, v: v - special.k0e(x) - v / x, "erf": lambda x, _: 2.0 / ROOT_PI * np.exp(-x * x),
    "erfc": lambda x, _: -2.0 / ROOT_PI * np.exp(-x * x), "erfcx": lambda x, v: 2.0 * x * v - 2.0 / ROOT_PI,
    "erfinv": lambda _, v: 0.5 * ROOT_PI * np.exp(v * v), "erfcinv": lambda _, v: -0.5 * ROOT_PI * np.exp(v * v),
    "ndtr": lambda x, _: np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi),
    "ndtri": lambda _, v: np.sqrt(2.0 * np.pi) * np.exp(0.5 * v * v),
    "log_ndtr": lambda x, _: np.sqrt(2.0 / np.pi) / special.erfcx(-x / np.sqrt(2.0)),
    "digamma": lambda x, _: special.polygamma(1, x), "psi": lambda x, _: special.polygamma(1, x),
    "gammaln": lambda x, _: special.psi(x), "gamma": lambda x, v: v * special.psi(x),
    "factorial": lambda x, v: np.where(x < 0.0, 0.0, v * special.psi(x + 1.0)),
    "exp1": lambda x, _: -np.exp(-x) / x, "expi": lambda x, _: np.exp(x) / x,
    "spence": lambda x, _: np.where(x == 1.0, -1.0, np.log(x) / (1.0 - x)), "entr": lambda x, _: -np.log(x) - 1.0,
    "lambertw": lambda x, v: np.where(x == 0.0, 1.0, v / (x * (1.0 + v))), "logit": lambda x, _: 1.0 / (x * (1.0 - x)),
    "expit": lambda x, v: v * special.expit(-x), "log_expit": lambda x, _: special.expit(-x),
    "softplus": lambda x, _: special.expit(x),
}  # fmt: skip
OF_ONE: dict[str, Callable[..., Any]] = {
    **{name: getattr(S, name) for name in SLOPES}, "lower": lambda x: S.lambertw(x, -1), "si": lambda x: S.sici(x)[0],
    "ci": lambda x: S.sici(x)[1], "trigamma": partial(S.polygamma, 1), "fifth": partial(S.polygamma, 5),
}  # fmt: skip
SLOPES |= {
    "lower": lambda x, v: v / (x * (1.0 + v)), "si": lambda x, _: np.sinc(x / np.pi), "ci": lambda x, _: np.cos(x) / x,
    "trigamma": lambda x, _: special.polygamma(2, x), "fifth": lambda x, _: special.polygamma(6, x),
}  # fmt: skip
OF_SEVERAL = {"xlogy": 2, "xlog1py": 2, "rel_entr": 2, "kl_div": 2, "beta": 2, "betaln": 2, "gammainc": 2,
              "gammaincc": 2, "zeta": 2, "betainc": 3, "betaincc": 3}  # fmt: skip
# slopes that aren't NaN at poles, where NaN is the value; and no slopes where the value is infinite from both sides
POLES = ("digamma", "psi", "gammaln")


def points(dtype: type) -> np.ndarray:
    rng, info = np.random.default_rng(17), np.finfo(dtype)
    most = float(info.max)
    whole = np.arange(0.5, 40.5, 0.5)
    ends = [0.0, info.tiny, 1e-30, info.eps, 1.0 - info.epsneg, 1.0 + info.eps, 88.0, 103.0, 171.0, 172.0, 709.0, 746.0]
    sizes = np.exp(rng.uniform(np.log(float(info.tiny)), np.log(most), 40))
    usual = np.concatenate([10.0 ** rng.uniform(-6.0, 3.0, 40), rng.uniform(0.0, 10.0, 40)])
    positive = np.concatenate([ends, whole, sizes, usual, [1e5, 1e10, most / 4.0, most, INF]]).astype(dtype)
    return np.concatenate([positive, -positive, [NAN]]).astype(dtype)


def slopes(function: Callable[..., Any], arrays: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray], list[Any]]:
    """The value, and its slopes by each operand in reverse and forward mode."""
    operands = tuple(map(lg.asarray, arrays))
    back = lg.grad(lambda *xs: lg.sum(function(*xs)), tuple(range(len(arrays))))(*operands)
    ahead = []
    for k, x in enumerate(operands):
        of_one = lambda x, k=k: function(*operands[:k], x, *operands[k + 1 :])  # noqa: E731 - of one operand
        ahead.append(np.asarray(lg.jvp(of_one, (x,), (lg.ones_like(x),))[1]))
    return np.asarray(function(*operands)), [np.asarray(g) for g in back], ahead


def check_modes(name: str, arrays: list[np.ndarray], allowed: np.ndarray | None = None) -> None:
    """Slopes are the same in both modes but for rounding, and NaN where values are; `allowed`: where they may be NaN
    elsewhere."""
    info = np.finfo(arrays[0].dtype)
    value, back, ahead = slopes(OF_ONE.get(name) or getattr(S, name), arrays)
    exempt = np.zeros(value.shape, bool) if allowed is None else allowed
    for k, (g, j) in enumerate(zip(back, ahead, strict=True)):
        told = f"{name} by {k} of {arrays[0].dtype}: "
        lost = np.isnan(value) & ~np.isnan(g) & ~exempt
        assert not lost.any(), told + f"slopes of no value at {[x[lost][:5] for x in arrays]}"
        gone = ~np.isnan(value) & (np.isnan(g) | np.isnan(j)) & ~exempt
        assert not gone.any(), told + f"no slope at {[x[gone][:5] for x in arrays]}"
        with np.errstate(all="ignore"):
            scale = np.maximum(np.abs(g), np.abs(j)) + np.abs(value) / np.maximum(np.abs(arrays[k]), 1.0)
            apart = np.abs(g - j) > 300.0 * info.eps * scale + 8.0 * info.tiny
            apart &= np.abs(value) >= info.tiny  # of what underflows there are few digits
        assert not (apart & ~exempt).any(), told + f"modes differ at {[x[apart][:5] for x in arrays]}"


def of_sums(name: str, x: np.ndarray) -> np.ndarray:
    """Points for functions that take as many steps as a negative operand is large."""
    return x[(np.abs(x) < 1e3) | (x > 0.0) & (x < 1e30)] if name in ("trigamma", "fifth") else x


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_of_one_operand(dtype: type) -> None:
    for name in OF_ONE:
        x = of_sums(name, points(dtype))
        check_modes(name, [x], np.floor(x) == x if name in POLES else None)


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_closed_forms(dtype: type) -> None:
    """But for rounding, and by how much these forms cancel."""
    info = np.finfo(dtype)
    x = points(dtype)
    x = x[np.isfinite(x) & (np.abs(x) < 500.0) & (np.abs(x) > 1e-30)]
    x = x[(x > 0.0) | (np.abs(x - np.round(x)) > 0.01)]  # not beside poles
    for name, slope in SLOPES.items():
        value, (found,), _ = slopes(OF_ONE[name], [x])
        with np.errstate(all="ignore"):
            wide, by = x.astype(np.float64), value.astype(np.float64)
            expected = slope(wide, by)
            cancelled = np.abs(by) * np.maximum(np.abs(wide), 1.0)
            room = 1e3 * info.eps * (np.abs(expected) * np.maximum(wide * wide, 1.0) + cancelled) + 100.0 * info.tiny
            known = np.isfinite(by) & (np.abs(expected) < info.max)
            far = ~(np.abs(found - expected) <= room) & known
        assert not far.any(), f"{name}: {[*zip(x[far], found[far], expected[far], strict=True)][:5]}"


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_of_several_operands(dtype: type) -> None:
    """Shapes and arguments of all sizes, near each other, and special ones."""
    rng = np.random.default_rng(23)
    for name, count in OF_SEVERAL.items():
        special_ones = [0.0, 1e-30, 0.3, 0.5, 1.0, 1.5, 2.0, 10.0, 1e3, NAN, -0.5, -1.0]
        corners = np.stack([c.ravel() for c in np.meshgrid(*[special_ones] * count)])
        usual, scale = 10.0 ** rng.uniform(-6.0, 4.0, (count, 100)), 10.0 ** rng.uniform(-2.0, 3.0, 100)
        arrays = np.concatenate([corners, usual, scale * (1.0 + 0.1 * rng.normal(size=(count, 100)))], axis=1)
        if count == 3:
            arrays[2, -200:] = rng.uniform(0.0, 1.0, 200)
        arrays = arrays.astype(dtype)
        allowed = arrays[1] < 0.0 if name == "zeta" else None  # it isn't defined between whole s there
        check_modes(name, [np.maximum(a, dtype(-1.0)) if name == "zeta" else a for a in arrays], allowed)


def test_limits() -> None:
    """At 0, at infinities and where values overflow slopes are what they tend to, in both modes."""
    known: dict[str, list[tuple[float, float]]] = {
        "erfcx": [(-INF, -INF), (-1e300, -INF), (-30.0, -INF), (INF, 0.0)], "log_ndtr": [(-INF, INF), (-1e200, 1e200)],
        "i0": [(800.0, INF), (-800.0, -INF), (INF, INF), (NAN, NAN)], "i1": [(800.0, INF), (-INF, INF), (0.0, 0.5)],
        "i0e": [(INF, 0.0), (0.0, 0.0)], "i1e": [(INF, 0.0), (0.0, 0.5)], "exp1": [(0.0, -INF), (INF, 0.0)],
        "gamma": [(0.0, -INF), (172.0, INF), (-190.5, 0.0)], "entr": [(0.0, INF), (INF, -INF)],
        "expi": [(710.0, 3.1464715016361e305), (720.0, INF), (0.0, INF), (-INF, 0.0)], "y0": [(0.0, INF)],
        "spence": [(0.0, -INF), (INF, 0.0)], "y1": [(0.0, INF)], "k0": [(0.0, -INF), (INF, 0.0)],
        "k1": [(0.0, -INF)], "ci": [(0.0, INF), (INF, 0.0)], "lower": [(-1e-307, -1.001404e307)],
        "lambertw": [(1e300, 9.98541556e-301)], "erfinv": [(1.0, INF), (-1.0, INF)], "erfcinv": [(0.0, -INF)],
    }  # fmt: skip
    for name, cases in known.items():
        x, expected = np.array(cases).T
        _, (back,), (ahead,) = slopes(OF_ONE[name], [x])
        np.testing.assert_allclose(back, expected, 1e-3, err_msg=name)
        np.testing.assert_allclose(ahead, back, 1e-10, err_msg=name)
    second = lg.vmap(lg.grad(lg.grad(S.erfinv)))(lg.asarray([-1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(second, [-INF, 0.0, INF])


def test_where_values_overflow() -> None:
    for dtype, last, first in ((np.float64, -26.6, -26.7), (np.float32, -9.3, -9.5)):
        found = S.erfcx(np.array([last, first], dtype))
        assert np.isfinite(float(found[0]))
        assert float(found[1]) == INF
    narrow = np.linspace(7.0, 8.5, 40, dtype=np.float32)
    _, (back,), _ = slopes(S.i0e, [narrow])  # a power series whose derivative overflowed
    np.testing.assert_allclose(back, special.i1e(narrow) - special.i0e(narrow), 1e-4)


def test_beta_of_the_smallest_and_the_largest() -> None:
    a = np.array([1e-78, 4e-129, 2e-300, 1e-20, 0.5, 1e-200])
    b = np.array([7e287, 4e292, 3e-290, 0.3, 1e200, 1e-100])
    np.testing.assert_allclose(S.beta(a, b), REFERENCE.beta(a, b), 1e-12)
    np.testing.assert_allclose(S.betaln(a, b), REFERENCE.betaln(a, b), 1e-13)
    zero, (by_a, by_b), _ = slopes(S.beta, [np.array([0.0]), np.array([2.0])])
    assert zero[0] == INF
    assert by_a[0] == -INF
    np.testing.assert_allclose(by_b, -special.polygamma(1, 2.0))  # of Laurent's series
