"""Reductions of lanes shard by shard, in the order of `graph.primitives.shards`: whatever else the kernel does, however
many lanes move together, and in which order these are sorted.

    chunk { part { block { groups of lanes { body } } } }    finish { parts of each shard }

Where as many lanes move together as are combined at once, or half of them, and in their order, they are added to the
columns of their part as they come (`direct`), halves by pairs. Elsewhere what lanes contribute waits in the frame, at
the places of the lanes, and a function combines a block of them: into the columns of a part, or to several parts,
where these are short.
"""

from __future__ import annotations

from functools import partial

from loopgrad.codegen.kernel.nodes import Kernel, Reduction
from loopgrad.codegen.math.compensated import rounded
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter, memory_type
from loopgrad.codegen.targets.cpu.vector.lanes import LaneLayout, ShardLayout, is_direct, row_width
from loopgrad.codegen.targets.cpu.vector.memory import element, scatter, store_vector
from loopgrad.codegen.targets.cpu.vector.recipes import VectorOps, VectorScope
from loopgrad.codegen.targets.cpu.vector.shard_functions import (
    FUNCTIONS,
    Partial,
    function_name,
    grown,
    kept,
    nothing,
    of_rows,
    row_type,
)
from loopgrad.codegen.targets.cpu.vector.vectors import FunctionText, Vector
from loopgrad.graph.identities import identity
from loopgrad.graph.primitives.shards import TOGETHER


def shards_of(layout: LaneLayout) -> ShardLayout:
    assert layout.shards is not None
    return layout.shards


def parts_bytes(kernel: Kernel, layout: LaneLayout, r: Reduction) -> int:
    """Of what the parts of all shards leave, for `finish`."""
    return shards_of(layout).all_parts(layout.lanes) * r.dtype.itemsize * kept(r)


def sharded(e: VectorEmitter) -> list[tuple[int, Reduction]]:
    return [(i, r) for i, r in enumerate(e.kernel.reductions) if r.shards is not None]


def declare(e: VectorEmitter, i: int, r: Reduction) -> None:
    shards = shards_of(e.layout)
    e.slot(f"[{kept(r)} x {row_type(r)}]", f"columns.{i}")
    for k in range(kept(r)):  # registers, where nobody needs their address
        e.slot(row_type(r), f"column.{i}.{k}")
    if _comes_in_halves(e.layout, r):
        e.slot(row_type(r), f"half.{i}")
        e.slot("i1", f"odd.{i}")
    if not is_direct(e.layout, r):
        e.slot(f"[{shards.block + e.layout.flight} x {memory_type(r.dtype)}]", f"terms.{i}")


def begin_part(e: VectorEmitter) -> None:
    for i, r in sharded(e):
        for k in range(kept(r)):
            e.b.line(f"store {row_type(r)} {nothing(r)}, ptr {column(e, i, r, k)}")
        if _comes_in_halves(e.layout, r):
            e.b.line(f"store i1 false, ptr %odd.{i}")


def _comes_in_halves(layout: LaneLayout, r: Reduction) -> bool:
    """Whether lanes in flight are half of the rows that are combined at once."""
    return is_direct(layout, r) and layout.flight < TOGETHER * row_width(r)


def column(e: VectorEmitter, i: int, r: Reduction, k: int) -> str:
    """Where a part's columns are while its lanes run."""
    if is_direct(e.layout, r):
        return f"%column.{i}.{k}"
    return element(e, f"%columns.{i}", row_type(r), e.b.const("i64", k))


def contribute(e: VectorEmitter, i: int, r: Reduction, x: Vector) -> None:
    """What the lanes in flight reduce. Lanes behind the last one write behind the others."""
    if is_direct(e.layout, r):
        _add_rows(e, i, r, x)
        return
    start = e.block_start
    assert start is not None
    if e.lane_start is None:
        assert e.lane_vector is not None
        index = e.b.inst(e.lane_vector.type, "sub {t0} {a}, {b}", e.lane_vector, e.b.resize(start, e.lane_vector.type))
        scatter(e, f"%terms.{i}", x.type, index, e.b.vector(x), e.mask)
        return
    at = element(e, f"%terms.{i}", x.type, e.b.scalar("i64", f"sub nsw i64 {e.lane_start.name}, {start.name}"))
    if e.layout.single:
        e.b.line(f"store {x.type} {x.name}, ptr {at}")
    else:
        store_vector(e, at, e.b.vector(x), None)


def _add_rows(e: VectorEmitter, i: int, r: Reduction, x: Vector) -> None:
    """The lanes in flight are rows of the part."""
    x = e.b.vector(x)
    if e.mask is not None:
        x = e.b.choose(e.mask, x, e.b.const(x.type, identity(r.kind, r.dtype)))
    width = row_width(r)
    b = e.b.of_width(width)
    rows = _as_rows(e, x, width)
    if _comes_in_halves(e.layout, r):
        _add_half(e, b, i, r, of_rows(r, b, rows))
    else:
        _add_columns(b, i, r, [rows[first : first + TOGETHER] for first in range(0, len(rows), TOGETHER)])


