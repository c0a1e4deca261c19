"""The CPU's side of codegen.scalar: operations as vector instructions.

No flag allows LLVM to contract or reassociate them, but for float arithmetic under fast_math: LLVM neither contracts
a*b + c nor reassociates, so a program gives the same bits on every width and a*a - b*b is 0 for a = b.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from loopgrad.codegen.math.table import RECIPES
from loopgrad.codegen.scalar.halves import bfloat_bits, odd_float
from loopgrad.codegen.scalar.ops import Ops
from loopgrad.codegen.targets.cpu.features import PLAIN, Machine
from loopgrad.codegen.targets.cpu.vector.huge_angles import exact_text, large_name, large_text
from loopgrad.codegen.targets.cpu.vector.vectors import FunctionText, Vector, llvm_type
from loopgrad.codegen.targets.llvm_rows import BINARY, COMPLETED, CONVERT, FLOAT_BINARY, FUNCTION, RESIZE, TYPE
from loopgrad.graph.types import DType

FAST: Final = "reassoc nsz arcp contract afn "  # all but those on NaN and infinity
WIDTH: Final = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
NAME: Final = {kind: name for name, kind in TYPE.items()}

_ONE, _TWO = "({t0} {a})", "({t0} {a}, {t1} {b})"
# of vectors LLVM makes better code from its functions than from comparisons and selections
OWN: Final[dict[str, str]] = {
    "SAbs": "call {r} @llvm.abs.{s}({t0} {a}, i1 false)",
    "SMin": "call {r} @llvm.smin.{s}" + _TWO,
    "SMax": "call {r} @llvm.smax.{s}" + _TWO,
    "UMin": "call {r} @llvm.umin.{s}" + _TWO,
    "UMax": "call {r} @llvm.umax.{s}" + _TWO,
    "BitCount": "call {r} @llvm.ctpop.{s}" + _ONE,
    "FCopySign": "call {r} @llvm.copysign.{s}" + _TWO,
}
ROWS: Final[dict[str, str]] = {
    **{opcode: name + " {t0} {a}, {b}" for opcode, name in BINARY.items()},
    **{opcode: name + " {f}{t0} {a}, {b}" for opcode, name in FLOAT_BINARY.items()},
    **{opcode: name + " {t0} {a} to {r}" for opcode, name in CONVERT.items()},
    "Select": "select {t0} {a}, {t1} {b}, {t2} {c}",
    "FNegate": "fneg {f}{t0} {a}",
    "IsNan": "fcmp uno {t0} {a}, {a}",
    **{opcode: f"call {{r}} @llvm.{name}.{{s}}" + _ONE for opcode, name in FUNCTION.items()},
    "Fma": "call {r} @llvm.fma.{s}({t0} {a}, {t1} {b}, {t2} {c})",
    **OWN,
    "FRem": "frem {t0} {a}, {b}",
}


class Surroundings(Protocol):
    """Where the instructions go, for which machine, in which lanes."""

    @property
    def b(self) -> FunctionText: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def mask(self) -> Vector | None: ...
    @property
    def fast(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class VectorScope:
    """The instructions of one function; of a machine without abilities where that makes no difference."""

    b: FunctionText
    machine: Machine = PLAIN
    mask: Vector | None = None
    fast: bool = False


class VectorOps(Ops[Vector]):
    """Implements codegen.scalar.ops.Ops over `Vector`."""

    own = frozenset(OWN)
    words_in_64 = True  # x86 multiplies the lower halves of lanes of 64 bits: random words take half the time
    from_integer = "f64"  # only beyond 2**53 is that more than one rounding

    def __init__(self, e: Surroundings) -> None:
        self.e = e
        self.b = e.b
        self.fast, self.fused = e.fast, e.machine.fused

    def inst(self, opcode: str, type: str, *operands: Vector) -> Vector:
        kind = TYPE.get(type, type)
        row = ROWS.get(opcode)
        if row is not None:
            return self.b.inst(kind, row, *operands)
        if opcode in COMPLETED:
            opcode, value = COMPLETED[opcode]
            return self.inst(opcode, type, *operands, self.number(type, value))
        (x,) = operands
        narrower, wider = RESIZE[opcode]
        how = wider if WIDTH[kind] > WIDTH[x.type] else narrower
        return self.b.inst(kind, how + " {t0} {a} to {r}", x)

    def same(self, opcode: str, *operands: Vector) -> Vector:
        row = ROWS.get(opcode)  # at once: most instructions come this way
        return super().same(opcode, *operands) if row is None else self.b.inst(operands[0].type, row, *operands)

    def loose(self, opcode: str, *operands: Vector) -> Vector:
        return self.b.inst(operands[0].type, ROWS[opcode], *operands, flags=FAST if self.fast else "")

    def type(self, x: Vector, /) -> str:
        return NAME.get(x.type, x.type)

    def const(self, like: Vector, value: float, /) -> Vector:
        return self.b.const(like.type, value)

    def number(self, type: str, value: float | int | bool, /) -> Vector:
        return self.b.const(TYPE.get(type, type), value)

    def element(self, dtype: DType, value: float | int | bool, /) -> Vector:
        return self.b.const(llvm_type(dtype), dtype.pattern(value) if dtype.kind == "c" else value)

    def resize(self, i: Vector, type: str, /, signed: bool = True) -> Vector:
        return self.b.resize(i, type, signed)

    def widened(self, x: Vector, dtype: DType, /) -> Vector:
        return self.inst("FConvert", "f32", x) if dtype.bits == 16 else x

    def rounded(self, x: Vector, dtype: DType, /, exact: bool = False, signed: bool = False) -> Vector:
        """From and to half by LLVM's conversions; of those to bfloat it is only asked to cut."""
        type = llvm_type(dtype)
        if x.type == type:
            return x
        if dtype.bits > 16:
            return self.b.inst(type, ("fptrunc" if x.type == "double" else "fpext") + " {t0} {a} to {r}", x)
        if x.type != "float":
            x = odd_float(self, x) if x.type == "double" else self.inst("FConvert", "f32", x)
        if type == "half":
            return self.b.inst(type, "fptrunc {t0} {a} to {r}", x)
        bits = self.as_int(x) if exact else bfloat_bits(self, x)
        cut = self.b.inst("i16", "trunc {t0} {a} to {r}", self.shr(bits, 16))
        return self.b.inst(type, "bitcast {t0} {a} to {r}", cut)

    def quotient(self, i: Vector, j: Vector, /, signed: bool, constant: int | None = None) -> Vector:
        """x86 has no vector integer division, and a scalar one traps on MIN / -1. Operands up to 32 bits divide exactly
        through f64; 64-bit lanes divide one by one. Division by a constant is left to LLVM, which multiplies."""
        divide = "SDiv" if signed else "UDiv"
        if constant not in (None, -1) or (not signed and self._one_by_one(i, j)):
            return self.same(divide, i, j)
        if self._one_by_one(i, j):  # divide by 1 and negate (which wraps)
            minus = self.test("IEqual", j, self.const(j, -1))
            return self.same("SDiv", self.select(minus, self.minus(i), i), self.select(minus, self.const(j, 1), j))
        wide = [self.inst("ConvertSToF" if signed else "ConvertUToF", "f64", v) for v in (i, j)]
        whole = self.inst("ConvertFToS" if signed else "ConvertFToU", "i64", self.div(*wide))
        return self.b.inst(i.type, "trunc {t0} {a} to {r}", whole)

    def _one_by_one(self, i: Vector, j: Vector) -> bool:
        return (i.uniform and j.uniform) or self.bits(i) > 32

    def remainder(self, x: Vector, y: Vector, /) -> Vector:
        return self.same("FRem", x, y)

    def recipe(self, name: str, operands: Sequence[Vector], /) -> Vector:
        result: Vector = RECIPES[name](self, *operands)
        return result

    def times_power(self, x: Vector, shifted: Vector, /) -> Vector:
        """One instruction where vectors have it; else two factors, so that 2**n itself may overflow."""
        if self.e.machine.masks and not (x.uniform and shifted.uniform) and self.b.width * WIDTH[x.type] == 512:
            name = {"float": "ps", "double": "pd"}[x.type]
            call = f"call {{r}} @llvm.x86.avx512.mask.scalef.{name}.512"
            mask = f"i{max(self.b.width, 8)} -1, i32 4"
            n = self.sub(shifted, self.const(x, {"float": 1.5 * 2.0**23, "double": 1.5 * 2.0**52}[x.type]))
            return self.b.inst(x.type, call + "({t0} {a}, {t1} {b}, {t0} {a}, " + mask + ")", x, n)
        return self.scale(x, self.as_int(shifted))

    def once(self, key: Hashable, make: Callable[[], tuple[Vector, ...]], /) -> tuple[Vector, ...]:
        return self.b.once(key, make)

    def rarely(self, m: Vector, make: Callable[[], Vector], common: Vector, /) -> Vector:
        """A branch around `make`, merged per lane; only active lanes count."""
        b = self.b
        wanted = m if m.uniform else b.both(m, self.e.mask)
        assert wanted is not None
        enter, rare, join = b.label, b.fresh_label("rare"), b.fresh_label("usual")
        b.branch(b.any(wanted), rare, join, rarely=True)
        enter = b.label
        b.start(rare)
        with b.scope():
            value = self.select(m, make(), common)
            b.jump(join)
            leave = b.label
        b.start(join)
        return self.join(enter, common, leave, value)

    def join(self, enter: str, common: Vector, leave: str, value: Vector) -> Vector:
        b = self.b
        uniform = value.uniform
        usual = common.names if common.uniform == uniform else (b.splat_name(common),) * len(value.names)
        names = []
        type = value.type if uniform else b.vector_type(value.type)
        for x, y in zip(usual, value.names, strict=True):
            name = b.fresh()
            b.line(f"{name} = phi {type} [ {x}, %{enter} ], [ {y}, %{leave} ]")
            names.append(name)
        return Vector(value.type, tuple(names), uniform)

    def reduce_large(self, x: Vector, large: Vector, quadrant: Vector, rest: Vector, /) -> tuple[Vector, Vector]:
        """An outlined scalar loop over the lanes concerned; left out under fast_math."""
        b = self.b
        if self.e.fast:
            return quadrant, rest
        wanted = large if large.uniform else b.both(large, self.e.mask)
        assert wanted is not None
        enter, rare, join = b.label, b.fresh_label("huge"), b.fresh_label("usual")
        b.branch(b.any(wanted), rare, join, rarely=True)
        b.start(rare)
        b.outlined.setdefault("lg.reduce.exact", exact_text)
        name = large_name(x.type, 0 if x.uniform else b.width)
        b.outlined.setdefault(name, lambda: large_text(x.type, 0 if x.uniform else b.width))
        shape = str if x.uniform else b.vector_type
        ft, it, mt = shape(x.type), shape(quadrant.type), shape("i1")
        results: list[list[str]] = [[], []]
        for xs, ms, qs, rs in zip(x.names, wanted.names, quadrant.names, rest.names, strict=True):
            pair = b.fresh()
            b.line(f"{pair} = call {{ {it}, {ft} }} @{name}({ft} {xs}, {mt} {ms}, {it} {qs}, {ft} {rs})")
            for i in range(2):
                part = b.fresh()
                b.line(f"{part} = extractvalue {{ {it}, {ft} }} {pair}, {i}")
                results[i].append(part)
        b.jump(join)
        b.start(join)
        merged = [Vector(v.type, tuple(r), v.uniform) for v, r in zip((quadrant, rest), results, strict=True)]
        return self.join(enter, quadrant, rare, merged[0]), self.join(enter, rest, rare, merged[1])
