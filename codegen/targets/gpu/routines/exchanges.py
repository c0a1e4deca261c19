"""Which row comes to each place where rows change places in turn: a workgroup for each matrix, in whose memory the
numbers of its rows lie. One invocation exchanges them, the others fetch with whom; longer columns lie in the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.types import int64


@dataclass(frozen=True, slots=True)
class Exchanges:
    """Of `rows` numbers for each of the tiles, by `swaps` exchanges. Arrays: with whom, the numbers of the rows."""

    rows: int
    swaps: int

    def emit(self, e: Emitter, tile: Val) -> None:
        c, b = GroupCode(e), e.b
        places, others = b.shared("i32", self.rows), b.shared("i32", c.group)
        with_whom, results = [
            e.at(base, c.op("IMul", e.resize(tile, "i64"), count), 8)
            for base, count in zip(e.table.params, (self.swaps, self.rows), strict=True)
        ]
        c.each(self.rows, lambda number: b.shared_set(places, number, number))

        def exchange(first: Val, k: Val) -> None:
            here, there = c.op("IAdd", first, k), b.shared_get(others, k, "i32")
            x, y = b.shared_get(places, here, "i32"), b.shared_get(places, there, "i32")
            b.shared_set(places, here, y)
            b.shared_set(places, there, x)

        def fetch(number: Val) -> None:
            found = e.resize(b.load(c.at(with_whom, number, 8), "i64"), "i32")
            b.shared_set(others, c.own, e.bound_integer(found, self.rows - 1))

        def some(turn: Val) -> None:
            first = c.times(turn, c.group)
            number = c.op("IAdd", first, c.own)
            e.when(c.test("ULessThan", number, self.swaps), partial(fetch, number))
            b.barrier()
            count = e.bound_integer(b.inst("ISub", "i32", c.i32(self.swaps), first), c.group)
            e.when(c.test("IEqual", c.own, 0), lambda: counted(e, count, partial(exchange, first)))
            b.barrier()

        b.barrier()
        counted(e, c.i32(-(-self.swaps // c.group)), some)
        c.each(self.rows, lambda n: b.store(c.at(results, n, 8), c.wide(b.shared_get(places, n, "i32"))))
        b.barrier()


def _sizes(routine: Routine) -> tuple[int, int, int]:
    """Matrices, rows, exchanges."""
    swaps, rows = routine.inputs[0].type.shape[-1], routine.outputs[0].type.shape[-1]
    return routine.outputs[0].type.size // max(rows, 1), rows, swaps


def _refuses(routine: Routine) -> str:
    _, rows, _ = _sizes(routine)
    return "" if 4 * (rows + routine.group) <= routine.memory else "more rows than a workgroup holds"


def _make(routine: Routine) -> None:
    count, rows, swaps = _sizes(routine)
    if count and rows:
        routine.by_groups("exchanges", Exchanges(rows, swaps), count, *routine.inputs, *routine.outputs)


def _make_in_result(routine: Routine) -> None:
    count, rows, swaps = _sizes(routine)
    lane, body = KValue(int64), Body()
    first = body.integer("mul", lane, rows)
    source = body.integer("mul", lane, swaps)

    def number(inner: Body, k: KValue, carried: KValue) -> KValue:
        inner.store(1, inner.integer("add", first, k), k)
        return carried

    def exchange(inner: Body, k: KValue, carried: KValue) -> KValue:
        other = inner.one("load", int64, inner.integer("add", source, k), param=0)
        here, there = inner.integer("add", first, k), inner.integer("add", first, other)
        x, y = (inner.one("load", int64, place, param=1) for place in (here, there))
        inner.store(1, here, y)
        inner.store(1, there, x)
        return carried

    for trips, step in ((rows, number), (swaps, exchange)):
        body.fold(body.const(trips), body.const(0), step)
    params = (BufferParam(int64, 1, "read"), BufferParam(int64, 1, "write"))
    kernel = Kernel("exchanges", (1,), params, Block((lane,), body.ops))
    routine.by_lanes(kernel, count, *routine.inputs, *routine.outputs)


PROVIDERS: Final = (
    Provider("rows in memory of workgroups", _refuses, _make),
    Provider("rows in the result", lambda _: "", _make_in_result),
)