def _add_half(e: VectorEmitter, b: FunctionText, i: int, r: Reduction, half: Vector) -> None:
    """Every other one waits for the next."""
    second, first, end = (e.b.fresh_label(stem) for stem in ("second", "first", "added"))
    e.b.branch(e.b.scalar("i1", f"load i1, ptr %odd.{i}").name, second, first)
    e.b.start(second)
    _add_columns(b, i, r, [[_waiting(b, i, r), half]])
    e.b.line(f"store i1 false, ptr %odd.{i}")
    e.b.jump(end)
    e.b.start(first)
    e.b.line(f"store {row_type(r)} {half.names[0]}, ptr %half.{i}")
    e.b.line(f"store i1 true, ptr %odd.{i}")
    e.b.jump(end)
    e.b.start(end)


def _add_last_half(e: VectorEmitter, i: int, r: Reduction) -> None:
    """What no other half came to."""
    b, alone, end = e.b.of_width(row_width(r)), e.b.fresh_label("alone"), e.b.fresh_label("whole")
    e.b.branch(e.b.scalar("i1", f"load i1, ptr %odd.{i}").name, alone, end)
    e.b.start(alone)
    _add_columns(b, i, r, [[_waiting(b, i, r)]])
    e.b.jump(end)
    e.b.start(end)


def _waiting(b: FunctionText, i: int, r: Reduction) -> Vector:
    return Vector(memory_type(r.dtype), (b.scalar(row_type(r), f"load {row_type(r)}, ptr %half.{i}").name,), False)


def _add_columns(b: FunctionText, i: int, r: Reduction, groups: list[list[Vector]]) -> None:
    """Groups of rows, each combined first."""
    type, shape = memory_type(r.dtype), row_type(r)
    so_far: Partial = tuple([
        Vector(type, (b.scalar(shape, f"load {shape}, ptr %column.{i}.{k}").name,), False) for k in range(kept(r))
    ])  # fmt: skip
    for rows in groups:
        so_far = grown(r, b, so_far, rows)
    for k, value in enumerate(so_far):
        b.line(f"store {shape} {value.names[0]}, ptr %column.{i}.{k}")


def _as_rows(e: VectorEmitter, x: Vector, width: int) -> list[Vector]:
    """The lanes in flight, in vectors of another width."""
    held, names = e.layout.width, list(x.names)

    def picked(x: str, y: str, size: int, first: int, count: int) -> str:
        picks = ", ".join(f"i32 {first + j}" for j in range(count))
        type, name = f"<{size} x {memory}>", e.b.fresh()
        e.b.line(f"{name} = shufflevector {type} {x}, {type} {y}, <{count} x i32> <{picks}>")
        return name

    memory = x.type
    while held < width:
        names = [picked(a, b, held, 0, 2 * held) for a, b in zip(names[::2], names[1::2], strict=True)]
        held *= 2
    if held > width:
        names = [picked(a, "poison", held, first, width) for a in names for first in range(0, held, width)]
    return [Vector(memory, (name,), False) for name in names]


# -- bounds, all of them scalars


def divided(b: FunctionText, x: Vector, by: int) -> Vector:
    return b.scalar("i64", f"udiv i64 {x.name}, {by}")


def smaller(b: FunctionText, x: Vector, y: str) -> Vector:
    return b.scalar("i64", f"call i64 @llvm.smin.i64(i64 {x.name}, i64 {y})")


def chunk_bounds(b: FunctionText, layout: LaneLayout, chunk: Vector) -> tuple[Vector, Vector]:
    """The lanes of a chunk."""
    shards = shards_of(layout)
    if shards.alone:
        low = b.scalar("i64", f"mul nuw nsw i64 {chunk.name}, {shards.chunk}")
        high = b.scalar("i64", f"add nuw nsw i64 {low.name}, {shards.chunk}")
        return low, smaller(b, high, str(layout.lanes))
    pieces = shards.chunks_of_shard
    shard = divided(b, chunk, pieces)
    first = b.scalar("i64", f"mul nuw nsw i64 {shard.name}, {shards.extent}")
    piece = b.scalar("i64", f"urem i64 {chunk.name}, {pieces}")
    low = b.scalar("i64", f"mul nuw nsw i64 {piece.name}, {shards.chunk}")
    low = b.scalar("i64", f"add nuw nsw i64 {first.name}, {low.name}")
    end = smaller(b, b.scalar("i64", f"add nuw nsw i64 {first.name}, {shards.extent}"), str(layout.lanes))
    return low, smaller(b, b.scalar("i64", f"add nuw nsw i64 {low.name}, {shards.chunk}"), end.name)


def first_part(b: FunctionText, shards: ShardLayout, lane: Vector) -> Vector:
    """The number of the part that begins with a lane."""
    if shards.alone:
        return divided(b, lane, shards.extent)
    shard = divided(b, lane, shards.extent)
    inside = divided(b, b.scalar("i64", f"urem i64 {lane.name}, {shards.extent}"), shards.part)
    before = b.scalar("i64", f"mul nuw nsw i64 {shard.name}, {shards.parts_of_shard}")
    return b.scalar("i64", f"add nuw nsw i64 {before.name}, {inside.name}")


