"""One structured loop: the condition is tested at the header (drivers get rotated divergent loops wrong).

A driver may stop a loop silently (lavapipe after 65,535 iterations). Where the target says so, each loop
leaves its last condition in a cell whose index the compiler can't know, and looks there after the exit:
a condition that still holds sets the word `truncated` of the control block, and the runtime raises.
"""

from __future__ import annotations

from collections.abc import Callable

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.interface import TRUNCATED


def emit_loop(e: Emitter, test: Callable[[], Val], body: Callable[[], None]) -> None:
    """while test(): body()."""
    b = e.b
    head, check, inside, again, after = (b.block() for _ in range(5))
    guard = None if e.guards.zeros is None else e.guards.count
    e.guards.count += 1
    b.jump(head)
    b.start(head)
    b.loop_merge(after, again)
    b.jump(check)
    b.start(check)
    with e.nested():
        go = test()
        if guard is not None:
            b.guard_set(guard_cell(e, guard, 0), e.select(go, b.const("i32", 1), b.const("i32", 0)))
        b.branch(go, inside, after)
        b.start(inside)
        e.continuation.tick(e)
        body()
        b.jump(again)
        b.start(again)
        b.jump(head)
    b.start(after)
    if guard is not None:
        last = b.guard_get(guard_cell(e, guard, 1))
        stopped = b.inst("INotEqual", "bool", last, b.const("i32", 0))
        e.when(stopped, lambda: b.store(e.reporting.control(b, TRUNCATED), b.const("i32", 1)))


def guard_cell(e: Emitter, number: int, side: int) -> Val:
    """The index of a loop's guard; writer and reader use indices that only the run knows are equal."""
    assert e.guards.zeros is not None
    return e.b.inst("IAdd", "i32", e.guards.zeros[side], e.b.const("i32", number))


def counted(e: Emitter, count: Val, body: Callable[[Val], None]) -> None:
    """body(k) for k in [0, count). Of one trip no loop is made: compilers would take out of it what is rare there,
    since it doesn't change from trip to trip (two powers take 1.5 times as long on an H200)."""
    b = e.b
    if b.is_constant(count) and count.id == b.const(count.type, 1).id:
        body(b.const(count.type, 0))
        return
    k = b.local(count.type)
    b.set(k, b.const(count.type, 0))

    def step() -> None:
        now = b.get(k, count.type)
        body(now)
        b.set(k, b.inst("IAdd", count.type, now, b.const(count.type, 1)))

    emit_loop(e, lambda: b.inst("SLessThan", "bool", b.get(k, count.type), count), step)
