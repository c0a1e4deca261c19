"""Which integers are others and a known distance, so that addresses are those of others and a constant.

    a[2048 * (i + 1) + j + 3]     ->     the address of a[2048 * i + j], and 4 * 2051 bytes

Loads and stores take a constant for free. A driver can't find it by itself where offsets are numbers of 32 bits: for
all it knows, i + 1 may be beyond them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial, reduce
from typing import Final, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.spirv.assembly import Words

MOVED: Final = frozenset({"IAdd", "IMul"})  # what is noted, of i64
MOST: Final = 4  # terms of what an integer is made of
FARTHEST: Final = 1 << 48  # larger numbers are no addresses: those of repeated squares have twice the digits each time


class Terms(NamedTuple):
    """A sum of values by their ids, each times a factor, and of a constant."""

    factors: Mapping[int, int]
    distance: int


class Distances:
    """Of i64 values by their ids. `constants`: those that are known."""

    def __init__(self, constants: Mapping[int, float | int]) -> None:
        self._constants = constants
        self._known: dict[int, Terms] = {}
        self._sums: dict[Hashable, Val] = {}

    def of(self, x: int) -> Terms:
        constant = self._constants.get(x)
        if constant is not None:
            return Terms({}, int(constant))
        return self._known.get(x) or Terms({x: 1}, 0)

    def note(self, name: str, made: int, x: int, y: int) -> None:
        """That x + y, or x times a constant y, was made."""
        left, right = self.of(x), self.of(y)
        if name == "IMul":
            if right.factors:
                left, right = right, left
            if right.factors or not left.distance:
                return
            self._enter(made, {t: n * right.distance for t, n in left.factors.items()}, left.distance * right.distance)
            return
        factors = dict(left.factors)
        for term, factor in right.factors.items():
            factors[term] = factors.get(term, 0) + factor
        self._enter(made, factors, left.distance + right.distance)

    def _enter(self, made: int, factors: Mapping[int, int], distance: int) -> None:
        if distance and len(factors) <= MOST and all(abs(n) <= FARTHEST for n in (distance, *factors.values())):
            self._known[made] = Terms(factors, distance)

    def apart(self, b: Words, index: Val) -> tuple[Val, int]:
        """As gpu.assembler.Assembler says."""
        factors, distance = self.of(index.id)
        if not distance or not factors:
            return index, 0
        key = (b.label, *sorted(factors.items()))  # what a block has made is known in the rest of it
        near = self._sums.get(key)
        if near is None:
            terms = [Val(x, "i64") for x in factors]
            scaled = [
                x if n == 1 else b.inst("IMul", "i64", x, b.const("i64", n))
                for x, n in zip(terms, factors.values(), strict=True)
            ]
            near = self._sums[key] = reduce(partial(b.inst, "IAdd", "i64"), scaled)
        return near, distance
