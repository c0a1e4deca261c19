"""What a sort moves: elements as their bits, and the digits of what orders them."""

from __future__ import annotations

from loopgrad.codegen.scalar.ordered_bits import first_bits, last_bits, ordered
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode
from loopgrad.graph.types import DTYPES, DType


def held_type(dtype: DType) -> str:
    """The integer that holds an element's bits in registers."""
    return "i64" if dtype.bits == 64 else "i32"


class Elements:
    """Elements of a dtype, given by its name; `descending`: the largest come first."""

    def __init__(self, e: Emitter, code: GroupCode, name: str, descending: bool = False) -> None:
        self.e, self.code, self.dtype, self.descending = e, code, DTYPES[name], descending
        self.memory, self.held = f"i{8 * self.dtype.itemsize}", held_type(self.dtype)
        self.size = self.dtype.itemsize
        self.ops = ScalarOps(e)

    @property
    def last(self) -> Val:
        """Bits that are sorted behind all others."""
        return self.e.b.const(self.held, (first_bits if self.descending else last_bits)(self.dtype))

    def load(self, base: Val, index: Val) -> Val:
        """Element `index` (i32) of those at `base`."""
        return self.e.resize(self.e.b.load(self.code.at(base, index, self.size), self.memory), self.held, signed=False)

    def store(self, base: Val, index: Val, bits: Val) -> None:
        self.e.b.store(self.code.at(base, index, self.size), self.e.resize(bits, self.memory))

    def digit(self, bits: Val, shift: Val, width: int) -> Val:
        """So many bits (i32), from bit `shift` (i32) on, of what orders elements."""
        key = ordered(self.ops, bits, self.dtype)
        if self.descending:
            key = self.e.b.inst("Not", key.type, key)
        moved = self.code.op("ShiftRightLogical", key, self.e.resize(shift, self.held, signed=False))
        return self.code.op("BitwiseAnd", self.e.resize(moved, "i32"), (1 << width) - 1)
