"""Reductions over lanes, by a fixed tree.

Each vector lane sums its own share of a chunk (or of a row), the lanes of a chunk combine by halves into
one partial, and `finish` combines a segment's partials pairwise: the result depends on shapes only.
A row that lies in one chunk and is a whole segment needs no partial.
"""

from __future__ import annotations

from functools import partial
from math import prod

from loopgrad.codegen.kernel.nodes import Kernel, KOp, Reduction
from loopgrad.codegen.targets.cpu.context import Emitter, memory_type
from loopgrad.codegen.targets.cpu.lanes import LaneLayout, sharing, walk
from loopgrad.codegen.targets.cpu.memory import element, store_vector, to_memory
from loopgrad.codegen.targets.cpu.outline import combine, combine_names, identity
from loopgrad.codegen.targets.cpu.vector import Builder, Val

WHOLE, ROW, DIRECT, INNER = "whole", "row", "direct", "inner"


def place_of(kernel: Kernel, layout: LaneLayout, r: Reduction) -> str:
    """whole: one partial per chunk; row: one per piece of a row; direct: a row is a segment and is
    stored at once; inner: a lane is a segment."""
    if layout.inner:
        return INNER
    if r.rank == len(kernel.domain):
        return WHOLE
    alone = layout.pieces == 1 and r.rank == len(layout.lane)
    return DIRECT if alone else ROW


def partial_count(kernel: Kernel, layout: LaneLayout, r: Reduction) -> int:
    """Elements of the partials array (0: none)."""
    place = place_of(kernel, layout, r)
    if place == WHOLE:
        return layout.chunks
    return layout.rows * layout.pieces if place == ROW else 0


def partial_bytes(kernel: Kernel, layout: LaneLayout) -> tuple[int, ...]:
    return tuple([max(partial_count(kernel, layout, r) * r.dtype.itemsize, 8) for r in kernel.reductions])


def declare_accumulators(e: Emitter) -> None:
    for i, r in enumerate(e.kernel.reductions):
        type = memory_type(r.dtype)
        shape = type if e.layout.single else e.b.vector_type(type)
        for u in range(e.layout.groups):
            e.slot(shape, f"sum.{i}.{u}")


def begin(e: Emitter, places: tuple[str, ...]) -> None:
    """Set the accumulators of these places to the identity."""
    for i, r in enumerate(e.kernel.reductions):
        if place_of(e.kernel, e.layout, r) not in places:
            continue
        type = memory_type(r.dtype)
        start = e.b.const(type, identity(r.kind, r.dtype))
        text = f"{type} {start.name}" if e.layout.single else f"{e.b.vector_type(type)} {e.b.splat_name(start)}"
        for u in range(e.layout.groups):
            e.b.line(f"store {text}, ptr %sum.{i}.{u}")


def emit_reduce(e: Emitter, op: KOp) -> None:
    i = op.attrs["slot"]
    r = e.kernel.reductions[i]
    x = to_memory(e, e.wide(op.operands[0]), r.dtype)
    total = current(e, i, r)
    if not e.layout.single:
        x = e.b.vector(x)
        if e.mask is not None:
            x = e.b.choose(e.mask, x, e.b.const(x.type, identity(r.kind, r.dtype)))
    total = combine(e.b, r.kind, r.dtype, total, x)
    shape = total.type if e.layout.single else e.b.vector_type(total.type)
    for u, name in enumerate(total.names):
        e.b.line(f"store {shape} {name}, ptr %sum.{i}.{u}")


def current(e: Emitter, i: int, r: Reduction) -> Val:
    type = memory_type(r.dtype)
    shape = type if e.layout.single else e.b.vector_type(type)
    names = [e.b.scalar(shape, f"load {shape}, ptr %sum.{i}.{u}").name for u in range(e.layout.groups)]
    return Val(type, tuple(names), e.layout.single)


def close(e: Emitter, places: tuple[str, ...], index: Val) -> None:
    """Combine the lanes of these places' accumulators into element `index` of partials or result."""
    for i, r in enumerate(e.kernel.reductions):
        place = place_of(e.kernel, e.layout, r)
        if place not in places:
            continue
        total = current(e, i, r)
        if place == INNER:
            store_vector(e, element(e, e.param_names[r.param], total.type, index), total, e.mask)
            continue
        if not e.layout.single:
            total = e.b.horizontal(total, partial(combine_names, e.b, r.kind, r.dtype))
        target = e.param_names[r.param] if place == DIRECT else f"%partials.{i}"
        e.b.line(f"store {total.type} {total.name}, ptr {element(e, target, total.type, index)}")


# -- finish


def finish_text(kernel: Kernel, layout: LaneLayout, symbol: str) -> str:
    """The finish function, or nothing where every result is stored by the chunks themselves."""
    b = Builder(1, 1, "f")
    for i, r in enumerate(kernel.reductions):
        if place_of(kernel, layout, r) in (WHOLE, ROW) or layout.chunks == 0:
            combine_partials(b, kernel, layout, i, r)
    scratch = len(kernel.params) + len(kernel.reductions)
    for i, param in enumerate(layout.copies):
        combine_copies(b, kernel, layout, param, scratch + i)
    if not b.lines:
        return ""
    body = "\n".join(b.lines)
    return f"define void @{symbol}_finish(ptr noalias %params) #0 {{\nentry:\n{body}\n  ret void\n}}\n"


