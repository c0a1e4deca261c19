"""Instruction sequences that everything emits: integers in other widths, choices, addresses, branches.

Owns what branches share: results that are computed once and known in the blocks that they dominate.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from loopgrad.codegen.targets.gpu.assembler import Assembler, Val


class Instructions:
    """`ahead`: numbers that are others and a known distance. `unrounded`: what bfloat16 were rounded from, to which two
    that are stored together are rounded again, at once; where no instruction does so, what has them as upper half."""

    def __init__(self, b: Assembler) -> None:
        self.b = b
        self.ahead: dict[Val, tuple[Val, int]] = {}
        self.unrounded: dict[Val, Val] = {}
        self._once: list[dict[Hashable, tuple[Val, ...]]] = [{}]

    # scopes of shared results

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Instructions inside needn't run: what they compute isn't known afterwards."""
        self._once.append({})
        yield
        self._once.pop()

    def once(self, key: Hashable, make: Callable[[], tuple[Val, ...]]) -> tuple[Val, ...]:
        """What compilers don't find to be the same, since it has branches: a loop of sines and its reverse, which has
        cosines, takes 1.35 times as long on an H200 where each has a range reduction of its own."""
        for known in self._once:
            if key in known:
                return known[key]
        result = self._once[-1][key] = make()
        return result

    # arithmetic

    def select(self, pred: Val, x: Val, y: Val) -> Val:
        return self.b.inst("Select", x.type, pred, x, y)

    def bound_integer(self, x: Val, limit: int) -> Val:
        """The smaller of a number that isn't negative and a constant."""
        end = self.b.const(x.type, limit)
        return self.select(self.b.inst("ULessThan", "bool", x, end), x, end)

    def both(self, m: Val, n: Val) -> Val:
        return self.b.inst("LogicalAnd", "bool", m, n)

    def either(self, m: Val, n: Val) -> Val:
        return self.b.inst("LogicalOr", "bool", m, n)

    def resize(self, x: Val, type: str, signed: bool = True) -> Val:
        """An integer in another width."""
        if x.type == type:
            return x
        if signed and x.type == "i32" and type == "i64" and not self.b.widens:
            return self._extended(x)
        return self.b.inst("SConvert" if signed else "UConvert", type, x)

    def _extended(self, x: Val) -> Val:
        """The sign extended by arithmetic, in a form that no compiler takes for a conversion."""
        top = self.b.const("i64", 1 << 31)
        wide = self.b.inst("UConvert", "i64", x)
        return self.b.inst("ISub", "i64", self.b.inst("BitwiseXor", "i64", wide, top), top)

    def bitcast(self, x: Val, type: str) -> Val:
        return self.b.inst("Bitcast", type, x)

    # addresses

    def at(self, base: Val, index: Val, size: int) -> Val:
        """The address of element `index`; known distances are added last, where loads and stores take them for free. On
        an H200 a sum of sines and exponentials takes 1.08 times as long without."""
        if index in self.ahead:
            near, distance = self.ahead[index]
            return self.offset(self.at(base, near, size), distance * size)
        return self.offset(base, self.b.inst("IMul", "i64", index, self.b.const("i64", size)))

    def offset(self, base: Val, bytes: Val | int) -> Val:
        step = self.b.const("i64", bytes) if isinstance(bytes, int) else bytes
        return self.b.inst("IAdd", "i64", base, step)

    # structure

    def when(self, condition: Val, then: Callable[[], None]) -> None:
        """`then()` where the condition holds."""
        inside, after = self.b.block(), self.b.block()
        self.b.merge(after)
        self.b.branch(condition, inside, after)
        self.b.start(inside)
        with self.nested():
            then()
        self.b.jump(after)
        self.b.start(after)

    def one_of(self, condition: Val, then: Callable[[], None], other: Callable[[], None]) -> None:
        """`then()` where the condition holds, `other()` elsewhere."""

        def branch(make: Callable[[], None]) -> tuple[Val, ...]:
            make()
            return ()

        self.choose(condition, lambda: branch(then), lambda: branch(other))

    def choose(
        self, condition: Val, then: Callable[[], tuple[Val, ...]], other: Callable[[], tuple[Val, ...]]
    ) -> tuple[Val, ...]:
        """The values of one of two branches."""
        inside, outside, after = self.b.block(), self.b.block(), self.b.block()
        self.b.merge(after)
        self.b.branch(condition, inside, outside)
        results, ends = [], []
        for label, make in ((inside, then), (outside, other)):
            self.b.start(label)
            with self.nested():
                results.append(make())
            ends.append(self.b.label)
            self.b.jump(after)
        self.b.start(after)
        pairs = zip(*results, strict=True)
        return tuple([self.b.phi(x.type, (x, ends[0]), (y, ends[1])) for x, y in pairs])
