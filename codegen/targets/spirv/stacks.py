"""push and pop: per-lane stacks in the heap, interleaved by invocation: [depth][invocation].

A push beyond the capacity isn't stored; the rows that would have been needed go to the control block (an
atomic maximum), and pops there read zeros, so that nothing that is computed from them runs away.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import KOp
from loopgrad.codegen.targets.spirv.assembly import Val
from loopgrad.codegen.targets.spirv.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.spirv.interface import NEEDED, OVERFLOW_LANE
from loopgrad.codegen.targets.spirv.memory_form import from_memory, to_memory


def address(e: Emitter, s: int, depth: Val) -> Val:
    row = e.b.inst("IMul", "i64", e.resize(depth, "i64", signed=False), e.resident)
    place = e.b.inst("IAdd", "i64", row, e.invocation)
    return e.at(e.stacks[s], place, SIZE[memory_type(e.kernel.stacks[s].dtype)])


def fits(e: Emitter, s: int, depth: Val) -> Val:
    return e.b.inst("ULessThan", "bool", depth, e.capacities[s])


def emit_push(e: Emitter, op: KOp) -> None:
    b, s = e.b, op.attrs["stack"]
    value = to_memory(e, e.get(op.operands[0]), e.kernel.stacks[s].dtype)
    depth = b.get(e.depths[s], "i32")
    deeper = b.inst("IAdd", "i32", depth, b.const("i32", 1))
    b.set(e.depths[s], deeper)

    def store() -> tuple[Val, ...]:
        e.poke(address(e, s, depth), value)
        return ()

    def overflow() -> tuple[Val, ...]:
        e.atomic("AtomicUMax", e.offset(e.control, NEEDED + 4 * s), deeper)
        e.poke(e.offset(e.control, OVERFLOW_LANE), e.lane)
        e.poke(e.void, b.const("i32", 1))
        return ()

    e.choose(fits(e, s, depth), store, overflow)


def emit_pop(e: Emitter, op: KOp) -> Val:
    b, s = e.b, op.attrs["stack"]
    dtype = e.kernel.stacks[s].dtype
    type = memory_type(dtype)
    depth = b.inst("ISub", "i32", b.get(e.depths[s], "i32"), b.const("i32", 1))
    b.set(e.depths[s], depth)
    (value,) = e.choose(fits(e, s, depth), lambda: (e.peek(address(e, s, depth), type),), lambda: (b.const(type, 0),))
    return from_memory(e, value, dtype)
