"""A Kalman filter for each lane: 20 steps with 4 x 4 covariances; the likelihood of all and its gradient.

Each lane has a track of its own, measured with a noise of its own. A step factorises the covariance of what is measured
(Cholesky) and solves two systems with the factor. The gradient is by the noise's variance, of every lane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender
from benchmarks.workloads.ragged import pair

TITLE = "kalman: filters of 4 x 4 covariances, 20 steps, float64; likelihood and gradient"
SIZES = {"full": 100_000, "quick": 2_000, "gpu": 1_000_000}
TOLERANCE = {"value": 1e-8, "gradient": 1e-6}
STEPS = 20
MOVE = np.eye(4) + 0.1 * np.eye(4, k=2)
DRIFT = np.diag([0.01, 0.01, 0.04, 0.04])
START = np.diag([1.0, 1.0, 4.0, 4.0])


def inputs(size: int) -> Arrays:
    draw = np.random.default_rng(0)
    noise = draw.uniform(0.1, 2.0, size)
    states = draw.standard_normal((size, 4)) @ np.sqrt(START)
    seen = np.empty((size, STEPS, 4))
    for k in range(STEPS):
        states = states @ MOVE.T + draw.standard_normal((size, 4)) @ np.sqrt(DRIFT)
        seen[:, k] = states + np.sqrt(noise)[:, None] * draw.standard_normal((size, 4))
    return {"noise": noise, "seen": seen}


def advanced(m: Any, solve_lower: Callable[[Any, Any], Any], state: Any, covariance: Any, noise: Any, z: Any) -> Any:
    """One step of one lane: the state, the covariance and what the measurement adds to -log p, but for a constant."""
    state, covariance = MOVE @ state, MOVE @ covariance @ MOVE.T + DRIFT
    factor = m.linalg.cholesky(covariance + noise * np.eye(4))
    rest = solve_lower(factor, (z - state)[:, None])
    gain = solve_lower(factor, covariance)  # its transpose times itself is taken from the covariance
    added = 0.5 * m.sum(rest * rest) + m.sum(m.log(m.diagonal(factor)))
    return state + (gain.T @ rest)[:, 0], covariance - gain.T @ gain, added


def oracle(arrays: Arrays) -> Arrays:
    """NumPy's LAPACK for all lanes at once; the gradient by complex-step differences would need complex factors, so it
    is by central differences of the fourth order."""
    noise, seen, step = arrays["noise"], arrays["seen"], 1e-3
    around = [_likelihoods(noise + k * step, seen) for k in (-2, -1, 1, 2)]
    gradient = (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12 * step)
    return {"value": _likelihoods(noise, seen).sum(), "gradient": gradient}


def _likelihoods(noise: np.ndarray, seen: np.ndarray) -> np.ndarray:
    state, covariance = np.zeros((len(noise), 4)), np.broadcast_to(START, (len(noise), 4, 4))
    total = np.zeros(len(noise))
    for k in range(STEPS):
        state, covariance = state @ MOVE.T, MOVE @ covariance @ MOVE.T + DRIFT
        inner = covariance + noise[:, None, None] * np.eye(4)
        rest = (seen[:, k] - state)[..., None]
        total += 0.5 * np.sum(rest * np.linalg.solve(inner, rest), (1, 2)) + 0.5 * np.linalg.slogdet(inner).logabsdet
        gain = np.swapaxes(np.linalg.solve(inner, covariance), 1, 2)
        state, covariance = state + (gain @ rest)[..., 0], covariance - gain @ covariance
    return total


def loopgrad(arrays: Arrays) -> Contender:
    lg = peers.loopgrad()
    solve_lower = lambda a, b: lg.linalg.solve_triangular(a, b, lower=True)

    def likelihood(noise: Any, seen: Any) -> Any:
        def step(k: Any, carry: Any) -> Any:
            state, covariance, total = carry
            state, covariance, added = advanced(lg, solve_lower, state, covariance, noise, seen[k])
            return state, covariance, total + added

        return lg.fori_loop(0, STEPS, step, (lg.zeros(4), lg.asarray(START), 0.0))[2]

    noise, seen = lg.asarray(arrays["noise"]), lg.asarray(arrays["seen"])
    loss = lambda noise, seen: lg.sum(lg.vmap(likelihood)(noise, seen))
    compiled = lg.compile(lg.value_and_grad(loss))
    notes = lambda: {"stack bytes": f"{compiled.plan(noise, seen).stack_bytes:,}"}
    return peers.own(lambda: compiled(noise, seen), list, pair, notes)


def jax(arrays: Arrays) -> Contender:
    module, jnp = peers.jax()
    from jax.scipy.linalg import solve_triangular

    solve_lower = lambda a, b: solve_triangular(a, b, lower=True)

    def likelihood(noise: Any, seen: Any) -> Any:
        def step(carry: Any, z: Any) -> Any:
            state, covariance, total = carry
            state, covariance, added = advanced(jnp, solve_lower, state, covariance, noise, z)
            return (state, covariance, total + added), None

        return module.lax.scan(step, (jnp.zeros(4), jnp.asarray(START), 0.0), seen)[0][2]

    noise, seen = jnp.asarray(arrays["noise"]), jnp.asarray(arrays["seen"])
    compiled = module.jit(module.value_and_grad(lambda noise, seen: jnp.sum(module.vmap(likelihood)(noise, seen))))
    return peers.jax_contender(module, lambda: compiled(noise, seen), pair)


CONTENDERS = {"loopgrad": loopgrad, "jax": jax}
GPU_CONTENDERS = {"loopgrad": loopgrad, "jax": jax}
