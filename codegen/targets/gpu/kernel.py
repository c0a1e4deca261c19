"""One Kernel as the program of an invocation: prologue, the loop over its lanes or its workgroup's tiles, the body."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Final, NamedTuple

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp
from loopgrad.codegen.targets.gpu import control, elementwise, memory, stacks
from loopgrad.codegen.targets.gpu.accumulate import Accumulation
from loopgrad.codegen.targets.gpu.assembler import Assembler, Val
from loopgrad.codegen.targets.gpu.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.gpu.joined import Joined, emit_joined, joined
from loopgrad.codegen.targets.gpu.loops import emit_loop
from loopgrad.codegen.targets.gpu.measured_order import MeasuredOrder
from loopgrad.codegen.targets.gpu.memory import leave_contribution
from loopgrad.codegen.targets.gpu.order import TileOrder
from loopgrad.codegen.targets.gpu.plan import UNTILED, Plan, Tiles, batches, left_by
from loopgrad.codegen.targets.gpu.resume import Resume
from loopgrad.codegen.targets.gpu.short_rows import ShortRows
from loopgrad.codegen.targets.gpu.squares import emit_square
from loopgrad.codegen.targets.gpu.tiles import digits, emit_tile, shared_idle, short
from loopgrad.codegen.targets.gpu.trip_counts import trip_count

COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
VALUE: Final[dict[str, Callable[[Emitter, KOp], Val]]] = {
    "const": elementwise.emit_const,
    "cast": elementwise.emit_cast,
    "select": elementwise.emit_select,
    "is_nan": elementwise.emit_predicate,
    "is_inf": elementwise.emit_predicate,
    "signbit": elementwise.emit_predicate,
    "whole_power": elementwise.emit_whole_power,
    "alias": lambda e, op: e.get(op.operands[0]),
    "stop_gradient": lambda e, op: e.get(op.operands[0]),
    "load": memory.emit_load,
    "pop": stacks.emit_pop,
    **dict.fromkeys(COMPARISONS, elementwise.emit_compare),
}
EFFECT: Final[dict[str, Callable[[Emitter, KOp], None]]] = {
    "store": memory.emit_store,
    "accumulate": memory.emit_accumulate,
    "reduce": memory.emit_reduce,
    "push": stacks.emit_push,
    "check": control.emit_check,
}
REGION: Final[dict[str, Callable[[Emitter, KOp, control.EmitBlock], None]]] = {
    "for": control.emit_for,
    "while": control.emit_while,
    "if": control.emit_if,
}


def emit_block(e: Emitter, block: Block) -> tuple[Val, ...]:
    """The block's operations; its arguments are bound already."""
    for op in block.ops if e.b.usual_quotients is None else joined(block.ops):
        if isinstance(op, Joined):
            emit_joined(e, op, emit_block)
        elif op.opcode in REGION:
            REGION[op.opcode](e, op, emit_block)
        elif op.opcode in EFFECT:
            EFFECT[op.opcode](e, op)
        else:
            e.values[op.results[0]] = VALUE.get(op.opcode, elementwise.emit_elementwise)(e, op)
    return tuple([e.get(v) for v in block.yields])


def emit_kernel(kernel: Kernel, b: Assembler, fast: bool = False, plan: Plan = UNTILED) -> None:
    """The kernel's program, into `b`. Scratch blocks of the table: the reductions', then those of the
    parameters that have private copies, those of accumulators, then the state of a kernel that can be left."""
    e = Emitter(kernel, b, fast)
    e.ordered = plan.copies > 0
    blocks = batches(kernel, plan.tiles)
    e.places = reduction_places(kernel, plan.tiles, blocks)
    count = len(blocks) + len(plan.copied) + sum(a.blocks for a in plan.accumulators) + bool(plan.rows)
    words = prologue(e, count)
    e.contribute = partial(leave_contribution, e)
    for i, param in enumerate(plan.copied):
        described = kernel.params[param]
        size = described.size * SIZE[memory_type(described.dtype)]
        e.copies[param] = e.at(e.scratch[len(blocks) + i], e.invocation, size)
    block = len(blocks) + len(plan.copied)
    for acc in plan.accumulators:
        e.accumulations[acc.param] = Accumulation(e, acc, block)
        block += acc.blocks
    if plan.product is not None:
        unit = e.resize(b.group_id(), "i64", signed=False)
        stride(e, words, unit, shared_idle(e), partial(emit_square, e, plan.product))
    elif plan.rows:
        e.spilled = None  # it wouldn't know after a pause
        resume = Resume(e, e.scratch[count - 1], plan.rows)
        start = b.inst("IMul", "i64", e.invocation, words.across)
        again = partial(resume.lane, start=start, along=words.along, run=partial(emit_lane, e))
        stride(e, words, e.invocation, idle(e), again)
    elif plan.tiles is None:
        stride(e, words, e.invocation, idle(e), partial(emit_lane, e))
    else:
        emit_tiles(e, words, plan.tiles)


