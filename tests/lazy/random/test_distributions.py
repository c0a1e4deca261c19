"""Each distribution against SciPy's: Kolmogorov and Smirnov's test, or chi-square of counts, with fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

import loopgrad as lg

pytestmark = pytest.mark.usefixtures("formulas_alone")  # numbers are the same on every device: test_random_numbers
COUNT = 20_000
LEAST = 1e-3  # p-value: seeds are fixed, so a test passes always or never

CONTINUOUS = [
    ("random", (), stats.uniform()),
    ("uniform", (-1.0, 3.0), stats.uniform(-1, 4)),
    ("standard_normal", (), stats.norm()),
    ("normal", (1.0, 2.0), stats.norm(1, 2)),
    ("lognormal", (1.0, 0.5), stats.lognorm(0.5, scale=np.e)),
    ("standard_exponential", (), stats.expon()),
    ("exponential", (2.0,), stats.expon(scale=2)),
    ("gumbel", (1.0, 2.0), stats.gumbel_r(1, 2)),
    ("laplace", (1.0, 2.0), stats.laplace(1, 2)),
    ("logistic", (1.0, 2.0), stats.logistic(1, 2)),
    ("standard_cauchy", (), stats.cauchy()),
    ("rayleigh", (2.0,), stats.rayleigh(scale=2)),
    ("weibull", (1.7,), stats.weibull_min(1.7)),
    ("pareto", (1.7,), stats.lomax(1.7)),
    ("power", (1.7,), stats.powerlaw(1.7)),
    ("triangular", (-1.0, 0.5, 2.0), stats.triang(0.5, -1, 3)),
    ("standard_gamma", (0.05,), stats.gamma(0.05)),
    ("standard_gamma", (0.9,), stats.gamma(0.9)),
    ("standard_gamma", (3.0,), stats.gamma(3)),
    ("gamma", (1e4, 0.5), stats.gamma(1e4, scale=0.5)),
    ("chisquare", (3.0,), stats.chi2(3)),
    ("beta", (0.3, 0.7), stats.beta(0.3, 0.7)),
    ("beta", (5.0, 2.0), stats.beta(5, 2)),
    ("f", (3.0, 5.0), stats.f(3, 5)),
    ("standard_t", (2.5,), stats.t(2.5)),
    ("wald", (2.0, 3.0), stats.invgauss(2.0 / 3.0, scale=3.0)),
    ("noncentral_chisquare", (3.0, 20.0), stats.ncx2(3.0, 20.0)),
    ("noncentral_chisquare", (0.5, 3.0), stats.ncx2(0.5, 3.0)),
    ("noncentral_chisquare", (1.0, 0.0), stats.chi2(1.0)),
    ("noncentral_f", (3.0, 9.0, 5.0), stats.ncf(3.0, 9.0, 5.0)),
    ("vonmises", (0.0, 0.0), stats.uniform(-np.pi, 2 * np.pi)),
    ("vonmises", (0.0, 0.7), stats.vonmises(0.7)),
    ("vonmises", (0.0, 300.0), stats.vonmises(300.0)),
    ("vonmises", (0.0, 1e9), stats.norm(0.0, 1e9**-0.5)),
]
DISCRETE = [
    ("integers", (-3, 9), stats.randint(-3, 9)),
    ("bernoulli", (0.3,), stats.bernoulli(0.3)),
    ("geometric", (0.2,), stats.geom(0.2)),
    ("poisson", (0.1,), stats.poisson(0.1)),
    ("poisson", (9.9,), stats.poisson(9.9)),
    ("poisson", (10.0,), stats.poisson(10)),
    ("poisson", (300.0,), stats.poisson(300)),
    ("binomial", (5, 0.3), stats.binom(5, 0.3)),
    ("binomial", (100, 0.97), stats.binom(100, 0.97)),
    ("binomial", (100, 0.5), stats.binom(100, 0.5)),
    ("binomial", (30, 0.4), stats.binom(30, 0.4)),
    ("binomial", (100_000, 0.3), stats.binom(100_000, 0.3)),
    ("negative_binomial", (3.5, 0.4), stats.nbinom(3.5, 0.4)),
    ("hypergeometric", (15, 5, 6), stats.hypergeom(20, 15, 6)),
    ("hypergeometric", (7, 400, 350), stats.hypergeom(407, 7, 350)),
    ("hypergeometric", (300, 200, 100), stats.hypergeom(500, 300, 100)),
    ("hypergeometric", (200, 900, 700), stats.hypergeom(1100, 200, 700)),
    ("zipf", (1.5,), stats.zipf(1.5)),
    ("zipf", (4.0,), stats.zipf(4.0)),
    ("logseries", (0.3,), stats.logser(0.3)),
    ("logseries", (0.95,), stats.logser(0.95)),
]


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_continuous(dtype):
    rng = lg.random.Generator(20)
    worst = {}
    for name, parameters, law in CONTINUOUS:
        numbers = np.asarray(getattr(rng, name)(*parameters, size=COUNT, dtype=dtype), np.float64)
        worst[name, parameters] = stats.kstest(numbers, law.cdf).pvalue
    assert {case: p for case, p in worst.items() if not p > LEAST} == {}


def chi_square(numbers, law):
    """The p-value of counts in about 40 ranges of equal probability."""
    edges = np.unique(law.ppf(np.linspace(0.0, 1.0, 41)[1:-1]))
    shares = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    found = np.bincount(np.searchsorted(edges, numbers), minlength=len(shares))
    assert found[shares < 1e-12].sum() == 0
    return stats.chisquare(found[shares > 1e-12], shares[shares > 1e-12] * len(numbers)).pvalue


def test_discrete():
    rng = lg.random.Generator(21)
    worst = {}
    for name, parameters, law in DISCRETE:
        numbers = np.asarray(getattr(rng, name)(*parameters, size=COUNT)).astype(np.int64)
        worst[name, parameters] = chi_square(numbers, law)
    assert {case: p for case, p in worst.items() if not p > LEAST} == {}


def test_several_at_once():
    rng = lg.random.Generator(22)
    cov = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
    x = np.asarray(rng.multivariate_normal([1.0, 2.0, 3.0], cov, size=COUNT))
    np.testing.assert_allclose(x.mean(axis=0), [1, 2, 3], atol=0.04)
    np.testing.assert_allclose(np.cov(x.T), cov, atol=0.06)
    distances = np.einsum("ni,ij,nj->n", x - [1, 2, 3], np.linalg.inv(cov), x - [1, 2, 3])
    assert stats.kstest(distances, stats.chi2(3).cdf).pvalue > LEAST
    flat = np.array([[1.0, 2.0], [2.0, 4.0]])  # semidefinite
    y = np.asarray(rng.multivariate_normal([0.0, 1.0], flat, size=COUNT, method="eigh")) - [0, 1]
    np.testing.assert_allclose(2 * y[:, 0], y[:, 1], atol=1e-7)
    assert abs(y[:, 0].std() - 1.0) < 0.03
    with pytest.raises(ValueError, match="method"):
        rng.multivariate_normal([0.0], [[1.0]], method="lu")
    shares = np.asarray(rng.dirichlet([0.2, 1.0, 4.0], size=COUNT))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    for i, a in enumerate([0.2, 1.0, 4.0]):
        assert stats.kstest(shares[:, i], stats.beta(a, 5.2 - a).cdf).pvalue > LEAST
    counts = np.asarray(rng.multinomial(50, [0.1, 0.0, 0.6, 0.3], size=COUNT))
    assert (counts.sum(axis=1) == 50).all()
    for i, p in enumerate([0.1, 0.0, 0.6, 0.3]):
        assert chi_square(counts[:, i], stats.binom(50, p)) > LEAST if p else not counts[:, i].any()
    drawn = np.asarray(rng.multivariate_hypergeometric([7, 0, 30, 13], 20, size=COUNT))
    assert (drawn.sum(axis=1) == 20).all()
    for i, there in enumerate([7, 0, 30, 13]):
        assert chi_square(drawn[:, i], stats.hypergeom(50, there, 20)) > LEAST if there else not drawn[:, i].any()
    pairs = stats.multivariate_hypergeom([7, 30, 13], 20).cov()
    np.testing.assert_allclose(np.cov(drawn[:, [0, 2, 3]].T), pairs, atol=0.15)
    fewer = rng.multivariate_hypergeometric(lg.asarray([[2, 1], [5, 5]]), lg.asarray([4, 10]))
    assert fewer.tolist() == [[-1, -1], [5, 5]]
    correlation = np.corrcoef(counts[:, 0], counts[:, 2])[0, 1]
    assert abs(correlation + np.sqrt(0.1 * 0.6 / (0.9 * 0.4))) < 0.03


def test_extremes():
    """Ends of parameters; elements of tensors that are no parameters give NaN, or -1; nothing is searched for ever."""
    rng = lg.random.Generator(23)
    assert rng.poisson(0.0, size=3).tolist() == [0, 0, 0]
    assert rng.binomial([0, 7, 7], [0.5, 0.0, 1.0]).tolist() == [0, 0, 7]
    assert rng.geometric(1.0, size=2).tolist() == [1, 1]
    assert rng.standard_gamma(0.0, size=2).tolist() == [0.0, 0.0]
    assert rng.normal(3.0, 0.0) == 3.0
    bad = lg.asarray([-1.0, np.nan, np.inf])
    assert np.isnan(np.asarray(rng.standard_gamma(bad))).all()
    assert np.isnan(np.asarray(rng.beta(bad, 1.0))).all()
    assert rng.poisson(bad).tolist() == rng.binomial(bad, 0.5).tolist() == rng.geometric(bad).tolist() == [-1, -1, -1]
    assert rng.binomial(4, bad).tolist() == [-1, -1, -1]
    large = np.asarray(rng.poisson(1e12, size=1000))
    assert abs(large.mean() - 1e12) < 1e5 / 2
    assert 0.9e6 < large.std() < 1.1e6
    assert np.isnan(np.asarray(rng.vonmises(0.0, bad))).all()
    assert np.isnan(np.asarray(rng.noncentral_chisquare(bad, 1.0))).all()
    assert np.isnan(np.asarray(rng.noncentral_f(2.0, 3.0, lg.asarray([-1.0, np.nan])))).all()
    turned = np.asarray(rng.vonmises(3.0, 4.0, size=1000))  # around mu, back into [-pi, pi]
    assert (abs(turned) <= np.pi + 1e-12).all()
    assert (turned < 0).any()
    for name in ("standard_gamma", "poisson", "chisquare"):
        assert getattr(rng, name)(3.0, size=(0, 2)).shape == (0, 2)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("poisson", (-1.0,)), ("binomial", (-1, 0.5)), ("binomial", (3, 1.5)), ("binomial", (2.5, 0.5)),
        ("geometric", (0.0,)),
        ("standard_gamma", (-1.0,)), ("beta", (0.0, 1.0)), ("chisquare", (0.0,)), ("dirichlet", ([1.0, 0.0],)),
        ("multinomial", (5, [0.5, 1.5])), ("multivariate_normal", ([0.0, 0.0], [[1.0]])), ("weibull", (0.0,)),
        ("zipf", (1.0,)), ("logseries", (1.0,)), ("hypergeometric", (3, 2, 6)), ("wald", (0.0, 1.0)),
        ("vonmises", (0.0, -1.0)), ("noncentral_chisquare", (0.0, 1.0)), ("noncentral_f", (1.0, 1.0, -1.0)),
        ("multivariate_hypergeometric", ([3, 2], 6)),
        ("multivariate_normal", (0.0, [[1.0]])), ("poisson", (np.nan,)), ("negative_binomial", (0.0, 0.5)),
    ],
)  # fmt: skip
def test_parameters_out_of_range(name, parameters):
    with pytest.raises(ValueError, match=name):
        getattr(lg.random.Generator(0), name)(*parameters)


@pytest.mark.parametrize(("name", "parameter"), [("exponential", None), ("poisson", "3"), ("power", np.array(["a"]))])
def test_parameters_that_are_no_numbers(name, parameter):
    with pytest.raises(lg.DTypeError, match=f"{name}: expected .* to be a number"):
        getattr(lg.random.Generator(0), name)(parameter)


def test_formulas_have_the_derivatives_of_formulas():
    """With the numbers held fixed: central differences."""
    cases = [
        ("normal", (0.5, 1.5)), ("uniform", (0.5, 1.5)), ("exponential", (1.5,)), ("gumbel", (0.5, 1.5)),
        ("laplace", (0.5, 1.5)), ("logistic", (0.5, 1.5)), ("lognormal", (0.5, 0.7)), ("weibull", (1.5,)),
        ("rayleigh", (1.5,)), ("pareto", (2.5,)), ("power", (2.5,)), ("triangular", (-1.0, 0.5, 2.0)),
    ]  # fmt: skip
    for name, parameters in cases:

        def run(*p, name=name):
            return lg.sum(getattr(lg.random.Generator(8), name)(*p, size=50))

        slopes = lg.grad(run, argnums=tuple(range(len(parameters))))(*parameters)
        for i, slope in enumerate(slopes):
            ends = [[p + (d if i == j else 0.0) for j, p in enumerate(parameters)] for d in (1e-6, -1e-6)]
            near = (float(run(*ends[0])) - float(run(*ends[1]))) / 2e-6
            np.testing.assert_allclose(float(slope), near, rtol=2e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("dtype", "accuracy"), [("float64", 1e-7), ("float32", 2e-4)])
def test_gamma_numbers_move_with_their_quantiles(dtype, accuracy):
    """Against SciPy's quantiles: those of the smaller tail, shifted."""
    shape = np.array([0.03, 0.4, 0.99, 1.0, 1.01, 3.0, 40.0, 1e4]).repeat(40).astype(dtype)
    rng = lg.random.Generator(9)
    numbers, pull = lg.vjp(lambda a: rng.standard_gamma(a), lg.asarray(shape))
    (slope,) = pull(lg.ones_like(numbers))
    a, z, slope = (np.asarray(x, np.float64) for x in (shape, numbers, slope))
    h = 1e-5 * a
    upper = special.gammaincc(a, z)
    by_lower = [special.gammaincinv(a + d, special.gammainc(a, z)) for d in (h, -h)]
    by_upper = [special.gammainccinv(a + d, upper) for d in (h, -h)]
    near = np.where(upper < 0.5, by_upper[0] - by_upper[1], by_lower[0] - by_lower[1]) / (2 * h)
    there = z > 1e-30
    np.testing.assert_allclose(slope[there], near[there], rtol=accuracy)
    assert np.isfinite(slope).all()


