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
from loopgrad.codegen.targets.gpu.emit.float_parts import FLOAT_FORMATS, float_format
from loopgrad.codegen.targets.gpu.emit.scaled_sum import HEADER, MARKS, ScaledSum, SumTable
from loopgrad.codegen.targets.gpu.emit.window_sum import GUARD, most_apart
from loopgrad.graph.types import DType, bool_, float32, float64, int32, int64

LOWER: Final = (1 << LIMB) - 1
MOST_HELD: Final = 32  # limbs in registers
SUMS_AT_ONCE: Final = 4  # that a lane rounds
FEWEST_LANES: Final = 1 << 18  # if that leaves so many lanes


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
    """param 1 [e] += what the sum of element e stands for in the table of sums that param 0 is; or `start`, and that.
    Elements without terms are left alone. Most sums are rounded by little; a lane has some, of which it does all others
    in a loop."""
    lane, b, table = KValue(int64), _Ops(), acc.table
    window, finish = _Window(b, most_apart(acc, float_format(dtype))), partial(_finish, dtype, acc, start)
    each = next(n for n in (SUMS_AT_ONCE, 2, 1) if table.sums % n == 0 and (table.sums >= n * FEWEST_LANES or n == 1))
    sums = [_read_sum(b, b.integer("add", lane, k * (table.sums // each)), table) for k in range(each)]
    usual = [finish(window, b, found, True) for found in sums]

    def again(inner: _Ops, k: KValue) -> tuple[()]:
        place = inner.integer("add", inner.integer("mul", k, table.sums // each), lane)
        found, rare = _read_sum(inner, place, table), _Ops()
        holds = _usual_sum(inner, dtype, window, found, acc.bits).holds
        finish(window, rare, found, False)
        inner.ops.append(KOp("if", (holds,), (), {}, (Block(), Block((), rare.ops))))
        return ()

    rest = _Ops()
    rest.loop(each, (), again)
    all_usual = reduce(partial(b.one, "and", bool_), usual)
    b.ops.append(KOp("if", (all_usual,), (), {}, (Block(), Block((), rest.ops))))
    params = (BufferParam(int64, table.words, "read"), BufferParam(dtype, size, "write"))
    return Kernel("round_scaled", (table.sums // each,), params, Block((lane,), b.ops))


class _Sum(NamedTuple):
    """A sum in memory: its place there, its element, whether it is of one, where that isn't known, and its limbs."""

    place: KValue
    element: KValue
    owned: KValue | None
    limbs: Sequence[KValue]


def _read_sum(b: _Ops, place: KValue, table: SumTable) -> _Sum:
    element, owned = place, None
    if table.bucket:
        owner = b.one("load", int64, b.integer("add", place, table.owners), param=0)
        element, owned = b.integer("max", b.integer("sub", owner, 1), 0), b.test("ne", owner, 0)
    return _Sum(place, element, owned, [_load_limb(b, place, table, number) for number in range(table.limbs)])


def _finish(
    dtype: DType, acc: ScaledSum, start: float | None, window: _Window, b: _Ops, found: _Sum, usually: bool
) -> KValue:
    """Writes the element, or only where it is done `usually`; whether it is."""
    then, holds = b, b.const(True, bool_)
    if usually or found.owned is not None:
        then = _Ops()
    if usually:
        usual = _usual_sum(b, dtype, window, found, acc.bits)
        holds, total = usual.holds, _scaled_number(then, dtype, usual.number(then), usual.powers)
        some = then.test("ne", reduce(partial(then.integer, "or"), found.limbs), 0)
    else:
        word = _word(then, then.one("select", int64, window.holds, then.const(0, int64), found.place), HEADER)
        total = _round_scaled(then, dtype, window, found, word, acc.bits)
        met = then.one("select", int64, window.holds, reduce(partial(then.integer, "or"), found.limbs), word)
        some = then.test("ne", met, 0)
    _add_to_table(then, dtype, found.element, total, start, some)
    if then is not b:
        written = holds if found.owned is None else b.one("and", bool_, holds, found.owned)
        b.ops.append(KOp("if", (written,), (), {}, (Block((), then.ops), Block())))
    return holds


def _load_limb(b: _Ops, place: KValue, table: SumTable, number: int) -> KValue:
    step, start = table.limb(number)
    word = b.integer("add", b.integer("mul", place, step) if step > 1 else place, start)
    return b.one("load", int64, word, param=0)


def _word(b: _Ops, place: KValue, start: int) -> KValue:
    """The word of 32 bits at this place of those that begin with a word of 64."""
    halves = b.one("load", int64, b.integer("add", b.integer("shr", place, 1), start), param=0)
    return half(b, halves, b.integer("and", place, 1))


class _Window:
    """1 + the exponent with which a window begins, and whether that `holds`, as window_sum has it."""

    def __init__(self, b: _Ops, most: int) -> None:
        header = [b.one("load", int64, b.const(number, int64), param=0) for number in range(HEADER)]
        self.holds = b.test("eq", half(b, header[0], b.const(1, int64)), 0)
        largest, below, total, count = [half(b, word, b.const(0, int64)) for word in header]
        spread = b.integer("sub", largest, b.integer("floordiv", total, b.integer("max", count, 1)))
        share = b.integer("shr", b.integer("sub", b.const(most, int64), b.integer("add", largest, below)), 1)
        above = b.integer("min", b.integer("add", b.integer("shr", spread, 1), GUARD), share)
        self.top = b.integer("add", largest, b.integer("max", above, GUARD))


def half(b: _Ops, word: KValue, number: KValue) -> KValue:
    """The lower or the upper 32 bits of a word, without a sign."""
    return b.integer("and", b.integer("shr", word, b.integer("mul", number, 32)), (1 << 32) - 1)


def _round_scaled(b: _Ops, dtype: DType, window: _Window, found: _Sum, word: KValue, bits: int) -> KValue:
    """Limbs, each `bits` bits below the one before, as the float that is next to their sum. `word`: of the exponent of
    its largest term and marks."""
    form = float_format(dtype)
    wide = float64 if form.type == "f64" else float32
    largest, marks = b.integer("and", word, (1 << MARKS) - 1), b.integer("shr", word, MARKS)
    top = b.one("select", int64, window.holds, window.top, b.integer("add", largest, 1))
    marks = b.one("select", int64, window.holds, b.const(0, int64), marks)
    size, place = _leading(b, _carried(b, found.limbs, bits), bits, wide)
    place = b.integer("add", place, _lowest_place(b, dtype, top, bits))
    total = _scaled_number(b, dtype, b.one("cast", wide, size), _powers(b, dtype, place))
    return infinite(b, wide, total, marks, 1)


def _lowest_place(b: _Ops, dtype: DType, top: KValue, bits: int) -> KValue:
    """The power of two that the first limb's lowest bit is worth, where that limb begins above exponent `top` - 1."""
    form = float_format(dtype)
    return b.integer("add", top, form.mantissa - bits + form.lowest)


def _scaled_number(b: _Ops, dtype: DType, number: KValue, powers: Sequence[KValue]) -> KValue:
    """A float times these."""
    wide = float64 if float_format(dtype).type == "f64" else float32
    return reduce(partial(b.one, "mul", wide), powers, number)


def _powers(b: _Ops, dtype: DType, exponent: KValue) -> list[KValue]:
    """Of two, which make that power, where it may be no float itself."""
    wide, half = float64 if float_format(dtype).type == "f64" else float32, b.integer("shr", exponent, 1)
    return [_power(b, part, wide) for part in (half, b.integer("sub", exponent, half))]


class _UsualSum(NamedTuple):
    """What a sum in a window is, rounded, where that `holds`: a float times powers of two."""

    holds: KValue
    number: Callable[[_Ops], KValue]
    powers: Sequence[KValue]


def _usual_sum(b: _Ops, dtype: DType, window: _Window, found: _Sum, bits: int) -> _UsualSum:
    digits, lowest = _carried(b, found.limbs, bits), _lowest_place(b, dtype, window.top, bits)
    usual = _usual_double if float_format(dtype).type == "f64" else _usual_single
    holds, number, below = usual(b, digits, bits)
    powers = _powers(b, dtype, b.integer("sub", lowest, below))
    return _UsualSum(b.one("and", bool_, window.holds, holds), number, powers)


def _usual_single(b: _Ops, digits: Sequence[KValue], bits: int) -> tuple[KValue, Callable[[_Ops], KValue], int]:
    """Where a sum is so, the float, and how many bits below the first digit its last one is. The first has more bits
    than a float, so of others no more is needed than whether there are some; or there are none."""
    first, *lower = digits
    nothing = b.test("eq", reduce(partial(b.integer, "or"), lower), 0)
    holds = b.one("or", bool_, nothing, b.test("ge", _size(b, first), 1 << FLOAT_FORMATS["f32"].mantissa + 3))
    whole = b.integer("or", first, _odd(b, nothing))
    return holds, lambda ops: ops.one("cast", float32, whole), 0


def _usual_double(b: _Ops, digits: Sequence[KValue], bits: int) -> tuple[KValue, Callable[[_Ops], KValue], int]:
    """The same. The first digit is a float, and so are as many of the bits below as one has; both are added. Of others
    no more is needed than whether there are some, if the sum has bits before those; or there are none."""
    first, second, third = digits
    width = FLOAT_FORMATS["f64"].mantissa + 1
    more = width - bits  # bits of the third
    if more > 0:
        low = b.integer("or", b.integer("shl", second, more), b.integer("shr", third, bits - more))
        rest = b.integer("and", third, (1 << bits - more) - 1)
    else:
        low = b.integer("shr", second, -more)
        rest = b.integer("or", b.integer("and", second, (1 << -more) - 1), third)
    nothing, size = b.test("eq", rest, 0), _size(b, first)
    holds = b.one("or", bool_, nothing, b.test("ge", size, 8))
    holds = b.one("and", bool_, holds, b.test("le", size, 1 << width))
    low = b.integer("or", low, _odd(b, nothing))

    def number(ops: _Ops) -> KValue:
        high = ops.one("mul", float64, ops.one("cast", float64, first), ops.const(2.0**width, float64))
        return ops.one("add", float64, high, ops.one("cast", float64, low))

    return holds, number, width


def _size(b: _Ops, x: KValue) -> KValue:
    return b.integer("max", x, b.integer("sub", b.const(0, int64), x))


def _odd(b: _Ops, nothing: KValue) -> KValue:
    """The bit that is to be rounded as what isn't zero below it."""
    return b.one("select", int64, nothing, b.const(0, int64), b.const(1, int64))


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
