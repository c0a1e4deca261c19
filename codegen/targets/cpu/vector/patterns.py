"""Loads of lanes of short rows that move together in whole rows (see row_patterns.py): vectors that hold what the lanes
read, and shuffles that are the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter
from loopgrad.codegen.targets.cpu.vector.row_patterns import FEW_VECTORS
from loopgrad.codegen.targets.cpu.vector.vectors import Vector


def load_pattern(e: VectorEmitter, pointer: str, type: str, index: KValue, align: int, tag: str) -> Vector | None:
    """The lanes' elements; None where places in rows aren't known, or elements lie too far apart."""
    layout, dims, form = e.layout, e.layout.lane, e.analysis.forms[index]
    if form is None or e.mask is not None or layout.width == 1 or len(dims) < 2 or not layout.lanes:
        return None
    row, start = dims[-1], e.lane_start
    if e.lane_vector is not None or start is None or layout.sort_tile is not None or layout.flight % row:
        return None
    across = _step(form[:-1], dims[:-1])
    if across is None:
        return None
    places = [across * (lane // row) + form[-1] * (lane % row) for lane in range(layout.flight)]
    parts = [places[u * layout.width : (u + 1) * layout.width] for u in range(layout.groups)]
    if any(max(part) - min(part) >= FEW_VECTORS * layout.width for part in parts):
        return None
    b = e.b
    first = b.resize(e.base(index), "i64")
    if across:
        rows = b.once(("rows", start, row), lambda: b.scalar("i64", f"udiv i64 {b.resize(start, 'i64').name}, {row}"))
        first = e.integer("i64", "add", first, e.integer("i64", "mul", rows, b.const("i64", across)))
    address = b.scalar("ptr", f"getelementptr {type}, ptr {pointer}, i64 {first.name}").name
    read = "i16" if type == "bfloat" else type  # LLVM ends the process where one bfloat becomes a vector
    found = Vector(read, tuple([_picked(e, read, address, part, align, tag) for part in parts]), False)
    return found if read == type else b.inst(type, "bitcast {t0} {a} to {r}", found)


def _step(form: Sequence[int], dims: Sequence[int]) -> int | None:
    """From one row to the next, along all dims of rows as one; None where that isn't the same everywhere."""
    strides = [prod(dims[i + 1 :]) for i in range(len(dims))]
    steps = {c // s if c % s == 0 else None for c, s, d in zip(form, strides, dims, strict=True) if d > 1}
    return steps.pop() if len(steps) == 1 else 0 if not steps else None


def _picked(e: VectorEmitter, type: str, address: str, places: Sequence[int], align: int, tag: str) -> str:
    """A vector of the elements at these places from an address on. Nothing is read before the first or behind the
    last of them."""
    b, width = e.b, e.layout.width
    low, extent = min(places), max(places) - min(places) + 1
    length = min(extent, width)
    starts = [*range(low, low + extent - length, length), low + extent - length]
    held, done = "poison", set[int]()
    vt, part_type = b.vector_type(type), f"<{length} x {type}>"
    for start in starts:
        at = b.scalar("ptr", f"getelementptr {type}, ptr {address}, i64 {start}").name
        part = b.scalar(part_type, f"load {part_type}, ptr {at}, align {align}{tag}").name
        picks = {lane: p - start for lane, p in enumerate(places) if lane not in done and 0 <= p - start < length}
        mask = ", ".join([f"i32 {picks[lane]}" if lane in picks else "i32 poison" for lane in range(width)])
        found = b.scalar(vt, f"shufflevector {part_type} {part}, {part_type} poison, <{width} x i32> <{mask}>").name
        if done:
            order = ", ".join([f"i32 {lane + width if lane in picks else lane}" for lane in range(width)])
            found = b.scalar(vt, f"shufflevector {vt} {held}, {vt} {found}, <{width} x i32> <{order}>").name
        held = found
        done.update(picks)
    return held