def test_numbers_of_wald_move_with_their_quantiles():
    mean, scale = np.array([0.5, 2.0, 2.0, 30.0]).repeat(20), np.array([4.0, 0.7, 90.0, 1.0]).repeat(20)
    rng = lg.random.Generator(10)
    numbers, pull = lg.vjp(lambda m, s: rng.wald(m, s), lg.asarray(mean), lg.asarray(scale))
    slopes = [np.asarray(x) for x in pull(lg.ones_like(numbers))]
    x, law = np.asarray(numbers), lambda m, s: stats.invgauss(m / s, scale=s)
    density = law(mean, scale).pdf(x)
    for slope, (dm, ds) in zip(slopes, [(1e-5, 0.0), (0.0, 1e-5)], strict=True):
        ends = [law(mean * (1 + d * dm), scale * (1 + d * ds)) for d in (1, -1)]
        lower, upper = [p.cdf(x) for p in ends], [p.sf(x) for p in ends]
        grown = np.where(lower[0] < 0.5, lower[0] - lower[1], upper[1] - upper[0])
        near = -grown / density / (2e-5 * (mean if dm else scale))
        there = density > 1e-8
        np.testing.assert_allclose(slope[there], near[there], rtol=2e-4, atol=1e-7)


@pytest.mark.in_turns
@pytest.mark.parametrize(("dtype", "accuracy"), [("float64", 1e-5), ("float32", 2e-3)])
def test_noncentral_numbers_and_angles_move_with_their_quantiles(dtype, accuracy):
    """By the noncentrality, and by kappa: minus what the distribution function grows by, over the density."""
    rng = lg.random.Generator(11)
    df = np.array([0.3, 1.0, 1.5, 30.0]).repeat(20).astype(dtype)
    nonc = np.tile(np.array([0.2, 4.0, 60.0, 900.0]), 20).astype(dtype)
    kappa = np.array([0.01, 0.8, 7.0, 400.0]).repeat(20).astype(dtype)
    cases = [
        (lambda p: rng.noncentral_chisquare(lg.asarray(df), p), nonc, lambda p: stats.ncx2(df.astype(float), p)),
        (lambda p: rng.vonmises(0.0, p), kappa, stats.vonmises),
    ]
    for draw, at, law in cases:
        numbers, pull = lg.vjp(draw, lg.asarray(at))
        (slope,) = pull(lg.ones_like(numbers))
        x, slope, p = (np.asarray(v, np.float64) for v in (numbers, slope, at))
        ends, density = [law(p * (1 + d)) for d in (1e-5, -1e-5)], law(p).pdf(x)
        lower, upper = [end.cdf(x) for end in ends], [end.sf(x) for end in ends]
        grown = np.where(lower[0] < 0.5, lower[0] - lower[1], upper[1] - upper[0])
        near = -grown / density / (2e-5 * p)
        np.testing.assert_allclose(slope, near, rtol=accuracy, atol=3 * accuracy * abs(near).max())
    assert float(lg.grad(lambda n: rng.noncentral_chisquare(2.0, n))(0.0)) > 0.0
    turned = lg.grad(lambda mu: rng.vonmises(mu, 2.0))
    assert float(turned(3.0)) == 1.0
    mean = lg.grad(lambda d: lg.mean(lg.random.Generator(1).noncentral_chisquare(d, 2.0, size=COUNT)))(0.4)
    assert abs(float(mean) - 1.0) < 0.05


