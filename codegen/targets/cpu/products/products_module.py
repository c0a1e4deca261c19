"""Products of matrices of floats as vector code: one LLVM module for a machine, as the pool's is.

The way of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008) in the form of BLIS (Van
Zee and van de Geijn 2015): a tile of `out` is a chunk of the pool. For DEPTH terms at a time it packs its rows of
`left` and its columns of `right` into panels that lie in the order in which they are read, in the worker's stack heap,
and multiplies panels by `kernel`: rows x columns of `out` in registers, two vectors wide. At the edges panels are
filled up with zeros and a whole block is computed, of which what exists is stored.

products_interface.py says what is exported. Libraries have threads of their own, which spin for a while after each
product on the cores that the pool's threads need, and wait for all of their number however busy the machine is.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.ir_text import Index, IrText
from loopgrad.codegen.targets.cpu.products.narrow import Narrow
from loopgrad.codegen.targets.cpu.products.products_interface import (
    DEEP,
    DEPTH,
    EXPORTS,
    EXPORTS_FOR_FEW,
    SHAPE,
)
from loopgrad.codegen.targets.cpu.products.small import Small

# What a chunk is given: the arrays, SHAPE, and what follows from it.
JOB = ("left", "right", "out", "shape", "across", "tiles", "packed", "tile_m", "tile_n", "group")
POINTERS = 4
ROWS_ABREAST = 8  # which are read at the same time: as many as caches fetch ahead of


def products_ir(machine: Machine) -> str:
    """The module's text."""
    extremes = "".join(f"declare i64 @llvm.{name}.i64(i64, i64)\n" for name in ("umin", "umax"))
    head = f"{extremes}declare ptr @memset(ptr, i32, i64)\n"
    return head + "".join(Products(scalar, bits, machine).text() for scalar, bits in (("float", 32), ("double", 64)))


