"""One program's values and derivatives in several ways, against NumPy's run.

Derivatives are those of NumPy's run at complex numbers (complex steps: Squire and Trapp, 1998), exact to rounding;
second ones are differences of those.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from nested_checks import VALUE_TOLERANCE, NestedCheck, Pairs, Unsuitable, check_ways

import loopgrad as lg

from .drawing import Mutations, State, floats_of
from .running import LoopgradRunning, NumPyRunning

REAL = ("a", "b", "c", "m", "s")
TINY, STEP = 1e-40, 1e-4


def inputs(program: Mutations, seed: int) -> State:
    random, n = np.random.default_rng([seed, 11]), program.size
    found: State = {name: random.uniform(-1, 1, n) for name in "abc"}
    found["m"], found["s"] = random.uniform(-1, 1, (n, n)), np.asarray(random.uniform(-1, 1))
    found["k"] = random.integers(0, 100, n).astype(program.dtypes[0])
    found["j"] = np.asarray(random.integers(0, 100)).astype(program.dtypes[1])
    return {**found, "p": random.integers(0, 2, n).astype(bool)}


def loss_of(xp: Any, s: State) -> Any:
    weights = 1.0 + 0.3 * xp.arange(s["a"].shape[0], dtype="float64")
    found = xp.sum(weights * xp.sin(s["a"])) + xp.sum(s["b"] * s["b"] * weights) + 0.7 * xp.sin(s["s"])
    return found + xp.sum(xp.sin(s["m"] * weights)) - xp.sum(xp.where(s["p"], s["c"], 0.3 * s["a"]))


class Check(NestedCheck):
    """Against NumPy's run at complex numbers."""

    REAL, AXIS = REAL, -1
    tolerance = (1e-9, 1e-6)

    def __init__(self, program: Mutations) -> None:
        self.program = program
        self.point, self.other = (inputs(program, seed) for seed in (program.seed, program.seed + 10_000))
        self.directions = [floats_of(inputs(program, program.seed + seed)) for seed in (20_000, 30_000)]

    # ---- outside

    def plain(self, s: State) -> tuple[State, list[Any]]:
        running = NumPyRunning(self.program)
        start = {n: np.array(x, complex if n in REAL else None) for n, x in s.items()}
        with np.errstate(all="ignore"):
            found = running.run(self.program.block, start)
        if running.closest < 1e-3:
            raise Unsuitable("a decision is close")
        return found, running.decisions

    def stepped(self, s: State, by: float = 0.0) -> tuple[State, float, np.ndarray]:
        """What the program gives near a point, its loss, and the slope in the first direction."""
        one, two = self.directions
        there = {**s, **{n: s[n] + by * two[n] + 1j * TINY * one[n] for n in REAL}}
        found, decisions = self.plain(there)
        if by and decisions != self.plain(s)[1]:
            raise Unsuitable("a decision changes")
        loss = loss_of(np, found)
        if not abs(loss) < 1e4 or not abs(loss.imag) < 1e4 * TINY:
            raise Unsuitable("large")
        return {n: np.real(x) for n, x in found.items()}, float(loss.real), loss.imag / TINY

    @cached_property
    def expected(self) -> dict[str, Any]:
        found: dict[str, Any] = {"point": self.stepped(self.point), "other": self.stepped(self.other)}
        slopes = [self.stepped(self.point, by)[2] for by in (STEP, -STEP, 2 * STEP, -2 * STEP)]
        found["bend"] = (8 * (slopes[0] - slopes[1]) - (slopes[2] - slopes[3])) / (12 * STEP)
        return found

    # ---- loopgrad

    def loss(self, real: State, rest: State) -> Any:
        return loss_of(lg, LoopgradRunning(self.program).run(self.program.block, {**copied(real), **copied(rest)}))

    def tensors(self, s: State) -> tuple[State, State]:
        return {n: lg.asarray(s[n]) for n in self.REAL}, {n: lg.asarray(s[n]) for n in ("k", "j", "p")}

    def ways(self) -> list[Callable[[], Pairs]]:
        outside = self.names() & {"compiled", "exported"}  # called from outside, they leave no history
        return [*super().ways(), self.exported, *([] if outside else [self.afterwards])]

    def size(self, tolerance: float) -> float:
        return 1.0 + max(abs(self.expected[name][2]) for name in ("point", "other")) + abs(self.expected["bend"])

    def values(self) -> Pairs:
        """Twice, the second time from what the first has left of its arguments: nothing may have changed there."""
        tensors = {n: lg.asarray(x) for n, x in self.point.items()}
        run = lg.compile(lambda s: LoopgradRunning(self.program).run(self.program.block, copied(s)))
        for function in (lambda s: LoopgradRunning(self.program).run(self.program.block, copied(s)), run):
            state = function(tensors)
            for name, x in self.expected["point"][0].items():
                yield name, state[name], x, VALUE_TOLERANCE
                assert np.asarray(state[name]).dtype == self.point[name].dtype, (name, state[name].dtype)

    def afterwards(self) -> Pairs:
        """Of a graph that is built, after a look at a part of it."""
        real, rest = self.tensors(self.point)
        state = LoopgradRunning(self.program).run(self.program.block, {**copied(real), **copied(rest)})
        loss = loss_of(lg, state)
        if self.program.seed % 2:
            yield "b", state["b"], self.expected["point"][0]["b"], VALUE_TOLERANCE
        slopes = dict(zip(REAL, lg.gradients(loss, [real[n] for n in REAL]), strict=True))
        yield from self.compared("point", loss, slopes)

    def exported(self) -> Pairs:
        function = pickle.loads(pickle.dumps(lg.export(self.loss, *self.tensors(self.point))))
        yield from self.compared("other", *lg.value_and_grad(function)(*self.tensors(self.other)))


def copied(s: State) -> State:
    return {n: x.copy() for n, x in s.items()}


def check_mutations(program: Mutations, device: str, ways: Any = None) -> int:
    return check_ways(Check(program), device, ways)
