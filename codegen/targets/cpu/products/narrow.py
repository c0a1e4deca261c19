"""Products with a narrow matrix, of fewer than NARROW rows or columns: the other one is read once, as it lies.

What bounds them is memory, so nothing is packed but the narrow matrix, a vector for each of its rows or columns. Where
the terms of a sum lie beside each other in the long matrix, an element is a sum by vectors of products; elsewhere rows
of the long matrix are multiplied by a number and added to a row of sums, four at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from loopgrad.codegen.targets.cpu.ir_text import Index, IrText
from loopgrad.codegen.targets.cpu.products.products_interface import DEEP, DEPTH, SHAPE

ACCUMULATORS: Final = 4  # vectors of sums
TOGETHER: Final = 4  # rows


class Narrow:
    """The functions for one type, `width` elements to a vector."""

    def __init__(self, scalar: str, bits: int, width: int) -> None:
        self.scalar, self.bytes, self.width, self.suffix = scalar, bits // 8, width, f"f{bits}"
        self.vector = f"<{width} x {scalar}>"

    def text(self) -> str:
        each = [(rows, sums) for rows in (TOGETHER, 1) for sums in (TOGETHER, 1)]
        rows = [self.rows(*numbers) for numbers in each]
        return "".join([self.dots(TOGETHER), self.dots(1), *rows, self.chunk()])

    def fused(self, t: IrText, type: str, a: str, b: str, c: str) -> str:
        name = self.suffix if type == self.scalar else f"v{self.width}{self.suffix}"
        return t.let(f"call {type} @llvm.fmuladd.{name}({type} {a}, {type} {b}, {type} {c})")

    def dots(self, number: int) -> str:
        """Adds to numbers beside each other the sums of the products of that many rows with a vector: of each
        ACCUMULATORS x width sums, added up in a tree. Lanes beyond the end are masked: rows may be short."""
        t, vector, scalar, step = IrText(), self.vector, self.scalar, ACCUMULATORS * self.width
        rows = [t.at(scalar, "%a", t.mul("%stride", r)) for r in range(number)]
        sums = [[t.variable(vector, "zeroinitializer") for _ in range(ACCUMULATORS)] for _ in rows]
        whole = t.let(f"and i64 %count, {-step}")
        rest = t.let(f"and i64 %count, {-self.width}")
        for start, stop, by, count in ((0, whole, step, ACCUMULATORS), (whole, rest, self.width, 1)):
            with t.loop(stop, by, start) as p:
                places = [t.at(scalar, row, p) for row in rows]
                other = t.at(scalar, "%b", p)
                for i in range(count):
                    factor = t.load(vector, other, i)
                    for place, held in zip(places, sums, strict=True):
                        new = self.fused(t, vector, t.load(vector, place, i), factor, t.load(vector, held[i]))
                        t.put(f"store {vector} {new}, ptr {held[i]}")
        with t.loop("%count", self.width, rest) as p:  # once, or never
            mask = lanes_below(t, self.width, t.let(f"sub i64 %count, {p}"))
            factor = self.loaded(t, t.at(scalar, "%b", p), mask)
            for row, held in zip(rows, sums, strict=True):
                term = self.loaded(t, t.at(scalar, row, p), mask)
                t.put(f"store {vector} {self.fused(t, vector, term, factor, t.load(vector, held[0]))}, ptr {held[0]}")
        totals = []
        for held in sums:
            parts = [t.load(vector, total) for total in held]
            while len(parts) > 1:
                parts = [t.let(f"fadd {vector} {a}, {b}") for a, b in zip(parts[::2], parts[1::2], strict=True)]
            totals += parts
        for r, total in enumerate(self.across(t, totals)):
            place = t.at(scalar, "%to", r)
            new = t.let(f"fadd {scalar} {t.load(scalar, place)}, {total}")
            t.put(f"store {scalar} {new}, ptr {place}, align 1")
        t.put("ret void")
        arguments = "ptr %to, ptr %a, i64 %stride, ptr %b, i64 %count"
        return t.function(f"internal void @dots{number}.{self.suffix}({arguments}) noinline")

    def loaded(self, t: IrText, place: str, mask: str) -> str:
        return masked_load(t, self.vector, f"v{self.width}{self.suffix}", (place, self.bytes), mask)

    def across(self, t: IrText, vectors: Sequence[str]) -> Sequence[str]:
        """The sum of each vector's lanes, halves onto halves; those of two vectors at once where there are more."""
        held, length, absent = [(vector, 1) for vector in vectors], self.width, f"{self.vector} poison"
        while length > 1:
            half, folded = length // 2, []
            for pair in zip(held[::2], [*held[1::2], None], strict=False):
                given = [one for one in pair if one is not None]
                starts = [q * self.width + i * length for q, (_, count) in enumerate(given) for i in range(count)]
                parts = []
                for side in (0, half):
                    lanes = [start + side + i for start in starts for i in range(half)]
                    mask = ", ".join([f"i32 {n}" for n in lanes] + ["i32 poison"] * (self.width - len(lanes)))
                    both = f"{self.vector} {given[0][0]}, {f'{self.vector} {given[-1][0]}' if given[1:] else absent}"
                    parts.append(t.let(f"shufflevector {both}, <{self.width} x i32> <{mask}>"))
                folded.append((t.let(f"fadd {self.vector} {parts[0]}, {parts[1]}"), len(starts)))
            held, length = folded, half
        return [t.let(f"extractelement {self.vector} {v}, i64 {i}") for v, count in held for i in range(count)]

    def rows(self, number: int, sums: int) -> str:
        """So many rows of sums, each plus that many rows, each times a number."""
        t, scalar = IrText(), self.scalar
        factors = [[t.load(scalar, t.at(scalar, "%factors", j * DEEP), q) for q in range(number)] for j in range(sums)]
        splats = [[splat(t, self.scalar, self.width, x) for x in each] for each in factors]
        starts = [t.at(scalar, "%from", t.mul("%stride", q)) for q in range(number)]
        held = [t.at(scalar, "%to", t.mul("%apart", j)) for j in range(sums)]
        whole = t.let(f"and i64 %count, {-self.width}")
        for type, step, stop, start, by in (
            (self.vector, self.width, whole, "0", splats), (scalar, 1, "%count", whole, factors),
        ):  # fmt: skip
            with t.loop(stop, step, start) as i:
                elements = [t.load(type, t.at(scalar, row, i)) for row in starts]
                for row, each in zip(held, by, strict=True):
                    place = t.at(scalar, row, i)
                    total = t.load(type, place)
                    for element, factor in zip(elements, each, strict=True):
                        total = self.fused(t, type, factor, element, total)
                    t.put(f"store {type} {total}, ptr {place}, align 1")
        t.put("ret void")
        arguments = "ptr %to, i64 %apart, ptr %from, i64 %stride, ptr %factors, i64 %count"
        return t.function(f"internal void @rows{number}x{sums}.{self.suffix}({arguments}) noinline")

    def chunk(self) -> str:
        """A part of the long side of one product of a batch, as the pool calls it. Sums wait in the worker's heap."""
        t, scalar = IrText(), self.scalar
        left, right, out, shape = (t.load("ptr", "%job", i) for i in range(4))
        across = t.load("i64", "%job", 4)
        s = {name: t.load("i64", shape, word) for name, word in SHAPE.items()}
        number, tile = (t.let(f"{op} i64 %chunk, {across}") for op in ("udiv", "urem"))
        flat = t.let(f"icmp ult i64 {s['m']}, {s['n']}")  # the left one is narrow

        def either(a: str, b: str, type: str = "i64") -> str:
            return t.let(f"select i1 {flat}, {type} {a}, {type} {b}")

        few, many = either(s["m"], s["n"]), either(s["n"], s["m"])
        left = t.at(scalar, left, t.mul(number, t.mul(s["m"], s["k"])))
        right = t.at(scalar, right, t.mul(number, t.mul(s["k"], s["n"])))
        out = t.at(scalar, out, t.mul(number, t.mul(s["m"], s["n"])))
        lane, along = either(s["right_column"], s["left_row"]), either(s["right_row"], s["left_column"])
        long, narrow = either(right, left, "ptr"), either(left, right, "ptr")
        narrow_lane, narrow_along = either(s["left_row"], s["right_column"]), either(s["left_column"], s["right_row"])
        out_lane, out_narrow = either("1", s["n"]), either(s["n"], "1")
        first = t.mul(tile, s["tile_m"])
        here = t.least(t.let(f"sub i64 {many}, {first}"), s["tile_m"])
        sums = t.load("ptr", "%worker")
        room = t.mul(few, s["tile_m"])
        parts = t.at(scalar, sums, room)
        packed = t.at(scalar, parts, room)
        self.cleared(t, sums, room)
        begin = t.at(scalar, long, t.mul(first, lane))
        with t.loop(s["k"], DEEP) as p0:
            depth = t.least(t.let(f"sub i64 {s['k']}, {p0}"), DEEP)
            with t.loop(few) as j, t.loop(depth) as p:
                source = t.add(t.mul(j, narrow_lane), t.mul(t.add(p0, p), narrow_along))
                place = t.at(scalar, packed, t.add(t.mul(j, DEEP), p))
                t.put(f"store {scalar} {t.load(scalar, t.at(scalar, narrow, source))}, ptr {place}")
            source = t.at(scalar, begin, t.mul(p0, along))
            self.part(t, source, (lane, along), (few, here, depth), (sums, parts, packed, s["tile_m"]))
        with t.loop(few) as j, t.loop(here) as i:
            value = t.load(scalar, t.at(scalar, sums, t.add(t.mul(j, s["tile_m"]), i)))
            place = t.add(t.mul(t.add(first, i), out_lane), t.mul(j, out_narrow))
            t.put(f"store {scalar} {value}, ptr {t.at(scalar, out, place)}")
        t.put("ret void")
        return t.function(
            f"internal void @narrow.{self.suffix}(ptr %job, i64 %chunk, ptr %worker, ptr %control) noinline"
        )

    def cleared(self, t: IrText, place: str, count: str) -> None:
        t.let(f"call ptr @memset(ptr {place}, i32 0, i64 {t.mul(count, self.bytes)})")

    def part(
        self, t: IrText, source: str, strides: tuple[str, str], extents: tuple[str, str, str],
        held: tuple[str, str, str, str],
    ) -> None:  # fmt: skip
        """Adds DEEP terms, or what is left of them, to every sum: rows DEPTH of them at a time."""
        scalar, (lane, along), (few, here, depth), (sums, parts, packed, tile) = self.scalar, strides, extents, held

        def factors(j: str, p: str = "0") -> str:
            return t.at(scalar, packed, t.add(t.mul(j, DEEP), p))

        with t.first_of() as end:
            with t.case(end, t.let(f"icmp eq i64 {along}, 1")):
                for number, i in some(t, here):
                    row = t.at(scalar, source, t.mul(i, lane))
                    with t.loop(few) as j:
                        place = t.at(scalar, sums, t.add(t.mul(j, tile), i))
                        given = f"ptr {place}, ptr {row}, i64 {lane}, ptr {factors(j)}, i64 {depth}"
                        t.put(f"call void @dots{number}.{self.suffix}({given})")
            with t.loop(depth, DEPTH) as first:
                last = t.least(t.add(first, DEPTH), depth)
                self.cleared(t, parts, t.mul(few, tile))
                for rows, p in some(t, last, first):
                    from_ = t.at(scalar, source, t.mul(p, along))
                    for number, j in some(t, few):
                        to = t.at(scalar, parts, t.mul(j, tile))
                        given = f"ptr {to}, i64 {tile}, ptr {from_}, i64 {along}, ptr {factors(j, p)}, i64 {here}"
                        t.put(f"call void @rows{rows}x{number}.{self.suffix}({given})")
                with t.loop(few) as j, t.loop(here) as i:
                    place, part = (t.at(scalar, where, t.add(t.mul(j, tile), i)) for where in (sums, parts))
                    total = t.let(f"fadd {scalar} {t.load(scalar, place)}, {t.load(scalar, part)}")
                    t.put(f"store {scalar} {total}, ptr {place}, align 1")


