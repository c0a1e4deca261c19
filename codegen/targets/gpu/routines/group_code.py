"""What programs of workgroups are written with: short names of instructions, turns, and sums over the workgroup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.lanes.plan import power_below


class GroupCode:
    """Instructions of one invocation. `own`: its number in the workgroup (i32)."""

    def __init__(self, e: Emitter) -> None:
        self.e, self.b = e, e.b
        self.own = e.b.local_id()

    @property
    def group(self) -> int:
        return self.b.group

    def i32(self, value: int) -> Val:
        return self.b.const("i32", value)

    def op(self, name: str, x: Val, y: Val | int) -> Val:
        """Of x's type, which y has too where it is a value."""
        return self.b.inst(name, x.type, x, self.b.const(x.type, y) if isinstance(y, int) else y)

    def test(self, name: str, x: Val, y: Val | int) -> Val:
        return self.b.inst(name, "bool", x, self.b.const(x.type, y) if isinstance(y, int) else y)

    def plus(self, x: Val, y: Val | int) -> Val:
        return x if isinstance(y, int) and not y else self.op("IAdd", x, y)

    def times(self, x: Val, factor: int) -> Val:
        """By a shift where the factor is a power of two."""
        if factor & (factor - 1):
            return self.op("IMul", x, factor)
        return self.op("ShiftLeftLogical", x, factor.bit_length() - 1) if factor > 1 else x

    def wide(self, x: Val) -> Val:
        """An i32 without sign as an i64."""
        return self.e.resize(x, "i64", signed=False)

    def divided(self, x: Val, by: int) -> tuple[Val, Val]:
        """Quotient and remainder of a number that isn't negative."""
        if by == 1:
            return x, self.b.const(x.type, 0)
        if not by & (by - 1):
            return self.op("ShiftRightLogical", x, by.bit_length() - 1), self.op("BitwiseAnd", x, by - 1)
        above = self.op("UDiv", x, by)
        return above, self.op("ISub", x, self.op("IMul", above, by))

    def each(self, count: int, body: Callable[[Val], None]) -> None:
        """body(number) for the numbers below `count` that are this invocation's turn: neighbours take neighbours."""
        self.turns_of(self.own, self.group, count, body)

    def turns_of(self, own: Val, members: int, count: int, body: Callable[[Val], None]) -> None:
        """As `each`, where it is number `own` of so many that share them."""
        for first in range(0, count, members):
            number = self.plus(own, first)
            if first + members <= count:
                body(number)
            else:
                self.e.when(self.test("ULessThan", number, count), partial(body, number))

    def at(self, base: Val, index: Val, size: int) -> Val:
        """The address of an element by its number (i32, without sign)."""
        return self.e.at(base, self.wide(index), size)


class GroupSums:
    """For each invocation the sums of those before it, in parts of `members` invocations that know nothing of each
    other; `values` sums at a time. Memory of the workgroup is free again after the caller's next barrier."""

    def __init__(self, code: GroupCode, members: int, values: int = 1) -> None:
        self.code, self.members = code, members
        self.width = min(power_below(max(int(code.group**0.5), 1)), members)  # of what an invocation adds up
        self.sums = [code.b.shared("i32", code.group) for _ in range(values)]
        upper = code.group // self.width if members > self.width else 0
        self.upper = [code.b.shared("i32", upper) for _ in range(values)] if upper else []

    def before(self, values: Sequence[Val]) -> list[tuple[Val, Val]]:
        """The sum of the values (i32) of the invocations before this one in its part, and that of all there."""
        c = self.code
        if self.members == 1:
            return [(c.i32(0), value) for value in values]
        for array, value in zip(self.sums, values, strict=False):
            c.b.shared_set(array, c.own, value)
        c.b.barrier()
        if self.upper:
            c.each(c.group // self.width, self._add_up)
            c.b.barrier()
        return [self._found(n) for n in range(len(values))]

    def _add_up(self, number: Val) -> None:
        first = self.code.times(number, self.width)
        for lower, upper in zip(self.sums, self.upper, strict=True):
            self.code.b.shared_set(upper, number, self._sums(lower, first, self.width, None)[0])

    def _found(self, n: int) -> tuple[Val, Val]:
        c = self.code
        row, column = c.divided(c.own, self.width)
        inside, total = self._sums(self.sums[n], c.times(row, self.width), self.width, column)
        if not self.upper:
            return inside, total
        rows = self.members // self.width
        part, place = c.divided(row, rows)
        above, total = self._sums(self.upper[n], c.times(part, rows), rows, place)
        return c.plus(above, inside), total

    def _sums(self, array: Variable, first: Val, count: int, end: Val | None) -> tuple[Val, Val]:
        """Of elements from `first` on: of those before the `end`-th, and of all."""
        c = self.code
        below = total = c.i32(0)
        for k in range(count):
            value = c.b.shared_get(array, c.plus(first, k), "i32")
            if end is not None:
                below = c.plus(below, c.e.select(c.test("UGreaterThan", end, k), value, c.i32(0)))
            total = c.plus(total, value)
        return (below, total) if end is not None else (total, total)
