"""Functions with rules of their own, and statements that call them, drawn at random (see random_rules)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import loopgrad as lg

NAMES = ("a", "b", "c")
Tree = Any


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
