"""Reductions over lanes, by a fixed tree.

Each vector lane sums its own share of a chunk (or of a row), the lanes of a chunk combine by halves into
one partial, and `finish` combines a segment's partials pairwise: the result depends on shapes only.
A row that lies in one chunk and is a whole segment needs no partial, nor do all lanes where they are one chunk.

A sum of floats is two numbers until it is stored, a total and its rest (see codegen.math.compensated). The vectors
in flight are added up before they are added to these, which makes the compensation cheap: the roundings that are lost
are those of a tree of four or eight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from loopgrad.codegen.kernel.nodes import Kernel, KOp, Reduction
from loopgrad.codegen.math import sums_of_exponentials
from loopgrad.codegen.math.compensated import added, balanced, merged
from loopgrad.codegen.math.compensated import rounded as one_number
from loopgrad.codegen.math.sums_of_exponentials import EXPONENTIALS, PARTS, ByOps
from loopgrad.codegen.targets.cpu.vector import copies, shards
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter, memory_type
from loopgrad.codegen.targets.cpu.vector.lanes import LaneLayout
from loopgrad.codegen.targets.cpu.vector.memory import element, store_vector, to_memory
from loopgrad.codegen.targets.cpu.vector.outline import combine
from loopgrad.codegen.targets.cpu.vector.recipes import VectorOps, VectorScope
from loopgrad.codegen.targets.cpu.vector.shard_functions import function_name, merge_function
from loopgrad.codegen.targets.cpu.vector.vectors import FunctionText, Vector
from loopgrad.graph.identities import identity

WHOLE, ROW, DIRECT, INNER, SHARDS = "whole", "row", "direct", "inner", "shards"


def place_of(kernel: Kernel, layout: LaneLayout, r: Reduction) -> str:
    """whole: one partial per chunk; row: one per piece of a row; direct: a row is a segment and is
    stored at once; inner: a lane is a segment; shards: see `shards`."""
    if r.shards is not None:
        return SHARDS
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


def stored_at_once(kernel: Kernel, layout: LaneLayout, r: Reduction) -> bool:
    """Whether the chunk that has all of a segment stores its result, so that `finish` has nothing to combine."""
    place = place_of(kernel, layout, r)
    return place == DIRECT or (place == WHOLE and layout.chunks == 1)


def parts(r: Reduction) -> int:
    """Numbers that stand for what is reduced so far: a total, and of a sum of floats its rest; of one of exponentials
    three."""
    if r.kind == EXPONENTIALS:
        return PARTS
    return 2 if r.kind == "add" and r.dtype.name in ("float32", "float64") else 1


def partial_bytes(kernel: Kernel, layout: LaneLayout) -> tuple[int, ...]:
    def size(r: Reduction) -> int:
        if r.shards is not None:
            return shards.parts_bytes(kernel, layout, r)
        return partial_count(kernel, layout, r) * r.dtype.itemsize * parts(r)

    return tuple([max(size(r), 8) for r in kernel.reductions])


def vectors(e: VectorEmitter, r: Reduction) -> int:
    """Accumulators of a reduction: one per vector in flight, or for sums of them one for all."""
    merged = parts(r) == 2 and place_of(e.kernel, e.layout, r) != INNER
    return 1 if merged else e.layout.groups


def declare_accumulators(e: VectorEmitter) -> None:
    for i, r in enumerate(e.kernel.reductions):
        if r.shards is not None:
            shards.declare(e, i, r)
            continue
        type = memory_type(r.dtype)
        shape = type if e.layout.single else e.b.vector_type(type)
        for u in range(vectors(e, r)):
            for part in range(parts(r)):
                e.slot(shape, f"sum.{i}.{u}.{part}")


def begin(e: VectorEmitter, places: tuple[str, ...]) -> None:
    """Set the accumulators of these places to the identity."""
    for i, r in enumerate(e.kernel.reductions):
        if place_of(e.kernel, e.layout, r) not in places:
            continue
        type = memory_type(r.dtype)
        start = e.b.const(type, identity(r.kind, r.dtype))
        text = f"{type} {start.name}" if e.layout.single else f"{e.b.vector_type(type)} {e.b.splat_name(start)}"
        for u in range(vectors(e, r)):
            for part in range(parts(r)):
                e.b.line(f"store {text}, ptr %sum.{i}.{u}.{part}")


def emit_reduce(e: VectorEmitter, op: KOp) -> None:
    i = op.attrs["slot"]
    r = e.kernel.reductions[i]
    (term,) = op.operands
    x = to_memory(e, e.wide(term), r.dtype)
    if r.shards is not None:
        shards.contribute(e, i, r, x)
        return
    if not e.layout.single:
        x = e.b.vector(x)
        if e.mask is not None:
            x = e.b.choose(e.mask, x, e.b.const(x.type, identity(r.kind, r.dtype)))
    if parts(r) == 2:
        m = VectorOps(VectorScope(e.b.of_width(e.b.width, vectors(e, r))))
        if vectors(e, r) == 1:
            x = balanced(m.add, [Vector(x.type, (name,), x.uniform) for name in x.names])
        total, rest = current(e, i, r)
        keep(e, i, added(m, total, rest, x))
    else:
        keep(e, i, [combine(e.b, r.kind, r.dtype, current(e, i, r)[0], x)])


def keep(e: VectorEmitter, i: int, values: Sequence[Vector]) -> None:
    for part, value in enumerate(values):
        shape = value.type if e.layout.single else e.b.vector_type(value.type)
        for u, name in enumerate(value.names):
            e.b.line(f"store {shape} {name}, ptr %sum.{i}.{u}.{part}")


def current(e: VectorEmitter, i: int, r: Reduction) -> tuple[Vector, ...]:
    type = memory_type(r.dtype)
    shape = type if e.layout.single else e.b.vector_type(type)

    def value(part: int) -> Vector:
        places = [f"%sum.{i}.{u}.{part}" for u in range(vectors(e, r))]
        return Vector(type, tuple([e.b.scalar(shape, f"load {shape}, ptr {p}").name for p in places]), e.layout.single)

    return tuple([value(part) for part in range(parts(r))])


def close(e: VectorEmitter, places: tuple[str, ...], index: Vector) -> None:
    """Combine the lanes of these places' accumulators into element `index` of partials or result."""
    for i, r in enumerate(e.kernel.reductions):
        place = place_of(e.kernel, e.layout, r)
        if place not in places:
            continue
        found, type = current(e, i, r), memory_type(r.dtype)
        if place == INNER:
            total = rounded(e.b, found)
            store_vector(e, element(e, e.param_names[r.param], type, index), total, e.mask)
            continue
        if not e.layout.single:
            found = e.b.horizontal(found, partial(combine_parts, r))
        at_once = stored_at_once(e.kernel, e.layout, r)
        if at_once:
            found = (rounded(e.b, found),)
        target = e.param_names[r.param] if at_once else f"%partials.{i}"
        store_parts(e.b, element(e, target, part_type(type, found), index), found)


