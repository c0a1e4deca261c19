"""Where an array of a lane lies: in memory of the invocation, which targets lay side by side for neighbours, or, where
a driver takes no code with so much of that, in device memory, [element][invocation]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from loopgrad.codegen.targets.gpu.assembler import Assembler, Val, Variable
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions


class ArrayPlace(Protocol):
    """Elements by their number (i32)."""

    def get(self, index: Val) -> Val: ...

    def set(self, index: Val, value: Val) -> None: ...


@dataclass(frozen=True, slots=True)
class LocalArray:
    b: Assembler
    array: Variable
    type: str

    def get(self, index: Val) -> Val:
        return self.b.array_get(self.array, index, self.type)

    def set(self, index: Val, value: Val) -> None:
        self.b.array_set(self.array, index, value)


@dataclass(frozen=True, slots=True)
class HeldArray:
    """`column` is where the invocation's first element is, `pitch` how many bytes further the next one."""

    b: Assembler
    column: Val
    pitch: int
    type: str

    def _place(self, index: Val) -> Val:
        i = Instructions(self.b)
        return i.at(self.column, i.resize(index, "i64", signed=False), self.pitch)

    def get(self, index: Val) -> Val:
        return self.b.load(self._place(index), self.type)

    def set(self, index: Val, value: Val) -> None:
        self.b.store(self._place(index), value)


class HeldArrays:
    """Arrays in a block of device memory that `rows` invocations share."""

    def __init__(self, b: Assembler, block: Val, invocation: Val, rows: int) -> None:
        self.b, self.next, self.invocation, self.rows = b, block, invocation, rows

    def array(self, type: str, size: int, itemsize: int) -> HeldArray:
        """Behind those before it."""
        i, pitch = Instructions(self.b), itemsize * self.rows
        column = i.at(self.next, self.invocation, itemsize)
        self.next = i.offset(self.next, size * pitch)
        return HeldArray(self.b, column, pitch, type)
