"""Fourier transforms as vector code: one LLVM module for a machine and a type of floats, as that of products is.

fourier_interface.py says what is exported. Passes go from one place to another and leave numbers in their order, as
those of FFTPACK do (Swarztrauber, "Vectorizing the FFTs", 1982). Rows whose points lie side by side are turned into
vectors of lanes, and back, in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.fourier.fourier_interface import JOB, RADICES, STEP
from loopgrad.codegen.targets.cpu.fourier.points import LanePoint, PointArithmetic
from loopgrad.codegen.targets.cpu.ir_text import Index, IrText

SCALARS = {"f32": "float", "f64": "double"}


def fourier_ir(machine: Machine, suffix: str) -> str:
    """The module's text."""
    return RowTransforms(machine, suffix).text()


class RowTransforms:
    """The functions for one type."""

    def __init__(self, machine: Machine, suffix: str) -> None:
        self.suffix, self.scalar, self.fused = suffix, SCALARS[suffix], machine.fused
        self.bytes = int(suffix[1:]) // 8
        self.width = max(machine.vector_bits // (8 * self.bytes), 2)
        self.vector = f"<{self.width} x {self.scalar}>"

    def text(self) -> str:
        v = self.vector
        head = "declare i64 @llvm.umin.i64(i64, i64)\n"
        head += f"declare {v} @llvm.fma.v{self.width}{self.suffix}({v}, {v}, {v})\n"
        passes = [self.passed(radix, last) for radix in RADICES for last in (False, True)]
        moves = [self.load_apart(False), self.load_apart(True), self.store_apart(False), self.store_apart(True)]
        return (
            head
            + "".join([*passes, *moves, self.load_rows(), self.store_rows(), self.halve(), self.join()])
            + self.run()
        )

    def named(self, name: str) -> str:
        return f"@lg_fourier.{name}.{self.suffix}"

    def arithmetic(self, t: IrText) -> PointArithmetic:
        return PointArithmetic(t, self.scalar, self.width, self.fused)

    # ---- points

    def point(self, t: IrText, base: str, index: Index) -> LanePoint:
        at = t.at(self.vector, base, t.mul(index, 2))
        return LanePoint(t.load(self.vector, at, 0, self.bytes), t.load(self.vector, at, 1, self.bytes))

    def put(self, t: IrText, base: str, index: Index, point: LanePoint) -> None:
        at = t.at(self.vector, base, t.mul(index, 2))
        self.put_vector(t, point.real, at)
        self.put_vector(t, point.imaginary, t.at(self.vector, at, 1))

    def put_vector(self, t: IrText, value: str, at: str) -> None:
        t.put(f"store {self.vector} {value}, ptr {at}, align {self.bytes}")

    def splat(self, t: IrText, base: str, index: Index) -> str:
        one = t.let(
            f"insertelement {self.vector} poison, {self.scalar} {t.load(self.scalar, base, index, self.bytes)}, i64 0"
        )
        return t.let(f"shufflevector {self.vector} {one}, {self.vector} poison, <{self.width} x i32> zeroinitializer")

    def factor(self, t: IrText, index: Index) -> LanePoint:
        at = t.at(self.scalar, "%factors", t.mul(index, 2))
        return LanePoint(self.splat(t, at, 0), self.splat(t, at, 1))

    def picked(self, t: IrText, a: str, b: str, places: Sequence[int]) -> str:
        order = ", ".join([f"i32 {place}" for place in places])
        return t.let(f"shufflevector {self.vector} {a}, {self.vector} {b}, <{self.width} x i32> <{order}>")

    # ---- steps

    def step(self, t: IrText, name: str) -> str:
        t.put("ret void")
        places = "ptr noalias %from, ptr noalias %to"
        return t.function(f"void {self.named(name)}({places}, i64 %before, i64 %between, ptr noalias %factors)")

    def passed(self, radix: int, last: bool) -> str:
        """Points [between, radix, before] to [between, before, radix], times factors [radix - 1, between]."""
        t = IrText()
        b = self.arithmetic(t)
        with t.loop("%before") as k:
            given = t.mul(k, t.mul("%between", radix))
            result = t.mul(k, "%between")
            apart = t.mul("%before", "%between")
            with t.loop(1 if last else "%between") as i:
                points = [
                    self.point(t, "%from", t.add(t.add(given, i), t.mul("%between", j))) for j in range(radix)
                ]  # fmt: skip
                for j, point in enumerate(b.transform(points)):
                    if j and not last:
                        point = b.times(point, self.factor(t, t.add(t.mul("%between", j - 1), i)))
                    self.put(t, "%to", t.add(t.add(result, i), t.mul(apart, j)), point)
        return self.step(t, f"{'last' if last else 'pass'}.{radix}")

    def folded(
        self, t: IrText, b: PointArithmetic, low: LanePoint, high: LanePoint, index: Index
    ) -> tuple[LanePoint, LanePoint]:
        """low + conj(high), and low - conj(high) times a factor."""
        mirrored = LanePoint(high.real, b.negative(high.imaginary))
        return b.add(low, mirrored), b.times(b.sub(low, mirrored), self.factor(t, index))

    def halve(self) -> str:
        """X[k] = E + w O and X[n - k] = conj(E - w O), for E = (Z[k] + conj Z[n - k]) / 2 and
        O = (Z[k] - conj Z[n - k]) / 2i, of n = `before` pairs of neighbours; factors are w / 2i."""
        t = IrText()
        b = self.arithmetic(t)
        half = b.number(0.5)
        with t.loop(t.add(t.let("lshr i64 %before, 1"), 1)) as k:
            other = t.let(f"sub i64 %before, {k}")
            wrapped = t.let(f"select i1 {t.let(f'icmp eq i64 {k}, 0')}, i64 0, i64 {other}")
            low, high = self.point(t, "%from", k), self.point(t, "%from", wrapped)
            total, rest = self.folded(t, b, low, high, k)
            even = LanePoint(b.real("fmul", total.real, half), b.real("fmul", total.imaginary, half))
            self.put(t, "%to", k, b.add(even, rest))
            behind = b.sub(even, rest)
            self.put(t, "%to", other, LanePoint(behind.real, b.negative(behind.imaginary)))
        return self.step(t, "halve")

    def join(self) -> str:
        """Z[k] = E + i O and Z[n - k] = conj(E - i O), for E = X[k] + conj X[n - k] and
        O = w (X[k] - conj X[n - k]), with parts exchanged; factors are i w. The first and the last number are real."""
        t = IrText()
        b = self.arithmetic(t)
        zero = b.number(0.0)
        with t.loop(t.add(t.let("lshr i64 %before, 1"), 1)) as k:
            other = t.let(f"sub i64 %before, {k}")
            first = t.let(f"icmp eq i64 {k}, 0")
            ends = []
            for index in (k, other):
                x = self.point(t, "%from", index)
                ends.append(
                    LanePoint(x.real, t.let(f"select i1 {first}, {self.vector} {zero}, {self.vector} {x.imaginary}"))
                )
            low, high = ends
            even, rest = self.folded(t, b, low, high, k)
            behind = b.sub(even, rest)
            wrapped = t.let(f"select i1 {first}, i64 0, i64 {other}")
            self.put(t, "%to", wrapped, LanePoint(b.negative(behind.imaginary), behind.real))
            found = b.add(even, rest)
            self.put(t, "%to", k, LanePoint(found.imaginary, found.real))
        return self.step(t, "join")

    # ---- from and to memory

    def moved(self, t: IrText, name: str) -> str:
        t.put("ret void")
        words = "i64 %points, i64 %lane, i64 %step, i64 %real, i64 %imaginary, i64 %scale"
        return t.function(f"void {self.named(name)}(ptr noalias %from, ptr noalias %to, {words})")

    def parts(self, t: IrText, base: str, index: Index) -> tuple[str, str]:
        """Where a point's parts are among vectors."""
        at = t.at(self.vector, base, t.mul(index, 2))
        return t.at(self.vector, at, "%real"), t.at(self.vector, at, "%imaginary")

    def turns(self, reverse: bool) -> tuple[list[int], list[int]]:
        """Picks of two vectors: the even and the odd places of both, or both in turns."""
        w = self.width
        if not reverse:
            return [*range(0, 2 * w, 2)], [*range(1, 2 * w, 2)]
        order = [place // 2 + w * (place % 2) for place in range(2 * w)]
        return order[:w], order[w:]

    def load_apart(self, reals: bool) -> str:
        t = IrText()
        with t.loop("%points") as p:
            at = t.at("i8", "%from", t.mul(t.mul(p, 2) if reals else p, "%step"))
            low = t.load(self.vector, at, 0, self.bytes)
            high = t.load(self.vector, t.at("i8", at, "%step") if reals else t.at(self.vector, at, 1), 0, self.bytes)
            even, odd = (low, high) if reals else (self.picked(t, low, high, places) for places in self.turns(False))
            for value, place in zip((even, odd), self.parts(t, "%to", p), strict=True):
                self.put_vector(t, value, place)
        return self.moved(t, "load.reals" if reals else "load.columns")

    def store_apart(self, reals: bool) -> str:
        t = IrText()
        scale = self.scale(t)
        with t.loop("%points") as p:
            at = t.at("i8", "%to", t.mul(t.mul(p, 2) if reals else p, "%step"))
            values = [
                t.let(f"fmul {self.vector} {t.load(self.vector, place, 0, self.bytes)}, {scale}")
                for place in self.parts(t, "%from", p)
            ]  # fmt: skip
            if not reals:
                values = [self.picked(t, values[0], values[1], places) for places in self.turns(True)]
            self.put_vector(t, values[0], at)
            self.put_vector(t, values[1], t.at("i8", at, "%step") if reals else t.at(self.vector, at, 1))
        return self.moved(t, "store.reals" if reals else "store.columns")

    def scale(self, t: IrText) -> str:
        value = t.let("bitcast i64 %scale to double")
        value = value if self.scalar == "double" else t.let(f"fptrunc double {value} to float")
        one = t.let(f"insertelement {self.vector} poison, {self.scalar} {value}, i64 0")
        return t.let(f"shufflevector {self.vector} {one}, {self.vector} poison, <{self.width} x i32> zeroinitializer")

    def transposed(self, t: IrText, rows: list[str]) -> list[str]:
        """By blocks of twice the size in each round."""
        w, size = self.width, 1
        while size < w:
            for i in range(w):
                if not i & size:
                    a, b = rows[i], rows[i + size]
                    rows[i] = self.picked(t, a, b, [w + lane - size if lane & size else lane for lane in range(w)])
                    rows[i + size] = self.picked(
                        t, a, b, [w + lane if lane & size else lane + size for lane in range(w)]
                    )
            size *= 2
        return rows

    def some_points(self, t: IrText, p: str) -> str:
        """The first of half a vector's points, of which the last ones end with the row."""
        return t.least(p, t.let(f"sub i64 %points, {self.width // 2}"))

    def load_rows(self) -> str:
        t, half = IrText(), self.width // 2
        with t.loop("%points", half) as p:
            start = self.some_points(t, p)
            at = t.at("i8", "%from", t.mul(start, 2 * self.bytes))
            rows = [t.load(self.vector, t.at("i8", at, t.mul("%lane", i)), 0, self.bytes) for i in range(self.width)]
            columns = self.transposed(t, rows)
            for i in range(half):
                for value, place in zip(columns[2 * i : 2 * i + 2], self.parts(t, "%to", t.add(start, i)), strict=True):
                    self.put_vector(t, value, place)
        return self.moved(t, "load.rows")

    def store_rows(self) -> str:
        t, half = IrText(), self.width // 2
        scale = self.scale(t)
        with t.loop("%points", half) as p:
            start = self.some_points(t, p)
            at = t.at("i8", "%to", t.mul(start, 2 * self.bytes))
            columns = [
                t.let(f"fmul {self.vector} {t.load(self.vector, place, 0, self.bytes)}, {scale}")
                for i in range(half) for place in self.parts(t, "%from", t.add(start, i))
            ]  # fmt: skip
            for i, row in enumerate(self.transposed(t, columns)):
                self.put_vector(t, row, t.at("i8", at, t.mul("%lane", i)))
        return self.moved(t, "store.rows")

    # ---- all of it

    def run(self) -> str:
        t = IrText()
        word = {name: t.load("i64", "%job", number) for number, name in enumerate(JOB)}
        address = {
            name: t.let(f"inttoptr i64 {word[name]} to ptr")
            for name in ("from", "to", "here", "there", "load", "store")
        }
        here, there = (t.variable("ptr", address[name]) for name in ("here", "there"))
        with t.loop(word["outer"]) as row, t.loop(word["blocks"]) as block:
            source, target = (
                t.at(
                    "i8",
                    t.at("i8", address[side], t.mul(row, word[f"outer_{side}"])),
                    t.mul(block, word[f"block_{side}"]),
                )
                for side in ("from", "to")
            )

            def words(side: str) -> str:
                names = [f"{name}_{side}" for name in ("points", "lane", "step", "real", "imaginary")]
                return ", ".join([f"i64 {word[name]}" for name in (*names, "scale")])

            t.put(f"call void {address['load']}(ptr {source}, ptr {t.load('ptr', here)}, {words('from')})")
            with t.loop(word["steps"]) as number:
                at = t.at("i64", "%job", t.add(t.mul(number, len(STEP)), len(JOB)))
                function, before, between, factors = (t.load("i64", at, i) for i in range(len(STEP)))
                called, numbers = (t.let(f"inttoptr i64 {one} to ptr") for one in (function, factors))
                first, second = t.load("ptr", here), t.load("ptr", there)
                t.put(f"call void {called}(ptr {first}, ptr {second}, i64 {before}, i64 {between}, ptr {numbers})")
                t.put(f"store ptr {second}, ptr {here}")
                t.put(f"store ptr {first}, ptr {there}")
            t.put(f"call void {address['store']}(ptr {t.load('ptr', here)}, ptr {target}, {words('to')})")
        t.put("ret void")
        run = t.function(f"void {self.named('run')}(ptr %job)")
        t = IrText()
        jobs = t.let(f"inttoptr i64 {t.load('i64', '%lists', '%number')} to ptr")
        with t.loop(t.load("i64", jobs)) as i:
            job = t.let(f"inttoptr i64 {t.load('i64', jobs, t.add(i, 1))} to ptr")
            t.put(f"call void {self.named('run')}(ptr {job})")
        t.put("ret void")
        chunk = t.function(f"void {self.named('chunk')}(ptr %lists, i64 %number, ptr %worker, ptr %control)")
        lanes = f"define i64 {self.named('lanes')}() {{\n  ret i64 {self.width}\n}}\n"
        return run + chunk + lanes
