"""What all invocations of a workgroup do alike, because the first one says so in memory that they share."""

from __future__ import annotations

from collections.abc import Callable

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter


def shared_idle(e: Emitter) -> Val:
    """Whether this launch does nothing, the same for the whole workgroup: the word may change meanwhile."""
    return _of_first(e, lambda: e.b.load(e.reporting.void(e.b), "i32"))


def agreed(e: Emitter, condition: Val) -> Val:
    """What holds for the first invocation of the workgroup, to which all come."""
    return _of_first(e, lambda: e.select(condition, e.b.const("i32", 1), e.b.const("i32", 0)))


def _of_first(e: Emitter, word: Callable[[], Val]) -> Val:
    b = e.b
    flag, zero = b.shared("i32", 1), b.const("i32", 0)
    leader = b.inst("IEqual", "bool", b.local_id(), zero)
    e.when(leader, lambda: b.shared_set(flag, zero, word()))
    b.barrier()
    return b.inst("INotEqual", "bool", b.shared_get(flag, zero, "i32"), zero)
