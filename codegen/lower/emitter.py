"""Emitting kernel operations: open blocks, pure operations shared and hoisted, index arithmetic folded.

A pure operation is placed in the outermost open block where its operands are visible, but never above
an `if` (an untaken branch costs nothing), and an equal operation that is visible already is reused.
Positions are Python ints where they are known while compiling; arithmetic on those emits nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from loopgrad.codegen.kernel.nodes import Block, KOp, KValue
from loopgrad.graph.nodes import NO_ATTRS
from loopgrad.graph.types import DType, bool_, floating, int64, integer, scalar_text

Position = int | KValue


class Part(NamedTuple):
    """One digit of a mixed-radix number: `at` in [0, size)."""

    size: int
    at: Position


# The row-major position of an element, as digits, most significant first. Digits needn't match the
# dims of the tensor: reshaping changes nothing. Digits of size 1 are left out.
Index = tuple[Part, ...]


class OpenBlock:
    """A block under construction. `fence`: nothing below is hoisted above it."""

    __slots__ = ("block", "fence", "pulled", "pure")

    def __init__(self, arguments: tuple[KValue, ...], fence: bool) -> None:
        self.block = Block(arguments)
        self.fence = fence
        self.pure: dict[Any, KValue] = {}
        self.pulled: dict[Any, KValue] = {}


class KernelBuilder:
    """The chain of open blocks of one kernel."""

    def __init__(self, arguments: tuple[KValue, ...]) -> None:
        self.blocks: list[OpenBlock] = []
        self.depth: dict[KValue, int] = {}
        self.floor = 0
        self.ops = 0
        self._enter(arguments, fence=True)

    # ---- blocks

    def _enter(self, arguments: tuple[KValue, ...], fence: bool) -> None:
        self.blocks.append(OpenBlock(arguments, fence))
        level = len(self.blocks) - 1
        for v in arguments:
            self.depth[v] = level
        if fence:
            self.floor = level

    def open(self, dtypes: Sequence[DType], fence: bool = False) -> tuple[KValue, ...]:
        """Begin a nested block and return its arguments."""
        arguments = tuple([KValue(d) for d in dtypes])
        self._enter(arguments, fence)
        return arguments

    def close(self, yields: Sequence[KValue] = ()) -> Block:
        """End the innermost block."""
        done = self.blocks.pop()
        done.block.yields = tuple(yields)
        self.floor = max(i for i, b in enumerate(self.blocks) if b.fence) if self.blocks else 0
        return done.block

    # ---- operations

    def op(
        self, opcode: str, operands: tuple[KValue, ...], dtype: DType, attrs: Mapping[str, Any] = NO_ATTRS
    ) -> KValue:
        """A pure operation with one result."""
        key = (opcode, operands, dtype, tuple(attrs.items())) if attrs else (opcode, operands, dtype)
        visible = max([self.depth[v] for v in operands])
        for opened in self.blocks[visible:]:
            known = opened.pure.get(key)
            if known is not None:
                return known
        return self._append(max(visible, self.floor), key, KOp(opcode, operands, (dtype,), attrs))

    def _append(self, level: int, key: Any, op: KOp) -> KValue:
        opened = self.blocks[level]
        opened.block.ops.append(op)
        self.ops += 1
        result = op.results[0]
        opened.pure[key] = result
        self.depth[result] = level
        return result

    def effect(
        self,
        opcode: str,
        operands: Sequence[KValue] = (),
        dtypes: Sequence[DType] = (),
        attrs: Mapping[str, Any] = NO_ATTRS,
        blocks: tuple[Block, ...] = (),
    ) -> tuple[KValue, ...]:
        """An operation that stays where it is: at the end of the innermost block."""
        op = KOp(opcode, tuple(operands), tuple(dtypes), attrs, blocks)
        self.blocks[-1].block.ops.append(op)
        self.ops += 1
        for v in op.results:
            self.depth[v] = len(self.blocks) - 1
        return op.results

    def const(self, value: Any, dtype: DType) -> KValue:
        """A constant, in the top block."""
        value = _as_kind(value, dtype)
        key = ("const", dtype, scalar_text(value))
        known = self.blocks[0].pure.get(key)
        return known if known is not None else self._append(0, key, KOp("const", (), (dtype,), {"value": value}))

    def cast(self, v: KValue, dtype: DType) -> KValue:
        return v if v.dtype is dtype else self.op("cast", (v,), dtype)

    def compare(self, opcode: str, a: KValue, b: KValue) -> KValue:
        return self.op(opcode, (a, b), bool_)

    # ---- positions

    def value(self, p: Position) -> KValue:
        return self.const(p, int64) if isinstance(p, int) else p

    def add(self, a: Position, b: Position) -> Position:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 and isinstance(a, int):
            return b
        if b == 0 and isinstance(b, int):
            return a
        return self.op("add", (self.value(a), self.value(b)), int64)

    def sub(self, a: Position, b: Position) -> Position:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if isinstance(b, int):
            return self.add(a, -b)
        return self.op("sub", (self.value(a), b), int64)

    def mul(self, a: Position, b: int) -> Position:
        if isinstance(a, int):
            return a * b
        return a if b == 1 else self.op("mul", (a, self.const(b, int64)), int64)

    def divmod(self, a: Position, b: int) -> tuple[Position, Position]:
        if isinstance(a, int):
            return divmod(a, b)
        divisor = self.const(b, int64)
        return self.op("floordiv", (a, divisor), int64), self.op("mod", (a, divisor), int64)

    def clamp(self, a: Position, extent: int, signed: bool = True) -> Position:
        """Into [0, extent)."""
        if isinstance(a, int):
            return min(max(a, 0), extent - 1)
        if extent == 1:
            return 0
        low = self.op("max", (a, self.const(0, int64)), int64) if signed else a
        return self.op("min", (low, self.const(extent - 1, int64)), int64)

    def inside(self, a: Position, extent: int) -> bool | KValue:
        """Whether 0 <= a < extent."""
        if isinstance(a, int):
            return 0 <= a < extent
        low = self.compare("ge", a, self.const(0, int64))
        return self.op("and", (low, self.compare("lt", a, self.const(extent, int64))), bool_)

    def all_of(self, conditions: Sequence[bool | KValue]) -> bool | KValue:
        """The conjunction; a bool where it is known."""
        result: bool | KValue = True
        for condition in conditions:
            if isinstance(condition, bool):
                if not condition:
                    return False
            elif isinstance(result, bool):
                result = condition
            else:
                result = self.op("and", (result, condition), bool_)
        return result

    def linear(self, index: Index) -> Position:
        """The digits combined."""
        result: Position = 0
        for size, at in index:
            result = self.add(self.mul(result, size), at)
        return result


def _as_kind(value: Any, dtype: DType) -> Any:
    match dtype.kind:
        case "b":
            return bool(value)
        case "i" | "u":
            return integer(value)
        case "f":
            return floating(value)
    return complex(value)
