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
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import loopgrad as lg

LANES = 4
WEIGHTS = np.linspace(-0.4, 0.5, LANES * LANES).reshape(LANES, LANES)
SCANNED = (0.3, -0.7, 0.9)
NAMES = ("a", "b", "c")
MARGIN = 1e-6  # of what a decision depends on
Tree = Any


class Unsuitable(Exception):
    """A decision is too close, or a number too large, for a comparison."""


# ---- the oracle's numbers


@dataclass(frozen=True)
class Dual:
    """value + first e1 + second e2 + both e1 e2, where e1 e1 = e2 e2 = 0."""

    value: float
    first: float = 0.0
    second: float = 0.0
    both: float = 0.0

    def through(self, f: float, slope: float, curvature: float) -> Dual:
        """A function of it, of which these are value and derivatives."""
        both = slope * self.both + curvature * self.first * self.second
        return Dual(f, slope * self.first, slope * self.second, both)

    def scaled(self, factor: float) -> Dual:
        """The same value with another derivative."""
        return Dual(self.value, factor * self.first, factor * self.second, factor * self.both)

    def __add__(self, other: Dual | float) -> Dual:
        o = _dual(other)
        return Dual(self.value + o.value, self.first + o.first, self.second + o.second, self.both + o.both)

    def __mul__(self, other: Dual | float) -> Dual:
        o = _dual(other)
        both = self.value * o.both + self.first * o.second + self.second * o.first + self.both * o.value
        first, second = self.value * o.first + self.first * o.value, self.value * o.second + self.second * o.value
        return Dual(self.value * o.value, first, second, both)

    __radd__, __rmul__ = __add__, __mul__

    def sin(self) -> Dual:
        s, c = math.sin(self.value), math.cos(self.value)
        return self.through(s, c, -s)

    def tanh(self) -> Dual:
        t = math.tanh(self.value)
        return self.through(t, 1 - t * t, -2 * t * (1 - t * t))

    def bell(self) -> Dual:
        """exp(-x x)"""
        x, e = self.value, math.exp(-(self.value**2))
        return self.through(e, -2 * x * e, (4 * x * x - 2) * e)


def _dual(x: Dual | float) -> Dual:
    return x if isinstance(x, Dual) else Dual(x)


def evaluated(tree: Tree, a: Any, b: Any) -> Any:
    """An expression of a function's arguments, of tensors or of the oracle's numbers."""
    match tree:
        case "a":
            return a
        case "b":
            return b
        case ("sin" | "tanh" | "bell" as kind, x):
            x = evaluated(x, a, b)
            if isinstance(x, Dual):
                return getattr(x, kind)()
            return {"sin": lg.sin, "tanh": lg.tanh, "bell": lambda v: lg.exp(-(v * v))}[kind](x)
        case ("name", name, x):
            x = evaluated(x, a, b)
            return x if isinstance(x, Dual) else lg.name(x, name)
        case ("times", factor, x):
            return factor * evaluated(x, a, b)
        case ("add", x, y):
            return evaluated(x, a, b) + evaluated(y, a, b)
        case ("mul", x, y):
            return evaluated(x, a, b) * evaluated(y, a, b)
    raise AssertionError(tree)


# ---- functions with rules


@dataclass(frozen=True)
class Function:
    """`kind` of rule, and by what its derivative is the true one times. `turns`: how often the expression is applied,
    in a loop."""

    tree: Tree
    kind: str
    factor: float
    turns: int

    def oracle(self, a: Dual, b: Dual) -> Dual:
        for _ in range(self.turns):
            a = evaluated(self.tree, a, b)
        return a.scaled(self.factor)

    def plain(self, a: Any, b: Any) -> Any:
        """The function without its rule."""
        if self.turns == 1:
            return evaluated(self.tree, a, b)
        return lg.fori_loop(0, self.turns, lambda _, v: evaluated(self.tree, v, b), a)

    def made(self) -> Callable[[Any, Any], Any]:
        """The function with its rule."""
        plain, factor = self.plain, self.factor
        match self.kind:
            case "none":
                return plain
            case "vjp" | "vjp of itself":
                rule = lg.custom_vjp(plain)
                value = rule if self.kind == "vjp of itself" else plain

                def backward(saved: Any, ct: Any) -> Any:
                    return tuple(factor * found for found in lg.vjp(plain, *saved["arguments"])[1](ct))

                rule.defvjp(lambda a, b: (value(a, b), {"arguments": (a, b)}), backward)
                return rule
            case "vjp that saves slopes":
                rule = lg.custom_vjp(plain)

                def forward(a: Any, b: Any) -> Any:
                    result, pull = lg.vjp(plain, a, b)
                    return result, pull(lg.ones_like(result))

                rule.defvjp(forward, lambda slopes, ct: tuple(factor * ct * s for s in slopes))
                return rule
            case "vjp with a number":
                scaled = lg.custom_vjp(lambda factor, a, b: plain(a, b), nondiff_argnums=(0,))
                scaled.defvjp(
                    lambda factor, a, b: (plain(a, b), (a, b)),
                    lambda factor, saved, ct: tuple(factor * found for found in lg.vjp(plain, *saved)[1](ct)),
                )
                return lambda a, b: scaled(factor, a, b)
            case "jvp" | "jvp of itself":
                rule = lg.custom_jvp(plain)

                def tangent(primals: Any, tangents: Any) -> Any:
                    value, found = lg.jvp(plain, primals, tangents)
                    return (rule(*primals) if self.kind == "jvp of itself" else value), factor * found

                rule.defjvp(tangent)
                return rule
        raise AssertionError(self.kind)


