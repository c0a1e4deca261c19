"""Private copies of parameters that several lanes accumulate into: one per chunk, combined in the order of chunks.

Sums of floats are doubles there, so that adding up loses nothing that narrower elements could tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter, memory_type
from loopgrad.codegen.targets.cpu.vector.lanes import LaneLayout, copied_dtype, copy_kind
from loopgrad.codegen.targets.cpu.vector.outline import combine as combined
from loopgrad.codegen.targets.cpu.vector.recipes import VectorOps, VectorScope
from loopgrad.codegen.targets.cpu.vector.vectors import FunctionText, Vector
from loopgrad.graph.identities import identity
from loopgrad.graph.types import DType

ABREAST: Final = 8  # elements of copies


def begin(e: VectorEmitter, param: int, copies: str) -> None:
    """This chunk's private copy: chosen and set to the identity."""
    b, size, kind = e.b, e.kernel.params[param].size, copy_kind(e.kernel, param)
    dtype = copied_dtype(e.kernel.params[param].dtype, kind)
    type = memory_type(dtype)
    first = b.scalar("i64", f"mul i64 %chunk, {size}")
    mine = b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {first.name}")
    e.copy_names[param] = mine.name
    start = b.const(type, identity(kind, dtype))
    for width, low, high in stretches(size):

        def fill(i: Vector, shape: str = row_of(width, type)) -> None:
            place = b.scalar("ptr", f"getelementptr {type}, ptr {mine.name}, i64 {i.name}")
            value = f"splat ({type} {start.name})" if shape != type else start.name
            b.line(f"store {shape} {value}, ptr {place.name}, align {dtype.itemsize}")

        e.counted(b.const("i64", low), b.const("i64", high), width, fill)


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

    def join(i: str, j: str, width: int) -> None:
        places = [b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {at}").name for at in (j, i)]
        shape, aligned = row_of(width, type), f"align {dtype.itemsize}"
        names = [b.scalar(shape, f"load {shape}, ptr {place}, {aligned}").name for place in places]
        total, x = (Vector(type, (name,), width == 1) for name in names)
        made = combined(b.of_width(width), kind, dtype, total, x)
        b.line(f"store {shape} {made.names[0]}, ptr {places[0]}, {aligned}")

    def finish(j: str, _j: str, _width: int) -> None:
        source = b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {j}").name
        place = b.scalar("ptr", f"getelementptr {element}, ptr {target}, i64 {j}").name
        old = widened(b, b.scalar(element, f"load {element}, ptr {place}"), dtype)
        new = combined(b, kind, dtype, old, b.scalar(type, f"load {type}, ptr {source}"))
        if element != type:
            new = VectorOps(VectorScope(b)).rounded(new, described.dtype)
        b.line(f"store {element} {new.name}, ptr {place}")

    for width, low, high in stretches(described.size):
        over_copies(b, (1, layout.chunks), described.size, (low, high, width), join)
    over_copies(b, (0, 1), described.size, (0, described.size, 1), finish)


def stretches(size: int) -> list[tuple[int, int, int]]:
    """Elements of a copy that go ABREAST, and what is left of them: how many do, the first, and the last."""
    whole = size // ABREAST * ABREAST
    return [(width, low, high) for width, low, high in ((ABREAST, 0, whole), (1, whole, size)) if low < high]


def row_of(width: int, type: str) -> str:
    return type if width == 1 else f"<{width} x {type}>"


def over_copies(
    b: FunctionText, which: tuple[int, int], count: int, elements: tuple[int, int, int],
    body: Callable[[str, str, int], None],
) -> None:  # fmt: skip
    """body(i, j, width) for elements j of the copies from the first to the last of `which`, the i-th of all. `count`:
    of a copy; `elements`: the first, the last, and how many go abreast."""
    (first, end), (low, high, width) = which, elements
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
    b.line(f"{j} = phi i64 [ {low}, %{outer} ], [ {j2}, %{inner} ]")
    body(b.scalar("i64", f"add i64 {start.name}, {j}").name, j, width)
    b.line(f"{j2} = add i64 {j}, {width}")
    b.branch(b.scalar("i1", f"icmp slt i64 {j2}, {high}").name, inner, after)
    b.start(after)
    b.line(f"{c2} = add i64 {c}, 1")
    b.branch(b.scalar("i1", f"icmp slt i64 {c2}, {end}").name, outer, done)
    b.start(done)
