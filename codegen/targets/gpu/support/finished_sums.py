"""Kernels behind one whose lanes met in shared elements: exact sums become floats, last writers' values move.

They are written in the Kernel IR, as those in support.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.targets.gpu.emit.exact_sum import LIMB, SPECIALS, exact_format
from loopgrad.codegen.targets.gpu.emit.float_parts import float_format
from loopgrad.codegen.targets.gpu.emit.scaled_sum import MARKS, ScaledSum, distance, table_words
from loopgrad.graph.types import DType, bool_, float32, float64, int32, int64

LOWER: Final = (1 << LIMB) - 1
MOST_HELD: Final = 32  # limbs in registers


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
    each = partial(_each_limb, b, form.limbs, partial(_limb, size, lane))

    def carry(inner: _Ops, k: KValue, limb: KValue, above: KValue) -> list[KValue]:
        return [inner.integer("shr", inner.integer("add", limb, above), LIMB)]

    (top,) = each((b.const(0, int64),), carry)
    negative = b.test("lt", top, 0)
    sign = b.one("select", int64, negative, b.const(-1, int64), b.const(1, int64))

    def worth(inner: _Ops, digit: KValue, k: KValue) -> KValue:
        place = inner.integer("add", inner.integer("mul", k, LIMB), form.lowest)
        power = inner.one("exp2", wide, inner.one("cast", wide, place))
        return inner.one("mul", wide, inner.one("cast", wide, digit), power)

    def digit(inner: _Ops, k: KValue, limb: KValue, above: KValue, total: KValue) -> list[KValue]:
        value = inner.integer("add", inner.integer("mul", limb, sign), above)
        low = inner.integer("and", value, LOWER)
        return [inner.integer("shr", value, LIMB), inner.one("add", wide, total, worth(inner, low, k))]

    above, total = each((b.const(0, int64), b.const(0.0, wide)), digit)
    total = b.one("add", wide, total, worth(b, above, b.const(form.limbs, int64)))
    total = b.one("select", wide, negative, b.one("neg", wide, total), total)
    total = infinite(b, wide, total, _limb(size, lane, b, b.const(form.limbs, int64)), SPECIALS)
    _add_to_table(b, dtype, wide, lane, total, 1)
    params = (BufferParam(int64, size * form.words, "read"), BufferParam(dtype, size, "write"))
    return Kernel("round", (size,), params, Block((lane,), b.ops))


def _limb(size: int, lane: KValue, b: _Ops, k: KValue) -> KValue:
    return b.one("load", int64, b.integer("add", b.integer("mul", k, size), lane), param=0)


def _each_limb(
    b: _Ops, count: int, limb: Callable[[_Ops, KValue], KValue], inits: tuple[KValue, ...], step: Any
) -> Sequence[KValue]:
    """step(ops, k, limb, *carries) -> carries, for all limbs. Few are read before they are used: a lane waits once."""
    if count > MOST_HELD:
        return b.loop(count, inits, lambda inner, k, *carries: step(inner, k, limb(inner, k), *carries))
    numbers = [b.const(k, int64) for k in range(count)]
    carries: Sequence[KValue] = inits
    for k, value in [(k, limb(b, k)) for k in numbers]:
        carries = step(b, k, value, *carries)
    return carries


def scaled_kernel(dtype: DType, size: int, acc: ScaledSum) -> Kernel:
    """param 1 [e] += what element e of a scaled sum stands for, whose block param 0 is. Elements without terms are left
    alone."""
    lane, b = KValue(int64), _Ops()
    (some, largest, marks, met) = _start_scaled(b, dtype, lane, size, acc)
    if acc.lazy:  # most elements have none: little is read
        then = _Ops()
        total = _round_scaled(then, dtype, (lane, largest, marks, met), size, acc.high_bits)
        _add_to_table(then, dtype, total.dtype, lane, total, 1)
        b.ops.append(KOp("if", (some,), (), {}, (Block((), then.ops), Block())))
    else:
        total = _round_scaled(b, dtype, (lane, largest, marks, met), size, acc.high_bits)
        _add_to_table(b, dtype, total.dtype, lane, total, 1, some)
    params = (BufferParam(int64, table_words(size), "read"), BufferParam(dtype, size, "write"))
    return Kernel("round_scaled", (size,), params, Block((lane,), b.ops))


def _start_scaled(
    b: _Ops, dtype: DType, lane: KValue, size: int, acc: ScaledSum
) -> tuple[KValue, KValue, KValue, KValue]:
    """Whether the element has terms, 1 + its largest exponent, marks, and whether its sums were cleared."""

    halves = b.one("load", int64, b.integer("add", b.integer("shr", lane, 1), 1), param=0)
    word = half(b, halves, b.integer("and", lane, 1))
    largest, marks = b.integer("and", word, (1 << MARKS) - 1), b.integer("shr", word, MARKS)
    met = b.test("ne", largest, 0)
    if not acc.ranged:
        return b.test("ne", word, 0), largest, marks, met
    range_words = b.one("load", int64, b.const(0, int64), param=0)
    above, below = (half(b, range_words, b.const(number, int64)) for number in range(2))
    limit = b.const(distance(acc.high_bits, dtype), int64)
    narrow = b.one("le", bool_, b.integer("add", above, below), limit)
    sums = b.integer("or", sum_word(b, lane, size, 0), sum_word(b, lane, size, 1))
    return (
        b.test("ne", b.one("select", int64, narrow, sums, word), 0),
        b.one("select", int64, narrow, above, largest),
        b.one("select", int64, narrow, b.const(0, int64), marks),
        b.one("or", bool_, narrow, met),
    )


def half(b: _Ops, word: KValue, number: KValue) -> KValue:
    """The lower or the upper 32 bits of a word, without a sign."""
    return b.integer("and", b.integer("shr", word, b.integer("mul", number, 32)), (1 << 32) - 1)


def sum_word(b: _Ops, lane: KValue, size: int, number: int) -> KValue:
    """The high sum of an element, or the low one."""
    return b.one("load", int64, b.integer("add", lane, table_words(size, cleared=True) + number * size), param=0)


def _round_scaled(
    b: _Ops, dtype: DType, element: tuple[KValue, KValue, KValue, KValue], size: int, high_bits: int
) -> KValue:
    """high * 2**high_bits + low becomes a float and what its rounding lost, both without a sign, and then one."""
    form, (lane, largest, marks, met) = float_format(dtype), element
    wide = float64 if form.type == "f64" else float32

    def sums(number: int) -> KValue:
        return b.one("select", int64, met, sum_word(b, lane, size, number), b.const(0, int64))

    def carried(high: KValue, low: KValue) -> tuple[KValue, KValue]:
        return b.integer("add", high, b.integer("shr", low, high_bits)), b.integer("and", low, (1 << high_bits) - 1)

    high, low = sums(0), sums(1)
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
    return infinite(b, wide, total, marks, 1)


def infinite(b: _Ops, wide: DType, total: KValue, marks: KValue, width: int) -> KValue:
    """The sum, where some terms weren't finite: each of three fields of so many bits says whether there were some."""

    def some(place: int) -> KValue:
        return b.test("ne", b.integer("and", b.integer("shr", marks, place * width), (1 << width) - 1), 0)

    nan, above, below = some(0), some(1), some(2)
    nan = b.one("or", bool_, nan, b.one("and", bool_, above, below))
    for holds, value in ((above, float("inf")), (below, float("-inf")), (nan, float("nan"))):
        total = b.one("select", wide, holds, b.const(value, wide), total)
    return total


def _add_to_table(
    b: _Ops, dtype: DType, wide: DType, lane: KValue, total: KValue, param: int, some: KValue | None = None
) -> None:
    """`some`: where the element doesn't stay as it is."""
    before = b.one("load", dtype, lane, param=param)
    after = b.one("add", wide, before if dtype is wide else b.one("cast", wide, before), total)
    after = after if dtype is wide else b.one("cast", dtype, after)
    after = after if some is None else b.one("select", dtype, some, after, before)
    b.ops.append(KOp("store", (lane, after), (), {"param": param}))


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
