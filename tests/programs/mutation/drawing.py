"""Programs as data: nested tuples, drawn from a seed.

A state has vectors a, b, c, a matrix m, a number s, integers k (a vector) and j (a number), bools p. Statements:

    ("let", x, expression)                  x is that; a view of an array where the expression is one
    ("same", x, y) ("swap", names)          two names of an array; names change places
    ("line", x, view)                       x is a row or column of m
    ("write", x, views, how, expression)    to a view of x: set, add or multiply
    ("places", x, index, how, expression)   x[index] = ..., x[index] += ..., and x.at[index] as "at add", ...
    ("mask", x, number)                     x[p] = number
    ("k", ...) ("j", ...) ("p", ...)        integers and bools
    control structures, whose last elements are blocks
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nested_programs import Block, Drawing, Nested, Statement

State = dict[str, Any]

VECTORS = ("a", "b", "c")
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "int64", "uint64")
VECTOR_VIEWS = ("tail", "head", "back", "even", "column", "lifted", "all", "number", "first")
MATRIX_VIEWS = ("transposed", "rows", "turned", "row", "row j", "column j", "flat", "columns", "corner", "row of T")
CONTROL = (
    *("for", "while", "lanes", "scan", "cond", "switch", "batch", "checkpoint", "rule", "tangent rule"),
    *("compiled", "exported"),
)  # fmt: skip


@dataclass(frozen=True)
class Mutations(Nested):
    """A program, the extent of its arrays, the dtypes of k and j, and the seed of its inputs."""

    seed: int
    size: int
    dtypes: tuple[str, str]
    block: Block


def floats_of(s: State) -> State:
    return {n: s[n] for n in ("a", "b", "c", "m", "s")}


class Draw(Drawing):
    """Draws one program."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, stream=1998)

    def number(self) -> float:
        return round(float(self.random.uniform(-0.9, 0.9)), 2)

    def program(self) -> Mutations:
        size, dtypes = self.one_of((1, 2, 3, 3, 4, 5)), (self.one_of(DTYPES), self.one_of(DTYPES))
        return Mutations(self.seed, size, dtypes, self.block(self.one_of((1, 2, 2, 3)), 3, 7))

    def block(self, depth: int, least: int = 1, most: int = 4) -> Block:
        return tuple(self.statement(depth) for _ in range(self.random.integers(least, most)))

    def statement(self, depth: int) -> Statement:
        if depth and self.random.random() < 0.4:
            return self.control(self.one_of(CONTROL), depth - 1)
        kind, x = self.one_of(("let", "same", "swap", "line", "write", "write", "write", "places", "integers")), ""
        x = self.one_of(VECTORS)
        match kind:
            case "let":
                return kind, x, self.expression(2)
            case "same":
                return kind, x, self.one_of(VECTORS)
            case "swap":
                names = [str(n) for n in self.random.permutation(VECTORS)]
                return kind, tuple(names[: self.one_of((2, 3))])
            case "line":
                return kind, x, self.one_of(("row", "row j", "column j", "row of T"))
            case "write":
                how = self.one_of(("set", "add", "multiply"))
                if self.random.random() < 0.5:
                    return kind, "m", (self.one_of(MATRIX_VIEWS),), how, self.expression(1)
                views = tuple(self.one_of(VECTOR_VIEWS) for _ in range(self.one_of((1, 1, 2))))
                return kind, x, views, how, self.expression(1)
            case "places":
                if self.random.random() < 0.2:
                    return "mask", x, self.number()
                how = self.one_of(("set", "add", "at add", "at multiply", "at set once"))
                return kind, self.one_of((x, "m")), how, self.expression(1)
        return self.integers()

    def integers(self) -> Statement:
        match self.one_of(("wrap", "place", "total", "bools", "shift", "bits", "quotient")):
            case "wrap":
                return "k", "wrap", self.one_of((3, 37, 101)), self.one_of((1, 5, 90))
            case "place":
                return "k", "place", 0, 0
            case "total":
                return "j", self.one_of(("total", "of k", "mixed"))
            case "bools":
                return "p", self.one_of(VECTORS), self.number()
            case word:
                return "k", word, self.one_of((1, 3, 7)), self.one_of((2, 3, 5))

    def expression(self, depth: int) -> Any:
        leaf = self.one_of(("name", "name", "number", "outer", "s", "line", "gather", "integers", "back", "roll"))
        if depth == 0 or self.random.random() < 0.25:
            match leaf:
                case "number":
                    return leaf, self.number()
                case "line":
                    return leaf, self.one_of(("row", "row j", "column j", "row of T"))
            return leaf, self.one_of(VECTORS)
        kind = self.one_of(("sin", "tanh", "add", "multiply", "where", "totals", "product", "subtract"))
        if kind in ("sin", "tanh", "totals", "product"):
            return kind, self.expression(depth - 1)
        return kind, self.expression(depth - 1), self.expression(depth - 1)

    def control(self, kind: str, depth: int) -> Statement:
        inner = lambda: self.block(depth)
        match kind:
            case "for":
                bounds = self.one_of((0, 0, -2, 1)), self.one_of((0, 1, 2, 3, 5, "j", "j", "k"))
                return kind, *bounds, self.one_of((None, None, 500, 3000)), inner()
            case "while":
                return kind, self.one_of((1, 3, 4)), self.number(), self.one_of((None, 1000)), inner()
            case "lanes":
                steps = tuple(self.lane_step() for _ in range(self.one_of((1, 2, 3))))
                return kind, self.one_of((2, 4)), self.one_of(("for", "while")), steps
            case "scan":
                return kind, self.one_of((False, True)), inner()
            case "cond":
                return kind, self.one_of(("odd", "less")), self.number(), inner(), inner()
            case "switch":
                return kind, inner(), inner(), inner()
            case "batch":
                axes = self.one_of((0, -1)), self.one_of((0, -1, -2))
                return kind, self.one_of((1, 2, 3)), self.one_of(("a", "mk", "j", "abcmskjp", "bj")), *axes, inner()
        return kind, inner()

    def lane_step(self) -> Statement:
        match self.one_of(("add", "same", "swap", "read", "put", "wrap")):
            case "add":
                return "add", self.one_of(VECTORS), self.one_of(VECTORS), self.number()
            case "same":
                return "same", self.one_of(VECTORS), self.one_of(VECTORS)
            case "swap":
                return "swap", tuple(str(n) for n in self.random.permutation(VECTORS))
            case "read":
                return "read", self.one_of(VECTORS), self.one_of(VECTORS)
            case "put":
                return "put", self.one_of(("set", "add")), self.one_of(VECTORS), self.number()
        return "wrap", self.one_of((3, 101)), self.one_of((1, 90))
