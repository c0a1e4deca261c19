"""One Kernel as the program of an invocation: prologue, the loop over its lanes or its workgroup's tiles, the body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import prod
from typing import Final, NamedTuple

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp
from loopgrad.codegen.scalar.elementwise import FLOAT_ORDER, PREDICATES
from loopgrad.codegen.targets.gpu.assembler import Assembler, Val
from loopgrad.codegen.targets.gpu.emit import arrays, control, elementwise, memory, stacks
from loopgrad.codegen.targets.gpu.emit.context import (
    SIZE,
    Accumulation,
    Emitter,
    KernelTable,
    LaneStack,
    LaneStacks,
    LoopGuards,
    Reporting,
    SharedParams,
    memory_type,
)
from loopgrad.codegen.targets.gpu.emit.group_table import HeldTable
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions
from loopgrad.codegen.targets.gpu.emit.joint_quotients import JointQuotients, emit_joined, with_joint_quotients
from loopgrad.codegen.targets.gpu.emit.loops import emit_loop
from loopgrad.codegen.targets.gpu.emit.memory import LeftInScratch
from loopgrad.codegen.targets.gpu.emit.own_arrays import HeldArrays
from loopgrad.codegen.targets.gpu.emit.resume import Resume
from loopgrad.codegen.targets.gpu.emit.window_sum import HeldSample
from loopgrad.codegen.targets.gpu.lanes.analysis import straight
from loopgrad.codegen.targets.gpu.lanes.box_tiles import BoxTiles
from loopgrad.codegen.targets.gpu.lanes.held_rows import RegisterRows
from loopgrad.codegen.targets.gpu.lanes.interleaved import touches_in_turns
from loopgrad.codegen.targets.gpu.lanes.matrix_plan import MatrixProduct
from loopgrad.codegen.targets.gpu.lanes.matrix_rectangles import emit_matrix_rectangle
from loopgrad.codegen.targets.gpu.lanes.measured_order import MeasuredOrder
from loopgrad.codegen.targets.gpu.lanes.order import LaneOrder
from loopgrad.codegen.targets.gpu.lanes.plan import UNTILED, LaneMapping, Tiles, batches, left_by
from loopgrad.codegen.targets.gpu.lanes.product_plan import Product
from loopgrad.codegen.targets.gpu.lanes.product_results import FinishedProduct, StoredProduct
from loopgrad.codegen.targets.gpu.lanes.product_tiles import emit_rectangle
from loopgrad.codegen.targets.gpu.lanes.running_totals import RunningTotals
from loopgrad.codegen.targets.gpu.lanes.shared_flags import agreed, shared_idle
from loopgrad.codegen.targets.gpu.lanes.short_rows import ShortRows
from loopgrad.codegen.targets.gpu.lanes.stage_arrays import StageArrays, barriers
from loopgrad.codegen.targets.gpu.lanes.stage_tiles import reduces_rows
from loopgrad.codegen.targets.gpu.lanes.tiles import digits, emit_tile, emit_together, short
from loopgrad.codegen.targets.gpu.lanes.trip_counts import trip_count

VALUE: Final[dict[str, Callable[[Emitter, KOp], Val]]] = {
    "const": elementwise.emit_const,
    "cast": elementwise.emit_cast,
    "bitcast": elementwise.emit_bitcast,
    "select": elementwise.emit_select,
    "whole_power": elementwise.emit_whole_power,
    "alias": lambda e, op: e.get(op.operands[0]),
    "stop_gradient": lambda e, op: e.get(op.operands[0]),
    "load": memory.emit_load,
    "pop": stacks.emit_pop,
    "array_load": arrays.emit_array_load,
    **dict.fromkeys(FLOAT_ORDER, elementwise.emit_compare),
    **dict.fromkeys(PREDICATES, elementwise.emit_predicate),
}
EFFECT: Final[dict[str, Callable[[Emitter, KOp], None]]] = {
    "store": memory.emit_store,
    "accumulate": memory.emit_accumulate,
    "reduce": memory.emit_reduce,
    "scan": memory.emit_scan,
    "push": stacks.emit_push,
    "array_store": arrays.emit_array_store,
    "check": control.emit_check,
}
REGION: Final[dict[str, Callable[[Emitter, KOp, control.EmitBlock], None]]] = {
    "for": control.emit_for,
    "while": control.emit_while,
    "if": control.emit_if,
}


def emit_block(e: Emitter, block: Block) -> tuple[Val, ...]:
    """The block's operations; its arguments are bound already."""
    for op in with_joint_quotients(block.ops, e.b.shared_quotients):
        if isinstance(op, JointQuotients):
            emit_joined(e, op, [e.values], lambda inner: emit_block(e, Block((), [inner])))
        elif op.opcode in REGION:
            REGION[op.opcode](e, op, emit_block)
        elif op.opcode in EFFECT:
            EFFECT[op.opcode](e, op)
        else:
            e.values[op.results[0]] = VALUE.get(op.opcode, elementwise.emit_elementwise)(e, op)
    return tuple([e.get(v) for v in block.yields])