def pointer(b: Builder, position: int) -> str:
    at = b.scalar("ptr", f"getelementptr ptr, ptr %params, i64 {position}")
    return b.scalar("ptr", f"load ptr, ptr {at.name}").name


def combine_partials(b: Builder, kernel: Kernel, layout: LaneLayout, i: int, r: Reduction) -> None:
    """param[s] = the tree over the partials of segment s."""
    segments = prod(kernel.domain[: len(kernel.domain) - r.rank])
    count = partial_count(kernel, layout, r)
    each = count // max(segments, 1)
    if not segments:
        return
    result, partials = pointer(b, r.param), pointer(b, len(kernel.params) + i)
    type = memory_type(r.dtype)
    head, done = b.fresh_label("segments"), b.fresh_label("end")
    enter = b.label
    b.jump(head)
    b.start(head)
    index, following = b.fresh(), b.fresh()
    b.line(f"{index} = phi i64 [ 0, %{enter} ], [ {following}, %{head} ]")
    first = b.scalar("i64", f"mul i64 {index}, {each}")
    source = b.scalar("ptr", f"getelementptr {type}, ptr {partials}, i64 {first.name}")
    total = b.scalar(type, f"call {type} @{tree_name(r)}(ptr {source.name}, i64 {each})")
    target = b.scalar("ptr", f"getelementptr {type}, ptr {result}, i64 {index}")
    b.line(f"store {type} {total.name}, ptr {target.name}")
    b.line(f"{following} = add i64 {index}, 1")
    again = b.scalar("i1", f"icmp slt i64 {following}, {segments}")
    b.branch(again.name, head, done)
    b.start(done)


def tree_name(r: Reduction) -> str:
    return f"lg.tree.{r.kind}.{r.dtype.name}"


def trees(kernel: Kernel) -> dict[str, str]:
    """Per kind and dtype, `T tree(ptr, n)`: halves recursively (Higham's pairwise summation)."""
    return {tree_name(r): tree_function(r) for r in kernel.reductions}


def tree_function(r: Reduction) -> str:
    name, type = tree_name(r), memory_type(r.dtype)
    b = Builder(1, 1, "t")
    merged = combine(b, r.kind, r.dtype, Val(type, ("%left",), True), Val(type, ("%right",), True))
    body = "\n".join(b.lines)
    start = Builder(1, 1).const(type, identity(r.kind, r.dtype)).name
    return f"""
define internal {type} @{name}(ptr %p, i64 %n) {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %more, label %empty
empty:
  ret {type} {start}
more:
  %one = icmp eq i64 %n, 1
  br i1 %one, label %leaf, label %split
leaf:
  %value = load {type}, ptr %p
  ret {type} %value
split:
  %half = lshr i64 %n, 1
  %rest = sub i64 %n, %half
  %left = call {type} @{name}(ptr %p, i64 %half)
  %q = getelementptr {type}, ptr %p, i64 %half
  %right = call {type} @{name}(ptr %q, i64 %rest)
{body}
  ret {type} {merged.name}
}}
"""


def combine_copies(b: Builder, kernel: Kernel, layout: LaneLayout, param: int, position: int) -> None:
    """param[j] = param[j] kind copy 0[j] kind copy 1[j] ..., copies in chunk order."""
    described = kernel.params[param]
    type, kind = memory_type(described.dtype), copy_kind(kernel, param)
    target, copies = pointer(b, param), pointer(b, position)
    outer, inner, done = b.fresh_label("copies"), b.fresh_label("elements"), b.fresh_label("end")
    after = b.fresh_label("next")
    if not layout.chunks or not described.size:
        return
    enter = b.label
    b.jump(outer)
    b.start(outer)
    c, c2, j, j2 = b.fresh(), b.fresh(), b.fresh(), b.fresh()
    b.line(f"{c} = phi i64 [ 0, %{enter} ], [ {c2}, %{after} ]")
    first = b.scalar("i64", f"mul i64 {c}, {described.size}")
    b.jump(inner)
    b.start(inner)
    b.line(f"{j} = phi i64 [ 0, %{outer} ], [ {j2}, %{inner} ]")
    at = b.scalar("i64", f"add i64 {first.name}, {j}")
    source = b.scalar("ptr", f"getelementptr {type}, ptr {copies}, i64 {at.name}")
    place = b.scalar("ptr", f"getelementptr {type}, ptr {target}, i64 {j}")
    x, old = b.scalar(type, f"load {type}, ptr {source.name}"), b.scalar(type, f"load {type}, ptr {place.name}")
    new = combine(b, kind, described.dtype, old, x)
    b.line(f"store {type} {new.name}, ptr {place.name}")
    b.line(f"{j2} = add i64 {j}, 1")
    b.branch(b.scalar("i1", f"icmp slt i64 {j2}, {described.size}").name, inner, after)
    b.start(after)
    b.line(f"{c2} = add i64 {c}, 1")
    b.branch(b.scalar("i1", f"icmp slt i64 {c2}, {layout.chunks}").name, outer, done)
    b.start(done)


def copy_kind(kernel: Kernel, param: int) -> str:
    return next(kind for p, kind in sharing(walk(kernel.body)) if p == param)
