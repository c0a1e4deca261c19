"""`lg.stats` against SciPy: values in the support, at its ends and beyond, tails, parameters that aren't allowed; and
derivatives by x and all parameters against differences of SciPy's values."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

import loopgrad as lg

pytestmark = pytest.mark.usefixtures("formulas_alone")
LINE = np.array([-30.0, -3.0, -1.0, -0.2, 0.0, 1e-9, 0.4, 1.0, 2.6, 40.0])
HALF = np.array([-1.0, 0.0, 1e-8, 0.3, 1.0, 2.5, 30.0])
UNIT = np.array([-0.5, 0.0, 1e-8, 0.3, 0.6, 1.0, 1.5])
WHOLE = np.array([-1.0, 0.0, 1.0, 2.0, 2.5, 5.0, 9.0])
SHARES = np.array([-0.1, 0.0, 1e-12, 0.2, 0.5, 0.9, 1.0, 1.1])
# name -> where it is asked for, and its shape parameters
CONTINUOUS: dict[str, tuple[np.ndarray, tuple[float, ...]]] = {
    **dict.fromkeys(("norm", "cauchy", "laplace", "logistic", "gumbel_r", "gumbel_l"), (LINE, ())),
    "expon": (HALF, ()), "uniform": (UNIT, ()), "gamma": (HALF, (2.3,)), "chi2": (HALF, (3.0,)), "t": (LINE, (2.7,)),
    "beta": (UNIT, (1.6, 0.7)), "pareto": (HALF + 0.2, (1.8,)),
    "lognorm": (HALF, (0.8,)), "weibull_min": (HALF, (1.7,)),
    "f": (HALF, (3.2, 5.1)), "halfnorm": (HALF, ()), "invgamma": (HALF, (2.6,)), "rayleigh": (HALF, ()),
    "powerlaw": (UNIT, (1.4,)), "gennorm": (LINE, (1.5,)), "truncnorm": (LINE, (-0.7, 1.9)), "vonmises": (LINE, (2.2,)),
    "wrapcauchy": (HALF, (0.4,)),
}  # fmt: skip
DISCRETE: dict[str, tuple[float, ...]] = {
    "bernoulli": (0.3,), "binom": (5, 0.3), "poisson": (2.3,), "geom": (0.3,), "nbinom": (2.5, 0.4),
    "betabinom": (5, 1.3, 0.8),
}  # fmt: skip
WITHOUT = {  # their formulas aren't closed
    ("vonmises", "cdf"), ("vonmises", "sf"), ("wrapcauchy", "cdf"), ("wrapcauchy", "sf"), ("betabinom", "cdf"),
    ("betabinom", "sf"),
}  # fmt: skip


def has(name: str, method: str) -> bool:
    field = {"cdf": "below", "sf": "above", "ppf": "quantile", "isf": "upper_quantile"}.get(method, "log_density")
    return getattr(getattr(lg.stats, name), field) is not None


def both(name: str, method: str, x: Any, *arguments: Any, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    ours = getattr(getattr(lg.stats, name), method)(lg.asarray(np.asarray(x, dtype)), *arguments)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(ours, np.float64), getattr(getattr(stats, name), method)(x, *arguments)


def test_all_are_here() -> None:
    vectors = {"dirichlet", "multinomial", "multivariate_normal"}
    assert {*CONTINUOUS, *DISCRETE, *vectors} == set(lg.stats.__all__)
    lacking = {(n, m) for n in (*CONTINUOUS, *DISCRETE) for m in ("cdf", "sf") if not has(n, m)}
    assert lacking == WITHOUT


@pytest.mark.in_turns
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    points, shapes = CONTINUOUS[name]
    place = 0.4, 1.7
    x = np.append(points * 1.7 + 0.4, [np.nan])
    for method in ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf"):
        if has(name, method.removeprefix("log")):
            ours, theirs = both(name, method, x, *shapes, *place)
            theirs = np.where((ours < -700.0) & np.isneginf(theirs), ours, theirs)  # SciPy's underflow
            np.testing.assert_allclose(ours, theirs, 3e-12, 1e-300, err_msg=method)
    for method in ("ppf", "isf"):
        if has(name, method):
            np.testing.assert_allclose(*both(name, method, SHARES, *shapes, *place), 1e-12, 1e-14, err_msg=method)
    ours, theirs = both(name, "pdf", points[2:].astype(np.float32), *shapes, dtype="float32")
    np.testing.assert_allclose(ours, theirs, 1e-5, 1e-30)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    shapes = DISCRETE[name]
    for loc in (0, 2):
        for method in ("logpmf", "pmf", "cdf", "sf"):
            if has(name, method):
                x = np.append(WHOLE + loc, np.nan)
                np.testing.assert_allclose(*both(name, method, x, *shapes, loc), 1e-12, 1e-15, err_msg=method)
    of_integers = getattr(lg.stats, name).pmf(lg.arange(6), *shapes)
    assert np.array_equal(of_integers, both(name, "pmf", np.arange(6), *shapes)[0])


@pytest.mark.in_turns
@pytest.mark.parametrize("name", CONTINUOUS)
def test_derivatives(name: str) -> None:
    """By x and every parameter, of the density and of what is below."""
    x = np.array([0.3, 0.8] if name != "pareto" else [1.3, 2.8])
    arguments = (x, *CONTINUOUS[name][1], 0.05, 0.9)
    for method in ("logpdf", "cdf"):
        if not has(name, method):
            continue
        ours, theirs = getattr(getattr(lg.stats, name), method), getattr(getattr(stats, name), method)
        by = tuple(range(len(arguments)))
        slopes = lg.grad(lambda *a, f=ours: lg.sum(f(*a)), by)(*map(lg.asarray, arguments))
        for k, slope in enumerate(slopes):
            ahead, behind = ([a + h if i == k else a for i, a in enumerate(arguments)] for h in (1e-6, -1e-6))
            expected = (theirs(*ahead) - theirs(*behind)) / 2e-6
            expected = expected if k == 0 else expected.sum()
            np.testing.assert_allclose(slope, expected, 2e-6, 2e-7, err_msg=f"{name}.{method} by {k}")


def test_derivatives_outside_and_in_the_middle() -> None:
    for name, (x, shapes) in CONTINUOUS.items():
        outside = x[both(name, "pdf", x, *shapes)[1] == 0.0]
        slope = lg.grad(lambda x, n=name, s=shapes: lg.sum(getattr(lg.stats, n).pdf(x, *s)))(lg.asarray(outside))
        assert np.all(np.asarray(slope) == 0.0), name
    for name in ("t", "gennorm", "norm", "cauchy"):
        shapes, at = CONTINUOUS[name][1], getattr(lg.stats, name)
        slope = lg.grad(lambda x, at=at, s=shapes: at.cdf(x, *s))(0.0)
        np.testing.assert_allclose(slope, at.pdf(0.0, *shapes), 1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("norm", (0.0, 0.0, -1.0)), ("norm", (0.0, 0.0, 0.0)), ("gamma", (1.0, -2.0)), ("t", (1.0, 0.0)),
        ("beta", (0.5, np.nan, 1.0)), ("truncnorm", (0.5, 2.0, 1.0)), ("poisson", (1.0, -0.5)),
        ("binom", (1, 2.5, 0.5)), ("binom", (1, 3, 1.5)), ("geom", (1, 0.0)), ("wrapcauchy", (1.0, 1.0)),
        ("vonmises", (1.0, -1.0)),
    ],
)  # fmt: skip
def test_parameters_that_are_not_allowed(name: str, arguments: tuple[float, ...]) -> None:
    method = "pmf" if name in DISCRETE else "pdf"
    ours, theirs = both(name, method, *arguments)
    assert np.isnan([ours, theirs]).all()


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("name", "x", "arguments"),
    [
        ("truncnorm", 8.5, (8.0, 9.0)), ("truncnorm", -8.5, (-9.0, -8.0)), ("truncnorm", 0.3, (-np.inf, np.inf)),
        ("t", -1e5, (3.0,)), ("t", 1e-8, (1e5,)), ("gamma", 200.0, (100.0,)), ("binom", 900, (1000, 0.5)),
    ],
)  # fmt: skip
def test_far_tails(name: str, x: float, arguments: tuple[float, ...]) -> None:
    for method in ("cdf", "sf", "pmf" if name == "binom" else "pdf"):
        ours, theirs = both(name, method, x, *arguments)
        np.testing.assert_allclose(ours, theirs, 1e-9, err_msg=f"{name}.{method}")


def test_certain_events() -> None:
    assert lg.stats.binom.cdf(lg.asarray([0.0, 3.0]), 3, lg.asarray([0.0, 1.0])).tolist() == [1.0, 1.0]
    assert lg.stats.binom.sf(lg.asarray([0.0, 2.0]), 3, lg.asarray([0.0, 1.0])).tolist() == [0.0, 1.0]


def test_vectors() -> None:
    x, mean, cov = np.array([[0.3, -1.0], [2.0, 0.1]]), np.array([0.5, 0.2]), np.array([[2.0, 0.3], [0.3, 0.5]])
    for arguments in ((mean, cov), (mean, 2.0), (mean,), ()):
        theirs = stats.multivariate_normal.pdf(x, *(arguments or (np.zeros(2),)))
        np.testing.assert_allclose(lg.stats.multivariate_normal.pdf(x, *arguments), theirs, 1e-13)
    slope = lg.grad(lambda c: lg.sum(lg.stats.multivariate_normal.logpdf(x, mean, c @ c.mT)))(lg.asarray(cov))
    assert np.isfinite(np.asarray(slope)).all()
    shares, alpha = np.array([[0.2, 0.5], [0.3, 0.1], [0.5, 0.4]]), np.array([0.7, 1.0, 3.0])
    np.testing.assert_allclose(lg.stats.dirichlet.logpdf(shares, alpha), stats.dirichlet.logpdf(shares, alpha), 1e-13)
    assert lg.stats.dirichlet.logpdf([0.6, 0.6], [1.0, 2.0]).item() == -np.inf
    counts, p = np.array([[1, 2, 3], [0, 6, 0], [1, 1, 1]]), np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(lg.stats.multinomial.logpmf(counts, 6, p), stats.multinomial.logpmf(counts, 6, p), 1e-13)
    for call in (
        lambda: lg.stats.multinomial.pmf(1.0, 1, p), lambda: lg.stats.dirichlet.pdf([0.2, 0.8], alpha),
        lambda: lg.stats.multivariate_normal.pdf(x, mean, np.eye(3)),
    ):  # fmt: skip
        with pytest.raises(lg.ShapeError):
            call()


def test_the_first_argument_has_the_name_of_scipy() -> None:
    assert lg.stats.norm.cdf(x=1.0, loc=0.5) == lg.stats.norm.cdf(1.0, 0.5)
    assert lg.stats.expon.ppf(q=0.3) == lg.stats.expon.ppf(0.3)
    for method in ("pmf", "logpmf", "cdf", "sf"):
        named = {"k": 4, "n": 9, "p": 0.3}
        got = getattr(lg.stats.binom, method)(**named).item()
        np.testing.assert_allclose(got, getattr(stats.binom, method)(**named), rtol=1e-12)
    with pytest.raises(TypeError, match="expected k, mu, loc=0, got 0 by position, x, mu"):
        lg.stats.poisson.pmf(x=1, mu=2.0)


def test_arguments() -> None:
    a, named = lg.stats.gamma.pdf(2.0, 1.5, 0.5, 3.0), lg.stats.gamma.pdf(2.0, scale=3.0, a=1.5, loc=0.5)
    assert a.item() == named.item()
    for call in (
        lambda: lg.stats.gamma.pdf(2.0), lambda: lg.stats.norm.pdf(), lambda: lg.stats.norm.cdf(0.0, 0.0, 1.0, 2.0),
        lambda: lg.stats.poisson.pmf(1, 2.0, scale=1.0), lambda: lg.stats.gamma.pdf(0.5, 1.0, a=2.0),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"stats\.\w+\.\w+: expected [xk]"):
            call()
    with pytest.raises(AttributeError, match=r"stats\.gamma has no 'ppf'; instead: lg\.while_loop"):
        lg.stats.gamma.ppf(0.5, 1.0)
    with pytest.raises(AttributeError, match="no attribute 'rankdata'; instead: "):
        _ = lg.stats.rankdata
    assert lg.stats.norm.pdf(lg.ones(3, dtype="float32"), 0.0, 2.0).dtype is lg.float32
    assert lg.stats.norm.pdf(lg.ones((0, 2)), lg.ones(2)).shape == (0, 2)


@pytest.mark.in_turns
@pytest.mark.parametrize("method", ["pdf", "cdf"])
@pytest.mark.parametrize("name", ["norm", "gamma", "lognorm", "t", "truncnorm"])
def test_modes_agree(name: str, method: str) -> None:
    """Slopes by x and all parameters: the same in both modes, and NaN where the value is."""
    x, shapes = CONTINUOUS[name]
    points = np.append(x, [1e-300, 1e5, np.inf, np.nan])
    operands = [lg.asarray(np.broadcast_to(a, points.shape)) for a in (points, *shapes, 0.0, 1.0)]
    function = getattr(getattr(lg.stats, name), method)
    back = lg.grad(lambda *a: lg.sum(function(*a)), tuple(range(len(operands))))(*operands)
    value = np.asarray(function(*operands))
    within = (value > 0.0) & (value < 1.0)
    for k, slope in enumerate(np.stack([np.asarray(b) for b in back])):
        of_one = lambda a, k=k: function(*operands[:k], a, *operands[k + 1 :])  # noqa: E731 - of one operand
        ahead = np.asarray(lg.jvp(of_one, (operands[k],), (lg.ones_like(operands[k]),))[1])
        np.testing.assert_allclose(slope[within], ahead[within], 1e-11, 1e-13, err_msg=f"by {k}")
        assert np.isnan([slope[np.isnan(value)], ahead[np.isnan(value)]]).all(), f"by {k}"


def test_distributions_are_pickled_by_name() -> None:
    for name in ("norm", "truncnorm", "poisson"):
        distribution = getattr(lg.stats, name)
        assert pickle.loads(pickle.dumps(distribution)) is distribution


FAR_OUT = {  # where probabilities underflow: the argument and shapes; logarithms and slopes by mpmath
    "chi2.logsf": ((1e5, 3.0), -49994.46931862031, -0.499995000099997),
    "gamma.logcdf": ((1e-300, 3.0), -2074.1183431638692, 3e300),
    "beta.logcdf": ((1e-300, 3.0, 2.0), -2070.940289333521, 3e300),
    "f.logsf": ((1e250, 4.0, 6.0), -1724.3361300600899, -3e-250),
    "t.logcdf": ((-1e200, 3.0), -1381.4533323573828, 3e-200),
    "cauchy.logpdf": ((1e300,), -1382.6957856822767, -2e-300),
    "cauchy.logsf": ((1e300,), -691.9202577840631, -1e-300),
    "gumbel_r.logsf": ((1e3,), -1000.0, -1.0),
    "gumbel_l.logcdf": ((-1e3,), -1000.0, 1.0),
    "rayleigh.logcdf": ((1e-200,), -921.7271843781783, 2e200),
    "weibull_min.logcdf": ((1e-200, 2.0), -921.0340371976183, 2e200),
    "gennorm.logsf": ((1e3, 2.0), -1000008.1732679026, -2000.000999999),
    "invgamma.logcdf": ((1e-4, 2.0), -9990.789559633023, 99990000.9999),
    "poisson.logcdf": ((0.0, 1e4), -1e4, 0.0),
    "binom.logcdf": ((0.0, 1e4, 0.9), -23025.850929940457, 0.0),
}


@pytest.mark.in_turns
@pytest.mark.parametrize("name", FAR_OUT)
def test_logarithms_of_probabilities_that_underflow(name: str) -> None:
    """Values, and slopes by the first argument, forwards and backwards; whole numbers have none."""
    (x, *shapes), value, slope = FAR_OUT[name]
    distribution, method = name.split(".")
    function, at = getattr(getattr(lg.stats, distribution), method), lg.asarray(x)

    def f(x):
        return function(x, *shapes)

    np.testing.assert_allclose(np.asarray(f(at)), value, rtol=1e-12)
    for found in (lg.grad(f)(at), lg.jvp(f, (at,), (lg.asarray(1.0),))[1]):
        np.testing.assert_allclose(np.asarray(found), slope, rtol=1e-11)