def some(t: IrText, stop: str, start: Index = 0) -> Iterator[tuple[int, str]]:
    """TOGETHER of them at a time, then single ones: how many there are, and the first."""
    count = t.let(f"sub i64 {stop}, {start}")
    whole = t.add(start, t.let(f"and i64 {count}, {-TOGETHER}"))
    for number, first, last in ((TOGETHER, start, whole), (1, whole, stop)):
        with t.loop(last, number, first) as i:
            yield number, i


def splat(t: IrText, scalar: str, width: int, value: str) -> str:
    """A vector of the value."""
    one = t.let(f"insertelement <{width} x {scalar}> poison, {scalar} {value}, i64 0")
    zeros = f"<{width} x i32> zeroinitializer"
    return t.let(f"shufflevector <{width} x {scalar}> {one}, <{width} x {scalar}> poison, {zeros}")


def lanes_below(t: IrText, width: int, count: str) -> str:
    """A mask of those whose number is below the count."""
    type = f"<{width} x i64>"
    one = t.let(f"insertelement {type} poison, i64 {count}, i64 0")
    every = t.let(f"shufflevector {type} {one}, {type} poison, <{width} x i32> zeroinitializer")
    return t.let(f"icmp ult {type} <{', '.join(f'i64 {i}' for i in range(width))}>, {every}")


def masked_load(t: IrText, vector: str, kind: str, place: tuple[str, int], mask: str) -> str:
    """The lanes that the mask has, from a place of that alignment, and zeros."""
    masks = vector[: vector.index("x")] + "x i1>"
    given = f"ptr align {place[1]} {place[0]}, {masks} {mask}, {vector} zeroinitializer"
    return t.let(f"call {vector} @llvm.masked.load.{kind}.p0({given})")
