"""A uniform loop over tensors: T steps of the 2-D wave equation, gradient of the final energy.

T is a run-time value. The update is `next = 2u - previous + c * laplacian(u) - d * u**3`, nonlinear, so
that the reverse pass needs the fields. loopgrad also runs with a memory budget of a quarter of the stack.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender

TITLE = "wave: 100 steps of a nonlinear 2-D wave equation, float32, gradient by the initial field"
SIZES = {"full": 1024, "quick": 64}
TOLERANCE = {"gradient": 1e-2}
STEPS = 100
SPEED, DAMPING = 0.2, 0.01


def inputs(size: int) -> Arrays:
    axis = np.linspace(-1, 1, size)
    bump = np.exp(-40 * (axis[:, None] ** 2 + axis[None, :] ** 2))
    return {"field": bump.astype(np.float32)}


def update(xp: Any, u: Any, previous: Any) -> Any:
    rolled = [xp.roll(u, shift, axis=axis) for axis in (0, 1) for shift in (1, -1)]
    neighbours = rolled[0] + rolled[1] + rolled[2] + rolled[3]
    return 2.0 * u - previous + SPEED * (neighbours - 4.0 * u) - DAMPING * u * u * u


def oracle(arrays: Arrays) -> Arrays:
    """The adjoint by hand, in float64."""
    u = arrays["field"].astype(np.float64)
    fields, previous = [], u
    for _ in range(STEPS):
        fields.append(u)
        u, previous = update(np, u, previous), u
    adjoint, adjoint_previous = 2.0 * u, np.zeros_like(u)
    for field in reversed(fields):
        spread = sum(np.roll(adjoint, shift, axis) for axis in (0, 1) for shift in (1, -1)) - 4.0 * adjoint
        slope = 2.0 * adjoint + SPEED * spread - 3.0 * DAMPING * field * field * adjoint
        adjoint, adjoint_previous = slope + adjoint_previous, -adjoint
    return {"gradient": adjoint + adjoint_previous}


def gradient_of(result: Any) -> Arrays:
    return {"gradient": np.asarray(result)}


def loopgrad(budgeted: bool) -> Any:
    def build(arrays: Arrays) -> Contender:
        lg = peers.loopgrad()
        budget = STEPS * arrays["field"].nbytes // 4 if budgeted else None

        def energy(field: Any, steps: Any) -> Any:
            body = lambda _, c: (update(lg, c[0], c[1]), c[0])
            u, _ = lg.fori_loop(0, steps, body, (field, field), memory_budget=budget)
            return lg.sum(u * u)

        step = lg.compile(lg.grad(energy))
        field, steps = lg.asarray(arrays["field"]), lg.asarray(STEPS)

        return peers.own(lambda: step(field, steps), lambda result: [result], gradient_of)

    return build


def jax(arrays: Arrays) -> Contender:
    """`scan` with the number of steps fixed: a dynamic one has no reverse pass."""
    module, jnp = peers.jax()

    def energy(field: Any) -> Any:
        body = lambda c, _: ((update(jnp, c[0], c[1]), c[0]), None)
        (u, _), _ = module.lax.scan(body, (field, field), None, length=STEPS)
        return jnp.sum(u * u)

    step, field = module.jit(module.grad(energy)), jnp.asarray(arrays["field"])
    return peers.jax_contender(module, lambda: step(field), gradient_of)


def torch(arrays: Arrays) -> Contender:
    module = peers.torch()
    field = peers.torch_tensor(module, arrays["field"])

    class Rolled:
        """torch.roll with NumPy's argument order."""

        @staticmethod
        def roll(u: Any, shift: int, axis: int) -> Any:
            return module.roll(u, shift, dims=axis)

    def run() -> Any:
        leaf = field.clone().requires_grad_()
        u = previous = leaf
        for _ in range(STEPS):
            u, previous = update(Rolled, u, previous), u
        (u * u).sum().backward()
        return leaf.grad

    return peers.torch_contender(module, run, lambda result: gradient_of(peers.numpy_of(result)))


CONTENDERS = {"loopgrad": loopgrad(False), "loopgrad:quarter budget": loopgrad(True), "jax": jax, "torch": torch}
GPU_CONTENDERS = CONTENDERS
