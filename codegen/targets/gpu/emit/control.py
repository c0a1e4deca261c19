"""for, while, if: regions of the Kernel IR one to one as structured branches; failed checks.

Carried values live in local variables; compilers build SSA form from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, KOp, KValue
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import emit_loop
from loopgrad.codegen.targets.gpu.emit.stacks import most_trips, popping, pushing
from loopgrad.codegen.targets.gpu.interface import ERROR_CODE, ERROR_DETAIL, ERROR_LANE
from loopgrad.graph.types import int32, int64

MOST_REPEATED: Final = 32  # operations of a trip
EmitBlock = Callable[[Emitter, Block], tuple[Val, ...]]


class Carried:
    """The carries of one loop, each in a variable."""

    def __init__(self, e: Emitter, inits: Sequence[KValue]) -> None:
        self.e = e
        values = [e.get(v) for v in inits]
        self.types = [v.type for v in values]
        self.variables = [e.b.local(v.type) for v in values]
        self.assign(values)

    def assign(self, values: Sequence[Val]) -> None:
        for variable, value in zip(self.variables, values, strict=True):
            self.e.b.set(variable, value)

    def bind(self, targets: Sequence[KValue]) -> None:
        for target, variable, type in zip(targets, self.variables, self.types, strict=True):
            self.e.values[target] = self.e.b.get(variable, type)


def emit_for(e: Emitter, op: KOp, emit_block: EmitBlock) -> None:
    count, endless = bounded(e, op)
    with popping(e, op, count) as trips, pushing(e, op, lambda: endless):
        count_up(e, op, trips, emit_block)


def bounded(e: Emitter, op: KOp) -> tuple[Val, Val | None]:
    """The loop's count, or none where it would push more rows than can be counted; and whether it would."""
    count, most = e.get(op.operands[0]), most_trips(e, op)
    if most is None or e.ranges.of(op.operands[0])[1] <= most:
        return count, None
    endless = e.b.inst("SLessThan", "bool", e.b.const(count.type, most), count)
    return e.select(endless, e.b.const(count.type, 0), count), endless


def count_up(e: Emitter, op: KOp, count: Val, emit_block: EmitBlock) -> None:
    """The loop with this many trips."""
    b, block = e.b, op.blocks[0]
    carried = Carried(e, op.operands[1:])
    trip = b.local(count.type)
    b.set(trip, b.const(count.type, 0))
    pause = e.continuation.enter(e, [*carried.variables, trip], [*carried.types, count.type])

    def number(value: int) -> Val:
        return b.const(count.type, value)

    def below(end: Val) -> Val:
        return b.inst("SLessThan", "bool", b.get(trip, count.type), end)

    def body(trips: int) -> None:
        pause()
        now = b.get(trip, count.type)
        carried.bind(block.arguments[1:])
        for k in range(trips):
            index = b.inst("IAdd", count.type, now, number(k)) if k else now
            if op.attrs["reverse"]:
                index = b.inst("ISub", count.type, b.inst("ISub", count.type, count, number(1)), index)
            e.values[block.arguments[0]] = index
            results = emit_block(e, block)
            e.values.update(zip(block.arguments[1:], results, strict=True))
        carried.assign(results)
        b.set(trip, b.inst("IAdd", count.type, now, number(trips)))

    several = b.trips_at_once if short_pops(e, op) else 1
    if several > 1:
        natural = e.select(b.inst("SLessThan", "bool", count, number(0)), number(0), count)
        last = b.inst("ISub", count.type, natural, number(several - 1))
        emit_loop(e, partial(below, last), partial(body, several))
    emit_loop(e, partial(below, count), partial(body, 1))
    carried.bind(op.results)


def short_pops(e: Emitter, op: KOp) -> bool:
    """Whether the loop's body is short, has no branches, and pops what is known to be there."""
    ops = op.blocks[0].ops
    popped = {x.attrs["stack"] for x in ops if x.opcode == "pop"}
    plain = all(not x.blocks and x.opcode not in ("push", "check") for x in ops)
    return plain and bool(popped) and popped <= e.stacks.sure and len(ops) <= MOST_REPEATED