def combine_parts(r: Reduction, b: FunctionText, x: tuple[Vector, ...], y: tuple[Vector, ...]) -> tuple[Vector, ...]:
    """Two partial reductions as one."""
    if r.kind == EXPONENTIALS:
        (x_anchor, x_total, x_rest), (y_anchor, y_total, y_rest) = x, y
        left, right = (x_anchor, x_total, x_rest), (y_anchor, y_total, y_rest)
        return sums_of_exponentials.combined(ByOps(VectorOps(VectorScope(b))), left, right)
    return merged(VectorOps(VectorScope(b)), *x, *y) if parts(r) == 2 else (combine(b, r.kind, r.dtype, *x, *y),)


def rounded(b: FunctionText, found: tuple[Vector, ...]) -> Vector:
    """What is stored."""
    if len(found) == PARTS:
        anchor, total, rest = found
        return sums_of_exponentials.logarithm(ByOps(VectorOps(VectorScope(b))), (anchor, total, rest))
    return found[0] if len(found) == 1 else one_number(VectorOps(VectorScope(b)), *found)


def part_type(type: str, found: Sequence[object]) -> str:
    """Of an element of partials."""
    return type if len(found) == 1 else f"[{len(found)} x {type}]"


def store_parts(b: FunctionText, place: str, found: Sequence[Vector]) -> None:
    for number, value in enumerate(found):
        at = b.scalar("ptr", f"getelementptr {value.type}, ptr {place}, i64 {number}").name if number else place
        b.line(f"store {value.type} {value.name}, ptr {at}")


# -- finish


def finish_text(kernel: Kernel, layout: LaneLayout, symbol: str) -> str:
    """The finish function, or nothing where every result is stored by the chunks themselves."""
    b = FunctionText(1, 1, "f")
    for i, r in enumerate(kernel.reductions):
        if r.shards is not None and combined(kernel, layout, r):
            shards.finish_shards(b, layout, r, pointer(b, r.param), pointer(b, len(kernel.params) + i))
        elif combined(kernel, layout, r):
            combine_partials(b, kernel, layout, i, r)
    scratch = len(kernel.params) + len(kernel.reductions)
    for i, param in enumerate(layout.copies):
        copies.combine(b, kernel, layout, param, pointer(b, param), pointer(b, scratch + i))
    if not b.lines:
        return ""
    body = "\n".join(b.lines)
    return f"define void @{symbol}_finish(ptr noalias %params) #0 {{\nentry:\n{body}\n  ret void\n}}\n"