def emit_kernel(kernel: Kernel, b: Assembler, fast: bool = False, plan: LaneMapping = UNTILED) -> None:
    """The kernel's program, into `b`. Scratch blocks of the table: the reductions', then those of the
    parameters that have private copies, those of accumulators, then the state of a kernel that can be left, or the
    arrays of lanes that are held there."""
    if kernel.stages:
        emit_stages(kernel, b, fast, plan)
        return
    blocks = batches(kernel, plan.tiles)
    scratch = len(blocks) + len(plan.copied) + sum(a.blocks for a in plan.accumulators) + bool(plan.resumable)
    scratch += plan.running is not None and plan.running.spans > 1
    scratch += bool(plan.held)
    start = prologue(kernel, b, scratch)
    table = replace(start.table, partials=reduction_places(kernel, plan.tiles, blocks))
    shared, resume = shared_params(kernel, b, plan, table, len(blocks)), None
    if plan.resumable:
        start.stacks.spilled = None  # it wouldn't know after a pause
        resume = Resume(kernel, b, table, start.stacks, plan.resumable)
    e = Emitter(
        kernel,
        b,
        fast,
        table=table,
        reporting=start.reporting,
        stacks=start.stacks,
        guards=start.guards,
        shared=shared,
        contribution=LeftInScratch(),
        continuation=resume,
        held=HeldArrays(b, table.scratch[-1], table.invocation, plan.held) if plan.held else None,
    )
    words, invocation = start.words, table.invocation
    if plan.program is not None:
        unit = e.resize(b.group_id(), "i64", signed=False)
        stride(e, words, unit, shared_idle(e), partial(plan.program.emit, e))
    elif plan.product is not None:
        unit = e.resize(b.group_id(), "i64", signed=False)
        results = StoredProduct() if plan.epilogue is None else FinishedProduct(e, plan.epilogue.stored, emit_block)
        stride(e, words, unit, shared_idle(e), rectangles(e, plan.product, results))
    elif plan.running is not None:
        unit, totals = e.resize(b.group_id(), "i64", signed=False), RunningTotals(e, plan.running, emit_block)
        stride(e, words, unit, shared_idle(e), totals.emit)
    elif plan.boxes is not None:
        unit = e.resize(b.group_id(), "i64", signed=False)
        stride(e, words, unit, shared_idle(e), BoxTiles(e, plan.boxes, emit_block).emit_box)
    elif resume is not None:
        first = b.inst("IMul", "i64", invocation, words.across)
        again = partial(resume.lane, e, start=first, along=words.along, run=partial(emit_lane, e))
        stride(e, words, invocation, idle(e), again)
    elif plan.tiles is None:
        stride(e, words, invocation, idle(e), partial(emit_lane, e))
    else:
        emit_tiles(e, words, plan.tiles)