def test_relatives_of_gamma_numbers():
    """Beta, chi-square, t and Dirichlet: derivatives of means by parameters, from many samples."""
    n = 40_000
    a, b = 0.7, 2.0
    mean = lg.grad(lambda a: lg.mean(lg.random.Generator(1).beta(a, b, size=n)))(a)
    assert abs(float(mean) - b / (a + b) ** 2) < 4e-3
    assert abs(float(lg.grad(lambda d: lg.mean(lg.random.Generator(1).chisquare(d, size=n)))(3.0)) - 1.0) < 0.02
    second = lg.grad(lambda d: lg.mean(lg.random.Generator(1).standard_t(d, size=n) ** 2))(8.0)
    assert abs(float(second) + 2 / 36) < 6e-3
    alpha = np.array([0.5, 1.5, 3.0])
    weights = np.array([1.0, -2.0, 0.5])
    slope = lg.grad(lambda a: lg.mean(lg.random.Generator(1).dirichlet(a, size=n) @ weights))(lg.asarray(alpha))
    exact = (weights - weights @ alpha / 5.0) / 5.0
    np.testing.assert_allclose(np.asarray(slope), exact, atol=8e-3)


def test_second_derivatives_of_gamma_numbers():
    def run(a):
        return lg.sum(lg.random.Generator(3).gamma(a, 2.0, size=20))

    exact = float(lg.grad(lg.grad(run))(1.7))
    near = (float(lg.grad(run)(1.7 + 1e-4)) - float(lg.grad(run)(1.7 - 1e-4))) / 2e-4
    # differences follow the samples of each shape, which are others where a trip was accepted more or less
    assert np.isfinite(exact)
    a, z = 1.7, np.asarray(lg.random.Generator(3).standard_gamma(1.7, size=20))
    q, h = special.gammainc(a, z), 1e-3
    by_quantiles = special.gammaincinv(a + h, q) - 2 * z + special.gammaincinv(a - h, q)
    np.testing.assert_allclose(exact, 2.0 * by_quantiles.sum() / h**2, rtol=1e-3)
    assert np.isfinite(near)


