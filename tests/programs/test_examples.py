"""The examples do what they say. The fit is checked with SciPy's optimiser and ODE solver."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from oracles import central_difference, check
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

import loopgrad as lg

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    specification = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hare_lynx():
    return load("hare_lynx")


@pytest.fixture(scope="module")
def observed(hare_lynx):
    return np.log(np.loadtxt(hare_lynx.DATA, delimiter=",", skiprows=2)[:, 1:])


def residuals(theta, observed, tolerance=1e-9):
    """SciPy's solution of the model at the recorded years, against the record; logarithms throughout."""
    growth, predation, death, conversion = np.exp(theta[:4])
    slope = lambda _, y: [growth - predation * np.exp(y[1]), conversion * np.exp(y[0]) - death]
    years = np.arange(len(observed))
    solution = solve_ivp(slope, (0, years[-1]), theta[4:], t_eval=years, rtol=tolerance, atol=tolerance)
    return (solution.y.T - observed).reshape(-1)


GUESS = np.concatenate([np.log([0.55, 0.028, 0.80, 0.024]), np.log([34.0, 6.0])])


def test_loss_and_gradient_against_scipy(device, hare_lynx, observed):
    thetas = GUESS[:, None] + np.array([[0.0, 0.05, -0.05]])
    value = lambda theta: float(np.sum(residuals(theta, observed, 1e-11) ** 2))
    total = lambda theta: lg.sum(hare_lynx.losses(theta, lg.asarray(observed))[0])
    loss, (accepted, rejected) = hare_lynx.losses(lg.asarray(thetas), lg.asarray(observed))
    check(loss, [value(t) for t in thetas.T], 1e-4)
    assert len(set(np.asarray(accepted).tolist())) > 1
    assert (np.asarray(rejected) >= 0).all()
    slope = np.asarray(lg.grad(total)(lg.asarray(thetas)))
    for lane in range(3):
        check(slope[:, lane], central_difference(value, thetas[:, lane], 1e-5), 1e-3, 1e-3)


@pytest.mark.costly
def test_fit_reaches_the_optimum_that_scipy_finds(compiled_device, hare_lynx, observed):
    best = least_squares(residuals, GUESS, args=(observed,), xtol=1e-10, ftol=1e-10)
    theta, loss, _ = hare_lynx.fit(observed, starts=128, iterations=250)
    winner = int(np.nanargmin(loss))
    check(loss[winner], 2 * best.cost, 1e-4)
    check(np.exp(theta[:, winner]), np.exp(best.x), 2e-3)
    check(np.exp(theta[:4, winner]), [0.55, 0.028, 0.80, 0.024], 0.05)


def test_trajectory_for_the_plot(device, hare_lynx, observed):
    curves = hare_lynx.trajectory(GUESS, 24)
    assert curves.shape == (2, 25)
    want = np.exp(residuals(GUESS, observed).reshape(-1, 2) + observed)
    check(curves[:, ::12].T, want[:3], 1e-4)


@pytest.mark.costly
def test_inverse_rendering_recovers_the_spheres(compiled_device, tmp_path):
    sdf = load("sdf_inverse")
    images, spheres, losses = sdf.invert(size=32, iterations=200)
    assert losses[-1] < 1e-4 * losses[0]
    before, target, after = images
    assert np.abs(after - target).mean() < 0.02 * np.abs(before - target).mean()
    assert np.abs(spheres - sdf.TARGET).max() < 0.02
    sdf.write_png(tmp_path / "target.png", target)
    assert (tmp_path / "target.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.costly
def test_render_gradient_against_central_differences(device):
    sdf = load("sdf_inverse")
    directions = sdf.rays(6)
    loss = lambda spheres: lg.mean(sdf.render(spheres, directions) ** 2)
    value = lambda spheres: float(loss(lg.asarray(spheres)))
    numeric = central_difference(value, sdf.START, 1e-5)
    check(lg.grad(loss)(lg.asarray(sdf.START)), numeric, 2e-2, 2e-2 * np.abs(numeric).max())


@pytest.mark.parametrize("name", ["newton", "ragged"])
def test_small_examples_run(compiled_device, name):
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, timeout=200, env=os.environ
    )
    assert run.returncode == 0, run.stderr
    assert "gradient" in run.stdout


@pytest.fixture(scope="module")
def cloud():
    return load("cloud")


def test_derivative_of_a_cloud_by_differences(device, cloud):
    """With the decisions of the paths as they are, the light is a smooth function of the density."""
    grid = lg.asarray(cloud.cloud(size=6))
    rays, rng = cloud.camera(3, 4, np.float64), lg.random.Generator(5)
    run = lambda grid, sampled, rng: cloud.brightness(grid, sampled, rays, rng, 4)
    value, slope = lg.value_and_grad(run)(grid, grid, rng.copy())
    assert 0.1 < float(value) < 2.0
    change = np.random.default_rng(0).uniform(0.0, 1.0, grid.shape) * np.asarray(grid)
    ends = [float(run(grid + d * change, grid, rng.copy())) for d in (1e-5, -1e-5)]
    np.testing.assert_allclose(float(lg.sum(slope * change)), (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


def test_light_through_a_slab(cloud):
    """Without scattering, light and its derivative are those of Beer and Lambert's law; with nothing but scattering in
    a white world, all light comes home, whatever the density is."""
    paths, density, thickness = 20_000, 6.0, 1.0
    ones = lg.ones(paths)
    ray = ((0.5 * ones, 0.5 * ones, 0.0 * ones), (0.0 * ones, 0.0 * ones, ones))
    white = lambda heading: 1.0 + 0.0 * heading[0]

    def light(density, albedo, rng):
        grid = density * lg.ones((2, 2, 2))
        fixed = lg.stop_gradient(grid)
        stream, alive = rng.stream(paths), ones > 0
        return lg.mean(cloud.trace(grid, fixed, *ray, alive, stream, albedo=albedo, outside=white))

    value, slope = lg.value_and_grad(light)(density, 0.0, lg.random.Generator(6))
    law = np.exp(-density * thickness)
    assert abs(float(value) - law) < 5 * np.sqrt(law / paths)
    assert abs(float(slope) + thickness * law) < 5 * np.sqrt(law / paths)
    value, slope = lg.value_and_grad(light)(density, 1.0, lg.random.Generator(7))
    np.testing.assert_allclose(float(value), 1.0, rtol=1e-9)
    assert abs(float(slope)) < 0.05
