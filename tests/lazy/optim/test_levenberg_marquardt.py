"""Least squares against SciPy's MINPACK and known minima."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

import loopgrad as lg
from tests.lazy.oracle import check

pytestmark = pytest.mark.costly  # whole searches, which a driver takes seconds for

T = np.linspace(0.0, 4.0, 30)
DATA = 2.5 * np.exp(-1.3 * T) + 0.5 + 0.01 * np.sin(40.0 * T)


def decay(p, y):
    return p["a"] * lg.exp(-p["k"] * T) + p["c"] - y


PROBLEMS = {  # Moré, Garbow and Hillstrom, 1981: residuals, start, minimum
    "rosenbrock": (lambda x: lg.stack([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]]), [-1.2, 1.0], [1.0, 1.0], 1e-9),
    "powell badly scaled": (
        lambda x: lg.stack([1e4 * x[0] * x[1] - 1.0, lg.exp(-x[0]) + lg.exp(-x[1]) - 1.0001]),
        [0.0, 1.0], [1.098e-5, 9.106], 1e-3,
    ),
    "beale": (
        lambda x: lg.asarray([1.5, 2.25, 2.625]) - x[0] * (1.0 - x[1] ** lg.asarray([1.0, 2.0, 3.0])),
        [1.0, 1.0], [3.0, 0.5], 1e-9,
    ),
    "powell singular": (
        lambda x: lg.stack(
            [x[0] + 10 * x[1], 5**0.5 * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, 10**0.5 * (x[0] - x[3]) ** 2]
        ),
        [3.0, -1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], 1e-4,
    ),
    "fewer residuals": (lambda x: (lg.sum(x) - 3.0).reshape(1), [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], 1e-9),
}  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("name", PROBLEMS)
def test_known_minima(name: str, device: str) -> None:
    residuals, start, minimum, tolerance = PROBLEMS[name]
    found = lg.optim.levenberg_marquardt(residuals, lg.asarray(start))
    assert found.converged
    np.testing.assert_allclose(found.x, minimum, rtol=tolerance, atol=tolerance)
    check(found.value, 0.5 * np.sum(np.asarray(residuals(found.x)) ** 2))


def test_a_fit_is_scipys(device: str) -> None:
    start = {"a": 1.0, "k": 1.0, "c": 0.0}
    reference = optimize.least_squares(
        lambda p: p[0] * np.exp(-p[1] * T) + p[2] - DATA, [1.0, 1.0, 0.0], method="lm", xtol=1e-14, ftol=1e-14
    )
    for solver in ("dense", "cg"):
        found = lg.optim.levenberg_marquardt(decay, start, (lg.asarray(DATA),), solver=solver)
        for name, value in zip("akc", reference.x, strict=True):
            check(found.x[name], value, 1e-7)
        check(found.value, reference.cost, 1e-9)
    factors = lg.asarray([1.0, 2.0], dtype=lg.float32)
    single = lg.optim.levenberg_marquardt(
        lambda p: {"all": p * factors - 4.0, "more": (p,)}, lg.ones(2, dtype=lg.float32)
    )
    check(single.x, np.array([2.0, 8.0 / 5.0], np.float32), 1e-5)


def test_data_sets_are_fitted_at_once(device: str) -> None:
    random = np.random.default_rng(0)
    truth = np.stack([random.uniform(1.0, 3.0, 8), random.uniform(0.5, 1.5, 8)], axis=1)
    ys = truth[:, :1] * np.exp(-truth[:, 1:] * T)
    residuals = lambda p, y: p[0] * lg.exp(-p[1] * T) - y  # noqa: E731
    fit = lg.compile(lg.vmap(lambda y: lg.optim.levenberg_marquardt(residuals, lg.asarray([2.0, 1.0]), (y,))))
    check(fit(lg.asarray(ys)).x, truth, 1e-9)
    check(fit(lg.asarray(2.0 * ys)).x, truth * [2.0, 1.0], 1e-9)
    assert fit.versions == 1


def test_bad_input() -> None:
    nan = lg.optim.levenberg_marquardt(lambda x: x * lg.nan, lg.ones(2))
    assert (nan.converged.item(), nan.iterations.item()) == (False, 0)
    with pytest.raises(ValueError, match="dense"):
        lg.optim.levenberg_marquardt(lambda x: x, lg.ones(2), solver="qr")
    with pytest.raises(lg.GradientError):
        lg.optim.levenberg_marquardt(lambda x: x * 1j, lg.ones(2))
