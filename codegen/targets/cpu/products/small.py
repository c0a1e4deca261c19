"""Products of small matrices, or with few columns: what they are made of stays where it lies.

Packing pays where a panel is read several times. Here a row of `right` is a vector or two, with lanes beyond its end
masked, each element of `left` is one number for all lanes, and some rows of sums are held in registers. Terms are added
up in the order of a tile's, so the bits are the same.
"""

from __future__ import annotations

from loopgrad.codegen.targets.cpu.ir_text import IrText
from loopgrad.codegen.targets.cpu.products.narrow import lanes_below, masked_load, splat
from loopgrad.codegen.targets.cpu.products.products_interface import DEPTH, SHAPE


class Small:
    """The functions for one type: `width` elements to a vector, `rows` of sums at a time. `across`, `group`: the words
    of the job that say how many parts a product's rows are in, and how many of these are a chunk."""

    def __init__(self, scalar: str, bits: int, width: int, rows: int, across: int, group: int) -> None:
        self.scalar, self.bytes, self.width, self.rows = scalar, bits // 8, width, rows
        self.across, self.group = across, group
        self.suffix, self.vector, self.masks = f"f{bits}", f"<{width} x {scalar}>", f"<{width} x i1>"

    def text(self) -> str:
        kind = f"v{self.width}{self.suffix}"
        return f"declare void @llvm.masked.store.{kind}.p0({self.vector}, ptr, {self.masks})\n" + self.chunk()

    def chunk(self) -> str:
        """Rows of some products of the batch, one after the other, as the pool calls it."""
        t, scalar = IrText(), self.scalar
        left, right, out, shape = (t.load("ptr", "%job", i) for i in range(4))
        s = {name: t.load("i64", shape, word) for name, word in SHAPE.items()}
        across, group = t.load("i64", "%job", self.across), t.load("i64", "%job", self.group)
        first = t.mul("%chunk", group)
        last = t.least(t.add(first, group), t.mul(s["batch"], across))
        sizes = [t.mul(s[a], s[b]) for a, b in (("m", "k"), ("k", "n"), ("m", "n"))]
        with t.loop(last, 1, first) as at:
            number, tile = (t.let(f"{op} i64 {at}, {across}") for op in ("udiv", "urem"))
            start = t.mul(tile, s["tile_m"])
            stop = t.least(t.add(start, s["tile_m"]), s["m"])
            places = [t.at(scalar, a, t.mul(number, size)) for a, size in zip((left, right, out), sizes, strict=True)]
            with t.loop(s["k"], DEPTH) as p, t.loop(s["n"], self.width) as j:
                mask = lanes_below(t, self.width, t.let(f"sub i64 {s['n']}, {j}"))
                with t.loop(stop, self.rows, start) as i:
                    self.some_rows(t, (places[0], places[1], places[2]), s, (i, stop, j, p), mask)
        t.put("ret void")
        return t.function(
            f"internal void @small.{self.suffix}(ptr %job, i64 %chunk, ptr %worker, ptr %control) noinline"
        )

    def some_rows(
        self, t: IrText, places: tuple[str, str, str], s: dict[str, str], at: tuple[str, str, str, str], mask: str
    ) -> None:
        """The columns of one vector in as many rows of the product as there are registers for, from row i on, where
        those from `stop` on are the last one again and aren't stored: DEPTH terms from p on."""
        (left, right, out), (i, stop, j, start), kind = places, at, f"v{self.width}{self.suffix}"
        sums = [t.variable(self.vector, "zeroinitializer") for _ in range(self.rows)]
        end = t.let(f"sub i64 {stop}, 1")
        rows = [t.least(t.add(i, r), end) for r in range(self.rows)]
        lanes = [t.at(self.scalar, left, t.mul(row, s["left_row"])) for row in rows]
        with t.loop(t.least(t.add(start, DEPTH), s["k"]), 1, start) as p:
            across = self.loaded(t, t.at(self.scalar, right, t.add(t.mul(p, s["right_row"]), j)), mask)
            along = t.mul(p, s["left_column"])
            for lane, total in zip(lanes, sums, strict=True):
                every = splat(t, self.scalar, self.width, t.load(self.scalar, t.at(self.scalar, lane, along)))
                terms = ", ".join(f"{self.vector} {x}" for x in (every, across, t.load(self.vector, total)))
                t.put(f"store {self.vector} {t.let(f'call {self.vector} @llvm.fmuladd.{kind}({terms})')}, ptr {total}")
        fresh = t.let(f"icmp eq i64 {start}, 0")
        for r, total in enumerate(sums):
            exists = t.let(f"icmp ult i64 {t.add(i, r)}, {stop}")
            here = t.let(f"select i1 {exists}, {self.masks} {mask}, {self.masks} zeroinitializer")
            place = t.at(self.scalar, out, t.add(t.mul(rows[r], s["n"]), j))
            new = t.load(self.vector, total)
            more = t.let(f"fadd {self.vector} {self.loaded(t, place, here)}, {new}")
            value = t.let(f"select i1 {fresh}, {self.vector} {new}, {self.vector} {more}")
            given = f"{self.vector} {value}, ptr align {self.bytes} {place}, {self.masks} {here}"
            t.put(f"call void @llvm.masked.store.{kind}.p0({given})")

    def loaded(self, t: IrText, place: str, mask: str) -> str:
        return masked_load(t, self.vector, f"v{self.width}{self.suffix}", (place, self.bytes), mask)