def test_orders_and_choices():
    rng = lg.random.Generator(30)
    places = np.asarray(lg.stack([rng.permutation(4) for _ in range(300)]))
    assert (np.sort(places, axis=1) == np.arange(4)).all()
    assert stats.chisquare(np.unique(places @ [64, 16, 4, 1], return_counts=True)[1]).pvalue > LEAST
    x = np.arange(12.0).reshape(3, 4)
    assert sorted(np.asarray(rng.permutation(x, axis=1)).T.tolist()) == sorted(x.T.tolist())
    rows = np.asarray(rng.permuted(x, axis=1))
    assert (np.sort(rows, axis=1) == x).all()
    assert sorted(np.asarray(rng.permuted(x)).ravel().tolist()) == x.ravel().tolist()
    mine, theirs = lg.asarray(x), x.copy()
    rng.shuffle(mine)
    rng.shuffle(theirs)
    assert sorted(mine.tolist()) == sorted(theirs.tolist()) == x.tolist()
    with pytest.raises(TypeError, match="permutation"):
        rng.shuffle([1, 2, 3])
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    drawn = np.asarray(rng.choice(4, size=4000, p=weights))
    assert stats.chisquare(np.bincount(drawn), weights * 4000).pvalue > LEAST
    pairs = np.asarray(lg.stack([rng.choice(4, size=2, replace=False, p=weights) for _ in range(400)]))
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert stats.chisquare(np.bincount(pairs[:, 0]), weights * 400).pvalue > LEAST
    assert np.asarray(rng.choice(x, size=(5, 2), axis=1)).shape == (3, 5, 2)
    assert rng.choice([5, 6, 7]).shape == ()
    for refused in (lambda: rng.choice(3, size=4, replace=False), lambda: rng.choice(2, p=[0.5, 0.6]),
                    lambda: rng.choice(0), lambda: rng.choice(3, p=[0.5, 0.5])):  # fmt: skip
        with pytest.raises(ValueError, match="choice"):
            refused()