def emit_while(e: Emitter, op: KOp, emit_block: EmitBlock) -> None:
    b = e.b
    condition, body = op.blocks
    carried = Carried(e, op.operands)
    limit = op.attrs.get("max_steps")
    trips = b.local("i64")
    b.set(trips, b.const("i64", 0))
    pause = e.continuation.enter(e, [*carried.variables, trips], [*carried.types, "i64"])

    most = most_trips(e, op)
    if most is not None and limit is not None and limit <= most:
        most = None
    position = None if most is None else counting_carry(op)
    own = limit is not None or (most is not None and position is None)  # trips are counted here

    def below() -> Val:
        """Whether a loop that pushes made fewer trips than it may."""
        assert most is not None
        if position is None:
            return b.inst("SLessThan", "bool", b.get(trips, "i64"), b.const("i64", most))
        type = carried.types[position]
        return b.inst("SLessThan", "bool", b.get(carried.variables[position], type), b.const(type, most))

    def endless() -> Val | None:
        return None if most is None else b.inst("LogicalNot", "bool", below())

    def test() -> Val:
        carried.bind(condition.arguments)
        (go,) = emit_block(e, condition)
        if most is not None:
            go = e.both(go, below())
        failed = e.reporting.failed
        if failed is not None:  # what is computed from a clamped index may never end
            go = e.both(go, b.inst("LogicalNot", "bool", b.get(failed, "bool")))
        if limit is None:
            return go
        made = b.get(trips, "i64")
        allowed = b.inst("SLessThan", "bool", made, b.const("i64", limit))
        over = e.both(go, b.inst("LogicalNot", "bool", allowed))
        e.when(over, lambda: report(e, op.attrs["error"], made))
        return e.both(go, allowed)

    def step() -> None:
        pause()
        carried.bind(body.arguments)
        carried.assign(emit_block(e, body))
        if own:
            b.set(trips, b.inst("IAdd", "i64", b.get(trips, "i64"), b.const("i64", 1)))

    with pushing(e, op, endless):
        emit_loop(e, test, step)
    carried.bind(op.results)


def counting_carry(op: KOp) -> int | None:
    """Which carry of a `while` counts its trips from 0, if one does."""
    body = op.blocks[1]
    for i, (init, argument, result) in enumerate(zip(op.operands, body.arguments, body.yields, strict=True)):
        step = result.op
        if argument.dtype in (int32, int64) and constant(init) == 0 and step is not None and step.opcode == "add":
            x, y = step.operands
            if (x is argument and constant(y) == 1) or (y is argument and constant(x) == 1):
                return i
    return None


def constant(value: KValue) -> int | None:
    """The integer that a constant is."""
    return None if value.op is None or value.op.opcode != "const" else int(value.op.attrs["value"])


def emit_if(e: Emitter, op: KOp, emit_block: EmitBlock) -> None:
    then, other = op.blocks
    results = e.choose(e.get(op.operands[0]), lambda: emit_block(e, then), lambda: emit_block(e, other))
    e.values.update(zip(op.results, results, strict=True))


def emit_check(e: Emitter, op: KOp) -> None:
    ok, detail = (e.get(v) for v in op.operands)
    e.when(e.b.inst("LogicalNot", "bool", ok), lambda: report(e, op.attrs["error"], detail))


def report(e: Emitter, site: int, detail: Val) -> None:
    """The first failure wins the control block, and ends the lane's loops on values."""
    b = e.b
    for flag in (e.reporting.failed, e.stacks.spilled):  # a loop that ends early leaves less to pop
        if flag is not None:
            b.set(flag, b.const("bool", True))
    place = e.reporting.control(b, ERROR_CODE)
    before = b.compare_exchange(place, b.const("i32", 0), b.const("i32", site + 1))

    def describe() -> None:
        b.store(e.reporting.control(b, ERROR_LANE), e.lane)
        b.store(e.reporting.control(b, ERROR_DETAIL), e.resize(detail, "i64"))

    e.when(b.inst("IEqual", "bool", before, b.const("i32", 0)), describe)