def rectangles(e: Emitter, product: Product | MatrixProduct, results: StoredProduct) -> Callable[[Val], None]:
    """What makes one of them, by its number."""
    if isinstance(product, MatrixProduct):
        return partial(emit_matrix_rectangle, e, product, results)
    return partial(emit_rectangle, e, product, results)


def emit_stages(kernel: Kernel, b: Assembler, fast: bool, plan: LaneMapping) -> None:
    """Each tile of rows through all stages, with a barrier after each whose results others may read next."""
    assert plan.tiles is not None
    blocks = batches(kernel, plan.tiles)
    start, places = prologue(kernel, b, len(blocks)), reduction_places(kernel, plan.tiles, blocks)
    first = Emitter(kernel, b, fast, table=start.table, reporting=start.reporting)
    unit, tables = first.resize(b.group_id(), "i64", signed=False), stage_tables(kernel, start.table, places)
    if plan.members is not None:
        rows = RegisterRows(first, plan, tables, emit_block)
        stride(first, start.words, unit, shared_idle(first), rows.emit)
        return
    arrays = StageArrays(first, kernel, plan)
    stages = []
    for stage, tiles, table in zip(kernel.stages, plan.stages, tables, strict=True):
        e = Emitter(stage, b, fast, table=table, reporting=start.reporting, arrays=arrays.of(stage))
        stages.append((e, tiles, ShortRows(e, tiles) if tiles.row_length else None))
    meets = barriers(kernel, plan)

    def run(number: Val) -> None:
        for (e, tiles, rows), barrier in zip(stages, meets, strict=True):
            with nullcontext() if rows is None else e.contributing(rows):
                tile = emit_tile(e, tiles, number, emit_block)
            if rows is not None:
                rows.fold(tile)
            if barrier:
                b.barrier()

    stride(first, start.words, unit, shared_idle(first), run)


def stage_tables(kernel: Kernel, table: KernelTable, places: Sequence[tuple[int, int, int]]) -> list[KernelTable]:
    """The table as each stage sees it. `places`: of what the kernel leaves of reductions of all rows, stage by
    stage."""
    found, left = list[KernelTable](), 0
    for stage in kernel.stages:
        found.append(replace(table, partials=places[left:]))
        left += 0 if reduces_rows(stage, kernel.domain[0]) else len(stage.reductions)
    return found


def shared_params(kernel: Kernel, b: Assembler, plan: LaneMapping, table: KernelTable, block: int) -> SharedParams:
    """How lanes write parameters that others write too; their scratch blocks begin at `block`."""
    copies: dict[int, Val] = {}
    accumulations: dict[int, tuple[Accumulation, int]] = {}
    for i, param in enumerate(plan.copied):
        described = kernel.params[param]
        size = described.size * SIZE[memory_type(described.dtype)]
        copies[param] = Instructions(b).at(table.scratch[block + i], table.invocation, size)
    block += len(plan.copied)
    for acc in plan.accumulators:
        accumulations[acc.param] = (acc.begun(kernel, Instructions(b), table.scratch, block), block)
        block += acc.blocks
    return SharedParams(plan.copies > 0, copies, accumulations)


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
    start = prologue(kernel, b, len(kernel.reductions))
    body(Emitter(kernel, b, table=start.table, reporting=start.reporting, stacks=start.stacks, guards=start.guards))


class LaunchWords(NamedTuple):
    """See interface."""

    across: Val
    along: Val
    first: Val
    end: Val
    lanes: Val


@dataclass(frozen=True, slots=True)
class Prologue:
    """What every invocation reads first."""

    words: LaunchWords
    table: KernelTable
    reporting: Reporting
    stacks: LaneStacks
    guards: LoopGuards


