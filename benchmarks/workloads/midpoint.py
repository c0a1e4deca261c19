"""An implicit midpoint integrator: each lane solves for each of its steps by Newton's method, until that has converged.

Four coupled pendulums for each lane, with a stiffness of its own; 4 x 4 systems by LU factors with exchanged rows. JAX
has no reverse pass through a loop whose end depends on values: it takes as many of Newton's steps as the slowest lane.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender
from benchmarks.workloads.ragged import pair

TITLE = "midpoint: implicit steps of coupled pendulums by Newton's method, float64; value and gradient"
SIZES = {"full": 20_000, "quick": 500, "gpu": 400_000}
TOLERANCE = {"value": 1e-8, "gradient": 1e-5}
STEPS, LENGTH = 20, 0.2
CLOSE, MOST = 1e-10, 6
COUPLING = 2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)


def inputs(size: int) -> Arrays:
    draw = np.random.default_rng(1)
    return {"stiffness": draw.uniform(0.5, 8.0, size), "angles": draw.uniform(-2.0, 2.0, (size, 4))}


def residual(m: Any, middle: Any, angles: Any, speeds: Any, stiffness: Any) -> Any:
    """Of the angles in the middle of a step, one lane's: 0 where the step is made."""
    force = -m.sin(middle) - stiffness * (COUPLING @ middle)
    return middle - angles - 0.5 * LENGTH * (speeds + 0.5 * LENGTH * force)


def slope(m: Any, middle: Any, stiffness: Any) -> Any:
    """The matrix of its derivatives."""
    return np.eye(4) + 0.25 * LENGTH**2 * (np.eye(4) * m.cos(middle) + stiffness * COUPLING)


def after(m: Any, middle: Any, angles: Any, speeds: Any, stiffness: Any) -> Any:
    return 2 * middle - angles, speeds - LENGTH * (m.sin(middle) + stiffness * (COUPLING @ middle))


def oracle(arrays: Arrays) -> Arrays:
    """NumPy for all lanes at once, differences of the fourth order."""
    stiffness, step = arrays["stiffness"], 1e-3
    around = [_ends(stiffness + k * step, arrays["angles"]) for k in (-2, -1, 1, 2)]
    gradient = (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12 * step)
    return {"value": _ends(stiffness, arrays["angles"]).sum(), "gradient": gradient}


def _ends(stiffness: np.ndarray, angles: np.ndarray) -> np.ndarray:
    speeds, wide = np.zeros_like(angles), stiffness[:, None]
    for _ in range(STEPS):
        middle = angles
        for _ in range(MOST + 2):
            force = -np.sin(middle) - wide * (middle @ COUPLING)
            rest = middle - angles - 0.5 * LENGTH * (speeds + 0.5 * LENGTH * force)
            matrix = np.cos(middle)[:, None, :] * np.eye(4) + wide[..., None] * COUPLING
            matrix = np.eye(4) + 0.25 * LENGTH**2 * matrix
            middle = middle - np.linalg.solve(matrix, rest[..., None])[..., 0]
        angles, speeds = 2 * middle - angles, speeds - LENGTH * (np.sin(middle) + wide * (middle @ COUPLING))
    return np.sum(angles * angles, 1)


def loopgrad(arrays: Arrays) -> Contender:
    lg = peers.loopgrad()

    def end(stiffness: Any, angles: Any) -> Any:
        def step(_: Any, carry: Any) -> Any:
            angles, speeds = carry
            unfinished = lambda middle: lg.max(lg.abs(residual(lg, middle, angles, speeds, stiffness))) > CLOSE
            better = lambda middle: (
                middle - lg.linalg.solve(slope(lg, middle, stiffness), residual(lg, middle, angles, speeds, stiffness))
            )
            # one more step, so that the derivative has converged as well
            middle = better(lg.while_loop(unfinished, better, angles))
            return after(lg, middle, angles, speeds, stiffness)

        angles, _ = lg.fori_loop(0, STEPS, step, (angles, lg.zeros_like(angles)))
        return lg.sum(angles * angles)

    stiffness, angles = lg.asarray(arrays["stiffness"]), lg.asarray(arrays["angles"])
    compiled = lg.compile(lg.value_and_grad(lambda k, angles: lg.sum(lg.vmap(end)(k, angles))))
    notes = lambda: {"stack bytes": f"{compiled.plan(stiffness, angles).stack_bytes:,}"}
    return peers.own(lambda: compiled(stiffness, angles), list, pair, notes)


def jax(arrays: Arrays) -> Contender:
    module, jnp = peers.jax()

    def end(stiffness: Any, angles: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            angles, speeds = carry

            def better(middle: Any, _: Any) -> Any:
                rest = residual(jnp, middle, angles, speeds, stiffness)
                return middle - jnp.linalg.solve(slope(jnp, middle, stiffness), rest), None

            middle, _ = module.lax.scan(better, angles, None, length=MOST)
            return after(jnp, middle, angles, speeds, stiffness), None

        (angles, _), _ = module.lax.scan(step, (angles, jnp.zeros_like(angles)), None, length=STEPS)
        return jnp.sum(angles * angles)

    stiffness, angles = jnp.asarray(arrays["stiffness"]), jnp.asarray(arrays["angles"])
    compiled = module.jit(module.value_and_grad(lambda k, angles: jnp.sum(module.vmap(end)(k, angles))))
    return peers.jax_contender(module, lambda: compiled(stiffness, angles), pair)


CONTENDERS = {"loopgrad": loopgrad, "jax": jax}
GPU_CONTENDERS = {"loopgrad": loopgrad, "jax": jax}
