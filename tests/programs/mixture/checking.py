"""One program's value and derivatives in several ways, against differences of NumPy's run, or JAX's derivatives.

Differences are taken along random directions of all inputs at once, by the central formula of fourth order in two step
sizes, which must agree, while no decision changes: else the program is `Unsuitable` there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

import loopgrad as lg

from .drawing import Mixture
from .libraries import Eager, Jax
from .operations import State
from .running import EagerRunning, LoopgradRunning, inputs

REAL = ("v", "w", "z", "m")
STEP = 2e-3
Pairs = Iterator[tuple[str, Any, Any, float]]  # what, found, expected, tolerance


class Unsuitable(Exception):
    """Differences say nothing here."""


def loss_of(xp: Any, s: State) -> Any:
    weights = 1.0 + 0.3 * xp.arange(s["v"].shape[0], dtype=s["v"].dtype)
    found = xp.sum(weights * xp.sin(s["v"])) + 0.5 * xp.sum(xp.cos(s["w"]) * weights)
    found = found + xp.sum(xp.real(s["z"]) * weights - 0.4 * xp.imag(s["z"]) ** 2)
    return found + 0.3 * xp.sum(weights[:, None] * xp.sin(s["m"] * weights))


def moved(s: State, direction: State, step: float) -> State:
    return {**s, **{name: s[name] + step * direction[name] for name in REAL}}


def along(slopes: State, direction: State) -> float:
    """The derivative that a gradient has in a direction: complex ones are pairs of reals."""
    return float(sum(np.sum(np.real(np.conj(np.asarray(slopes[n])) * direction[n])) for n in REAL))


class Check:
    """A program at one point."""

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
        return {n: lg.asarray(s[n]) for n in REAL}, lg.asarray(s["k"])

    @property
    def tolerance(self) -> tuple[float, float]:
        return (1e-9, 1e-8) if self.oracle == "jax" else (1e-7, 1e-5)

    def ways(self) -> dict[str, Callable[[], Pairs]]:
        found = [self.values, self.gradient, self.compiled, self.replayed, self.batched, self.pushed, self.twice]
        if "rule" not in self.program.names():
            found += [self.pushed_twice]
        return {way.__name__: way for way in found}

    def values(self) -> Pairs:
        state = LoopgradRunning().run(self.program.block, {n: lg.asarray(x) for n, x in self.point.items()})
        for name, x in self.expected["point"][0].items():
            yield name, state[name], x, 1e-10
            assert state[name].dtype == x.dtype, (name, state[name].dtype)

    def gradient(self) -> Pairs:
        yield from self.compared("point", *lg.value_and_grad(self.loss)(*self.tensors(self.point)))

    def compared(self, name: str, value: Any, slopes: State) -> Pairs:
        _, expected, slope = self.expected[name]
        yield "value", value, expected, 1e-10
        yield "slope", along(slopes, self.directions[0]), slope, self.tolerance[0]

    def compiled(self) -> Pairs:
        step = lg.compile(lg.value_and_grad(self.loss))
        for name, s in (("point", self.point), ("other", self.other), ("point", self.point)):
            yield from self.compared(name, *step(*self.tensors(s)))

    def replayed(self) -> Pairs:
        step = lg.compile(lg.value_and_grad(self.loss))
        replay = step.capture(*self.tensors(self.point))
        for name, s in (("other", self.other), ("point", self.point)):
            yield from self.compared(name, *replay.replay(*self.tensors(s)))

    def batched(self) -> Pairs:
        both = [self.tensors(s) for s in (self.point, self.other)]
        real = {n: lg.stack([r[n] for r, _ in both], axis=1) for n in REAL}
        values, slopes = lg.vmap(lg.value_and_grad(self.loss), in_axes=(1, -1), out_axes=(0, -1))(
            real, lg.stack([k for _, k in both], axis=-1)
        )
        for i, name in enumerate(("point", "other")):
            yield from self.compared(name, values[i], {n: slopes[n][..., i] for n in REAL})

    def pushed(self) -> Pairs:
        if "rule" in self.program.names():
            return
        real, k = self.tensors(self.point)
        one = self.tensors(self.directions[0])[0]
        value, slope = lg.jvp(lambda r: self.loss(r, k), (real,), (one,))
        yield "value", value, self.expected["point"][1], 1e-10
        yield "tangent", slope, self.expected["point"][2], self.tolerance[0]

    def twice(self) -> Pairs:
        """Reverse over reverse."""
        real, k = self.tensors(self.point)
        one = self.tensors(self.directions[0])[0]

        def first(r: State) -> Any:
            slopes = lg.grad(self.loss)(r, k)
            return sum(lg.sum(lg.real(lg.conj(slopes[n]) * one[n])) for n in REAL)

        yield "bend", along(lg.grad(first)(real), self.directions[1]), self.expected["bend"], self.tolerance[1]

    def pushed_twice(self) -> Pairs:
        """Forward over reverse, and forward over forward."""
        real, k = self.tensors(self.point)
        one, two = (self.tensors(d)[0] for d in self.directions)
        slopes = lg.jvp(lambda r: lg.grad(self.loss)(r, k), (real,), (two,))[1]
        yield "bend", along(slopes, self.directions[0]), self.expected["bend"], self.tolerance[1]
        pushed = lambda r: lg.jvp(lambda q: self.loss(q, k), (r,), (one,))[1]
        yield "forward twice", lg.jvp(pushed, (real,), (two,))[1], self.expected["bend"], self.tolerance[1]


def differences(value: Callable[[float], float], step: float) -> float:
    near, far = value(step) - value(-step), value(2 * step) - value(-2 * step)
    return (8 * near - far) / (12 * step)


def check_mixture(program: Mixture, device: str, ways: Any = None, oracle: str = "differences") -> int:
    """AssertionError where a way differs from the oracle; how many ways there were, 0 for an unsuitable program."""
    check = Check(program, oracle)
    try:
        expected = check.expected
    except (Unsuitable, np.linalg.LinAlgError):
        return 0
    scale = 1.0 + max(abs(expected[name][2]) for name in ("point", "other"))
    count = 0
    for name, way in check.ways().items():
        if ways is not None and name not in ways:
            continue
        with lg.default_device(device):
            for what, found, wanted, tolerance in way():
                size = max(scale, abs(expected["bend"])) if tolerance > 1e-9 else 1.0
                message = f"{name}: {what} on {device}\n    {program}"
                bounds = {"rtol": tolerance, "atol": tolerance * size}
                np.testing.assert_allclose(np.asarray(found), wanted, **bounds, err_msg=message)
        count += 1
    return count
