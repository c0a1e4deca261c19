"""One program's value and derivatives in several ways, against differences of NumPy's run, or JAX's derivatives.

Differences are taken along random directions of all inputs at once, by the central formula of fourth order in two step
sizes, which must agree, while no decision changes: else the program is `Unsuitable` there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from nested_checks import VALUE_TOLERANCE, NestedCheck, Pairs, Unsuitable, check_ways

import loopgrad as lg

from .drawing import Mixture
from .libraries import Eager, Jax
from .operations import State
from .running import EagerRunning, LoopgradRunning, inputs

REAL = ("v", "w", "z", "m")
STEP = 2e-3


def loss_of(xp: Any, s: State) -> Any:
    weights = 1.0 + 0.3 * xp.arange(s["v"].shape[0], dtype=s["v"].dtype)
    found = xp.sum(weights * xp.sin(s["v"])) + 0.5 * xp.sum(xp.cos(s["w"]) * weights)
    found = found + xp.sum(xp.real(s["z"]) * weights - 0.4 * xp.imag(s["z"]) ** 2)
    return found + 0.3 * xp.sum(weights[:, None] * xp.sin(s["m"] * weights))


def moved(s: State, direction: State, step: float) -> State:
    return {**s, **{name: s[name] + step * direction[name] for name in REAL}}


class Check(NestedCheck):
    """Against differences, or JAX's derivatives."""

    REAL, AXIS = REAL, 1

    def __init__(self, program: Mixture, oracle: str = "differences") -> None:
        self.program, self.oracle = program, oracle
        self.point, self.other = (inputs(program.size, seed) for seed in (program.seed, program.seed + 10_000))
        self.directions = [inputs(program.size, program.seed + seed) for seed in (20_000, 30_000)]

    # ---- outside

    def eager(self, s: State) -> tuple[State, list[Any]]:
        o = Eager()
        with np.errstate(all="ignore"):
            return EagerRunning(o).run(self.program.block, s), o.decisions

    def steady(self, s: State, *directions: State) -> Callable[..., float]:
        decisions = self.eager(s)[1]

        def value(*steps: float) -> float:
            there = s
            for step, direction in zip(steps, directions, strict=True):
                there = moved(there, direction, step)
            found, decided = self.eager(there)
            if decided != decisions:
                raise Unsuitable("a decision is close")
            return float(loss_of(np, found))

        return value

    def slope(self, s: State, direction: State) -> float:
        value = self.steady(s, direction)
        rough, fine = (differences(value, step) for step in (STEP, STEP / 2))
        if not abs(rough - fine) < 1e-6 * (1.0 + abs(fine)):
            raise Unsuitable(f"{rough} and {fine}")
        return fine + (fine - rough) / 15

    def bend(self, s: State, first: State, second: State) -> float:
        value = self.steady(s, first, second)
        inner = lambda step: lambda t: differences(lambda u: value(u, t), step)
        rough, fine = (differences(inner(step), step) for step in (4 * STEP, 2 * STEP))
        if not abs(rough - fine) < 1e-5 * (1.0 + abs(fine)):
            raise Unsuitable(f"{rough} and {fine}")
        return fine + (fine - rough) / 15

    @cached_property
    def expected(self) -> dict[str, Any]:
        one, two = self.directions
        found: dict[str, Any] = {}
        for name, s in (("point", self.point), ("other", self.other)):
            state = self.eager(s)[0]
            found[name] = state, float(loss_of(np, state)), self.slope(s, one)
        found["bend"] = self.bend(self.point, one, two)
        if self.oracle == "jax":
            self.by_jax(found)
        return found

    def by_jax(self, found: dict[str, Any]) -> None:
        o = Jax()
        jax, jnp = o.jax, o.xp
        one, two = ({n: jnp.asarray(d[n]) for n in REAL} for d in self.directions)

        def loss(real: State, k: Any) -> Any:
            return loss_of(jnp, EagerRunning(o).run(self.program.block, {**real, "k": k}))

        for name, s in (("point", self.point), ("other", self.other)):
            real, k = {n: jnp.asarray(s[n]) for n in REAL}, jnp.asarray(s["k"])
            value, slope = jax.jvp(lambda r, k=k: loss(r, k), (real,), (one,))
            found[name] = found[name][0], float(value), float(slope)
            if name == "point":
                pushed = lambda r, k=k: jax.jvp(lambda q: loss(q, k), (r,), (one,))[1]
                found["bend"] = float(jax.jvp(pushed, (real,), (two,))[1])

    # ---- loopgrad

    def loss(self, real: State, k: Any) -> Any:
        return loss_of(lg, LoopgradRunning().run(self.program.block, {**real, "k": k}))

    def tensors(self, s: State) -> tuple[State, Any]:
        return {n: lg.asarray(s[n]) for n in self.REAL}, lg.asarray(s["k"])

    @property
    def tolerance(self) -> tuple[float, float]:
        return (1e-9, 1e-8) if self.oracle == "jax" else (1e-7, 1e-5)

    def size(self, tolerance: float) -> float:
        slopes = (self.expected[name][2] for name in ("point", "other"))
        return 1.0 + max(abs(x) for x in (*slopes, self.expected["bend"])) if tolerance > 1e-9 else 1.0

    def values(self) -> Pairs:
        state = LoopgradRunning().run(self.program.block, {n: lg.asarray(x) for n, x in self.point.items()})
        for name, x in self.expected["point"][0].items():
            yield name, state[name], x, VALUE_TOLERANCE
            assert state[name].dtype == x.dtype, (name, state[name].dtype)


def differences(value: Callable[[float], float], step: float) -> float:
    near, far = value(step) - value(-step), value(2 * step) - value(-2 * step)
    return (8 * near - far) / (12 * step)


def check_mixture(program: Mixture, device: str, ways: Any = None, oracle: str = "differences") -> int:
    return check_ways(Check(program, oracle), device, ways)
