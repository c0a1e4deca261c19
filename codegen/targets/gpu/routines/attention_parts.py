"""Attention of few queries, whose keys are shared out among workgroups: what these have found of a query is added up
by the denominators that each had (Dao et al., "Flash-Decoding for long-context inference", 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, log
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines.attention_scores import DEPTHS, LOG2E, WORD
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode

PAIR: Final = 2  # elements of an invocation


@dataclass(frozen=True, slots=True)
class AttentionParts:
    """Of so many rows of `width` elements. Arrays: the parts' results and the logarithms of their denominators (f32),
    then the result, of a type of factors, and of each row the logarithm of its denominator."""

    type: str
    rows: int
    width: int
    parts: int
    group: int

    @property
    def count(self) -> int:
        return -(-self.rows * self.width // (PAIR * self.group))

    def emit(self, e: Emitter, tile: Val) -> None:
        _Added(e, self, tile).emit()


class _Added(GroupCode):
    def __init__(self, e: Emitter, program: AttentionParts, tile: Val) -> None:
        super().__init__(e)
        assert self.b.matrix_units is not None, "a target without matrix units has no such programs"
        self.p, self.units = program, self.b.matrix_units
        self.given, self.normals, self.result, self.normal = e.table.params
        pairs = self.op("IAdd", self.op("IMul", tile, program.group), self.wide(self.own))
        self.row, self.pair = self.divided(pairs, program.width // PAIR)
        self.place = self.op("IMul", pairs, PAIR)

    def emit(self) -> None:
        self.e.when(self.test("SLessThan", self.row, self.p.rows), self._add)

    def _add(self) -> None:
        b, p, f32 = self.b, self.p, partial(self.b.const, "f32")
        normals = [self._loaded(self.normals, n * p.rows, self.row, 1)[0] for n in range(p.parts)]
        most = normals[0]
        for normal in normals[1:]:
            most = self.units.larger(most, normal)
        none = self.test("FOrdEqual", most, f32(-inf))
        base = self.e.select(none, f32(0.0), most)
        total, sums = f32(0.0), [f32(0.0)] * PAIR
        for n, normal in enumerate(normals):
            apart = b.exact("FMul", "f32", b.exact("FSub", "f32", normal, base), f32(LOG2E))
            weight = self.units.power(apart)
            total = b.exact("FAdd", "f32", total, weight)
            values = self._loaded(self.given, n * p.rows * p.width, self.place, PAIR)
            sums = [b.extended("Fma", "f32", x, weight, y) for x, y in zip(values, sums, strict=True)]
        whole = self.e.select(none, f32(1.0), total)
        self._store([b.inst("FDiv", "f32", x, whole) for x in sums])
        logarithm = b.exact("FMul", "f32", self.units.logarithm(whole), f32(log(2)))
        found = b.exact("FAdd", "f32", base, logarithm)
        first = self.test("IEqual", self.pair, 0)
        self.e.when(first, lambda: b.store(self.e.at(self.normal, self.row, WORD), found))

    def _loaded(self, array: Val, further: int, place: Val, count: int) -> list[Val]:
        """So many neighbours (f32) at that place of a part."""
        address = self.e.offset(self.e.at(array, place, WORD), further * WORD)
        return self.b.load_vector(address, "f32", count, True) if count > 1 else [self.b.load(address, "f32", True)]

    def _store(self, values: Sequence[Val]) -> None:
        address = self.e.at(self.result, self.place, DEPTHS[self.p.type].bytes)
        if DEPTHS[self.p.type].bytes == WORD:
            self.b.store_vector(address, values)
        else:
            low, high = values
            self.b.store(address, self.units.pair(low, high, self.p.type))
