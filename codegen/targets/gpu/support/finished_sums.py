"""Kernels behind one whose lanes met in shared elements: exact sums become floats, last writers' values move.

They are written in the Kernel IR, as those in support.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.targets.gpu.emit.exact_sum import LIMB, SPECIALS, exact_format
from loopgrad.graph.types import DType, bool_, float32, float64, int32, int64

LOWER: Final = (1 << LIMB) - 1


@dataclass
class _Ops:
    """A block in the making."""

    ops: list[KOp] = field(default_factory=list)

    def one(self, opcode: str, dtype: DType, *operands: KValue, **attrs: Any) -> KValue:
        made = KOp(opcode, operands, (dtype,), attrs)
        self.ops.append(made)
        return made.results[0]

    def const(self, value: float | int, dtype: DType) -> KValue:
        return self.one("const", dtype, value=value)

    def integer(self, opcode: str, x: KValue, y: KValue | int) -> KValue:
        return self.one(opcode, int64, x, self.const(y, int64) if isinstance(y, int) else y)

    def test(self, opcode: str, x: KValue, y: int) -> KValue:
        return self.one(opcode, bool_, x, self.const(y, x.dtype))

    def loop(self, count: int, inits: tuple[KValue, ...], step: Any) -> tuple[KValue, ...]:
        """step(inner, k, *carries) -> carries, `count` times."""
        k, carries, inner = KValue(int64), [KValue(v.dtype) for v in inits], _Ops()
        results = step(inner, k, *carries)
        block = Block((k, *carries), inner.ops, tuple(results))
        trips = self.const(count, int64)
        made = KOp("for", (trips, *inits), tuple(v.dtype for v in inits), {"reverse": False}, (block,))
        self.ops.append(made)
        return made.results


def round_kernel(dtype: DType, size: int) -> Kernel:
    """param 1 [e] += what the words of element e in param 0 stand for. A first pass over the limbs finds the sign,
    a second adds their digits up, the smallest first, so that little is lost."""
    form = exact_format(dtype)
    wide = float64 if form.type == "f64" else float32
    lane, b = KValue(int64), _Ops()
    first = b.integer("mul", lane, form.words)

    def limb(inner: _Ops, k: KValue) -> KValue:
        return inner.one("load", int64, inner.integer("add", first, k), param=0)

    def carry(inner: _Ops, k: KValue, above: KValue) -> list[KValue]:
        return [inner.integer("shr", inner.integer("add", limb(inner, k), above), LIMB)]

    (top,) = b.loop(form.limbs, (b.const(0, int64),), carry)
    negative = b.test("lt", top, 0)
    sign = b.one("select", int64, negative, b.const(-1, int64), b.const(1, int64))

    def worth(inner: _Ops, digit: KValue, k: KValue) -> KValue:
        place = inner.integer("add", inner.integer("mul", k, LIMB), form.lowest)
        power = inner.one("exp2", wide, inner.one("cast", wide, place))
        return inner.one("mul", wide, inner.one("cast", wide, digit), power)

    def digit(inner: _Ops, k: KValue, above: KValue, total: KValue) -> list[KValue]:
        value = inner.integer("add", inner.integer("mul", limb(inner, k), sign), above)
        low = inner.integer("and", value, LOWER)
        return [inner.integer("shr", value, LIMB), inner.one("add", wide, total, worth(inner, low, k))]

    above, total = b.loop(form.limbs, (b.const(0, int64), b.const(0.0, wide)), digit)
    total = b.one("add", wide, total, worth(b, above, b.const(form.limbs, int64)))
    total = b.one("select", wide, negative, b.one("neg", wide, total), total)
    total = special(b, wide, total, limb(b, b.const(form.limbs, int64)))
    before = b.one("load", dtype, lane, param=1)
    after = b.one("add", wide, before if dtype is wide else b.one("cast", wide, before), total)
    b.ops.append(KOp("store", (lane, after if dtype is wide else b.one("cast", dtype, after)), (), {"param": 1}))
    params = (BufferParam(int64, size * form.words, "read"), BufferParam(dtype, size, "write"))
    return Kernel("round", (size,), params, Block((lane,), b.ops))


def special(b: _Ops, wide: DType, total: KValue, counts: KValue) -> KValue:
    """The sum, where some terms weren't finite."""

    def some(place: int) -> KValue:
        return b.test("ne", b.integer("and", b.integer("shr", counts, place * SPECIALS), LOWER), 0)

    nan, above, below = some(0), some(1), some(2)
    nan = b.one("or", bool_, nan, b.one("and", bool_, above, below))
    for holds, value in ((above, float("inf")), (below, float("-inf")), (nan, float("nan"))):
        total = b.one("select", wide, holds, b.const(value, wide), total)
    return total


def last_kernel(dtype: DType, size: int, number: DType, lanes: int) -> Kernel:
    """param 2 [e] = the value (of param 1) with the number that param 0 has for e, if it has one."""
    lane, b = KValue(int64), _Ops()
    found = b.one("load", number, lane, param=0)
    found = found if number is int64 else b.one("cast", int64, found)
    written = b.test("gt", found, 0)
    place = b.integer("sub", b.integer("max", found, 1), 1)
    value = b.one("load", dtype, place, param=1)
    value = b.one("select", dtype, written, value, b.one("load", dtype, lane, param=2))
    b.ops.append(KOp("store", (lane, value), (), {"param": 2}))
    params = (
        BufferParam(number, size, "read"),
        BufferParam(dtype, lanes, "read"),
        BufferParam(dtype, size, "write"),
    )
    return Kernel("last", (size,), params, Block((lane,), b.ops))


NUMBERS: Final = {"i32": int32, "i64": int64}
