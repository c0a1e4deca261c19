"""Private copies of parameters that several lanes accumulate into: one per chunk, combined in the order of chunks.

In the copies a sum of floats is a total and its rest (see codegen.math.compensated), of 32 bits at least.
"""

from __future__ import annotations

from collections.abc import Callable

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.math.compensated import added, joined, rounded
from loopgrad.codegen.targets.cpu.context import Emitter, memory_type
from loopgrad.codegen.targets.cpu.lanes import LaneLayout, compensated, copy_kind
from loopgrad.codegen.targets.cpu.names import Names
from loopgrad.codegen.targets.cpu.outline import combine as combined
from loopgrad.codegen.targets.cpu.outline import identity
from loopgrad.codegen.targets.cpu.vector import Builder, Val
from loopgrad.graph.types import DType


def total_type(dtype: DType) -> str:
    """Of the total and the rest of a sum."""
    return "double" if dtype.bits == 64 else "float"


def element_type(kernel: Kernel, param: int) -> str:
    """Of an element of a copy."""
    dtype = kernel.params[param].dtype
    return f"[2 x {total_type(dtype)}]" if compensated(dtype, copy_kind(kernel, param)) else memory_type(dtype)


def begin(e: Emitter, param: int, copies: str) -> None:
    """This chunk's private copy: chosen and set to the identity."""
    b, described, kind = e.b, e.kernel.params[param], copy_kind(e.kernel, param)
    type = element_type(e.kernel, param)
    first = b.scalar("i64", f"mul i64 %chunk, {described.size}")
    mine = b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {first.name}")
    e.copy_names[param] = mine.name
    if compensated(described.dtype, kind):
        each = f"{total_type(described.dtype)} {b.const(total_type(described.dtype), -0.0).name}"
        start = f"[ {each}, {each} ]"
    else:
        start = b.const(type, identity(kind, described.dtype)).name

    def fill(i: Val) -> None:
        place = b.scalar("ptr", f"getelementptr {type}, ptr {mine.name}, i64 {i.name}")
        b.line(f"store {type} {start}, ptr {place.name}")

    e.counted(b.const("i64", 0), b.const("i64", described.size), 1, fill)


def widened(b: Builder, x: Val, dtype: DType) -> Val:
    """A term in the type of totals."""
    wide = total_type(dtype)
    return x if x.type == wide else b.inst(wide, "fpext {t0} {a} to {r}", x)


def load_pair(b: Builder, type: str, place: str) -> tuple[str, str]:
    second = b.scalar("ptr", f"getelementptr {type}, ptr {place}, i64 1").name
    return b.scalar(type, f"load {type}, ptr {place}").name, b.scalar(type, f"load {type}, ptr {second}").name


def store_pair(b: Builder, type: str, place: str, pair: tuple[str, str]) -> None:
    second = b.scalar("ptr", f"getelementptr {type}, ptr {place}, i64 1").name
    b.line(f"store {type} {pair[0]}, ptr {place}")
    b.line(f"store {type} {pair[1]}, ptr {second}")


def add_term(b: Builder, type: str, place: str, x: str) -> None:
    """The sum at `place` with one more term."""
    store_pair(b, type, place, added(Names(b, type), *load_pair(b, type, place), x))


def combine(b: Builder, kernel: Kernel, layout: LaneLayout, param: int, target: str, copies: str) -> None:
    """param[j] = param[j] kind copy 0[j] kind copy 1[j] ..., copies in chunk order. Sums come together in copy 0."""
    described, kind = kernel.params[param], copy_kind(kernel, param)
    type, count, dtype = element_type(kernel, param), described.size, described.dtype
    if not layout.chunks or not count:
        return
    element, wide = memory_type(dtype), total_type(dtype)

    def pairs(i: str, j: str) -> None:
        places = [b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {at}").name for at in (j, i)]
        first, second = (load_pair(b, wide, place) for place in places)
        store_pair(b, wide, places[0], joined(Names(b, wide), *first, *second))

    def total(j: str, _j: str) -> None:
        m, place = Names(b, wide), b.scalar("ptr", f"getelementptr {element}, ptr {target}, i64 {j}").name
        source = b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {j}").name
        old = widened(b, b.scalar(element, f"load {element}, ptr {place}"), dtype)
        new = Val(wide, (rounded(m, *added(m, *load_pair(b, wide, source), old.name)),), True)
        if element != wide:
            new = b.scalar(element, f"fptrunc {wide} {new.name} to {element}")
        b.line(f"store {element} {new.name}, ptr {place}")

    def plain(i: str, j: str) -> None:
        source = b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {i}")
        place = b.scalar("ptr", f"getelementptr {type}, ptr {target}, i64 {j}")
        x, old = b.scalar(type, f"load {type}, ptr {source.name}"), b.scalar(type, f"load {type}, ptr {place.name}")
        b.line(f"store {type} {combined(b, kind, dtype, old, x).name}, ptr {place.name}")

    if compensated(dtype, kind):
        over_copies(b, 1, layout.chunks, count, pairs)
        over_copies(b, 0, 1, count, total)
    else:
        over_copies(b, 0, layout.chunks, count, plain)


def over_copies(b: Builder, first: int, end: int, count: int, body: Callable[[str, str], None]) -> None:
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
