"""Private copies of parameters that several lanes accumulate into: one per chunk, combined in the order of chunks.

Sums of floats are doubles there, so that adding up loses nothing that narrower elements could tell.
"""

from __future__ import annotations

from collections.abc import Callable

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter, memory_type
from loopgrad.codegen.targets.cpu.vector.lanes import LaneLayout, copied_dtype, copy_kind
from loopgrad.codegen.targets.cpu.vector.outline import combine as combined
from loopgrad.codegen.targets.cpu.vector.recipes import VectorOps, VectorScope
from loopgrad.codegen.targets.cpu.vector.vectors import FunctionText, Vector
from loopgrad.graph.identities import identity
from loopgrad.graph.types import DType


def begin(e: VectorEmitter, param: int, copies: str) -> None:
    """This chunk's private copy: chosen and set to the identity."""
    b, size, kind = e.b, e.kernel.params[param].size, copy_kind(e.kernel, param)
    dtype = copied_dtype(e.kernel.params[param].dtype, kind)
    type = memory_type(dtype)
    first = b.scalar("i64", f"mul i64 %chunk, {size}")
    mine = b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {first.name}")
    e.copy_names[param] = mine.name
    start = b.const(type, identity(kind, dtype))

    def fill(i: Vector) -> None:
        place = b.scalar("ptr", f"getelementptr {type}, ptr {mine.name}, i64 {i.name}")
        b.line(f"store {type} {start.name}, ptr {place.name}")

    e.counted(b.const("i64", 0), b.const("i64", size), 1, fill)


def widened(b: FunctionText, x: Vector, dtype: DType) -> Vector:
    """A term as copies of that dtype have it."""
    return VectorOps(VectorScope(b)).rounded(x, dtype) if dtype.is_float else x


def combine(b: FunctionText, kernel: Kernel, layout: LaneLayout, param: int, target: str, copies: str) -> None:
    """param[j] = param[j] kind (copy 0[j] kind copy 1[j] ...), copies in chunk order, rounded once."""
    described, kind = kernel.params[param], copy_kind(kernel, param)
    dtype = copied_dtype(described.dtype, kind)
    element, type = memory_type(described.dtype), memory_type(dtype)
    if not layout.chunks or not described.size:
        return

    def join(i: str, j: str) -> None:
        places = [b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {at}").name for at in (j, i)]
        total, x = (b.scalar(type, f"load {type}, ptr {place}") for place in places)
        b.line(f"store {type} {combined(b, kind, dtype, total, x).name}, ptr {places[0]}")

    def finish(j: str, _j: str) -> None:
        source = b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {j}").name
        place = b.scalar("ptr", f"getelementptr {element}, ptr {target}, i64 {j}").name
        old = widened(b, b.scalar(element, f"load {element}, ptr {place}"), dtype)
        new = combined(b, kind, dtype, old, b.scalar(type, f"load {type}, ptr {source}"))
        if element != type:
            new = VectorOps(VectorScope(b)).rounded(new, described.dtype)
        b.line(f"store {element} {new.name}, ptr {place}")

    over_copies(b, 1, layout.chunks, described.size, join)
    over_copies(b, 0, 1, described.size, finish)


def over_copies(b: FunctionText, first: int, end: int, count: int, body: Callable[[str, str], None]) -> None:
    """body(i, j) for every element j of the copies from `first` on, the i-th of all."""
    if first == end:
        return
    outer, inner, done = b.fresh_label("copies"), b.fresh_label("elements"), b.fresh_label("end")
    after, enter = b.fresh_label("next"), b.label
    b.jump(outer)
    b.start(outer)
    c, c2, j, j2 = b.fresh(), b.fresh(), b.fresh(), b.fresh()
    b.line(f"{c} = phi i64 [ {first}, %{enter} ], [ {c2}, %{after} ]")
    start = b.scalar("i64", f"mul i64 {c}, {count}")
    b.jump(inner)
    b.start(inner)
    b.line(f"{j} = phi i64 [ 0, %{outer} ], [ {j2}, %{inner} ]")
    body(b.scalar("i64", f"add i64 {start.name}, {j}").name, j)
    b.line(f"{j2} = add i64 {j}, 1")
    b.branch(b.scalar("i1", f"icmp slt i64 {j2}, {count}").name, inner, after)
    b.start(after)
    b.line(f"{c2} = add i64 {c}, 1")
    b.branch(b.scalar("i1", f"icmp slt i64 {c2}, {end}").name, outer, done)
    b.start(done)
