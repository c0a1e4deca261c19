"""Adaptive Dormand-Prince 5(4) of the Lorenz system, one step count per lane.

Gradient of the sum of the final states with respect to the initial states and three parameters. Lanes
have individual parameters' copies only in their starts; every lane accepts and rejects its own steps.
JAX differentiates a masked scan, so it is given the largest number of attempts any lane makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender

TITLE = "ode: Lorenz to t=1, adaptive Dormand-Prince 5(4), float64, gradient by 3 states and 3 parameters"
SIZES = {"full": 65_536, "quick": 512}
TOLERANCE = {"starts": 1e-6, "parameters": 1e-6}
END, ACCURACY, FIRST = 1.0, 1e-6, 0.01
MOST_ATTEMPTS = 160  # what the masked scan is given; a lane that needs more would be wrong

STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def inputs(size: int) -> Arrays:
    generator = np.random.default_rng(0)
    return {"starts": generator.uniform(-10, 10, (3, size)) + np.array([[0.0], [0.0], [20.0]]),
            "parameters": np.array([10.0, 28.0, 8.0 / 3.0])}  # fmt: skip


def slopes(y: Any, p: Any) -> tuple[Any, ...]:
    return p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]


def attempt(xp: Any, frozen: Any, y: Any, left: Any, step: Any, p: Any) -> tuple[Any, Any, Any]:
    """One attempted step of all lanes; `frozen` keeps gradients out of the choice of steps."""
    h = frozen(xp.minimum(step, left))
    ks = [slopes(y, p)]
    for weights in STAGES:
        moved = tuple(y[i] + h * sum(w * k[i] for w, k in zip(weights, ks, strict=True) if w) for i in range(3))
        ks.append(slopes(moved, p))
    errors = [xp.abs(h * sum(w * k[i] for w, k in zip(ERROR, ks, strict=True) if w)) for i in range(3)]
    scaled = [e / (ACCURACY * (1.0 + xp.abs(v))) for e, v in zip(errors, y, strict=True)]
    error = frozen(xp.maximum(xp.maximum(scaled[0], scaled[1]), scaled[2]))
    accepted = error <= 1.0
    new_step = h * xp.clip(0.9 * (error + 1e-12) ** -0.2, 0.2, 5.0)
    new_y = tuple(xp.where(accepted, m, v) for m, v in zip(moved, y, strict=True))
    return new_y, xp.where(accepted, left - h, left), new_step


def oracle(arrays: Arrays) -> Arrays:
    """Tangents of all lanes carried along the same steps, by hand, in NumPy."""
    size = arrays["starts"].shape[1]
    p, y = arrays["parameters"], tuple(arrays["starts"])
    tangents = np.zeros((6, 3, size))
    for k in range(3):
        tangents[k, k] = 1.0
    left, step = np.full(size, END), np.full(size, FIRST)
    directions = np.concatenate([np.zeros((3, 3)), np.eye(3)])
    while (left > 0).any():
        h = np.minimum(step, left)
        moved_tangents = _step_tangents(y, tangents, h, p, directions)
        new_y, new_left, new_step = attempt(np, lambda v: v, y, left, step, p)
        accepted = (new_left < left) & (left > 0)
        tangents = np.where(accepted, moved_tangents, tangents)
        y = tuple(np.where(left > 0, n, v) for n, v in zip(new_y, y, strict=True))
        step = np.where(left > 0, new_step, step)
        left = np.where(left > 0, new_left, left)
    total = tangents.sum(axis=1)
    return {"starts": total[:3], "parameters": total[3:].sum(axis=1)}


def _step_tangents(y: Any, tangents: np.ndarray, h: np.ndarray, p: np.ndarray, directions: np.ndarray) -> np.ndarray:
    def both(y: Any, dy: np.ndarray) -> tuple[Any, np.ndarray]:
        dp = directions[:, :, None]
        dx = p[0] * (dy[:, 1] - dy[:, 0]) + dp[:, 0] * (y[1] - y[0])
        dv = dy[:, 0] * (p[1] - y[2]) + y[0] * (dp[:, 1] - dy[:, 2]) - dy[:, 1]
        dz = dy[:, 0] * y[1] + y[0] * dy[:, 1] - p[2] * dy[:, 2] - dp[:, 2] * y[2]
        return slopes(y, p), np.stack([dx, dv, dz], axis=1)

    ks = [both(y, tangents)]
    moved_tangents = tangents
    for weights in STAGES:
        pairs = [(w, k) for w, k in zip(weights, ks, strict=True) if w]
        moved = tuple(y[i] + h * sum(w * k[0][i] for w, k in pairs) for i in range(3))
        moved_tangents = tangents + h * sum(w * k[1] for w, k in pairs)
        ks.append(both(moved, moved_tangents))
    return moved_tangents


def loopgrad(**options: Any) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        lg = peers.loopgrad(**options)

        def loss(starts: Any, parameters: Any) -> Any:
            y = tuple(starts[k] for k in range(3))
            p = [parameters[k] for k in range(3)]
            begin = (y, lg.full(y[0].shape, END), lg.full(y[0].shape, FIRST))
            body = lambda c: attempt(lg, lg.stop_gradient, *c, p)
            y, _, _ = lg.while_loop(lambda c: c[1] > 0.0, body, begin)
            return lg.sum(y[0] + y[1] + y[2])

        step = lg.compile(lg.grad(loss, argnums=(0, 1)))
        starts, parameters = lg.asarray(arrays["starts"]), lg.asarray(arrays["parameters"])
        notes = lambda: {"stack bytes": f"{step.plan(starts, parameters).stack_bytes:,}"}
        return peers.own(lambda: step(starts, parameters), list, pair, notes)

    return build_contender


def pair(result: Any) -> Arrays:
    return {"starts": np.asarray(result[0]), "parameters": np.asarray(result[1])}


def jax(arrays: Arrays) -> Contender:
    module, jnp = peers.jax()

    def loss(starts: Any, p: Any) -> Any:
        def masked(carry: Any, _: Any) -> tuple[Any, None]:
            y, left, step = carry
            new_y, new_left, new_step = attempt(jnp, module.lax.stop_gradient, y, left, step, p)
            active = left > 0
            pick = lambda new, old: jnp.where(active, new, old)
            return (tuple(map(pick, new_y, y)), pick(new_left, left), pick(new_step, step)), None

        y = tuple(starts)
        begin = (y, jnp.full(y[0].shape, END), jnp.full(y[0].shape, FIRST))
        y, _, _ = module.lax.scan(masked, begin, None, length=MOST_ATTEMPTS)[0]
        return jnp.sum(y[0] + y[1] + y[2])

    step = module.jit(module.grad(loss, argnums=(0, 1)))
    starts, parameters = jnp.asarray(arrays["starts"]), jnp.asarray(arrays["parameters"])
    return peers.jax_contender(module, lambda: step(starts, parameters), pair)


CONTENDERS = {"loopgrad": loopgrad(), "jax": jax}
GPU_CONTENDERS = {"loopgrad": loopgrad(), "loopgrad:unsorted": loopgrad(sort_lanes=False), "jax": jax}