def combined(kernel: Kernel, layout: LaneLayout, r: Reduction) -> bool:
    """Whether `finish` makes the result, of partials or of nothing."""
    if layout.chunks == 0:
        return True
    if r.shards is not None:
        return True
    return place_of(kernel, layout, r) in (WHOLE, ROW) and not stored_at_once(kernel, layout, r)


def pointer(b: FunctionText, position: int) -> str:
    at = b.scalar("ptr", f"getelementptr ptr, ptr %params, i64 {position}")
    return b.scalar("ptr", f"load ptr, ptr {at.name}").name


def combine_partials(b: FunctionText, kernel: Kernel, layout: LaneLayout, i: int, r: Reduction) -> None:
    """param[s] = the tree over the partials of segment s."""
    segments = prod(kernel.domain[: len(kernel.domain) - r.rank])
    count = partial_count(kernel, layout, r)
    each = count // max(segments, 1)
    if not segments:
        return
    result, partials = pointer(b, r.param), pointer(b, len(kernel.params) + i)
    type = memory_type(r.dtype)
    whole, each_type = tree_type(r), part_type(type, range(parts(r)))
    head, done = b.fresh_label("segments"), b.fresh_label("end")
    enter = b.label
    b.jump(head)
    b.start(head)
    index, following = b.fresh(), b.fresh()
    b.line(f"{index} = phi i64 [ 0, %{enter} ], [ {following}, %{head} ]")
    first = b.scalar("i64", f"mul i64 {index}, {each}")
    source = b.scalar("ptr", f"getelementptr {each_type}, ptr {partials}, i64 {first.name}")
    found = b.scalar(whole, f"call {whole} @{tree_name(r)}(ptr {source.name}, i64 {each})").name
    total = rounded(b, tuple([b.scalar(type, f"extractvalue {whole} {found}, {k}") for k in range(parts(r))]))
    target = b.scalar("ptr", f"getelementptr {type}, ptr {result}, i64 {index}")
    b.line(f"store {type} {total.name}, ptr {target.name}")
    b.line(f"{following} = add i64 {index}, 1")
    again = b.scalar("i1", f"icmp slt i64 {following}, {segments}")
    b.branch(again.name, head, done)
    b.start(done)


def tree_name(r: Reduction) -> str:
    return f"lg.tree.{r.kind}.{r.dtype.name}"


def tree_type(r: Reduction) -> str:
    return f"[{parts(r)} x {memory_type(r.dtype)}]"


def trees(kernel: Kernel, layout: LaneLayout) -> dict[str, str]:
    """Per kind and dtype, `[parts x T] tree(ptr, n)`: halves recursively (Higham's pairwise summation)."""
    found = [r for r in kernel.reductions if combined(kernel, layout, r)]
    return {
        **{tree_name(r): tree_function(r) for r in found if r.shards is None},
        **{function_name("merge", r): merge_function(r) for r in found if r.shards is not None},
    }


def tree_function(r: Reduction) -> str:
    name, type, whole = tree_name(r), memory_type(r.dtype), tree_type(r)
    b = FunctionText(1, 1, "t")
    sides = [
        tuple([b.scalar(type, f"extractvalue {whole} %{side}, {k}") for k in range(parts(r))])
        for side in ("left", "right")
    ]
    merged = "undef"
    for k, part in enumerate(combine_parts(r, b, *sides)):
        merged = b.scalar(whole, f"insertvalue {whole} {merged}, {type} {part.name}, {k}").name
    body = "\n".join(b.lines)
    start = FunctionText(1, 1).const(type, identity(r.kind, r.dtype)).name
    empty = ", ".join([f"{type} {start}"] * parts(r))
    return f"""
define internal {whole} @{name}(ptr %p, i64 %n) {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %more, label %empty
empty:
  ret {whole} [ {empty} ]
more:
  %one = icmp eq i64 %n, 1
  br i1 %one, label %leaf, label %split
leaf:
  %value = load {whole}, ptr %p, align {r.dtype.itemsize}
  ret {whole} %value
split:
  %half = lshr i64 %n, 1
  %rest = sub i64 %n, %half
  %left = call {whole} @{name}(ptr %p, i64 %half)
  %q = getelementptr {whole}, ptr %p, i64 %half
  %right = call {whole} @{name}(ptr %q, i64 %rest)
{body}
  ret {whole} {merged}
}}
"""