def reduction_places(kernel: Kernel, tiles: Tiles | None, blocks: list[list[int]]) -> list[tuple[int, int, int]]:
    """Of every reduction: its scratch block, its first element there, and how far from it its rest is."""
    places = [(0, 0, 0)] * len(kernel.reductions)
    for block, slots in enumerate(blocks):
        for i, slot in enumerate(slots):
            each = prod(left_by(kernel, tiles, kernel.reductions[slot]))
            places[slot] = (block, i * each, len(slots) * each)
    return places


def emit_body(kernel: Kernel, b: Assembler, body: Callable[[Emitter], None]) -> None:
    """A program with `kernel`'s table whose every invocation runs `body`."""
    e = Emitter(kernel, b)
    prologue(e, len(kernel.reductions))
    body(e)


class LaunchWords(NamedTuple):
    """See interface."""

    across: Val
    along: Val
    first: Val
    end: Val
    lanes: Val


def prologue(e: Emitter, scratch: int) -> LaunchWords:
    """Reads the launch's words and the table."""
    b = e.b
    table, *words = b.launch_words()
    e.invocation = e.resize(b.invocation(), "i64", signed=False)
    position = 0

    def next_word() -> Callable[[], Val]:
        nonlocal position
        place = 8 * position
        position += 1
        return lambda: b.load(e.offset(table, place), "i64", invariant=True)

    def word() -> Val:
        return next_word()()

    e.params = [word() for _ in e.kernel.params]
    e.scratch = [word() for _ in range(scratch)]
    e.control, e.void = next_word(), next_word()
    opaque = (e.resize(word(), "i32"), e.resize(word(), "i32"))
    e.resident = word()
    for slot in e.kernel.stacks:
        size = SIZE[memory_type(slot.dtype)]
        e.stacks.append(e.at(word(), e.invocation, size))
        e.rows.append(e.resize(b.inst("IMul", "i64", e.resident, b.const("i64", size)), "i32"))
        e.capacities.append(e.resize(word(), "i32"))
        e.depths.append(b.local("i32"))
    e.unknown_zero = opaque[1]
    if b.guarded:
        e.guards = opaque
    return LaunchWords(*words)


def idle(e: Emitter) -> Val:
    """Whether this launch does nothing."""
    return e.b.inst("INotEqual", "bool", e.b.load(e.void(), "i32"), e.b.const("i32", 0))


def stride(e: Emitter, words: LaunchWords, unit: Val, nothing: Val, body: Callable[[Val], object]) -> None:
    """body(the item at unit * across + p * along) for p in [first, end), while there is one."""
    b = e.b
    start = b.inst("IMul", "i64", unit, words.across)
    pass_number, item = b.local("i64"), b.local("i64")
    b.set(pass_number, words.first)
    b.set(item, b.inst("IAdd", "i64", start, b.inst("IMul", "i64", words.first, words.along)))
    end = e.select(nothing, words.first, words.end)

    def test() -> Val:
        inside = b.inst("SLessThan", "bool", b.get(item, "i64"), words.lanes)
        return e.both(inside, b.inst("SLessThan", "bool", b.get(pass_number, "i64"), end))

    def step() -> None:
        now = b.get(item, "i64")
        body(now)
        b.set(item, b.inst("IAdd", "i64", now, words.along))
        b.set(pass_number, b.inst("IAdd", "i64", b.get(pass_number, "i64"), b.const("i64", 1)))

    emit_loop(e, test, step)


def emit_lane(e: Emitter, lane: Val) -> None:
    e.lane = short(e, lane)
    e.restart()
    e.values.update(zip(e.kernel.body.arguments, digits(e, e.lane, e.kernel.domain), strict=True))
    emit_block(e, e.kernel.body)


def emit_tiles(e: Emitter, words: LaunchWords, tiles: Tiles) -> None:
    """The tiles of this workgroup."""
    b = e.b
    meets = tiles.sorted or tiles.partials
    nothing = shared_idle(e) if meets else idle(e)
    unit = e.resize(b.group_id(), "i64", signed=False)
    if tiles.sorted:
        trips = trip_count(e.kernel) if tiles.measured else None
        order = TileOrder(e, tiles) if trips is None else MeasuredOrder(e, tiles, trips)
        stride(e, words, unit, nothing, lambda number: order.emit_tile(number, emit_block))
    elif tiles.row_length:
        short_rows = ShortRows(e, tiles)
        stride(e, words, unit, nothing, lambda number: short_rows.fold(emit_tile(e, tiles, number, emit_block)))
    else:
        stride(e, words, unit, nothing, lambda number: emit_tile(e, tiles, number, emit_block))
