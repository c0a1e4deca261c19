"""Fit Lotka-Volterra to the Hudson Bay hare and lynx record by gradient descent through an adaptive
ODE solver.

Every one of the random starts is a lane with its own trajectory. The Dormand-Prince 5(4) integrator is
a per-lane `while_loop`: each lane accepts and rejects its own steps, and the reverse pass goes back
through exactly the steps that lane took. Adam does the rest.

    python examples/hare_lynx.py [--starts 4096] [--iterations 250] [--plot hare_lynx.png] [--processes 2]
                                 [--checkpoint fit.npz]

With --processes the starts are lanes that so many processes share; the numbers are the same to the last bit. With
--checkpoint the state is saved now and then, and a fit that was ended goes on from there, on any number of processes,
to the same bits.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import loopgrad as lg

DATA = Path(__file__).parent / "data" / "hare_lynx.csv"
NAMES = ("hare growth", "predation", "lynx death", "conversion", "hares in 1900", "lynxes in 1900")
UNITS = ("1/year", "1/(thousand lynxes year)", "1/year", "1/(thousand hares year)", "thousand", "thousand")

TOLERANCE = 1e-6  # of the logarithm of a population, per step
SMALLEST_STEP = 1e-7  # years; a lane that needs less has left the plausible range and gives up

# Dormand & Prince (1980): stage weights, the fifth-order result (last row), and its embedded error.
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


class State(NamedTuple):
    """One trajectory per lane: log populations, the step to try next, and steps counted so far."""

    hare: lg.Tensor
    lynx: lg.Tensor
    step: lg.Tensor
    accepted: lg.Tensor
    rejected: lg.Tensor


def slopes(hare, lynx, rates):
    """Lotka-Volterra for the logarithms of both populations."""
    growth, predation, death, conversion = rates
    return growth - predation * lg.exp(lynx), conversion * lg.exp(hare) - death


def dormand_prince(hare, lynx, step, rates):
    """One step of the 5(4) pair: the new populations and the error relative to the tolerance."""

    def along(start, weights, ks):
        return start + step * sum(w * k for w, k in zip(weights, ks, strict=True) if w)

    first = slopes(hare, lynx, rates)
    hare_slopes, lynx_slopes = [first[0]], [first[1]]
    for weights in STAGES:
        new_hare, new_lynx = along(hare, weights, hare_slopes), along(lynx, weights, lynx_slopes)
        hare_slope, lynx_slope = slopes(new_hare, new_lynx, rates)
        hare_slopes.append(hare_slope)
        lynx_slopes.append(lynx_slope)
    errors = [lg.abs(along(0.0, ERROR, ks)) for ks in (hare_slopes, lynx_slopes)]
    return new_hare, new_lynx, lg.maximum(*errors) / TOLERANCE


def advance(state, duration, rates):
    """Integrate every lane for exactly `duration` years, each in as many steps as it needs."""

    def unfinished(carry):
        left, state = carry
        return (left > 0.0) & (state.step > SMALLEST_STEP)

    def attempt(carry):
        left, s = carry
        step = lg.minimum(s.step, left)
        hare, lynx, error = dormand_prince(s.hare, s.lynx, step, rates)
        accepted = error <= 1.0
        # Which steps were taken is the method's choice, not the model's: no gradient flows through it.
        next_step = step * lg.clip(0.9 * lg.stop_gradient(error) ** -0.2, 0.2, 5.0)
        next_step = lg.where(accepted & (step < s.step), lg.maximum(s.step, next_step), next_step)
        taken = lg.astype(accepted, lg.int32)
        return lg.where(accepted, left - step, left), State(
            lg.where(accepted, hare, s.hare),
            lg.where(accepted, lynx, s.lynx),
            next_step,
            s.accepted + taken,
            s.rejected + (1 - taken),
        )

    return lg.while_loop(unfinished, attempt, (lg.full(state.hare.shape, duration), state))[1]


def initial_state(theta):
    """Rates and the populations of 1900, one column of `theta` (logarithms) per lane."""
    rates = [lg.exp(theta[k]) for k in range(4)]
    none = lg.zeros(theta[4].shape, dtype=lg.int32)
    return State(theta[4], theta[5], lg.full(theta[4].shape, 0.1), none, none), rates


def losses(theta, observed):
    """Per lane: the sum of squared log residuals over 21 years, and the steps it took."""
    state, rates = initial_state(theta)

    def residual(state, year):
        return (state.hare - observed[year, 0]) ** 2 + (state.lynx - observed[year, 1]) ** 2

    def next_year(year, carry):
        state, loss = carry
        state = advance(state, 1.0, rates)
        return state, loss + residual(state, year + 1)

    years = observed.shape[0]
    state, loss = lg.fori_loop(0, years - 1, next_year, (state, residual(state, 0)))
    return loss, (state.accepted, state.rejected)


def adam_step(theta, first, second, count, rate, observed):
    """One step of Adam on all lanes; returns the new state of the optimiser and the losses before it."""

    def total(theta):
        loss, steps = losses(theta, observed)
        return lg.sum(loss), (loss, steps)

    (_, (loss, steps)), slope = lg.value_and_grad(total, has_aux=True)(theta)
    slope = lg.where(lg.isfinite(slope), slope, 0.0)
    first = 0.9 * first + 0.1 * slope
    second = 0.99 * second + 0.01 * slope * slope
    unbiased = first / (1.0 - 0.9**count)
    scale = lg.sqrt(second / (1.0 - 0.99**count)) + 1e-8
    return theta - rate * unbiased / scale, first, second, count + 1.0, loss, steps


def random_starts(observed, count, seed):
    """Rates spread over one to one and a half decades; populations around the first record."""
    generator = np.random.default_rng(seed)
    low, high = np.log([0.1, 0.005, 0.2, 0.005]), np.log([1.5, 0.1, 2.0, 0.1])
    rates = generator.uniform(low, high, (count, 4))
    populations = observed[0] + generator.normal(0.0, 0.3, (count, 2))
    return np.concatenate([rates, populations], axis=1).T


def everywhere(lanes):
    """All lanes, on each process."""
    return np.asarray(lg.gather_all(lanes))


def fit(observed, starts=4096, iterations=250, rate=0.05, seed=0, report=None, mesh=None, checkpoint=None, every=25):
    """Parameters (logarithms, 6 x starts), their losses, and (accepted, rejected) steps per lane. Processes of a mesh
    share the starts. Every so many iterations the state is saved in `checkpoint`, from where the fit goes on."""

    def lanes(columns):
        return lg.asarray(columns) if mesh is None else lg.shard(columns.T, mesh).T

    records = lg.asarray(observed)
    update = lg.compile(adam_step)
    none = np.zeros((6, starts))
    state = (lanes(random_starts(observed, starts, seed)), lanes(none), lanes(none), lg.asarray(1.0))
    done = 0
    if checkpoint is not None and os.path.exists(checkpoint):
        done, state = lg.load(checkpoint, mesh)
    for iteration in range(done, iterations):
        cooled = rate * 0.5 * (1.0 + np.cos(np.pi * iteration / iterations))
        *state, loss, steps = update(*state, lg.asarray(cooled), records)
        if checkpoint is not None and (iteration + 1) % every == 0:
            lg.save(checkpoint, (iteration + 1, state))
        if report is not None:
            report(iteration + 1, everywhere(loss))
    loss, steps = lg.compile(losses)(state[0], records)
    return everywhere(state[0]), everywhere(loss), tuple(everywhere(s) for s in steps)


def trajectory(theta, months):
    """Populations of one lane, month by month."""
    start, rates = initial_state(lg.asarray(theta[:, None]))

    def next_month(state, _):
        state = advance(state, 1.0 / 12.0, rates)
        return state, (state.hare, state.lynx)

    _, (hare, lynx) = lg.scan(next_month, start, None, length=months)
    logs = np.concatenate([theta[4:, None], np.stack([np.asarray(hare)[:, 0], np.asarray(lynx)[:, 0]])], axis=1)
    return np.exp(logs)


def plot(path, years, observed, theta):
    """Data against fit as a PNG; says what to install where matplotlib is missing."""
    try:
        import matplotlib  # late: only the picture needs it, and it takes most of a second
    except ImportError:
        print("no plot: matplotlib is not installed (pip install 'loopgrad[viz]')")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    months = 12 * (len(years) - 1)
    curves = trajectory(theta, months)
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    for k, (name, colour) in enumerate((("hare", "tab:green"), ("lynx", "tab:orange"))):
        axes.plot(years, np.exp(observed[:, k]), "o", color=colour, label=f"{name}, recorded")
        axes.plot(years[0] + np.arange(months + 1) / 12, curves[k], color=colour, label=f"{name}, fitted")
    axes.set(xticks=years[::4], xlabel="year", ylabel="pelts, thousands")
    axes.set_title("Hudson Bay record and Lotka-Volterra fit")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"plot written to {path}")


def progress(iterations, silent=False):
    """A line that is rewritten on a terminal and printed now and then elsewhere."""
    began, live = time.perf_counter(), sys.stdout.isatty()

    def report(iteration, loss):
        last = iteration == iterations
        if silent:
            return
        if not live and not last and iteration % max(iterations // 10, 1):
            return
        best = np.nanmin(loss)
        near = int(np.sum(loss < 1.01 * best))
        text = f"iteration {iteration:4d}/{iterations}  best loss {best:.6f}  starts within 1%: {near:5d}"
        print(f"{text}  {time.perf_counter() - began:6.1f} s", end="\r" if live and not last else "\n", flush=True)

    return report


def print_result(theta, loss, steps, seconds):
    best = int(np.nanargmin(loss))
    accepted, rejected = steps
    print(f"\n{'parameter':<16}{'best fit':>12}  unit")
    for name, value, unit in zip(NAMES, np.exp(theta[:, best]), UNITS, strict=True):
        print(f"{name:<16}{value:>12.5f}  {unit}")
    print(f"\nloss {loss[best]:.6f} (sum of squared log residuals), {loss.size} starts, {seconds:.1f} s")
    for name, counts in (("accepted", accepted), ("rejected", rejected)):
        print(f"steps {name} per start: {counts.min()} to {counts.max()}, median {np.median(counts):.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--starts", type=int, default=4096)
    parser.add_argument("--iterations", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", default="hare_lynx.png")
    parser.add_argument("--checkpoint", help="a file to go on from, which keeps the state")
    parser.add_argument("--processes", type=int, default=1, help="that share the starts")
    chosen = parser.parse_args()
    if chosen.processes > 1:  # start over in each of them; of an option that is named twice the last one counts
        command = [sys.executable, "-m", "loopgrad", "run", "-n", str(chosen.processes), __file__]
        sys.exit(subprocess.call([*command, *sys.argv[1:], "--processes", "1"]))
    mesh = lg.mesh()
    table = np.loadtxt(DATA, delimiter=",", skiprows=2)
    years, observed = table[:, 0], np.log(table[:, 1:])
    began = time.perf_counter()
    report = progress(chosen.iterations, silent=mesh.rank > 0)  # called by all: they gather what it is given
    fitted = fit(
        observed, chosen.starts, chosen.iterations, seed=chosen.seed, report=report, mesh=mesh,
        checkpoint=chosen.checkpoint,
    )  # fmt: skip
    if mesh.rank:
        return
    print_result(*fitted, time.perf_counter() - began)
    theta, loss, _ = fitted
    plot(chosen.plot, years, observed, theta[:, int(np.nanargmin(loss))])


if __name__ == "__main__":
    main()
