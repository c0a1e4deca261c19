"""Elements that several lanes write, in ways whose result doesn't depend on the order of the lanes.

- `atomic`: one instruction of the device, for sums and extremes of integers; for sums of floats only where
  `atomics` was asked for, since their bits then differ from run to run.
- `swap`: compare-and-swap of the word that holds the element until nobody else wrote in between; for products
  of integers, integers of 8 and 16 bits, minima and maxima of floats (of zeros the smaller or larger by
  sign, NaN always the same one).
- `exact`: sums of floats in fixed point as wide as the exponents, so that no addition rounds (Kulisch,
  Computer Arithmetic and Validity, 2nd ed., 8; here with overlapping limbs). A limb is 64 bits and LIMB bits
  above the one before, so that a part of a mantissa fits into one limb wherever it lies, and many of them
  before the limb is full; where their number isn't bounded, who fills a limb carries into the next. A
  support kernel turns limbs into a float, rounded about once.
- `last`: the last lane of a `set` is found by the maximum of lane numbers; values wait in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp
from loopgrad.codegen.targets.gpu.analysis import walk
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.gpu.elementwise import operate
from loopgrad.codegen.targets.gpu.loops import emit_loop
from loopgrad.codegen.targets.gpu.memory_form import from_memory, to_memory
from loopgrad.graph.types import DType

ATOMIC: Final = {"add": "AtomicIAdd", "and": "AtomicAnd", "or": "AtomicOr"}
FLOAT_ADD: Final = "AtomicFAddEXT"
LIMB: Final = 16
SPECIALS: Final = 16  # bits of each count in the word of specials: NaN, infinity, -infinity
FULL: Final = 61  # a limb of more bits carries
MOST_COPIES: Final = 256
COPIES_BYTES: Final = 16 << 20
LARGEST_SUMS: Final = 1 << 31  # bytes of exact sums of one parameter


@dataclass(frozen=True, slots=True)
class Format:
    """Of floats in exact sums: `mantissa` bits without the leading one, which is cut into parts of `part` bits;
    the lowest bit of the lowest limb is worth 2**lowest."""

    type: str
    mantissa: int
    exponents: int
    part: int
    lowest: int

    @property
    def limbs(self) -> int:
        """One more than parts begin in, for carries."""
        largest = self.exponents - 3 + self.mantissa // self.part * self.part
        return largest // LIMB + 2

    @property
    def words(self) -> int:
        """Of 64 bits per element: limbs, then the count of specials."""
        return self.limbs + 1

    @property
    def bits(self) -> int:
        """Of the largest part in a limb."""
        return self.part + LIMB - 1


FORMATS: Final = {"f32": Format("f32", 23, 256, 24, -149), "f64": Format("f64", 52, 2048, 27, -1074)}


@dataclass(frozen=True, slots=True)
class Accumulator:
    """How a parameter is accumulated into. Of `exact`: `copies` of every limb, added up afterwards, so that
    fewer lanes wait for the same one; `carries` where limbs may fill up. Of `last`: `numbers`, how many a lane
    writes at most."""

    param: int
    how: str
    copies: int = 1
    carries: bool = False
    numbers: int = 1

    @property
    def blocks(self) -> int:
        """Scratch blocks that it needs."""
        return {"exact": 1, "last": 2}.get(self.how, 0)


def exact_format(dtype: DType) -> Format:
    """16-bit floats are summed as f32."""
    return FORMATS["f64" if dtype.bits == 64 else "f32"]


def atomic_name(kind: str, dtype: DType) -> str | None:
    """The atomic whose result doesn't depend on the order of lanes, where there is one."""
    if not dtype.is_integer or dtype.bits < 32:
        return None
    if kind in ("min", "max"):
        return f"Atomic{'S' if dtype.kind == 'i' else 'U'}{kind.capitalize()}"
    return ATOMIC.get(kind)


def accumulator(kernel: Kernel, param: int, kinds: set[str], atomics: bool, wide: bool) -> Accumulator | None:
    """How several lanes may write the parameter in any order; None where they can't. `atomics`: sums of floats
    may depend on it. `wide`: the device has atomics of 64 bits."""
    described = kernel.params[param]
    dtype, kind = described.dtype, min(kinds)
    if len(kinds) > 1 or (dtype.bits == 64 and not wide):
        return None
    if kind == "set":
        return last_writer(kernel, param, wide)
    if not dtype.is_float:
        return Accumulator(param, "atomic" if atomic_name(kind, dtype) else "swap")
    if kind in ("min", "max"):
        return Accumulator(param, "swap")
    if kind != "add":
        return None
    if atomics:
        return Accumulator(param, "atomic" if dtype.bits >= 32 else "swap")
    return exact_sum(kernel, param) if wide else None


