"""Products of many small matrices: what they are made of stays where it lies.

Packing pays where a panel is read several times. Here a row of `right` is a vector or two, with lanes beyond its end
masked, each element of `left` is one number for all lanes, and some rows of sums are held in registers. Terms are added
up in the order of a tile's, so the bits are the same.
"""

from __future__ import annotations

from loopgrad.codegen.targets.cpu.ir_text import Index, IrText
from loopgrad.codegen.targets.cpu.products.products_interface import SHAPE


class Small:
    """The functions for one type: `width` elements to a vector, `rows` of sums at a time. `group`: the word of the job
    that says how many products are a chunk."""

    def __init__(self, scalar: str, bits: int, width: int, rows: int, group: int) -> None:
        self.scalar, self.bytes, self.width, self.rows, self.group = scalar, bits // 8, width, rows, group
        self.suffix, self.vector, self.masks = f"f{bits}", f"<{width} x {scalar}>", f"<{width} x i1>"

    def text(self) -> str:
        kind = f"v{self.width}{self.suffix}"
        return f"declare void @llvm.masked.store.{kind}.p0({self.vector}, ptr, {self.masks})\n" + self.chunk()

    def chunk(self) -> str:
        """Some products of the batch, one after the other, as the pool calls it."""
        t, scalar = IrText(), self.scalar
        left, right, out, shape = (t.load("ptr", "%job", i) for i in range(4))
        s = {name: t.load("i64", shape, word) for name, word in SHAPE.items()}
        group = t.load("i64", "%job", self.group)
        first = t.mul("%chunk", group)
        last = t.least(t.add(first, group), s["batch"])
        whole = t.let(f"and i64 {s['m']}, {-self.rows}")
        sizes = [t.mul(s[a], s[b]) for a, b in (("m", "k"), ("k", "n"), ("m", "n"))]
        with t.loop(last, 1, first) as number:
            places = [t.at(scalar, a, t.mul(number, size)) for a, size in zip((left, right, out), sizes, strict=True)]
            with t.loop(s["n"], self.width) as j:
                mask = self.mask(t, t.let(f"sub i64 {s['n']}, {j}"))
                for rows, start, stop in ((self.rows, "0", whole), (1, whole, s["m"])):
                    with t.loop(stop, rows, start) as i:
                        self.some_rows(t, (places[0], places[1], places[2]), s, (i, j, rows), mask)
        t.put("ret void")
        return t.function(
            f"internal void @small.{self.suffix}(ptr %job, i64 %chunk, ptr %worker, ptr %control) noinline"
        )

    def mask(self, t: IrText, count: str) -> str:
        """Which lanes are below the count."""
        type = f"<{self.width} x i64>"
        one = t.let(f"insertelement {type} poison, i64 {count}, i64 0")
        every = t.let(f"shufflevector {type} {one}, {type} poison, <{self.width} x i32> zeroinitializer")
        return t.let(f"icmp ult {type} <{', '.join(f'i64 {i}' for i in range(self.width))}>, {every}")

    def some_rows(
        self, t: IrText, places: tuple[str, str, str], s: dict[str, str], at: tuple[str, str, int], mask: str
    ) -> None:
        """That many rows of the product from row i on, the columns of one vector."""
        (left, right, out), (i, j, rows), kind = places, at, f"v{self.width}{self.suffix}"
        sums = [t.variable(self.vector, "zeroinitializer") for _ in range(rows)]
        lanes = [t.at(self.scalar, left, t.mul(t.add(i, r), s["left_row"])) for r in range(rows)]
        with t.loop(s["k"]) as p:
            from_ = t.at(self.scalar, right, t.add(t.mul(p, s["right_row"]), j))
            place = f"ptr align {self.bytes} {from_}"
            across = t.let(
                f"call {self.vector} @llvm.masked.load.{kind}.p0({place}, {self.masks} {mask}, "
                f"{self.vector} zeroinitializer)"
            )
            along = t.mul(p, s["left_column"])
            for lane, total in zip(lanes, sums, strict=True):
                every = self.splat(t, t.load(self.scalar, t.at(self.scalar, lane, along)))
                terms = ", ".join(f"{self.vector} {x}" for x in (every, across, t.load(self.vector, total)))
                t.put(f"store {self.vector} {t.let(f'call {self.vector} @llvm.fmuladd.{kind}({terms})')}, ptr {total}")
        for r, total in enumerate(sums):
            row: Index = t.add(t.mul(t.add(i, r), s["n"]), j)
            place = f"ptr align {self.bytes} {t.at(self.scalar, out, row)}"
            value = f"{self.vector} {t.load(self.vector, total)}"
            t.put(f"call void @llvm.masked.store.{kind}.p0({value}, {place}, {self.masks} {mask})")

    def splat(self, t: IrText, value: str) -> str:
        one = t.let(f"insertelement {self.vector} poison, {self.scalar} {value}, i64 0")
        zeros = f"<{self.width} x i32> zeroinitializer"
        return t.let(f"shufflevector {self.vector} {one}, {self.vector} poison, {zeros}")