# -- what chunks and `finish` call


def close_block(e: VectorEmitter, start: Vector, stop: Vector) -> None:
    """Combine what waits of the lanes from start to stop."""
    b, shards = e.b, shards_of(e.layout)
    with b.scope():
        count = b.scalar("i64", f"sub nsw i64 {stop.name}, {start.name}")
        for i, r in sharded(e):
            terms = f"ptr %terms.{i}, i64 {count.name}"
            if shards.block > shards.part:
                where, pitch = _place(e, i, r, start)
                call(b, r, "parts", f"{terms}, i64 {shards.part}, ptr {where}, i64 {pitch}")
            elif not is_direct(e.layout, r):
                call(b, r, "rows", f"{terms}, ptr %columns.{i}")


def close_part(e: VectorEmitter, start: Vector) -> None:
    """What the columns make of the part that began at a lane."""
    b = e.b
    with b.scope():
        for i, r in sharded(e):
            if _comes_in_halves(e.layout, r):
                _add_last_half(e, i, r)
            if is_direct(e.layout, r):
                for k in range(kept(r)):
                    value = b.scalar(row_type(r), f"load {row_type(r)}, ptr %column.{i}.{k}")
                    at = element(e, f"%columns.{i}", row_type(r), b.const("i64", k))
                    b.line(f"store {row_type(r)} {value.name}, ptr {at}")
            where, pitch = _place(e, i, r, start)
            call(b, r, "close", f"ptr %columns.{i}, ptr {where}, i64 {pitch}")


def call(b: FunctionText, r: Reduction, what: str, arguments: str) -> None:
    for name, make in FUNCTIONS.items():  # one calls another
        b.outlined.setdefault(function_name(name, r), partial(make, r))
    b.line(f"call void @{function_name(what, r)}({arguments})")


def _place(e: VectorEmitter, i: int, r: Reduction, start: Vector) -> tuple[str, int]:
    """Where what the part from a lane on makes goes, and how far behind it the rest."""
    shards = shards_of(e.layout)
    number = e.b.once(("part", start), lambda: first_part(e.b, shards, start))
    return element(e, f"%partials.{i}", memory_type(r.dtype), number), shards.all_parts(e.layout.lanes)


def close_chunk(e: VectorEmitter, low: Vector, high: Vector) -> None:
    """Combine the parts of a chunk's lanes, which are neighbours in a shard."""
    b, shards = e.b, shards_of(e.layout)
    if shards.alone or shards.chunk == shards.part:
        return
    lanes = b.scalar("i64", f"sub nsw i64 {high.name}, {low.name}")
    count = divided(b, b.scalar("i64", f"add nsw i64 {lanes.name}, {shards.part - 1}"), shards.part)
    number = first_part(b, shards, low)
    for i, r in sharded(e):
        at = element(e, f"%partials.{i}", memory_type(r.dtype), number)
        call(b, r, "merge", f"ptr {at}, i64 {count.name}, i64 1, i64 {shards.all_parts(e.layout.lanes)}")


def finish_shards(b: FunctionText, layout: LaneLayout, r: Reduction, result: str, partials: str) -> None:
    """In `finish`: what the chunks of each shard left, combined, and then shards."""
    shards, type = shards_of(layout), memory_type(r.dtype)
    each, pitch, lanes = shards.parts_of_shard, shards.all_parts(layout.lanes), layout.lanes
    assert r.shards is not None

    def at(base: str, index: str) -> str:
        return b.scalar("ptr", f"getelementptr {type}, ptr {base}, i64 {index}").name

    if shards.chunks_of_shard > 1:
        head, done, enter = b.fresh_label("shards"), b.fresh_label("end"), b.label
        b.jump(head)
        b.start(head)
        shard, following = b.fresh(), b.fresh()
        b.line(f"{shard} = phi i64 [ 0, %{enter} ], [ {following}, %{head} ]")
        first = b.scalar("i64", f"mul i64 {shard}, {each}")
        left = smaller(b, b.scalar("i64", f"sub i64 {pitch}, {first.name}"), str(each))
        call(
            b, r, "merge", f"ptr {at(partials, first.name)}, i64 {left.name}, i64 {shards.parts_of_chunk}, i64 {pitch}"
        )
        b.line(f"{following} = add i64 {shard}, 1")
        again = b.scalar("i1", f"icmp slt i64 {following}, {-(-lanes // shards.extent)}")
        b.branch(again.name, head, done)
        b.start(done)
    for number, (start, count) in enumerate(r.shards.roots):
        root = at(partials, str(start * each))
        if count > 1:
            call(b, r, "merge", f"ptr {root}, i64 {count * each}, i64 {each}, i64 {pitch}")
        found = [b.scalar(type, f"load {type}, ptr {at(root, str(k * pitch))}") for k in range(kept(r))]
        if r.shards.rounded and len(found) > 1:
            found = [rounded(VectorOps(VectorScope(b)), *found)]
        for k, value in enumerate(found):
            b.line(f"store {type} {value.name}, ptr {at(result, str(number * len(found) + k))}")
