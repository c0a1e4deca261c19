"""Random programs of functions with rules of their own, checked against numbers that carry their derivatives.

One seed is one `Rules`: functions of two numbers, most of them with a rule (`lg.custom_vjp`, `lg.custom_jvp`) whose
derivative is the true one times a factor, so that a rule which isn't asked shows; and statements that call them in
loops, lanes, branches, scans, batches and checkpoints with policies over named values. The oracle runs the same
statements lane by lane on Python's numbers with two infinitesimals (hyper-dual numbers: Fike and Alonso, 2011), which
give first and second derivatives without differences, and knows nothing of rules but their factors.

    python tests/programs/random_rules.py --count 300 --first 0 --devices cpu,interpreter
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rule_programs import Draw, Dual, Rules, Tree

import loopgrad as lg
from loopgrad.graph.extract import extract
from loopgrad.graph.verify import verify

LANES = 4
WEIGHTS = np.linspace(-0.4, 0.5, LANES * LANES).reshape(LANES, LANES)
SCANNED = (0.3, -0.7, 0.9)
MARGIN = 1e-6  # of what a decision depends on


class Unsuitable(Exception):
    """A decision is too close, or a number too large, for a comparison."""


def policy_of(tree: Tree) -> Any:
    policies = lg.checkpoint_policies
    if tree is None:
        return None
    if tree[0] == "both":
        return policies.save_from_both_policies(policy_of(tree[1]), policy_of(tree[2]))
    found = getattr(policies, tree[0])
    return found(*tree[1:]) if callable(found) else found


# ---- the oracle


@dataclass
class Lane:
    """What statements change, and what they read."""

    v: Dual
    w: Dual
    y: Dual
    trips: int


class Oracle:
    """Runs statements lane by lane."""

    def __init__(self, program: Rules) -> None:
        self.functions = program.functions

    def run(self, block: tuple[Tree, ...], lanes: list[Lane]) -> None:
        for statement in block:
            self.execute(statement, lanes)
            if any(not abs(lane.v.value) < 1e3 for lane in lanes):
                raise Unsuitable("large")

    def below(self, x: float, bound: float) -> bool:
        if abs(x - bound) < MARGIN:
            raise Unsuitable("close")
        return x < bound

    def execute(self, statement: Tree, lanes: list[Lane]) -> None:
        match statement:
            case ("call", number, other):
                for lane in lanes:
                    second = {"w": lane.w, "y": lane.y, "constant": Dual(0.4)}[other]
                    lane.v = self.functions[number].oracle(lane.v, second)
            case ("name", _):
                pass
            case ("swap",):
                for lane in lanes:
                    lane.v, lane.w = lane.w + 0.1 * lane.v, lane.v
            case ("mix",):
                total = sum((lane.w for lane in lanes), Dual(0.0))
                for lane in lanes:
                    lane.v = lane.v + 0.1 * total
            case ("product",):
                old = [lane.v for lane in lanes]
                for row, lane in zip(WEIGHTS, lanes, strict=True):
                    lane.v = sum((float(m) * v for m, v in zip(row, old, strict=True)), Dual(0.0)).tanh()
            case ("for", count, _, body):
                for k in range(count):
                    self.trip(k, body, lanes)
            case ("lanes", cap, _, body):
                for lane in lanes:
                    for k in range(lane.trips % (cap + 1)):
                        self.trip(k, body, [lane])
            case ("while", cap, bound, body):
                for lane in lanes:
                    self.until(lambda lane=lane: lane.v.value, cap, bound, body, [lane])
            case ("while whole", cap, bound, body):
                self.until(lambda: sum(lane.v.value for lane in lanes), cap, bound, body, lanes)
            case ("branch", bound, yes, no):
                for lane in lanes:
                    self.run(yes if self.below(lane.v.value, bound) else no, [lane])
            case ("branch whole", bound, yes, no):
                self.run(yes if self.below(sum(lane.v.value for lane in lanes), bound) else no, lanes)
            case ("checkpoint", _, body):
                self.run(body, lanes)
            case ("scan", body):
                for x in SCANNED:
                    for lane in lanes:
                        lane.v = lane.v + x * lane.w
                    self.run(body, lanes)
            case ("batch", body):
                for lane in lanes:
                    self.run(body, [lane])

    def trip(self, k: int, body: tuple[Tree, ...], lanes: list[Lane]) -> None:
        for lane in lanes:
            lane.v = lane.v + 0.05 * k
        self.run(body, lanes)

    def until(self, value: Callable[[], float], cap: int, bound: float, body: Any, lanes: list[Lane]) -> None:
        rounds = 0
        while rounds < cap and self.below(value(), bound):
            for lane in lanes:
                lane.v = lane.v + 0.11
            self.run(body, lanes)
            rounds += 1


# ---- on tensors

State = dict[str, Any]


class Tensors:
    """Runs the same statements on whole arrays, or within a batch."""

    def __init__(self, program: Rules) -> None:
        self.functions = [f.made() for f in program.functions]

    def run(self, block: tuple[Tree, ...], state: State) -> State:
        for statement in block:
            state = self.execute(statement, state)
        return state

    def within(self, change: Callable[[State], State], body: Any, state: State, k: Any = None) -> State:
        return self.run(body, change(state) if k is None else {**state, "v": state["v"] + 0.05 * k})

    def execute(self, statement: Tree, state: State) -> State:
        v, w = state["v"], state["w"]
        match statement:
            case ("call", number, other):
                second = 0.4 + lg.zeros_like(v) if other == "constant" else state[other]
                return {**state, "v": self.functions[number](v, second)}
            case ("name", name):
                return {**state, "v": lg.name(v, name)}
            case ("swap",):
                return {**state, "v": w + 0.1 * v, "w": v}
            case ("mix",):
                return {**state, "v": v + 0.1 * lg.sum(w)}
            case ("product",):
                return {**state, "v": lg.tanh(lg.matmul(lg.asarray(WEIGHTS), v))}
            case ("for", count, budget, body):
                return self.counted(count, budget, body, state)
            case ("lanes", cap, budget, body):
                return self.counted(state["trips"] % (cap + 1), budget, body, state)
            case ("while", cap, bound, body):
                return self.until(lambda v: v, lg.zeros_like(state["trips"]), cap, bound, body, state)
            case ("while whole", cap, bound, body):
                return self.until(lg.sum, 0, cap, bound, body, state)
            case ("branch", bound, yes, no):
                return lg.cond(v < bound, lambda s: self.run(yes, s), lambda s: self.run(no, s), state)
            case ("branch whole", bound, yes, no):
                return lg.cond(lg.sum(v) < bound, lambda s: self.run(yes, s), lambda s: self.run(no, s), state)
            case ("checkpoint", policy, body):
                return lg.checkpoint(lambda s: self.run(body, s), policy=policy_of(policy))(state)
            case ("scan", body):
                step = lambda s, x: (self.run(body, {**s, "v": s["v"] + x * s["w"]}), x)
                return lg.scan(step, state, lg.asarray(SCANNED))[0]
        return lg.vmap(lambda s: self.run(statement[1], s))(state)

    def counted(self, count: Any, budget: int | None, body: Any, state: State) -> State:
        step = lambda k, s: self.run(body, {**s, "v": s["v"] + 0.05 * k})
        return lg.fori_loop(0, count, step, state, memory_budget=budget)

    def until(self, value: Any, start: Any, cap: int, bound: float, body: Any, state: State) -> State:
        going = lambda s: (s[0] < cap) & (value(s[1]["v"]) < bound)
        step = lambda s: (s[0] + 1, self.run(body, {**s[1], "v": s[1]["v"] + 0.11}))
        return lg.while_loop(going, step, (start, state))[1]


# ---- comparing


class Check:
    """One program at one point, its derivatives in several ways."""

    def __init__(self, program: Rules) -> None:
        self.program = program
        draw = np.random.default_rng(program.seed)
        self.x, self.y, self.direction = (draw.uniform(-1, 1, size) for size in (LANES, LANES, 2 * LANES))
        self.trips = draw.integers(0, 10, LANES)

    def loss(self, x: Any, y: Any) -> Any:
        state = {"v": x, "w": x * y, "y": y, "trips": lg.asarray(self.trips)}
        state = Tensors(self.program).run(self.program.statements, state)
        return lg.sum(lg.sin(state["v"]) + 0.3 * state["w"])

    def number(self, point: np.ndarray, first: np.ndarray, second: np.ndarray) -> Dual:
        """The oracle's loss along two directions."""
        own = [Dual(float(p), float(a), float(b)) for p, a, b in zip(point, first, second, strict=True)]
        pairs = zip(own[:LANES], own[LANES:], self.trips, strict=True)
        lanes = [Lane(x, x * y, y, int(n)) for x, y, n in pairs]
        Oracle(self.program).run(self.program.statements, lanes)
        return sum((lane.v.sin() + 0.3 * lane.w for lane in lanes), Dual(0.0))

    def expected(self, point: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Value, gradient, and the second derivative along the direction."""
        found = [self.number(point, unit, self.direction) for unit in np.eye(2 * LANES)]
        return found[0].value, np.array([d.first for d in found]), np.array([d.both for d in found])

    def ways(self) -> dict[str, Callable[[], list[tuple[Any, Any]]]]:
        """By name: pairs of what was found and what was expected."""
        kinds = self.program.kinds()
        found: dict[str, Any] = {"gradient": self.gradient, "batched": self.batched, "compiled": self.compiled}
        if not any(kind.startswith("vjp") for kind in kinds):
            found["pushed"] = self.pushed
        if self.program.order == 2:
            found["reverse over reverse"] = self.reverse_over_reverse
            if "vjp of itself" not in kinds:
                found["forward over reverse"] = self.forward_over_reverse
        return found

    @property
    def point(self) -> np.ndarray:
        return np.concatenate([self.x, self.y])

    def gradient(self) -> list[tuple[Any, Any]]:
        value, slopes = lg.value_and_grad(self.loss, argnums=(0, 1))(lg.asarray(self.x), lg.asarray(self.y))
        expected = self.expected(self.point)
        return [(value, expected[0]), (joined(slopes), expected[1])]

    def compiled(self) -> list[tuple[Any, Any]]:
        step = lg.compile(lg.value_and_grad(self.loss, argnums=(0, 1)))
        pairs = []
        for x, y in ((self.x, self.y), (0.9 * self.y, self.x)):
            value, slopes = step(lg.asarray(x), lg.asarray(y))
            expected = self.expected(np.concatenate([x, y]))
            pairs += [(value, expected[0]), (joined(slopes), expected[1])]
        return pairs

    def batched(self) -> list[tuple[Any, Any]]:
        rows = np.stack([self.x, -0.8 * self.x])
        found = lg.vmap(lg.grad(self.loss, argnums=(0, 1)), in_axes=(0, None))(lg.asarray(rows), lg.asarray(self.y))
        slopes = np.concatenate([np.asarray(part) for part in found], axis=1)
        return [(s, self.expected(np.concatenate([x, self.y]))[1]) for s, x in zip(slopes, rows, strict=True)]

    def pushed(self) -> list[tuple[Any, Any]]:
        tangents = lg.asarray(self.direction[:LANES]), lg.asarray(self.direction[LANES:])
        value, tangent = lg.jvp(self.loss, (lg.asarray(self.x), lg.asarray(self.y)), tangents)
        expected = self.expected(self.point)
        return [(value, expected[0]), (tangent, expected[1] @ self.direction)]

    def along(self, x: Any, y: Any) -> Any:
        slopes = lg.grad(self.loss, argnums=(0, 1))(x, y)
        return lg.sum(slopes[0] * self.direction[:LANES]) + lg.sum(slopes[1] * self.direction[LANES:])

    def reverse_over_reverse(self) -> list[tuple[Any, Any]]:
        found = lg.grad(self.along, argnums=(0, 1))(lg.asarray(self.x), lg.asarray(self.y))
        return [(joined(found), self.expected(self.point)[2])]

    def forward_over_reverse(self) -> list[tuple[Any, Any]]:
        tangents = lg.asarray(self.direction[:LANES]), lg.asarray(self.direction[LANES:])
        slopes = lg.grad(self.loss, argnums=(0, 1))
        found = lg.jvp(slopes, (lg.asarray(self.x), lg.asarray(self.y)), tangents)[1]
        return [(joined(found), self.expected(self.point)[2])]


def joined(slopes: Any) -> np.ndarray:
    """The slopes in one array; of what is still a graph, each stack is used once."""
    verify(extract([s._value for s in slopes]))
    return np.concatenate([np.asarray(s) for s in slopes])


def pairs_of(way: Callable[[], list[tuple[Any, Any]]], may_refuse: bool) -> list[tuple[Any, Any]]:
    """Forward over reverse is refused where a loop carries what a vjp rule's function gave and nobody reads."""
    try:
        return way()
    except lg.GradientError:
        if not may_refuse:
            raise
        return []


def check_rules(seed: int, device: str, only: str | None = None) -> int:
    """AssertionError where a way differs from the oracle; how many ways there were, 0 for an unsuitable program."""
    program = Draw(seed).program()
    check = Check(program)
    try:
        scale = 1.0 + max(np.abs(part).max() for part in check.expected(check.point)[1:])
        check.expected(np.concatenate([-0.8 * check.x, check.y]))
        check.expected(np.concatenate([0.9 * check.y, check.x]))
    except Unsuitable:
        return 0
    if scale > 1e4:
        return 0
    ways = {name: way for name, way in check.ways().items() if only in (None, name)}
    with lg.default_device(device):
        for name, way in ways.items():
            for found, expected in pairs_of(way, name == "forward over reverse"):
                message = f"{name} on {device}\n    {program}"
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10 * scale, err_msg=message)
    return len(ways)


def main() -> None:
    """Check as many seeds as the command line asks for."""
    parser = argparse.ArgumentParser(description="check random programs of functions with own rules")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--way")
    chosen = parser.parse_args()
    failures, ways = 0, 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        for device in chosen.devices.split(","):
            try:
                ways += check_rules(seed, device, chosen.way)
            except Exception as error:  # any failure of one seed is reported and the run goes on
                failures += 1
                print(f"seed {seed} on {device}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
    print(f"{chosen.count} programs, {ways} ways, {failures} failures")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
