"""Elements that several lanes write, in ways whose result doesn't depend on the order of the lanes.

- Atomic: one instruction of the device, for sums and extremes of integers; for sums of floats only where
  `deterministic=False` was asked for, since their bits then differ from run to run.
- CompareAndSwap (compare_and_swap): where the device has no such instruction.
- FloatExtreme (float_extremes): the largest and smallest of floats, by atomics of their bits.
- ExactSum (exact_sum): sums of floats that don't round before they are done.
- WindowSum (window_sum), ScaledSum (scaled_sum): sums of floats in tables too large for that, in fixed point below the
  largest term, of all elements where they allow that.
- LastWriter: the last lane of a `set` is found by the maximum of lane numbers; values wait in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final

from loopgrad.codegen.kernel.nodes import Kernel, KOp
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator, contributions, writers
from loopgrad.codegen.targets.gpu.emit.compare_and_swap import CompareAndSwap, swap
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.gpu.emit.exact_sum import exact_sum
from loopgrad.codegen.targets.gpu.emit.float_extremes import FloatExtreme
from loopgrad.codegen.targets.gpu.emit.memory_form import to_memory
from loopgrad.codegen.targets.gpu.emit.window_sum import window_sum
from loopgrad.graph.types import DType

ATOMIC: Final = {"add": "AtomicIAdd", "and": "AtomicAnd", "or": "AtomicOr"}
FLOAT_ADD: Final = "AtomicFAddEXT"
EXACT_BYTES: Final = 16 << 20  # of exact sums for which no other way is looked for: as much as stays in a cache


@dataclass(frozen=True, slots=True)
class Atomic(Accumulator):
    """Floats that the device can't add at once are compared and swapped."""

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        kind, dtype = op.attrs["kind"], e.kernel.params[self.param].dtype
        place = e.element(self.param, index)
        name = FLOAT_ADD if dtype.is_float else atomic_name(kind, dtype)
        if name is None or (name == FLOAT_ADD and memory_type(dtype) not in e.b.float_sums):
            swap(e, kind, dtype, place, x)
        else:
            e.b.atomic(name, place, to_memory(e, x, dtype))

    def way(self, kernel: Kernel) -> str:
        return "float atomics in any order" if kernel.params[self.param].dtype.is_float else "atomics"


@dataclass(frozen=True, slots=True)
class LastWriter(Accumulator):
    """`numbers`: how many values a lane writes at most."""

    blocks: ClassVar[int] = 2

    numbers: int

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        b, dtype = e.b, e.kernel.params[self.param].dtype
        number = next(i for i, writer in enumerate(writers(e.kernel, self.param)) if writer is op)
        order = b.inst("IMul", "i64", e.lane, b.const("i64", self.numbers))
        order = b.inst("IAdd", "i64", order, b.const("i64", number))
        stored = to_memory(e, x, dtype)
        b.store(e.at(e.table.scratch[block + 1], order, SIZE[stored.type]), stored)
        type = number_type(e.kernel, self)
        mine = e.resize(b.inst("IAdd", "i64", order, b.const("i64", 1)), type)
        b.atomic("AtomicUMax", e.at(e.table.scratch[block], index, SIZE[type]), mine)

    def way(self, kernel: Kernel) -> str:
        return "the last lane by number"


def accumulator(kernel: Kernel, param: int, kinds: set[str], deterministic: bool, wide: bool) -> Accumulator | None:
    """How several lanes may write the parameter in any order; None where they can't. `deterministic`: sums of floats
    may not depend on it. `wide`: the device has atomics of 64 bits."""
    described = kernel.params[param]
    dtype, kind = described.dtype, min(kinds)
    if len(kinds) > 1 or (dtype.bits == 64 and not wide):
        return None
    if kind == "set":
        return last_writer(kernel, param, wide)
    if not dtype.is_float:
        return Atomic(param) if atomic_name(kind, dtype) else CompareAndSwap(param)
    if kind in ("min", "max"):
        return FloatExtreme(param) if dtype.bits >= 32 else CompareAndSwap(param)
    if kind != "add":
        return None
    if not deterministic and (dtype.bits >= 32 or not wide):
        return Atomic(param)
    return summed(kernel, param) if wide else None


def summed(kernel: Kernel, param: int) -> Accumulator | None:
    """By size: what is exact needs many words per element, which are cleared and read in every run."""
    exact = exact_sum(kernel, param)
    if exact is not None and exact.bytes(kernel) <= EXACT_BYTES:
        return exact
    return window_sum(kernel, param) or exact


def atomic_name(kind: str, dtype: DType) -> str | None:
    """The atomic whose result doesn't depend on the order of lanes, where there is one."""
    if not dtype.is_integer or dtype.bits < 32:
        return None
    if kind in ("min", "max"):
        return f"Atomic{'S' if dtype.kind == 'i' else 'U'}{kind.capitalize()}"
    return ATOMIC.get(kind)


def last_writer(kernel: Kernel, param: int, wide: bool) -> LastWriter | None:
    """Not in loops, where a lane may write any number of times."""
    if contributions(kernel.body, param) is None:
        return None
    numbers = len(writers(kernel, param))
    if numbers * prod(kernel.domain) >= 1 << 31 and not wide:
        return None
    return LastWriter(param, numbers)


def number_type(kernel: Kernel, acc: LastWriter) -> str:
    """Of the numbers by which writers of a `set` are known; 0 is nobody's."""
    return "i32" if acc.numbers * prod(kernel.domain) < 1 << 31 else "i64"
