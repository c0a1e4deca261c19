"""Cube roots by Newton's iteration: while abs(y**3 - x) > tol. The exit depends on values.

Gradient of the sum with respect to x, which in exact arithmetic is 1 / (3 y**2). No bound is given to
loopgrad; peers that need one get a generous 32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Case, Workload

_BOUND = 32


def _case(size: int) -> Case:
    rng = np.random.default_rng(9)
    return {"x": rng.uniform(0.5, 8.0, size).astype(np.float32)}


def _oracle(case: Case) -> dict[str, Any]:
    root = np.cbrt(case["x"].astype(np.float64))
    return {"loss": root.sum(), "gradient": 1 / (3 * root**2)}


def _loopgrad(case: Case) -> Any:
    import loopgrad as lg

    def loss(x: Any) -> Any:
        def condition(y: Any) -> Any:
            return lg.abs(y * y * y - x) > 1e-5 * x

        def body(y: Any) -> Any:
            return y - (y * y * y - x) / (3 * y * y)

        return lg.sum(lg.while_loop(condition, body, lg.ones_like(x)))

    step = lg.compile(lg.value_and_grad(loss))
    x = lg.asarray(case["x"])

    def call() -> Any:
        value, gradient = step(x)
        return lambda: {"loss": np.asarray(value), "gradient": np.asarray(gradient)}

    return call


def _drjit(case: Case) -> Any:
    import drjit as dr
    from drjit.llvm.ad import Float

    values = Float(case["x"])

    def condition(y: Any, x: Any) -> Any:
        return dr.abs(y * y * y - x) > 1e-5 * x

    def body(y: Any, x: Any) -> Any:
        return y - (y * y * y - x) / (3 * y * y), x

    def call() -> Any:
        x = Float(values)
        dr.enable_grad(x)
        state = (dr.full(Float, 1, len(x)), x)
        root = dr.while_loop(state, condition, body, max_iterations=_BOUND, labels=("y", "x"))[0]
        loss = dr.sum(root)
        dr.backward(loss)
        gradient = dr.grad(x)
        dr.eval(loss, gradient)
        dr.sync_thread()
        return lambda: {"loss": loss.numpy()[0], "gradient": gradient.numpy()}

    return call


def _jax(case: Case) -> Any:
    import jax
    import jax.numpy as jnp

    def loss(x: Any) -> Any:
        def body(y: Any, _k: Any) -> Any:
            on = jnp.abs(y * y * y - x) > 1e-5 * x
            return jnp.where(on, y - (y * y * y - x) / (3 * y * y), y), None

        return jax.lax.scan(body, jnp.ones_like(x), length=_BOUND)[0].sum()

    step = jax.jit(jax.value_and_grad(loss))
    x = jnp.asarray(case["x"])

    def call() -> Any:
        value, gradient = jax.block_until_ready(step(x))
        return lambda: {"loss": np.asarray(value), "gradient": np.asarray(gradient)}

    return call


NEWTON = Workload(
    "newton", "value and gradient of a cube root by Newton, value-dependent exit, f32", 1_000_000,
    _case, {"loopgrad": _loopgrad, "drjit": _drjit, "jax (bounded)": _jax}, _oracle, 5e-3, None,
    {"jax (bounded)": "jax"},
)  # fmt: skip