def exact_sum(kernel: Kernel, param: int) -> Accumulator | None:
    described = kernel.params[param]
    form = exact_format(described.dtype)
    size = max(described.size, 1) * form.words * 8
    if size > LARGEST_SUMS:
        return None
    most = min(COPIES_BYTES // size, MOST_COPIES, prod(kernel.domain) // 64)
    copies = 1 << max(most.bit_length() - 1, 0)
    numbers = contributions(kernel.body, param)
    carries = numbers is None or numbers * prod(kernel.domain) >= 1 << (62 - form.bits)
    return Accumulator(param, "exact", copies, carries)


def contributions(block: Block, param: int) -> int | None:
    """The most that a lane adds to the parameter; None where that isn't known."""
    total = 0
    for op in block.ops:
        if op.opcode == "accumulate" and op.attrs["param"] == param:
            total += 1
        inner = [contributions(b, param) for b in op.blocks]
        if op.opcode in ("for", "while"):
            inner = [None if count != 0 else 0 for count in inner]
        for count in inner:
            if count is None:
                return None
            total += count
    return total


def writers(kernel: Kernel, param: int) -> list[KOp]:
    return [op for op in walk(kernel.body) if op.opcode == "accumulate" and op.attrs["param"] == param]


def last_writer(kernel: Kernel, param: int, wide: bool) -> Accumulator | None:
    """Not in loops, where a lane may write any number of times."""
    if contributions(kernel.body, param) is None:
        return None
    numbers = len(writers(kernel, param))
    if numbers * prod(kernel.domain) >= 1 << 31 and not wide:
        return None
    return Accumulator(param, "last", numbers=numbers)


def number_type(kernel: Kernel, acc: Accumulator) -> str:
    """Of the numbers by which writers of a `set` are known; 0 is nobody's."""
    return "i32" if acc.numbers * prod(kernel.domain) < 1 << 31 else "i64"


class Accumulation:
    """One parameter's accumulator in a kernel that is emitted; `block` is its first scratch block."""

    def __init__(self, e: Emitter, acc: Accumulator, block: int) -> None:
        self.e, self.b, self.acc, self.block = e, e.b, acc, block
        self.dtype = e.kernel.params[acc.param].dtype
        self.type = memory_type(self.dtype)
        self.numbers = {id(op): i for i, op in enumerate(writers(e.kernel, acc.param))}

    def add(self, op: KOp, index: Val, x: Val) -> None:
        """Combine x with element `index`."""
        kind = op.attrs["kind"]
        if self.acc.how == "exact":
            self._exact(index, x)
        elif self.acc.how == "last":
            self._last(self.numbers[id(op)], index, x)
        else:
            place = self.e.element(self.acc.param, index)
            name = FLOAT_ADD if self.dtype.is_float and kind == "add" else atomic_name(kind, self.dtype)
            if self.acc.how == "atomic" and name is not None and (name != FLOAT_ADD or self.type in self.b.float_sums):
                self.b.atomic(name, place, to_memory(self.e, x, self.dtype))
            else:
                swap(self.e, kind, self.dtype, place, x)

    # the last writer

    def _last(self, number: int, index: Val, x: Val) -> None:
        e, b = self.e, self.b
        type = number_type(e.kernel, self.acc)
        order = b.inst("IMul", "i64", e.lane, b.const("i64", self.acc.numbers))
        order = b.inst("IAdd", "i64", order, b.const("i64", number))
        stored = to_memory(e, x, self.dtype)
        b.store(e.at(e.scratch[self.block + 1], order, SIZE[self.type]), stored)
        mine = e.resize(b.inst("IAdd", "i64", order, b.const("i64", 1)), type)
        b.atomic("AtomicUMax", e.at(e.scratch[self.block], index, SIZE[type]), mine)

    # exact sums

    def _exact(self, index: Val, x: Val) -> None:
        e, b, form = self.e, self.b, exact_format(self.dtype)
        if x.type == "f16":
            x = b.inst("FConvert", "f32", x)
        bits = e.resize(e.bitcast(x, "i32" if form.type == "f32" else "i64"), "i64", signed=False)
        top = b.const("i64", 31 if form.type == "f32" else 63)
        negative = b.inst("INotEqual", "bool", b.inst("ShiftRightLogical", "i64", bits, top), b.const("i64", 0))
        field = b.inst("ShiftRightLogical", "i64", bits, b.const("i64", form.mantissa))
        field = b.inst("BitwiseAnd", "i64", field, b.const("i64", form.exponents - 1))
        fraction = b.inst("BitwiseAnd", "i64", bits, b.const("i64", (1 << form.mantissa) - 1))
        normal = b.inst("INotEqual", "bool", field, b.const("i64", 0))
        leading = e.select(normal, b.const("i64", 1 << form.mantissa), b.const("i64", 0))
        mantissa = b.inst("BitwiseOr", "i64", fraction, leading)
        shift = b.inst("ISub", "i64", field, e.select(normal, b.const("i64", 1), b.const("i64", 0)))
        first = b.inst("IMul", "i64", index, b.const("i64", form.words))
        finite = b.inst("INotEqual", "bool", field, b.const("i64", form.exponents - 1))

        def add_parts() -> None:
            for low in range(0, form.mantissa + 1, form.part):
                part = b.inst("ShiftRightLogical", "i64", mantissa, b.const("i64", low))
                part = b.inst("BitwiseAnd", "i64", part, b.const("i64", (1 << form.part) - 1))
                place = b.inst("IAdd", "i64", shift, b.const("i64", low))
                nonzero = b.inst("INotEqual", "bool", part, b.const("i64", 0))
                e.when(nonzero, partial(self._add_part, first, place, part, negative))

        def count_special() -> None:
            count = e.select(negative, b.const("i64", 1 << 2 * SPECIALS), b.const("i64", 1 << SPECIALS))
            infinite = b.inst("IEqual", "bool", fraction, b.const("i64", 0))
            count = e.select(infinite, count, b.const("i64", 1))
            b.atomic("AtomicOr", self._word(first, b.const("i64", form.limbs)), count)

        e.one_of(finite, add_parts, count_special)

    def _word(self, first: Val, word: Val) -> Val:
        """The address of a word of the element whose words begin at `first`, in this invocation's copy."""
        e, b, copies = self.e, self.b, self.acc.copies
        at = b.inst("IAdd", "i64", first, word)
        if copies > 1:
            own = b.inst("BitwiseAnd", "i64", e.invocation, b.const("i64", copies - 1))
            at = b.inst("IAdd", "i64", b.inst("IMul", "i64", at, b.const("i64", copies)), own)
        return e.at(e.scratch[self.block], at, 8)

    def _add_part(self, first: Val, place: Val, part: Val, negative: Val) -> None:
        e, b = self.e, self.b
        limb = b.inst("ShiftRightLogical", "i64", place, b.const("i64", LIMB.bit_length() - 1))
        up = b.inst("BitwiseAnd", "i64", place, b.const("i64", LIMB - 1))
        size = b.inst("ShiftLeftLogical", "i64", part, up)
        amount = e.select(negative, b.inst("ISub", "i64", b.const("i64", 0), size), size)
        address = self._word(first, limb)
        if not self.acc.carries:
            b.atomic("AtomicIAdd", address, amount)
            return
        now = b.inst("IAdd", "i64", b.atomic("AtomicIAdd", address, amount), amount)
        e.when(self._full(now), lambda: self._carry(first, limb, now))

    def _full(self, value: Val) -> Val:
        """Whether a limb, or the sum of its copies, could overflow before all who write now are done."""
        b, limit = self.b, 1 << (FULL - (self.acc.copies.bit_length() - 1))
        moved = b.inst("IAdd", "i64", value, b.const("i64", limit))
        return b.inst("UGreaterThan", "bool", moved, b.const("i64", 2 * limit))

    def _carry(self, first: Val, limb: Val, now: Val) -> None:
        """What is above the limb goes to the next one, in one step that nobody else comes between; whoever adds
        meanwhile finds the limb full as well, and does the same."""
        e, b = self.e, self.b
        at, value, going = b.local("i64"), b.local("i64"), b.local("bool")
        b.set(at, limb)
        b.set(value, now)
        b.set(going, b.const("bool", True))
        copies = self.acc.copies * 8

        def step() -> None:
            found, here = b.get(value, "i64"), self._word(first, b.get(at, "i64"))
            carry = b.inst("ShiftRightArithmetic", "i64", found, b.const("i64", LIMB))
            left = b.inst("BitwiseAnd", "i64", found, b.const("i64", (1 << LIMB) - 1))
            seen = b.compare_exchange(here, found, left)

            def moved() -> tuple[Val, ...]:
                old = b.atomic("AtomicIAdd", e.offset(here, copies), carry)
                b.set(at, b.inst("IAdd", "i64", b.get(at, "i64"), b.const("i64", 1)))
                return (b.inst("IAdd", "i64", old, carry),)

            (after,) = e.choose(b.inst("IEqual", "bool", seen, found), moved, lambda: (seen,))
            b.set(value, after)
            b.set(going, self._full(after))

        emit_loop(e, lambda: b.get(going, "bool"), step)


def swap(e: Emitter, kind: str, dtype: DType, place: Val, x: Val) -> None:
    """param[place] = param[place] kind x, by compare-and-swap of the word that holds it."""
    b, size = e.b, SIZE[memory_type(dtype)]
    word = "i64" if size == 8 else "i32"
    offset = b.inst("BitwiseAnd", "i64", place, b.const("i64", SIZE[word] - 1))
    address = b.inst("ISub", "i64", place, offset) if size < 4 else place
    shift = e.resize(b.inst("ShiftLeftLogical", "i64", offset, b.const("i64", 3)), word) if size < 4 else None
    known, going = b.local(word), b.local("bool")
    b.set(known, b.load(address, word))
    b.set(going, b.const("bool", True))

    def step() -> None:
        old = b.get(known, word)
        new = combined(e, kind, dtype, old, shift, x)
        b.set(going, b.const("bool", False))

        def exchange() -> None:
            seen = b.compare_exchange(address, old, new)
            b.set(known, seen)
            b.set(going, b.inst("INotEqual", "bool", seen, old))

        e.when(b.inst("INotEqual", "bool", new, old), exchange)

    emit_loop(e, lambda: b.get(going, "bool"), step)


def combined(e: Emitter, kind: str, dtype: DType, word: Val, shift: Val | None, x: Val) -> Val:
    """The word with its element (which begins at bit `shift`) combined with x."""
    b, type = e.b, memory_type(dtype)
    if shift is None:
        return as_bits(e, element_of(e, kind, dtype, word if type == word.type else e.bitcast(word, type), x))
    bits = 8 * SIZE[type]
    small = e.resize(b.inst("ShiftRightLogical", "i32", word, shift), f"i{bits}")
    new = as_bits(e, element_of(e, kind, dtype, small if type == small.type else e.bitcast(small, type), x))
    mask = b.inst("ShiftLeftLogical", "i32", b.const("i32", (1 << bits) - 1), shift)
    kept = b.inst("BitwiseAnd", "i32", word, b.inst("Not", "i32", mask))
    placed = b.inst("ShiftLeftLogical", "i32", e.resize(new, "i32", signed=False), shift)
    return b.inst("BitwiseOr", "i32", kept, placed)


def as_bits(e: Emitter, x: Val) -> Val:
    return x if x.type[0] == "i" else e.bitcast(x, f"i{x.type[1:]}")


def element_of(e: Emitter, kind: str, dtype: DType, old: Val, x: Val) -> Val:
    """Two elements combined, as memory has them, to the same bits in either order."""
    known = from_memory(e, old, dtype)
    new = operate(e, kind, dtype, [known, x])
    if dtype.is_float and kind in ("min", "max"):
        new = ordered_extreme(e, kind, known, x, new)
    return to_memory(e, new, dtype)


def ordered_extreme(e: Emitter, kind: str, x: Val, y: Val, either: Val) -> Val:
    """`either` of the two, but of equal ones that with the smaller or larger sign, and one NaN for all."""
    b = e.b
    bits = f"i{x.type[1:]}"
    p, q = e.bitcast(x, bits), e.bitcast(y, bits)
    sign = e.bitcast(b.inst("BitwiseAnd" if kind == "max" else "BitwiseOr", bits, p, q), x.type)
    if x.type == "f16":
        x, y = (b.inst("FConvert", "f32", v) for v in (x, y))
    best = e.select(b.inst("FOrdEqual", "bool", x, y), sign, either)
    nan = b.inst("LogicalOr", "bool", b.inst("IsNan", "bool", x), b.inst("IsNan", "bool", y))
    return e.select(nan, b.const(sign.type, float("nan")), best)
