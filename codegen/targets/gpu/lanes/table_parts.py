"""Large tables whose elements lanes meet in are summed part by part: what is at work at a time stays in a cache.

    lanes (n,)                                          lanes (2, n)
    accumulate(table, index, cos(x[index]))     ->      mine = part * size / 2 <= index < (part + 1) * size / 2
                                                        accumulate(table, index, cos(x[mine ? index : 0])) if mine

Lanes run once for each part, those of the first part first, and leave out what belongs to others; where they read at
random, and nothing that they add belongs to it, they then read one and the same element. On an H200, whose caches hold
50 MB, 2**24 lanes that read of 2**22 elements and add to as many take 412 us as a whole and 291 in parts, of 2**24
elements 1,162 and 517. Lanes whose neighbours add to neighbours, as those of rows do, wait for fewer lines: rows of
three take 89 us, and 99 in parts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.gpu.emit.accumulate import accumulator
from loopgrad.codegen.targets.gpu.emit.window_sum import WindowSum
from loopgrad.codegen.targets.gpu.lanes.analysis import at_random, shared_params, straight
from loopgrad.graph.types import bool_, int64

PART: Final = 24 << 20  # bytes of first limbs that are at work at a time
MOST_PARTS: Final = 8


def in_parts(kernel: Kernel, options: Options, wide: bool) -> Kernel:
    """The kernel, part by part where its table is large and its lanes do nothing but add to it."""
    shared = shared_params(kernel)
    if len(shared) != 1 or kernel.stages or kernel.running is not None or not straight(kernel):
        return kernel
    ((param, kinds),) = shared.items()
    if not all(at_random(op.operands[0]) for op in kernel.body.ops if op.opcode == "accumulate"):
        return kernel

    def bytes_in_window(candidate: Kernel) -> int:
        """Of adjacent limbs; 0 where they aren't worth parts."""
        found = accumulator(candidate, param, kinds, options.deterministic, wide)
        if not isinstance(found, WindowSum) or not found.alone or found.repair.table.bucket:
            return 0
        return 8 * found.repair.table.adjacent * kernel.params[param].size

    most = min(-(-bytes_in_window(kernel) // PART), MOST_PARTS)
    # a lane is taken for a term in each part, and of too many terms no window has bits enough
    made = (_InParts(kernel, parts).run() for parts in range(most, 1, -1))
    return next(filter(bytes_in_window, made), kernel)


class _InParts(Rebuilder):
    def __init__(self, kernel: Kernel, parts: int) -> None:
        super().__init__(kernel)
        self.parts = parts
        self.added = [op for op in kernel.body.ops if op.opcode == "accumulate"]
        self.early = _behind(*[op.operands[n] for op in self.added for n in (0, 2)])
        self.mine: dict[KOp, KValue] = {}  # whether what it adds belongs to the part
        self.some: KValue | None = None  # whether anything does

    def run(self) -> Kernel:
        part, body = KValue(int64), self.kernel.body
        arguments = tuple([KValue(v.dtype) for v in body.arguments])
        self.env.update(zip(body.arguments, arguments, strict=True))
        for op in [op for op in body.ops if op in self.early]:
            self._take(op)
        for op in self.added:
            index, pred = (self.env[op.operands[n]] for n in (0, 2))
            self.mine[op] = self._made("and", pred, self._inside(index, part))
        self.some = reduce(partial(self._made, "or"), self.mine.values())
        for op in [op for op in body.ops if op not in self.early]:
            self._take(op)
        block = Block((part, *arguments), self.out)
        return replace(self.kernel, domain=(self.parts, *self.kernel.domain), body=block)

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        if op in self.mine:
            operands = (*operands[:2], self.mine[op])
        elif self.some is not None and op.opcode == "load" and _reads(op.operands[0]):
            operands = (self._made("select", self.some, operands[0], self._const(0)),)
        return self.copy(op, operands)

    def _take(self, op: KOp) -> None:
        operands = tuple([self.env[v] for v in op.operands])
        self.env.update(zip(op.results, self.op(op, operands), strict=True))

    def _inside(self, index: KValue, part: KValue) -> KValue:
        size = -(-self.kernel.params[self.added[0].attrs["param"]].size // self.parts)
        first = self._made("mul", part, self._const(size))
        reached = self._made("ge", index, first)
        return self._made("and", reached, self._made("lt", index, self._made("add", first, self._const(size))))

    def _const(self, value: int) -> KValue:
        made = KOp("const", (), (int64,), {"value": value})
        self.out.append(made)
        return made.results[0]

    def _made(self, opcode: str, *operands: KValue) -> KValue:
        dtype = bool_ if opcode in ("ge", "lt") else operands[-1].dtype
        made = KOp(opcode, operands, (dtype,))
        self.out.append(made)
        return made.results[0]


def _behind(*values: KValue) -> set[KOp]:
    """What makes these values."""
    found: set[KOp] = set()
    waiting = [v.op for v in values]
    while waiting:
        op = waiting.pop()
        if op is not None and op not in found:
            found.add(op)
            waiting += [v.op for v in op.operands]
    return found


def _reads(index: KValue) -> bool:
    """Whether it depends on what is in memory, and so may be any."""
    return any(op.opcode == "load" for op in _behind(index))