def prologue(kernel: Kernel, b: Assembler, scratch: int) -> Prologue:
    """Reads the launch's words and the table, which has so many scratch blocks."""
    i = Instructions(b)
    failed = b.local("bool") if kernel.errors else None
    spilled = b.local("bool") if kernel.stacks else None
    table, *words = b.launch_words()
    invocation = i.resize(b.invocation(), "i64", signed=False)
    positions = count()

    def word() -> Val:
        return b.load(i.offset(table, 8 * next(positions)), "i64", invariant=True)

    params = [word() for _ in kernel.params]
    blocks = [word() for _ in range(scratch)]
    control, _ = next(positions), next(positions)
    opaque = (i.resize(word(), "i32"), i.resize(word(), "i32"))
    resident = word()
    stacks = []
    for slot in kernel.stacks:
        size = SIZE[memory_type(slot.dtype)]
        base = i.at(word(), invocation, size)
        pitch = i.resize(b.inst("IMul", "i64", resident, b.const("i64", size)), "i32")
        capacity = i.resize(word(), "i32")
        if slot.elements > 1:
            capacity = b.inst("IMul", "i32", capacity, b.const("i32", slot.elements))
        stacks.append(LaneStack(base, pitch, capacity, b.local("i32")))
    return Prologue(
        LaunchWords(*words),
        KernelTable(params, blocks, (), invocation, opaque[1]),
        Reporting(table, control, failed),
        LaneStacks(stacks, spilled),
        LoopGuards(opaque if b.guarded else None),
    )


def idle(e: Emitter) -> Val:
    """Whether this launch does nothing."""
    return e.b.inst("INotEqual", "bool", e.b.load(e.reporting.void(e.b), "i32"), e.b.const("i32", 0))


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
    def enter() -> None:
        e.lane = short(e, lane)
        e.restart()
        e.values.update(zip(e.kernel.body.arguments, digits(e, e.lane, e.kernel.domain), strict=True))

    if straight(e.kernel) and touches_in_turns(e.kernel):
        emit_together(e, [enter], e.kernel.body, emit_block)
    else:
        enter()
        emit_block(e, e.kernel.body)


def emit_tiles(e: Emitter, words: LaunchWords, tiles: Tiles) -> None:
    """The tiles of this workgroup."""
    b = e.b
    tables = [held for held, _ in e.shared.accumulations.values() if isinstance(held, HeldTable | HeldSample)]
    meets = tiles.sorted or tiles.partials or tables
    nothing = shared_idle(e) if meets else idle(e)
    for acc, block in e.shared.accumulations.values():
        if (unneeded := acc.idle(e, block)) is not None:
            nothing = e.either(nothing, unneeded)
    if tiles.convergent:
        nothing = agreed(e, nothing)
    unit = e.resize(b.group_id(), "i64", signed=False)
    if tiles.sorted:
        trips = trip_count(e.kernel) if tiles.measured else None
        order = LaneOrder(e, tiles) if trips is None else MeasuredOrder(e, tiles, trips)
        stride(e, words, unit, nothing, lambda number: order.emit_tile(number, emit_block))
    elif tiles.row_length:
        rows = ShortRows(e, tiles)
        with e.contributing(rows):
            stride(e, words, unit, nothing, lambda number: rows.fold(emit_tile(e, tiles, number, emit_block)))
    elif tables:
        stride(e, words, unit, nothing, partial(emit_with_tables, e, tiles, tables))
    else:
        stride(e, words, unit, nothing, lambda number: emit_tile(e, tiles, number, emit_block))


def emit_with_tables(e: Emitter, tiles: Tiles, tables: Sequence[HeldTable | HeldSample], number: Val) -> None:
    """A tile whose lanes add to tables of the workgroup."""
    for table in tables:
        table.clear(e)
    e.b.barrier()
    emit_tile(e, tiles, number, emit_block)
    e.b.barrier()
    for table in tables:
        table.flush(e)
    e.b.barrier()
