"""Kernels behind one whose lanes met in shared elements: exact sums become floats, last writers' values move.

They are written in the Kernel IR, as those in support.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Final, NamedTuple

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.targets.gpu.emit.exact_sum import LIMB, SPECIALS, exact_format
from loopgrad.codegen.targets.gpu.emit.float_parts import float_format
from loopgrad.codegen.targets.gpu.emit.scaled_sum import HEADER, MARKS, ScaledSum, table_words
from loopgrad.codegen.targets.gpu.emit.window_sum import GUARD
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

    def bits(self, x: KValue, dtype: DType) -> KValue:
        """As another dtype of as many."""
        self.ops.append(KOp("bitcast", (x,), (dtype,), {"dtype": dtype}))
        return self.ops[-1].results[0]

    def store(self, index: KValue, value: KValue) -> None:
        """Into param 1."""
        self.ops.append(KOp("store", (index, value), (), {"param": 1}))

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


def round_kernel(dtype: DType, size: int, start: float | None = None) -> Kernel:
    """param 1 [e] += what the words of element e in param 0 stand for; or `start`, and that. A first pass over the
    limbs finds the sign, a second adds their digits up, the smallest first, so that little is lost."""
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
    _add_to_table(b, dtype, lane, total, start)
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


def scaled_kernel(dtype: DType, size: int, acc: ScaledSum, start: float | None = None) -> Kernel:
    """param 1 [e] += what element e of a scaled sum stands for, whose block param 0 is, of a sum in a window where that
    is repaired by it; or `start`, and that. Elements without terms are left alone."""
    lane, b = KValue(int64), _Ops()
    found = _found_scaled(b, lane, acc)
    sparse = acc.lazy and not acc.repairs
    if sparse and start is None:  # most elements have none, and stay
        then = _Ops()
        total = _round_scaled(then, dtype, found, _limbs(then, lane, size, acc), acc.bits)
        _add_to_table(then, dtype, lane, total, start)
        b.ops.append(KOp("if", (found.some(b),), (), {}, (Block((), then.ops), Block())))
    else:  # of sparse sums little is read: those of one element for all that have none
        place = b.one("select", int64, found.some(b), lane, b.const(0, int64)) if sparse else lane
        limbs = _limbs(b, place, size, acc)
        total = _round_scaled(b, dtype, found, limbs, acc.bits)
        _add_to_table(b, dtype, lane, total, start, found.some(b, limbs))
    params = (BufferParam(int64, table_words(size, acc.limbs), "read"), BufferParam(dtype, size, "write"))
    return Kernel("round_scaled", (size,), params, Block((lane,), b.ops))


class _Scaled(NamedTuple):
    """Of an element: 1 + its largest exponent and marks, 0 where it has no term of its own; of all, 1 + the exponent
    with which a window begins, and whether that holds, which are None where there is no window."""

    word: KValue
    top: KValue | None
    windowed: KValue | None

    def some(self, b: _Ops, limbs: Sequence[KValue] = ()) -> KValue:
        """Whether it has terms."""
        met = self.word
        if self.windowed is not None:
            met = b.one("select", int64, self.windowed, reduce(partial(b.integer, "or"), limbs), met)
        return b.test("ne", met, 0)


def _found_scaled(b: _Ops, lane: KValue, acc: ScaledSum) -> _Scaled:
    def word(place: KValue) -> KValue:
        halves = b.one("load", int64, b.integer("add", b.integer("shr", place, 1), HEADER), param=0)
        return half(b, halves, b.integer("and", place, 1))

    if not acc.repairs:
        return _Scaled(word(lane), None, None)
    header = b.one("load", int64, b.const(0, int64), param=0)
    windowed = b.test("eq", half(b, header, b.const(1, int64)), 0)
    top = b.integer("add", half(b, header, b.const(0, int64)), GUARD)
    return _Scaled(word(b.one("select", int64, windowed, b.const(0, int64), lane)), top, windowed)


def half(b: _Ops, word: KValue, number: KValue) -> KValue:
    """The lower or the upper 32 bits of a word, without a sign."""
    return b.integer("and", b.integer("shr", word, b.integer("mul", number, 32)), (1 << 32) - 1)


def _limbs(b: _Ops, lane: KValue, size: int, acc: ScaledSum) -> list[KValue]:
    first = table_words(size, 0)
    return [b.one("load", int64, b.integer("add", lane, first + k * size), param=0) for k in range(acc.limbs)]


def _round_scaled(b: _Ops, dtype: DType, found: _Scaled, limbs: Sequence[KValue], bits: int) -> KValue:
    """Limbs, each `bits` bits below the one before, as the float that is next to their sum."""
    form = float_format(dtype)
    wide = float64 if form.type == "f64" else float32
    largest, marks = b.integer("and", found.word, (1 << MARKS) - 1), b.integer("shr", found.word, MARKS)
    top = b.integer("add", largest, 1)
    if found.top is not None and found.windowed is not None:
        top = b.one("select", int64, found.windowed, found.top, top)
        marks = b.one("select", int64, found.windowed, b.const(0, int64), marks)
    else:  # limbs that nobody has cleared
        met = b.test("ne", largest, 0)
        limbs = [b.one("select", int64, met, limb, b.const(0, int64)) for limb in limbs]
    size, place = _leading(b, _carried(b, limbs, bits), bits, wide)
    place = b.integer("add", place, b.integer("add", top, form.mantissa - bits + form.lowest))
    total, half = b.one("cast", wide, size), b.integer("shr", place, 1)
    for part in (half, b.integer("sub", place, half)):  # what both make together may be no float
        total = b.one("mul", wide, total, _power(b, part, wide))
    return infinite(b, wide, total, marks, 1)


def _carried(b: _Ops, limbs: Sequence[KValue], bits: int) -> list[KValue]:
    """The same sum in limbs of which only the first has a sign or more bits."""
    *above, below = limbs
    found: list[KValue] = []
    for limb in reversed(above):
        found.insert(0, b.integer("and", below, (1 << bits) - 1))
        below = b.integer("add", limb, b.integer("shr", below, bits))
    return [below, *found]


def _leading(b: _Ops, digits: Sequence[KValue], bits: int, wide: DType) -> tuple[KValue, KValue]:
    """A number of at most 63 bits that rounds as the sum of these digits does, of which the first has a sign, and how
    many bits above the first digit's last one its last one is: zeros before, and bits that aren't zero behind it make
    it odd."""
    number, *lower = digits
    place, below, rest = b.const(0, int64), b.const(0, int64), b.const(0, int64)
    before: KValue | None = None  # whether a digit before had no room
    for digit in lower:
        ends = b.integer("shr", number, 63 - bits), b.integer("shr", number, 63)
        fits, full = (b.one(test, bool_, *ends) for test in ("eq", "ne"))
        more = b.integer("or", b.integer("shl", number, bits), digit)
        left = digit if before is None else b.one("select", int64, before, b.const(0, int64), digit)
        if before is not None:
            rest = b.one("select", int64, before, digit, rest)
        below = b.one("select", int64, fits, b.const(0, int64), b.integer("or", below, left))
        number = b.one("select", int64, fits, more, number)
        place = b.one("select", int64, fits, b.integer("sub", place, bits), place)
        before = full
    exponent = _exponent(b, b.one("cast", wide, number), wide)
    up = b.integer("min", b.integer("max", b.integer("sub", b.const(61, int64), exponent), 0), bits)
    down = b.integer("sub", b.const(bits, int64), up)
    kept = b.integer("shr", below, down)
    lost = b.integer("or", b.integer("sub", below, b.integer("shl", kept, down)), rest)
    number = b.integer("or", b.integer("shl", number, up), kept)
    number = b.integer("or", number, b.one("cast", int64, b.test("ne", lost, 0)))
    return number, b.integer("sub", place, up)


def _exponent(b: _Ops, x: KValue, wide: DType) -> KValue:
    """Of a float: the power of two below its size."""
    form = float_format(wide)
    bits = b.bits(x, int64 if wide is float64 else int32)
    bits = bits if wide is float64 else b.one("cast", int64, bits)
    field = b.integer("and", b.integer("shr", bits, form.mantissa), form.exponents - 1)
    return b.integer("sub", field, form.exponents // 2 - 1)


def _power(b: _Ops, exponent: KValue, wide: DType) -> KValue:
    """Two to that power, or to the smallest one that isn't subnormal."""
    form = float_format(wide)
    bias = form.exponents // 2 - 1
    field = b.integer("add", b.integer("max", exponent, 1 - bias), bias)
    bits = b.integer("shl", field, form.mantissa)
    return b.bits(bits if wide is float64 else b.one("cast", int32, bits), wide)


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
    b: _Ops, dtype: DType, lane: KValue, total: KValue, start: float | None, some: KValue | None = None
) -> None:
    """`some`: where the element doesn't stay as it is."""
    wide = total.dtype
    before = b.one("load", dtype, lane, param=1) if start is None else b.const(start, dtype)
    after = b.one("add", wide, before if dtype is wide else b.one("cast", wide, before), total)
    after = after if dtype is wide else b.one("cast", dtype, after)
    b.store(lane, after if some is None else b.one("select", dtype, some, after, before))


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
