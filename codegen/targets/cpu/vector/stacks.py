"""push and pop: per-lane stacks in this worker's heap, rows of all lanes in flight.

Lanes move in lockstep, so the depth is one scalar per stack: push at lockstep iteration k fills row k (lanes
that are inactive leave anything there), and the mirrored reverse loop pops rows in the opposite order.
Push and pop are then plain vector stores and loads. A bool takes one bit.

Few counters live in registers. Many don't fit there, and LLVM's strength reduction takes minutes over loops with that
many induction variables: their loads and stores are volatile, so they stay in memory and are none.

A row beyond capacity isn't stored; its number goes to `needed`, and pops there read zeros. Where so many rows can't be
had, the kernel is told to stop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, KOp, StackSlot
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter
from loopgrad.codegen.targets.cpu.vector.control import first_lane
from loopgrad.codegen.targets.cpu.vector.interruption import context
from loopgrad.codegen.targets.cpu.vector.lanes import LaneLayout
from loopgrad.codegen.targets.cpu.vector.outline import overflow_function
from loopgrad.codegen.targets.cpu.vector.vectors import Vector, llvm_type
from loopgrad.graph.types import DType

MOST_IN_REGISTERS: Final = 15  # counters: an x86 processor has 16 general registers


def vector_bytes(dtype: DType, width: int) -> int:
    """Bytes of one vector in a row."""
    return max(width // 8, 1) if dtype.kind == "b" else width * dtype.itemsize


def row_bytes(dtype: DType, layout: LaneLayout) -> int:
    return vector_bytes(dtype, layout.width) * layout.groups


def depth_bytes(slot: StackSlot, layout: LaneLayout) -> int:
    """Bytes of one unit of depth."""
    return row_bytes(slot.dtype, layout) * slot.elements


def declare_stacks(e: VectorEmitter) -> None:
    """Entry-block addresses, capacities and depth counters of every stack."""
    if not e.kernel.stacks:
        return
    lines, count = e.entry, len(e.kernel.stacks)
    lines.append("  %heap = load ptr, ptr %worker")
    previous = "%heap"
    for s, slot in enumerate(e.kernel.stacks):
        row = row_bytes(slot.dtype, e.layout)
        lines.append(f"  %capacity.at.{s} = getelementptr i64, ptr %control, i64 {s}")
        lines.append(f"  %rows.{s} = load i64, ptr %capacity.at.{s}, !invariant.load !1")
        lines.append(f"  %capacity.{s} = mul i64 %rows.{s}, {slot.elements}")
        lines.append(f"  %needed.{s} = getelementptr i64, ptr %control, i64 {count + s}")
        lines.append(f"  %stack.{s} = getelementptr i8, ptr {previous}, i64 0")
        lines.append(f"  %bytes.{s} = mul i64 %capacity.{s}, {row}")
        lines.append(f"  %padded.{s} = add i64 %bytes.{s}, 63")
        lines.append(f"  %whole.{s} = and i64 %padded.{s}, -64")
        lines.append(f"  %after.{s} = getelementptr i8, ptr %stack.{s}, i64 %whole.{s}")
        lines.append(f"  %depth.{s} = alloca i64")
        previous = f"%after.{s}"
    longest = max(row_bytes(slot.dtype, e.layout) for slot in e.kernel.stacks)
    lines.append(f"  %zeros = alloca [{longest} x i8], align 64")
    lines.append(f"  call void @llvm.memset.p0.i64(ptr align 64 %zeros, i8 0, i64 {longest}, i1 false)")
    lines.append(f"  %overflow.lane = getelementptr i64, ptr %control, i64 {2 * count}")


def row_sums(e: VectorEmitter) -> dict[int, int]:
    """Bytes of a row of each stack and of those that are pushed wherever it is pushed, and so as deep."""
    if e.row_sums is None:
        together = list(_pushes(e.kernel.body))
        times = Counter(s for stacks in together for s in stacks)
        size = {s: depth_bytes(e.kernel.stacks[s], e.layout) for s in times}
        e.row_sums = dict(size)
        for stacks in together:
            once = [s for s in stacks if times[s] == 1]
            e.row_sums.update(dict.fromkeys(once, sum([size[s] for s in once])))
    return e.row_sums


def _pushes(block: Block) -> Iterator[list[int]]:
    """The stacks pushed by the operations of each block."""
    yield [op.attrs["stack"] for op in block.ops if op.opcode == "push"]
    for op in block.ops:
        for inner in op.blocks:
            yield from _pushes(inner)


def reset_stacks(e: VectorEmitter) -> None:
    """Before each group of lanes: empty."""
    for s in range(len(e.kernel.stacks)):
        _set_depth(e, s, "0")


def _depth(e: VectorEmitter, s: int) -> Vector:
    return e.b.scalar("i64", f"load {_volatile(e)}i64, ptr %depth.{s}")


def _set_depth(e: VectorEmitter, s: int, depth: str) -> None:
    e.b.line(f"store {_volatile(e)}i64 {depth}, ptr %depth.{s}")


def _volatile(e: VectorEmitter) -> str:
    return "volatile " if len(e.kernel.stacks) > MOST_IN_REGISTERS else ""


def emit_push(e: VectorEmitter, op: KOp) -> None:
    b, s = e.b, op.attrs["stack"]
    dtype = e.kernel.stacks[s].dtype
    value = b.vector(e.wide(op.operands[0]))
    depth = _depth(e, s)
    deeper = b.scalar("i64", f"add nuw nsw i64 {depth.name}, 1")
    _set_depth(e, s, deeper.name)
    fits = b.scalar("i1", f"icmp ult i64 {depth.name}, %capacity.{s}")
    put, over, done = b.fresh_label("put"), b.fresh_label("over"), b.fresh_label("pushed")
    b.branch(fits.name, put, over)
    b.start(put)
    with b.scope():
        row = address(e, s, depth)
        for u, name in enumerate(value.names):
            store_lane_vector(e, row, u, dtype, name)
    b.jump(done)
    b.start(over)
    with b.scope():
        b.outlined.setdefault("lg.overflow", overflow_function)
        lane = b.const("i64", 0) if e.layout.single else first_lane(e, e.mask, [e.row_lane()])[0]
        rows, elements = deeper, e.kernel.stacks[s].elements
        if elements > 1:
            rows = b.scalar("i64", f"add nuw nsw i64 {deeper.name}, {elements - 1}")
            rows = b.scalar("i64", f"udiv i64 {rows.name}, {elements}")
        b.line(
            f"call void @lg.overflow(ptr %needed.{s}, i64 {rows.name}, ptr %overflow.lane, i64 {lane.name}, "
            f"i64 {row_sums(e)[s]}, ptr {context(e)})"
        )
    b.jump(done)
    b.start(done)


def address(e: VectorEmitter, s: int, row: Vector) -> str:
    size = row_bytes(e.kernel.stacks[s].dtype, e.layout)
    offset = e.b.scalar("i64", f"mul nuw nsw i64 {row.name}, {size}")
    return e.b.scalar("ptr", f"getelementptr inbounds i8, ptr %stack.{s}, i64 {offset.name}").name


def part(e: VectorEmitter, row: str, u: int, dtype: DType) -> str:
    if not u:
        return row
    return e.b.scalar(
        "ptr", f"getelementptr inbounds i8, ptr {row}, i64 {u * vector_bytes(dtype, e.layout.width)}"
    ).name


def store_lane_vector(e: VectorEmitter, row: str, u: int, dtype: DType, name: str) -> None:
    b, width = e.b, e.layout.width
    at = part(e, row, u, dtype)
    if dtype.kind != "b":
        align = min(vector_bytes(dtype, width), 64)
        b.line(f"store {b.vector_type(llvm_type(dtype))} {name}, ptr {at}, align {align}")
        return
    bits = b.scalar(f"i{width}", f"bitcast {b.vector_type('i1')} {name} to i{width}")
    if width < 8:
        bits = b.scalar("i8", f"zext i{width} {bits.name} to i8")
    b.line(f"store {bits.type} {bits.name}, ptr {at}, align 1")


def emit_pop(e: VectorEmitter, op: KOp) -> Vector:
    b, s = e.b, op.attrs["stack"]
    dtype = e.kernel.stacks[s].dtype
    depth = _depth(e, s)
    row = b.scalar("i64", f"add nsw i64 {depth.name}, -1")
    _set_depth(e, s, row.name)
    fits = b.scalar("i1", f"icmp ult i64 {row.name}, %capacity.{s}")
    inside = address(e, s, row)
    at = b.scalar("ptr", f"select i1 {fits.name}, ptr {inside}, ptr %zeros").name
    names = [load_lane_vector(e, at, u, dtype) for u in range(b.groups)]
    popped = Vector(llvm_type(dtype), tuple(names), False)
    if not e.layout.single:
        return popped
    return b.scalar(popped.type, f"extractelement {b.vector_type(popped.type)} {popped.names[0]}, i64 0")


def load_lane_vector(e: VectorEmitter, row: str, u: int, dtype: DType) -> str:
    b, width = e.b, e.layout.width
    at = part(e, row, u, dtype)
    if dtype.kind != "b":
        vt = b.vector_type(llvm_type(dtype))
        return b.scalar(vt, f"load {vt}, ptr {at}, align {min(vector_bytes(dtype, width), 64)}").name
    bits = b.scalar(f"i{max(width, 8)}", f"load i{max(width, 8)}, ptr {at}, align 1")
    if width < 8:
        bits = b.scalar(f"i{width}", f"trunc i8 {bits.name} to i{width}")
    return b.scalar("mask", f"bitcast i{width} {bits.name} to {b.vector_type('i1')}").name
