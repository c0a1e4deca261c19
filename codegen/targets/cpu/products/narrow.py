"""Products with a narrow matrix, of fewer than NARROW rows or columns: the other one is read once, as it lies.

What bounds them is memory, so nothing is packed but the narrow matrix, a vector for each of its rows or columns. Where
the terms of a sum lie beside each other in the long matrix, an element is a sum by vectors of products; elsewhere rows
of the long matrix are multiplied by a number and added to a row of sums, four at a time.
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.targets.cpu.ir_text import IrText
from loopgrad.codegen.targets.cpu.products.products_interface import DEEP, SHAPE

ACCUMULATORS: Final = 4  # vectors of sums, or rows


class Narrow:
    """The functions for one type, `width` elements to a vector."""

    def __init__(self, scalar: str, bits: int, width: int) -> None:
        self.scalar, self.width, self.suffix = scalar, width, f"f{bits}"
        self.vector = f"<{width} x {scalar}>"

    def text(self) -> str:
        return self.dot() + self.rows(ACCUMULATORS) + self.rows(1) + self.chunk()

    def fused(self, t: IrText, type: str, a: str, b: str, c: str) -> str:
        name = self.suffix if type == self.scalar else f"v{self.width}{self.suffix}"
        return t.let(f"call {type} @llvm.fmuladd.{name}({type} {a}, {type} {b}, {type} {c})")

    def dot(self) -> str:
        """The sum of the products of two vectors: ACCUMULATORS x width sums, added up in a tree, then the rest."""
        t, vector, scalar, step = IrText(), self.vector, self.scalar, ACCUMULATORS * self.width
        sums = [t.variable(vector, "zeroinitializer") for _ in range(ACCUMULATORS)]
        whole = t.let(f"and i64 %count, {-step}")
        with t.loop(whole, step) as p:
            a, b = t.at(scalar, "%a", p), t.at(scalar, "%b", p)
            for i, total in enumerate(sums):
                new = self.fused(t, vector, t.load(vector, a, i), t.load(vector, b, i), t.load(vector, total))
                t.put(f"store {vector} {new}, ptr {total}")
        rest = t.let(f"and i64 %count, {-self.width}")
        with t.loop(rest, self.width, whole) as p:
            x, y = (t.load(vector, t.at(scalar, name, p)) for name in ("%a", "%b"))
            t.put(f"store {vector} {self.fused(t, vector, x, y, t.load(vector, sums[0]))}, ptr {sums[0]}")
        parts = [t.load(vector, total) for total in sums]
        while len(parts) > 1:
            parts = [t.let(f"fadd {vector} {a}, {b}") for a, b in zip(parts[::2], parts[1::2], strict=True)]
        (total,), half = parts, self.width // 2
        while half:
            mask = ", ".join(f"i32 {i + half if i < half else i}" for i in range(self.width))
            upper = t.let(f"shufflevector {vector} {total}, {vector} poison, <{self.width} x i32> <{mask}>")
            total, half = t.let(f"fadd {vector} {total}, {upper}"), half // 2
        sum_ = t.variable(scalar, t.let(f"extractelement {vector} {total}, i64 0"))
        with t.loop("%count", 1, rest) as p:
            new = self.fused(t, scalar, t.load(scalar, t.at(scalar, "%a", p)), t.load(scalar, t.at(scalar, "%b", p)),
                             t.load(scalar, sum_))  # fmt: skip
            t.put(f"store {scalar} {new}, ptr {sum_}")
        result = t.load(scalar, sum_)
        t.put(f"ret {scalar} {result}")
        return t.function(f"internal {scalar} @dot.{self.suffix}(ptr %a, ptr %b, i64 %count) noinline")

    def rows(self, number: int) -> str:
        """`to` plus that many rows, each times its number."""
        t, scalar = IrText(), self.scalar
        factors = [t.load(scalar, "%factors", q) for q in range(number)]
        splats = []
        for factor in factors:
            one = t.let(f"insertelement {self.vector} poison, {scalar} {factor}, i64 0")
            zeros = f"<{self.width} x i32> zeroinitializer"
            splats.append(t.let(f"shufflevector {self.vector} {one}, {self.vector} poison, {zeros}"))
        starts = [t.at(scalar, "%from", t.mul("%stride", q)) for q in range(number)]
        whole = t.let(f"and i64 %count, {-self.width}")
        for type, step, stop, start, by in (
            (self.vector, self.width, whole, "0", splats), (scalar, 1, "%count", whole, factors),
        ):  # fmt: skip
            with t.loop(stop, step, start) as i:
                place = t.at(scalar, "%to", i)
                total = t.load(type, place)
                for row, factor in zip(starts, by, strict=True):
                    total = self.fused(t, type, factor, t.load(type, t.at(scalar, row, i)), total)
                t.put(f"store {type} {total}, ptr {place}, align 1")
        t.put("ret void")
        arguments = "ptr %to, ptr %from, i64 %stride, ptr %factors, i64 %count"
        return t.function(f"internal void @rows{number}.{self.suffix}({arguments}) noinline")

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
        packed = t.at(scalar, sums, t.mul(few, s["tile_m"]))
        with t.loop(t.mul(few, s["tile_m"])) as i:
            t.put(f"store {scalar} 0.0, ptr {t.at(scalar, sums, i)}")
        begin = t.at(scalar, long, t.mul(first, lane))
        with t.loop(s["k"], DEEP) as p0:
            depth = t.least(t.let(f"sub i64 {s['k']}, {p0}"), DEEP)
            with t.loop(few) as j, t.loop(depth) as p:
                source = t.add(t.mul(j, narrow_lane), t.mul(t.add(p0, p), narrow_along))
                place = t.at(scalar, packed, t.add(t.mul(j, DEEP), p))
                t.put(f"store {scalar} {t.load(scalar, t.at(scalar, narrow, source))}, ptr {place}")
            source = t.at(scalar, begin, t.mul(p0, along))
            self.part(t, source, (lane, along), (few, here, depth), (sums, packed, s["tile_m"]))
        with t.loop(few) as j, t.loop(here) as i:
            value = t.load(scalar, t.at(scalar, sums, t.add(t.mul(j, s["tile_m"]), i)))
            place = t.add(t.mul(t.add(first, i), out_lane), t.mul(j, out_narrow))
            t.put(f"store {scalar} {value}, ptr {t.at(scalar, out, place)}")
        t.put("ret void")
        return t.function(
            f"internal void @narrow.{self.suffix}(ptr %job, i64 %chunk, ptr %worker, ptr %control) noinline"
        )

    def part(
        self, t: IrText, source: str, strides: tuple[str, str], extents: tuple[str, str, str],
        held: tuple[str, str, str],
    ) -> None:  # fmt: skip
        """Adds DEEP terms, or what is left of them, to every sum."""
        scalar, (lane, along), (few, here, depth), (sums, packed, tile) = self.scalar, strides, extents, held

        def factors(j: str, p: str = "0") -> str:
            return t.at(scalar, packed, t.add(t.mul(j, DEEP), p))

        with t.first_of() as end:
            with t.case(end, t.let(f"icmp eq i64 {along}, 1")), t.loop(here) as i:
                row = t.at(scalar, source, t.mul(i, lane))
                with t.loop(few) as j:
                    new = t.let(f"call {scalar} @dot.{self.suffix}(ptr {row}, ptr {factors(j)}, i64 {depth})")
                    place = t.at(scalar, sums, t.add(t.mul(j, tile), i))
                    t.put(f"store {scalar} {t.let(f'fadd {scalar} {t.load(scalar, place)}, {new}')}, ptr {place}")
            whole = t.let(f"and i64 {depth}, {-ACCUMULATORS}")
            for number, start, stop in ((ACCUMULATORS, "0", whole), (1, whole, depth)):
                with t.loop(stop, number, start) as p, t.loop(few) as j:
                    rows, to = t.at(scalar, source, t.mul(p, along)), t.at(scalar, sums, t.mul(j, tile))
                    t.put(
                        f"call void @rows{number}.{self.suffix}(ptr {to}, ptr {rows}, i64 {along}, "
                        f"ptr {factors(j, p)}, i64 {here})"
                    )
