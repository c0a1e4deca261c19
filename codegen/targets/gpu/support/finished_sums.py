"""Kernels behind one whose lanes met in shared elements: exact sums become floats, last writers' values move.

They are written in the Kernel IR, as those in support.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.targets.gpu.emit.exact_sum import LIMB, SPECIALS, exact_format
from loopgrad.codegen.targets.gpu.emit.float_parts import float_format
from loopgrad.codegen.targets.gpu.emit.scaled_sum import MARKS, ScaledSum, distance
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
    wide = float64 if form.float.type == "f64" else float32
    lane, b = KValue(int64), _Ops()

    def limb(inner: _Ops, k: KValue) -> KValue:
        return inner.one("load", int64, inner.integer("add", inner.integer("mul", k, size), lane), param=0)

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
    total = infinite(b, wide, total, limb(b, b.const(form.limbs, int64)), SPECIALS)
    _add_to_table(b, dtype, wide, lane, total, 1)
    params = (BufferParam(int64, size * form.words, "read"), BufferParam(dtype, size, "write"))
    return Kernel("round", (size,), params, Block((lane,), b.ops))


def scaled_kernel(dtype: DType, size: int, acc: ScaledSum) -> Kernel:
    """param 3 [e] += what element e of a scaled sum stands for: its word of an exponent in param 0, its sums in
    param 1, the words of all terms in param 2. Elements without terms are left alone."""
    lane, b = KValue(int64), _Ops()
    (some, largest, marks, met) = _start_scaled(b, dtype, lane, size, acc)
    then = _Ops()
    _round_scaled(then, dtype, (lane, largest, marks, met), size, acc.high_bits)
    b.ops.append(KOp("if", (some,), (), {}, (Block((), then.ops), Block())))
    params = (
        BufferParam(int32, size, "read"),
        BufferParam(int64, 2 * size, "read"),
        BufferParam(int32, 2, "read"),
        BufferParam(dtype, size, "write"),
    )
    return Kernel("round_scaled", (size,), params, Block((lane,), b.ops))


def _start_scaled(
    b: _Ops, dtype: DType, lane: KValue, size: int, acc: ScaledSum
) -> tuple[KValue, KValue, KValue, KValue]:
    """Whether the element has terms, 1 + its largest exponent, marks, and whether its sums were cleared."""

    def load(param: int, at: KValue) -> KValue:
        found = b.one("load", int64 if param == 1 else int32, at, param=param)
        return found if param == 1 else b.one("cast", int64, found)

    word = load(0, lane)
    largest, marks = b.integer("and", word, (1 << MARKS) - 1), b.integer("shr", word, MARKS)
    met = b.test("ne", largest, 0)
    if not acc.ranged:
        return b.test("ne", word, 0), largest, marks, met
    above, below = (load(2, b.const(number, int64)) for number in range(2))
    limit = b.const(distance(acc.high_bits, dtype), int64)
    narrow = b.one("le", bool_, b.integer("add", above, below), limit)
    sums = b.integer("or", load(1, lane), load(1, b.integer("add", lane, size)))
    return (
        b.test("ne", b.one("select", int64, narrow, sums, word), 0),
        b.one("select", int64, narrow, above, largest),
        b.one("select", int64, narrow, b.const(0, int64), marks),
        b.one("or", bool_, narrow, met),
    )


def _round_scaled(
    b: _Ops, dtype: DType, element: tuple[KValue, KValue, KValue, KValue], size: int, high_bits: int
) -> None:
    """high * 2**high_bits + low becomes a float and what its rounding lost, both without a sign, and then one."""
    form, (lane, largest, marks, met) = float_format(dtype), element
    wide = float64 if form.type == "f64" else float32

    def sums(at: KValue) -> KValue:
        return b.one("select", int64, met, b.one("load", int64, at, param=1), b.const(0, int64))

    def carried(high: KValue, low: KValue) -> tuple[KValue, KValue]:
        return b.integer("add", high, b.integer("shr", low, high_bits)), b.integer("and", low, (1 << high_bits) - 1)

    high, low = sums(lane), sums(b.integer("add", lane, size))
    negative = b.test("lt", carried(high, low)[0], 0)
    sign = b.one("select", int64, negative, b.const(-1, int64), b.const(1, int64))
    high, low = carried(b.integer("mul", high, sign), b.integer("mul", low, sign))
    total = b.one("cast", wide, high)
    lost = b.one("cast", wide, b.integer("sub", high, b.one("cast", int64, total)))
    low_total = b.one("mul", wide, b.one("cast", wide, low), b.const(2.0**-high_bits, wide))
    total = b.one("add", wide, total, b.one("add", wide, lost, low_total))
    place = b.integer("add", largest, form.mantissa - high_bits + form.lowest)
    half = b.integer("shr", place, 1)
    for part in (half, b.integer("sub", place, half)):  # what both make together may be no float
        total = b.one("mul", wide, total, b.one("exp2", wide, b.one("cast", wide, part)))
    total = b.one("select", wide, negative, b.one("neg", wide, total), total)
    _add_to_table(b, dtype, wide, lane, infinite(b, wide, total, marks, 1), 3)


def infinite(b: _Ops, wide: DType, total: KValue, marks: KValue, width: int) -> KValue:
    """The sum, where some terms weren't finite: each of three fields of so many bits says whether there were some."""

    def some(place: int) -> KValue:
        return b.test("ne", b.integer("and", b.integer("shr", marks, place * width), (1 << width) - 1), 0)

    nan, above, below = some(0), some(1), some(2)
    nan = b.one("or", bool_, nan, b.one("and", bool_, above, below))
    for holds, value in ((above, float("inf")), (below, float("-inf")), (nan, float("nan"))):
        total = b.one("select", wide, holds, b.const(value, wide), total)
    return total


def _add_to_table(b: _Ops, dtype: DType, wide: DType, lane: KValue, total: KValue, param: int) -> None:
    before = b.one("load", dtype, lane, param=param)
    after = b.one("add", wide, before if dtype is wide else b.one("cast", wide, before), total)
    b.ops.append(KOp("store", (lane, after if dtype is wide else b.one("cast", dtype, after)), (), {"param": param}))


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
