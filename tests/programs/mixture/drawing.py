"""Programs as data: nested tuples, drawn from a seed.

A statement is ("op", slot, name, number) or a control structure whose last elements are blocks (tuples of statements).
"""

from __future__ import annotations

from dataclasses import dataclass

from nested_programs import Block, Drawing, Nested, Statement, statements

from .operations import SLOTS, TABLES

LOOPS = ("for", "trips", "while", "scan", "lanes")
CONTROL = (*LOOPS, "cond", "switch", "batch", "checkpoint", "rule", "tangent rule", "write")
BATCHED = ("vz", "v", "w", "z", "m", "k", "vk", "wm", "vwzmk")  # what differs between members, the rest is shared


@dataclass(frozen=True)
class Mixture(Nested):
    """A program, the extent of its arrays and the seed of its inputs."""

    seed: int
    size: int
    block: Block

    def names(self) -> set[str]:
        return {s[2] if s[0] == "op" else s[0] for s in statements(self.block)}


class Draw(Drawing):
    """Draws one program."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, stream=2026)

    def number(self) -> float:
        return round(float(self.random.uniform(0.2, 0.9)), 2)

    def program(self) -> Mixture:
        size = self.one_of((1, 2, 3, 3, 4, 5, 7))
        return Mixture(self.seed, size, self.block(self.one_of((1, 2, 2, 3)), int(self.random.integers(2, 5))))

    def block(self, depth: int, length: int) -> Block:
        return tuple(self.statement(depth) for _ in range(length))

    def statement(self, depth: int) -> Statement:
        if depth == 0 or self.random.random() < 0.5:
            slot = self.one_of((*SLOTS, "v", "z", "m"))
            return "op", slot, self.one_of(list(TABLES[slot])), self.number()
        return self.control(self.one_of(CONTROL), depth - 1)

    def control(self, kind: str, depth: int) -> Statement:
        inner = lambda: self.block(depth, int(self.random.integers(1, 4)))
        match kind:
            case "for":
                return kind, self.one_of((0, 1, 2, 3)), self.one_of((None, None, 4096)), inner()
            case "trips":
                return kind, self.one_of((1, 2, 4)), inner()
            case "while":
                return kind, self.one_of((1, 3, 4)), self.number() - 0.2, inner()
            case "scan":
                return kind, self.one_of((False, True)), inner()
            case "cond":
                return kind, self.number() - 0.5, inner(), inner()
            case "switch":
                return kind, inner(), inner(), inner()
            case "batch":
                axes = self.one_of((0, 1, -1)), self.one_of((0, 1, -1))
                return kind, self.one_of((1, 2, 3)), self.one_of(BATCHED), *axes, inner()
            case "lanes":
                return kind, self.one_of((2, 4)), self.one_of((False, True)), self.number()
            case "write":
                return kind, self.one_of(("step", "row", "column", "view", "numbers", "parts")), self.number()
            case "checkpoint":
                return kind, self.one_of((None, "dots", "named")), inner()
        return kind, inner()
