"""Sphere tracing of 8 blended spheres, one walk per pixel, gradient of an image loss by 32 parameters.

Pixels walk until they hit or leave: 3 to 157 steps. Dr.Jit is given `max_iterations`, JAX a masked scan of
as many steps as the longest walk takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender
from benchmarks.oracles import in_pieces

TITLE = "sphere-trace: 8 blended spheres, float32, image loss, gradient by centres and radii"
SIZES = {"full": 512, "quick": 48, "gpu": 1024}
TOLERANCE = {"value": 1e-3, "gradient": 2e-2}  # float32 walks against a float64 one
SPHERES, BLEND, EDGE = 8, 8.0, 10.0
FAR, HIT, LONGEST = 5.0, 1e-3, 160


def inputs(size: int) -> Arrays:
    generator = np.random.default_rng(3)
    centres = generator.uniform(-0.8, 0.8, (SPHERES, 3))
    axis = (np.arange(size) + 0.5) / size * 2.0 - 1.0
    x, y = np.meshgrid(axis, -axis)
    rays = np.stack([x * 0.5, y * 0.5, np.ones_like(x)]).reshape(3, -1)
    rays /= np.linalg.norm(rays, axis=0)
    return {
        "spheres": np.concatenate([centres, generator.uniform(0.15, 0.35, (SPHERES, 1))], axis=1).astype(np.float32),
        "rays": rays.astype(np.float32),
    }


def distance(xp: Any, t: Any, rays: Any, s: Any) -> Any:
    """`s[k]` are the four numbers of sphere k."""
    total = 0.0
    for k in range(SPHERES):
        dx, dy, dz = t * rays[0] - s[k][0], t * rays[1] - s[k][1], t * rays[2] - 3.0 - s[k][2]
        total = total + xp.exp(-BLEND * (xp.sqrt(dx * dx + dy * dy + dz * dz) - s[k][3]))
    return xp.log(total) * (-1.0 / BLEND)


def walk(xp: Any, carry: Any, rays: Any, s: Any) -> Any:
    t, nearest, here = carry
    t = t + here
    here = distance(xp, t, rays, s)
    return t, xp.minimum(nearest, here), here


def walking(carry: Any) -> Any:
    return (carry[2] > HIT) & (carry[0] < FAR)


def brightness(xp: Any, carry: Any) -> Any:
    t, nearest, _ = carry
    return xp.exp(-0.3 * t) * xp.exp(-EDGE * xp.maximum(nearest, 0.0 * nearest))


def oracle(arrays: Arrays) -> Arrays:
    """Forward mode by hand in float64: 32 tangents walk along with every pixel."""
    rays = arrays["rays"]
    parts = in_pieces(lambda at: _piece(arrays["spheres"], rays[:, at]), rays.shape[1], 1 << 14)
    value, gradient = (np.sum([part[k] for part in parts], axis=0) / rays.shape[1] for k in range(2))
    return {"value": value, "gradient": gradient.reshape(SPHERES, 4)}


def _piece(spheres: np.ndarray, given: np.ndarray) -> tuple[float, np.ndarray]:
    s, rays = spheres.astype(np.float64), given.astype(np.float64)
    rows = s.tolist()
    t, dt = np.full(rays.shape[1], 1.5), np.zeros((4 * SPHERES, rays.shape[1]))
    here, dhere = _distance_tangents(t, dt, rays, s)
    nearest, dnearest = here.copy(), dhere.copy()
    assert np.allclose(here, distance(np, t, rays, rows))
    while True:
        active = walking((t, nearest, here))
        if not active.any():
            break
        moved, dmoved = t[active] + here[active], dt[:, active] + dhere[:, active]
        new, dnew = _distance_tangents(moved, dmoved, rays[:, active], s)
        t[active], dt[:, active] = moved, dmoved
        here[active], dhere[:, active] = new, dnew
        closer = np.flatnonzero(active)[new < nearest[active]]
        nearest[closer], dnearest[:, closer] = here[closer], dhere[:, closer]
    image = brightness(np, (t, nearest, here))
    slope = image * (-0.3 * dt - EDGE * np.where(nearest > 0, dnearest, 0.0))
    return float(np.sum(image * image)), np.sum(2.0 * image * slope, axis=1)


def _distance_tangents(t: np.ndarray, dt: np.ndarray, rays: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    point = t * rays - np.array([[0.0], [0.0], [3.0]])
    offsets = point[None] - s[:, :3, None]
    length = np.sqrt((offsets**2).sum(axis=1))
    weights = np.exp(-BLEND * (length - s[:, 3:]))
    total = weights.sum(axis=0)
    share, unit = weights / total, offsets / length[:, None]
    tangent = dt * (share * (unit * rays[None]).sum(axis=1)).sum(axis=0)
    own = np.concatenate([-unit, -np.ones_like(length)[:, None]], axis=1) * share[:, None]
    return -np.log(total) / BLEND, tangent + own.reshape(4 * SPHERES, -1)


def pair(result: Any) -> Arrays:
    return {"value": np.asarray(result[0]), "gradient": np.asarray(result[1])}


def loopgrad(**options: Any) -> Callable[[Arrays], Contender]:
    def build_contender(arrays: Arrays) -> Contender:
        lg = peers.loopgrad(**options)
        rays = [lg.asarray(r) for r in arrays["rays"]]

        def loss(spheres: Any) -> Any:
            s = [[spheres[k, i] for i in range(4)] for k in range(SPHERES)]
            start = lg.full(rays[0].shape, 1.5, dtype=lg.float32)
            first = distance(lg, start, rays, s)
            end = lg.while_loop(walking, lambda c: walk(lg, c, rays, s), (start, first, first))
            image = brightness(lg, end)
            return lg.mean(image * image)

        step, spheres = lg.compile(lg.value_and_grad(loss)), lg.asarray(arrays["spheres"])
        notes = lambda: {"stack bytes": f"{step.plan(spheres).stack_bytes:,}"}
        return peers.own(lambda: step(spheres), list, pair, notes)

    return build_contender


def jax(arrays: Arrays) -> Contender:
    module, jnp = peers.jax()
    rays = [jnp.asarray(r) for r in arrays["rays"]]

    def loss(s: Any) -> Any:
        start = jnp.full(rays[0].shape, 1.5, dtype=jnp.float32)
        first = distance(jnp, start, rays, s)

        def masked(carry: Any, _: Any) -> Any:
            active, new = walking(carry), walk(jnp, carry, rays, s)
            return tuple(jnp.where(active, a, b) for a, b in zip(new, carry, strict=True)), None

        end, _ = module.lax.scan(masked, (start, first, first), None, length=LONGEST)
        image = brightness(jnp, end)
        return jnp.mean(image * image)

    step, spheres = module.jit(module.value_and_grad(loss)), jnp.asarray(arrays["spheres"])
    return peers.jax_contender(module, lambda: step(spheres), pair)


def drjit(arrays: Arrays) -> Contender:
    dr, ad = peers.drjit()
    rays = [ad.Float(r) for r in arrays["rays"]]
    dr.eval(rays)

    def run() -> Any:
        s = [[ad.Float(float(v)) for v in row] for row in arrays["spheres"]]
        for row in s:
            dr.enable_grad(*row)
            dr.make_opaque(*row)
        start = dr.full(ad.Float, 1.5, arrays["rays"].shape[1])
        first = distance(dr, start, rays, s)
        step = lambda t, nearest, here: walk(dr, (t, nearest, here), rays, s)
        condition = lambda t, nearest, here: walking((t, nearest, here))
        end = dr.while_loop((start, first, first), condition, step, max_iterations=LONGEST)
        image = brightness(dr, end)
        value = dr.mean(image * image)
        dr.backward(value)
        gradient = [[dr.grad(v) for v in row] for row in s]
        dr.eval(value, gradient)
        return value, gradient

    def fetch(result: Any) -> Arrays:
        rows = [[v.numpy()[0] for v in row] for row in result[1]]
        return {"value": result[0].numpy()[0], "gradient": np.asarray(rows)}

    return peers.drjit_contender(dr, run, fetch)


CONTENDERS = {"loopgrad": loopgrad(), "drjit": drjit, "jax": jax}

GPU_CONTENDERS = {
    "loopgrad": loopgrad(),
    "loopgrad:fast math": loopgrad(fast_math=True),
    "loopgrad:unsorted": loopgrad(sort_lanes=False),
    "drjit": drjit,
    "jax": jax,
}