KINDS = ("none", "vjp", "vjp of itself", "vjp that saves slopes", "vjp with a number", "jvp", "jvp of itself")
CALLED = ("vjp of itself", "jvp of itself")  # whose rule is applied again in a second derivative


# ---- drawing


@dataclass(frozen=True)
class Rules:
    """A program. `order`: of the derivatives that it is for."""

    seed: int
    order: int
    functions: list[Function]
    statements: tuple[Tree, ...]

    def kinds(self) -> set[str]:
        return {f.kind for i, f in enumerate(self.functions) if f"('call', {i}," in str(self.statements)}

    def __str__(self) -> str:
        functions = [f"f{i} = {f}" for i, f in enumerate(self.functions)]
        return "\n    ".join([f"seed {self.seed}, order {self.order}", *functions, *map(str, self.statements)])


class Draw:
    """Draws one program."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.seed = seed

    def program(self) -> Rules:
        order = self.draw.choice([1, 1, 2])
        functions = [self.function(order) for _ in range(3)]
        return Rules(self.seed, order, functions, self.block(0, self.draw.randint(2, 3), "whole"))

    def function(self, order: int) -> Function:
        kind = self.draw.choice(KINDS)
        exact = kind == "none" or (order == 2 and kind not in CALLED)
        factor = 1.0 if exact else self.draw.choice([1.0, 2.5, -0.5])
        return Function(self.expression(2), kind, factor, self.draw.choice([1, 1, 1, 2]))

    def expression(self, depth: int) -> Tree:
        if depth == 0:
            return self.draw.choice(["a", "a", "b"])
        sub = lambda: self.expression(depth - 1)
        match self.draw.choice(["sin", "tanh", "bell", "name", "add", "mul"]):
            case "name":
                return ("name", self.draw.choice(NAMES), ("sin", sub()))
            case "add":
                return ("add", ("times", round(self.draw.uniform(-0.9, 0.9), 2), sub()), sub())
            case "mul":
                return ("mul", sub(), ("tanh", sub()))
            case kind:
                return (kind, sub())

    def block(self, depth: int, count: int, where: str) -> tuple[Tree, ...]:
        return tuple(self.statement(depth, where) for _ in range(count))

    def statement(self, depth: int, where: str) -> Tree:
        """`where`: statements of `whole` arrays may mix lanes."""
        flat = ["call", "call", "call", "name", "swap", *(["mix", "product"] if where == "whole" else [])]
        deep = ["for", "lanes", "while", "branch", "checkpoint", "checkpoint", "scan"]
        deep += ["while whole", "branch whole", "batch"] if where == "whole" else []
        kind = self.draw.choice(deep if depth == 0 else flat if depth > 2 else flat + deep)
        inner = lambda where: self.block(depth + 1, self.draw.randint(1, 2), where)
        cap, bound = (9, 4, 2)[min(depth, 2)], round(self.draw.uniform(-0.4, 0.6), 3)
        match kind:
            case "call":
                return ("call", self.draw.randrange(3), self.draw.choice(["w", "y", "constant"]))
            case "name":
                return ("name", self.draw.choice(NAMES))
            case "swap" | "mix" | "product":
                return (kind,)
            case "for":
                return (kind, self.draw.randint(0, cap), self.draw.choice([None, None, 80]), inner(where))
            case "lanes":
                return (kind, cap, self.draw.choice([None, None, 80]), inner("lane"))
            case "while":
                return (kind, cap, bound, inner("lane"))
            case "while whole":
                return (kind, cap, 4 * bound, inner("whole"))
            case "branch":
                return (kind, bound, inner("lane"), inner("lane"))
            case "branch whole":
                return (kind, 4 * bound, inner("whole"), inner("whole"))
            case "checkpoint":
                return (kind, self.policy(), inner(where))
            case "scan":
                return (kind, inner(where))
        return ("batch", inner("lane"))

    def policy(self) -> Tree:
        some = tuple(self.draw.sample(NAMES, 2))
        choices = [None, ("save_only_these_names", *some), ("save_any_names_but_these", some[0]), ("dots_saveable",)]
        return self.draw.choice([*choices, choices[1], ("both", choices[1], choices[3])])


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
    return np.concatenate([np.asarray(s) for s in slopes])


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
            for found, expected in way():
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