def test_lanes_steps_and_streams_are_independent():
    """Correlations of neighbours along lanes, along steps, and between streams of neighbouring keys."""
    rng = lg.random.Generator(40)
    lanes, stream = 64, rng.stream(64)
    table = []
    for _ in range(200):
        u, stream = stream.uniform()
        table.append(u)
    numbers = np.asarray(lg.stack(table)) - 0.5  # steps, lanes
    other = (
        np.asarray(lg.stack([lg.random.Generator(lg.random.Philox4x32(key=k)).random(lanes) for k in range(200)])) - 0.5
    )
    for x in (numbers, other):
        deviation = 1.0 / (12.0 * np.sqrt(x.size))
        for one, two in ((x[1:], x[:-1]), (x[:, 1:], x[:, :-1]), (x[1:, 1:], x[:-1, :-1])):
            assert abs((one * two).mean()) < 4 * deviation
        assert abs((x**2).mean() - 1 / 12) < 4 * np.sqrt(1 / 180 / x.size)
    assert stats.kstest(numbers.ravel() + 0.5, "uniform").pvalue > LEAST


def test_negative_binomials_are_counts() -> None:
    """Of few failures hardly any are many: the largest that there is an int64 for, where the gamma number is larger."""
    n = 1e-4
    p = (n + 10.0 * np.sqrt(n)) / 2.0**63 * 1.03  # as small as parameters may be
    drawn = np.asarray(lg.random.default_rng(3).negative_binomial(n, p, size=200_000))
    assert drawn.min() == 0
    assert drawn.max() > 2**62
    mixed = lg.random.default_rng(3).negative_binomial(lg.asarray([1.0, -1.0, 2.0]), lg.asarray([0.0, 0.5, 0.5]))
    assert np.asarray(mixed)[:2].tolist() == [-1, -1]


def test_orders_of_numbers_are_refused() -> None:
    rng = lg.random.default_rng(3)
    for refused in (lambda: rng.permutation(3.5), lambda: rng.choice(True), lambda: rng.permutation([1, 2], axis=3)):
        with pytest.raises(lg.AxisError, match=r"permutation|choice"):
            refused()
