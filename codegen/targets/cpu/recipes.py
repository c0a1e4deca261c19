"""The CPU's side of codegen.math: abstract operations as vector instructions.

Vectors keep the recipes' arithmetic as written: no flag allows LLVM to contract or reassociate it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.reduction_large import exact_text, large_name, large_text
from loopgrad.codegen.targets.cpu.vector import Builder, Val

WIDTH = {"float": 32, "double": 64, "i32": 32, "i64": 64}
INTEGER = {"float": "i32", "double": "i64"}
FLOAT = {"i32": "float", "i64": "double"}


class Surroundings(Protocol):
    """Where the instructions go, for which machine, in which lanes."""

    @property
    def b(self) -> Builder: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def mask(self) -> Val | None: ...
    @property
    def fast(self) -> bool: ...


class VectorOps:
    """Implements codegen.math.ops.Ops over `Val`."""

    def __init__(self, e: Surroundings) -> None:
        self.e = e
        self.b = e.b

    def bits(self, x: Val, /) -> int:
        return WIDTH[x.type]

    def const(self, like: Val, value: float, /) -> Val:
        return self.b.const(like.type, value)

    def integer(self, like: Val, value: int, /) -> Val:
        return self.b.const(INTEGER.get(like.type, like.type), value)

    def add(self, x: Val, y: Val, /) -> Val:
        return self.b.inst(x.type, "fadd {t0} {a}, {b}", x, y)

    def sub(self, x: Val, y: Val, /) -> Val:
        return self.b.inst(x.type, "fsub {t0} {a}, {b}", x, y)

    def mul(self, x: Val, y: Val, /) -> Val:
        return self.b.inst(x.type, "fmul {t0} {a}, {b}", x, y)

    def div(self, x: Val, y: Val, /) -> Val:
        return self.b.inst(x.type, "fdiv {t0} {a}, {b}", x, y)

    def fma(self, x: Val, y: Val, z: Val, /) -> Val:
        return self.b.inst(x.type, "call {r} @llvm.fma.{s}({t0} {a}, {t1} {b}, {t2} {c})", x, y, z)

    def neg(self, x: Val, /) -> Val:
        return self.b.inst(x.type, "fneg {t0} {a}", x)

    def abs(self, x: Val, /) -> Val:
        return self.b.inst(x.type, "call {r} @llvm.fabs.{s}({t0} {a})", x)

    def sqrt(self, x: Val, /) -> Val:
        return self.b.inst(x.type, "call {r} @llvm.sqrt.{s}({t0} {a})", x)

    def round_even(self, x: Val, /) -> Val:
        return self.b.inst(x.type, "call {r} @llvm.roundeven.{s}({t0} {a})", x)

    def floor(self, x: Val, /) -> Val:
        return self.b.inst(x.type, "call {r} @llvm.floor.{s}({t0} {a})", x)

    def trunc(self, x: Val, /) -> Val:
        return self.b.inst(x.type, "call {r} @llvm.trunc.{s}({t0} {a})", x)

    def remainder(self, x: Val, y: Val, /) -> Val:
        return self.b.inst(x.type, "frem {t0} {a}, {b}", x, y)

    def copysign(self, magnitude: Val, sign: Val, /) -> Val:
        return self.b.inst(magnitude.type, "call {r} @llvm.copysign.{s}({t0} {a}, {t1} {b})", magnitude, sign)

    def lt(self, x: Val, y: Val, /) -> Val:
        return self.b.inst("i1", "fcmp olt {t0} {a}, {b}", x, y)

    def le(self, x: Val, y: Val, /) -> Val:
        return self.b.inst("i1", "fcmp ole {t0} {a}, {b}", x, y)

    def eq(self, x: Val, y: Val, /) -> Val:
        return self.b.inst("i1", "fcmp oeq {t0} {a}, {b}", x, y)

    def is_nan(self, x: Val, /) -> Val:
        return self.b.inst("i1", "fcmp uno {t0} {a}, {b}", x, x)

    def either(self, m: Val, n: Val, /) -> Val:
        return self.b.inst("i1", "or {t0} {a}, {b}", m, n)

    def both(self, m: Val, n: Val, /) -> Val:
        return self.b.inst("i1", "and {t0} {a}, {b}", m, n)

    def invert(self, m: Val, /) -> Val:
        return self.b.inst("i1", "xor {t0} {a}, {b}", m, self.b.const("i1", True))

    def select(self, m: Val, x: Val, y: Val, /) -> Val:
        return self.b.inst(x.type, "select {t0} {a}, {t1} {b}, {t2} {c}", m, x, y)

    def as_int(self, x: Val, /) -> Val:
        return self.b.inst(INTEGER[x.type], "bitcast {t0} {a} to {r}", x)

    def as_float(self, i: Val, /) -> Val:
        return self.b.inst(FLOAT[i.type], "bitcast {t0} {a} to {r}", i)

    def to_int(self, x: Val, /) -> Val:
        return self.b.inst(INTEGER[x.type], "fptosi {t0} {a} to {r}", x)

    def to_float(self, i: Val, /) -> Val:
        return self.b.inst(FLOAT[i.type], "sitofp {t0} {a} to {r}", i)

    def iadd(self, i: Val, j: Val, /) -> Val:
        return self.b.inst(i.type, "add {t0} {a}, {b}", i, j)

    def isub(self, i: Val, j: Val, /) -> Val:
        return self.b.inst(i.type, "sub {t0} {a}, {b}", i, j)

    def iand(self, i: Val, j: Val, /) -> Val:
        return self.b.inst(i.type, "and {t0} {a}, {b}", i, j)

    def ixor(self, i: Val, j: Val, /) -> Val:
        return self.b.inst(i.type, "xor {t0} {a}, {b}", i, j)

    def shl(self, i: Val, count: int, /) -> Val:
        return self.b.inst(i.type, "shl {t0} {a}, {b}", i, self.b.const(i.type, count))

    def shr(self, i: Val, count: int, /) -> Val:
        return self.b.inst(i.type, "lshr {t0} {a}, {b}", i, self.b.const(i.type, count))

    def sar(self, i: Val, count: int, /) -> Val:
        return self.b.inst(i.type, "ashr {t0} {a}, {b}", i, self.b.const(i.type, count))

    def is_zero(self, i: Val, /) -> Val:
        return self.b.inst("i1", "icmp eq {t0} {a}, {b}", i, self.b.const(i.type, 0))

    def widen(self, x: Val, /) -> Val:
        return self.b.inst("double", "fpext {t0} {a} to {r}", x)

    def narrow(self, x: Val, /) -> Val:
        return self.b.inst("float", "fptrunc {t0} {a} to {r}", x)

    def clamp(self, x: Val, low: float, high: float, /) -> Val:
        lowest, highest = self.const(x, low), self.const(x, high)
        x = self.select(self.lt(highest, x), highest, x)
        return self.select(self.lt(x, lowest), lowest, x)

    def times_power(self, x: Val, shifted: Val, /) -> Val:
        """One instruction where vectors have it; else two factors, so that 2**n itself may overflow."""
        if self.e.machine.masks and not (x.uniform and shifted.uniform) and self.b.width * WIDTH[x.type] == 512:
            name = {"float": "ps", "double": "pd"}[x.type]
            call = f"call {{r}} @llvm.x86.avx512.mask.scalef.{name}.512"
            mask = f"i{max(self.b.width, 8)} -1, i32 4"
            n = self.sub(shifted, self.const(x, {"float": 1.5 * 2.0**23, "double": 1.5 * 2.0**52}[x.type]))
            return self.b.inst(x.type, call + "({t0} {a}, {t1} {b}, {t0} {a}, " + mask + ")", x, n)
        whole = self.as_int(shifted)
        half = self.sar(whole, 1)
        first, second = self.power_of_two(half), self.power_of_two(self.isub(whole, half))
        return self.mul(self.mul(x, first), second)

    def power_of_two(self, n: Val) -> Val:
        bias, place = {"i32": (127, 23), "i64": (1023, 52)}[n.type]
        return self.as_float(self.shl(self.iadd(n, self.b.const(n.type, bias)), place))

    def once(self, key: Hashable, make: Callable[[], tuple[Val, ...]], /) -> tuple[Val, ...]:
        return self.b.once(key, make)

    def rarely(self, m: Val, make: Callable[[], Val], common: Val, /) -> Val:
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

    def join(self, enter: str, common: Val, leave: str, value: Val) -> Val:
        b = self.b
        uniform = value.uniform
        usual = common.names if common.uniform == uniform else (b.splat_name(common),) * len(value.names)
        names = []
        type = value.type if uniform else b.vector_type(value.type)
        for x, y in zip(usual, value.names, strict=True):
            name = b.fresh()
            b.line(f"{name} = phi {type} [ {x}, %{enter} ], [ {y}, %{leave} ]")
            names.append(name)
        return Val(value.type, tuple(names), uniform)

    def reduce_large(self, x: Val, large: Val, quadrant: Val, rest: Val, /) -> tuple[Val, Val]:
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
        merged = [Val(v.type, tuple(r), v.uniform) for v, r in zip((quadrant, rest), results, strict=True)]
        return self.join(enter, quadrant, rare, merged[0]), self.join(enter, rest, rare, merged[1])