class Products:
    """The functions for one type: of the registers, `rows` x two are sums, two of `right`, and one an element."""

    def __init__(self, scalar: str, bits: int, machine: Machine) -> None:
        self.scalar, self.bytes, self.suffix, self.dtype = scalar, bits // 8, f"f{bits}", f"float{bits}"
        self.width = max(machine.vector_bits // bits, 2)
        self.vector = f"<{self.width} x {scalar}>"
        self.rows = 8 if machine.registers >= 32 else 4
        self.columns = 2 * self.width

    def text(self) -> str:
        declared = "".join(
            f"declare {type} @llvm.fmuladd.{name}({', '.join([type] * 3)})\n"
            for type, name in ((self.vector, f"v{self.width}{self.suffix}"), (self.scalar, self.suffix))
        )
        for count in sorted({count for width in (self.rows, self.columns) for _, count in _parts(width, self.width)}):
            type = f"<{count} x {self.scalar}>"
            declared += f"declare {type} @llvm.masked.load.v{count}{self.suffix}.p0(ptr, <{count} x i1>, {type})\n"
        packs = self.pack("left", self.rows) + self.pack("right", self.columns)
        narrow = Narrow(self.scalar, 8 * self.bytes, self.width)
        words = JOB.index("across"), JOB.index("group")
        small = Small(self.scalar, 8 * self.bytes, self.width, self.rows, *words)
        own = self.kernel() + packs + self.block() + self.tile() + self.chunk() + narrow.text() + small.text()
        many = self.product(EXPORTS[self.dtype], ("tile_m", "tile_n", "group"))
        return declared + own + many + self.product(EXPORTS_FOR_FEW[self.dtype], ("few_m", "few_n", "few_group"))

    def kernel(self) -> str:
        """A block of `out`, or of a place beside it: the products of two panels, added to it where it isn't fresh."""
        t, scalar, vector = IrText(), self.scalar, self.vector
        sums = [[t.variable(vector, "zeroinitializer") for _ in range(2)] for _ in range(self.rows)]
        with t.loop("%depth") as p:
            right = t.at(scalar, "%right", t.mul(p, self.columns))
            left = t.at(scalar, "%left", t.mul(p, self.rows))
            across = [t.load(vector, right, half) for half in range(2)]
            for i in range(self.rows):
                one = t.let(f"insertelement {vector} poison, {scalar} {t.load(scalar, left, i)}, i64 0")
                every = t.let(
                    f"shufflevector {vector} {one}, {vector} poison, <{self.width} x i32> zeroinitializer"
                )  # fmt: skip
                for half in range(2):
                    terms = ", ".join(f"{vector} {x}" for x in (every, across[half], t.load(vector, sums[i][half])))
                    new = t.let(f"call {vector} @llvm.fmuladd.v{self.width}{self.suffix}({terms})")
                    t.put(f"store {vector} {new}, ptr {sums[i][half]}")
        for i in range(self.rows):
            row = t.at(scalar, "%out", t.mul("%stride", i))
            for half in range(2):
                self.put(t, vector, t.load(vector, sums[i][half]), t.at(vector, row, half))
        t.put("ret void")
        arguments = "ptr %left, ptr %right, ptr %out, i64 %stride, i64 %depth, i1 %fresh"
        return t.function(f"internal void @kernel.{self.suffix}({arguments}) noinline")

    def put(self, t: IrText, type: str, value: str, place: str) -> None:
        """Stores it, or adds it to what is there: which counts as nothing where the place is fresh, NaN too."""
        total = t.let(f"fadd {type} {t.load(type, place)}, {value}")
        kept = t.let(f"select i1 %fresh, {type} {value}, {type} {total}")
        t.put(f"store {type} {kept}, ptr {place}, align 1")

    def pack(self, name: str, width: int) -> str:
        """Panels of `width` lanes (rows of `left`, columns of `right`): for each depth the lanes beside each other."""
        t, scalar = IrText(), self.scalar
        dense, turned = (t.let(f"icmp eq i64 %{s}_stride, 1") for s in ("lane", "depth"))
        full = t.let(f"and i64 %lanes, {-width}")
        beside = t.let(f"select i1 {dense}, i64 {full}, i64 0")
        self.pack_beside(t, width, beside)
        with t.loop("%lanes", width, beside) as first:
            here = t.least(t.let(f"sub i64 %lanes, {first}"), width)
            panel = t.at(scalar, "%to", t.mul(first, "%depth"))
            source = t.at(scalar, "%from", t.mul(first, "%lane_stride"))
            whole = t.let(f"icmp eq i64 {here}, {width}")
            with t.first_of() as end:
                with t.case(end, t.let(f"and i1 {whole}, {turned}")):
                    self.turn(t, source, panel, width)
                with t.case(end, dense):
                    self.pack_part(t, source, panel, width, here)
                bytes_ = t.mul("%depth", width * self.bytes)
                t.let(f"call ptr @memset(ptr {panel}, i32 0, i64 {bytes_})")
                with t.loop(here) as lane, t.loop("%depth") as p:
                    from_ = t.add(t.mul(lane, "%lane_stride"), t.mul(p, "%depth_stride"))
                    place = t.at(scalar, panel, t.add(t.mul(p, width), lane))
                    t.put(f"store {scalar} {t.load(scalar, t.at(scalar, source, from_))}, ptr {place}")
        t.put("ret void")
        arguments = "ptr %to, ptr %from, i64 %lanes, i64 %depth, i64 %lane_stride, i64 %depth_stride"
        return t.function(f"internal void @pack.{name}.{self.suffix}({arguments}) noinline")

    def pack_beside(self, t: IrText, width: int, lanes: str) -> None:
        """Whole panels whose lanes lie beside each other: some rows of all panels before the next, since rows may be
        far apart, but panels aren't."""
        with t.loop("%depth", ROWS_ABREAST) as start:
            stop = t.least(t.add(start, ROWS_ABREAST), "%depth")
            with t.loop(lanes, width) as first:
                panel = t.at(self.scalar, "%to", t.mul(first, "%depth"))
                source = t.at(self.scalar, "%from", first)
                with t.loop(stop, 1, start) as p:
                    from_ = t.at(self.scalar, source, t.mul(p, "%depth_stride"))
                    to = t.at(self.scalar, panel, t.mul(p, width))
                    for at, count in _parts(width, self.width):
                        type = f"<{count} x {self.scalar}>"
                        value = t.load(type, t.at(self.scalar, from_, at))
                        t.put(f"store {type} {value}, ptr {t.at(self.scalar, to, at)}, align 1")

    def turn(self, t: IrText, source: str, panel: str, width: int) -> None:
        """Lanes whose depths lie beside each other: blocks are transposed in registers."""
        side = 8 if width % 8 == 0 and self.width >= 4 else 4 if width % 4 == 0 else 2
        type = f"<{side} x {self.scalar}>"
        blocks = t.let(f"and i64 %depth, {-side}")
        for first in range(0, width, side):
            with t.loop(blocks, side) as p:
                lanes = [t.at(self.scalar, source, t.mul("%lane_stride", first + i)) for i in range(side)]
                rows = [t.load(type, t.at(self.scalar, lane, p)) for lane in lanes]
                for i, column in enumerate(_transposed(t, rows, type)):
                    place = t.at(self.scalar, panel, t.add(t.mul(t.add(p, i), width), first))
                    t.put(f"store {type} {column}, ptr {place}, align 1")
        with t.loop("%depth", 1, blocks) as p, t.loop(width) as lane:
            value = t.load(self.scalar, t.at(self.scalar, source, t.add(t.mul(lane, "%lane_stride"), p)))
            t.put(f"store {self.scalar} {value}, ptr {t.at(self.scalar, panel, t.add(t.mul(p, width), lane))}")

    def pack_part(self, t: IrText, source: str, panel: str, width: int, here: Index) -> None:
        """Lanes beside each other, of which only some exist: the others are zero."""
        masks = []
        for at, count in _parts(width, self.width):
            type = f"<{count} x i64>"
            one = t.let(f"insertelement {type} poison, i64 {here}, i64 0")
            every = t.let(f"shufflevector {type} {one}, {type} poison, <{count} x i32> zeroinitializer")
            lanes = ", ".join(f"i64 {at + i}" for i in range(count))
            masks.append((at, count, t.let(f"icmp ult {type} <{lanes}>, {every}")))
        with t.loop("%depth") as p:
            from_ = t.at(self.scalar, source, t.mul(p, "%depth_stride"))
            to = t.at(self.scalar, panel, t.mul(p, width))
            for at, count, mask in masks:
                type = f"<{count} x {self.scalar}>"
                value = t.let(
                    f"call {type} @llvm.masked.load.v{count}{self.suffix}.p0(ptr align {self.bytes} "
                    f"{t.at(self.scalar, from_, at)}, <{count} x i1> {mask}, {type} zeroinitializer)"
                )
                t.put(f"store {type} {value}, ptr {t.at(self.scalar, to, at)}, align 1")

    def block(self) -> str:
        """A block of `out` of which only `high` rows and `wide` columns may exist."""
        t, scalar = IrText(), self.scalar
        beside = t.variable(f"[{self.rows * self.columns} x {scalar}]")
        exists = t.mul("%high", "%wide")
        panels = "ptr %left, ptr %right"
        with t.first_of() as end:
            with t.case(end, t.let(f"icmp eq i64 {exists}, {self.rows * self.columns}")):
                t.put(f"call void @kernel.{self.suffix}({panels}, ptr %out, i64 %stride, i64 %depth, i1 %fresh)")
            place = f"ptr {beside}, i64 {self.columns}"
            t.put(f"call void @kernel.{self.suffix}({panels}, {place}, i64 %depth, i1 true)")
            with t.loop("%high") as i, t.loop("%wide") as j:
                value = t.load(scalar, t.at(scalar, beside, t.add(t.mul(i, self.columns), j)))
                self.put(t, scalar, value, t.at(scalar, "%out", t.add(t.mul(i, "%stride"), j)))
        t.put("ret void")
        arguments = f"{panels}, ptr %out, i64 %stride, i64 %depth, i1 %fresh, i64 %high, i64 %wide"
        return t.function(f"internal void @block.{self.suffix}({arguments})")

    def chunk(self) -> str:
        """Some tiles, one after the other, as the pool calls it."""
        t = IrText()
        shape = t.load("ptr", "%job", JOB.index("shape"))
        batch, group = t.load("i64", shape, SHAPE["batch"]), t.load("i64", "%job", JOB.index("group"))
        first = t.mul("%chunk", group)
        last = t.least(t.add(first, group), t.mul(batch, t.load("i64", "%job", JOB.index("tiles"))))
        with t.loop(last, 1, first) as number:
            t.put(f"call void @tile.{self.suffix}(ptr %job, i64 {number}, ptr %worker)")
        t.put("ret void")
        return t.function(f"internal void @chunk.{self.suffix}(ptr %job, i64 %chunk, ptr %worker, ptr %control)")

    def tile(self) -> str:
        """One tile of one product of a batch."""
        t, scalar = IrText(), self.scalar
        job = {name: t.load("ptr" if i < POINTERS else "i64", "%job", i) for i, name in enumerate(JOB)}
        s = {name: t.load("i64", job["shape"], word) for name, word in SHAPE.items()}
        number, tile = (t.let(f"{op} i64 %number, {job['tiles']}") for op in ("udiv", "urem"))
        i0 = t.mul(t.let(f"udiv i64 {tile}, {job['across']}"), job["tile_m"])
        j0 = t.mul(t.let(f"urem i64 {tile}, {job['across']}"), job["tile_n"])
        high = t.least(t.let(f"sub i64 {s['m']}, {i0}"), job["tile_m"])
        wide = t.least(t.let(f"sub i64 {s['n']}, {j0}"), job["tile_n"])

        def part(name: str, extents: tuple[str, str], offset: str) -> str:
            before = t.mul(number, t.mul(s[extents[0]], s[extents[1]]))
            return t.at(scalar, job[name], t.add(before, offset))

        left = part("left", ("m", "k"), t.mul(i0, s["left_row"]))
        right = part("right", ("k", "n"), t.mul(j0, s["right_column"]))
        out = part("out", ("m", "n"), t.add(t.mul(i0, s["n"]), j0))
        panels = t.load("ptr", "%worker")
        others = t.at(scalar, panels, job["packed"])
        with t.loop(s["k"], DEPTH) as p:
            depth = t.least(t.let(f"sub i64 {s['k']}, {p}"), DEPTH)
            fresh = t.let(f"icmp eq i64 {p}, 0")
            for name, from_, to, lanes, lane, along in (
                ("left", left, panels, high, "left_row", "left_column"),
                ("right", right, others, wide, "right_column", "right_row"),
            ):
                source = t.at(scalar, from_, t.mul(p, s[along]))
                t.put(
                    f"call void @pack.{name}.{self.suffix}(ptr {to}, ptr {source}, i64 {lanes}, i64 {depth}, "
                    f"i64 {s[lane]}, i64 {s[along]})"
                )
            with t.loop(wide, self.columns) as j, t.loop(high, self.rows) as i:
                a, b = t.at(scalar, panels, t.mul(i, depth)), t.at(scalar, others, t.mul(j, depth))
                place = t.at(scalar, out, t.add(t.mul(i, s["n"]), j))
                rows = t.least(t.let(f"sub i64 {high}, {i}"), self.rows)
                columns = t.least(t.let(f"sub i64 {wide}, {j}"), self.columns)
                t.put(
                    f"call void @block.{self.suffix}(ptr {a}, ptr {b}, ptr {place}, i64 {s['n']}, i64 {depth}, "
                    f"i1 {fresh}, i64 {rows}, i64 {columns})"
                )
        t.put("ret void")
        return t.function(f"internal void @tile.{self.suffix}(ptr %job, i64 %number, ptr %worker) noinline")

    def product(self, name: str, words: tuple[str, str, str]) -> str:
        """What is exported: counts tiles, which these words give, and lets the pool run them."""
        t, size = IrText(), self.bytes
        s = {name: t.load("i64", "%shape", word) for name, word in SHAPE.items()}
        tile_m, tile_n, group = (s[word] for word in words)
        elements, result = t.mul(s["batch"], t.mul(s["m"], s["n"])), t.variable("i32", 0)
        with t.first_of() as end:
            with t.case(end, t.let(f"icmp eq i64 {t.mul(elements, s['k'])}, 0")):
                t.let(f"call ptr @memset(ptr %out, i32 0, i64 {t.mul(elements, size)})")
            down, across = t.parts(s["m"], tile_m), t.parts(s["n"], tile_n)
            depth = t.least(s["k"], DEPTH)
            high, wide = (
                t.mul(t.up(t.least(s[extent], tile), step), depth)
                for extent, tile, step in (("m", tile_m, self.rows), ("n", tile_n, self.columns))
            )
            packed, tiles = t.up(high, 64), t.mul(down, across)
            tile = tile_m, tile_n, group
            job = t.variable(f"[{len(JOB)} x i64]")
            for i, value in enumerate(("%left", "%right", "%out", "%shape", across, tiles, packed, *tile)):
                t.put(f"store {'ptr' if i < POINTERS else 'i64'} {value}, ptr {t.at('i64', job, i)}")
            room = t.add(packed, wide)
            with t.first_of() as run:
                across_place = t.at("i64", job, JOB.index("across"))
                with t.case(run, t.let(f"icmp ne i64 {s['narrow']}, 0")):
                    few, many = t.least(s["m"], s["n"]), t.let(f"call i64 @llvm.umax.i64(i64 {s['m']}, i64 {s['n']})")
                    parts = t.parts(many, s["tile_m"])
                    t.put(f"store i64 {parts}, ptr {across_place}")
                    room_of_one = t.add(t.mul(s["tile_m"], 2), DEEP)  # sums, parts of them, and what is packed
                    self.run(t, "narrow", job, t.mul(s["batch"], parts), t.mul(few, room_of_one), result)
                with t.case(run, t.let(f"icmp ne i64 {s['small']}, 0")):
                    parts = t.parts(s["m"], s["tile_m"])
                    t.put(f"store i64 {parts}, ptr {across_place}")
                    self.run(t, "small", job, t.parts(t.mul(s["batch"], parts), group), t.let("add i64 0, 0"), result)
                self.run(t, "chunk", job, t.parts(t.mul(s["batch"], tiles), group), room, result)
        status = t.load("i32", result, align=4)
        t.put(f"ret i32 {status}")
        arguments = "ptr %run, ptr %heap, ptr %left, ptr %right, ptr %out, ptr %shape"
        return t.function(f"i32 @{name}({arguments})")

    def run(self, t: IrText, chunk: str, job: str, chunks: str, elements: str, result: str) -> None:
        """Lets the pool run chunks with a heap of that many elements."""
        status = t.let(
            f"call i32 %run(ptr @{chunk}.{self.suffix}, ptr {job}, ptr null, i64 {chunks}, "
            f"i64 {t.mul(elements, self.bytes)}, ptr %heap)"
        )
        t.put(f"store i32 {status}, ptr {result}")


def _parts(width: int, most: int) -> list[tuple[int, int]]:
    """Where vectors of powers of two begin that cover a width, and how long they are."""
    found, at = [], 0
    while at < width:
        count = min(most, 1 << ((width - at).bit_length() - 1))
        found.append((at, count))
        at += count
    return found


def _transposed(t: IrText, rows: Sequence[str], type: str) -> Sequence[str]:
    """The columns of a square of rows, a power of two: halves of ever smaller squares change places."""
    side = len(rows)
    step = side // 2
    while step:
        new = list(rows)
        for i in range(side):
            if not i & step:
                pair = f"{type} {rows[i]}, {type} {rows[i + step]}"
                low = [x - step + side if x & step else x for x in range(side)]
                high = [x + side if x & step else x + step for x in range(side)]
                new[i], new[i + step] = (
                    t.let(f"shufflevector {pair}, <{side} x i32> <{', '.join(f'i32 {x}' for x in mask)}>")
                    for mask in (low, high)
                )
        rows, step = new, step // 2
    return rows
