"""A running total along a row whose elements lie side by side in vectors.

    x0 x1 x2 x3                                  one vector, of one column
    +  x0 x1 x2      then  +     x0 x0+x1        log2(width) steps (Hillis and Steele, 1986)
    + c  c  c  c                                 what the vectors before it make: their last lane

Where elements of several columns alternate, steps are as many lanes wide, and what comes before is that of each column.
From the end, vectors come in falling order and steps go the other way. A row is one chunk's; or, where rows are few and
long, a chunk totals a stretch of one, waits for what all before it make, hands on both together, and reads its stretch
again (a chain of blocks: Yan, Long, Zhang, StreamScan, 2013). So the order is that of the shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, KOp, Reduction, RunningTotal
from loopgrad.codegen.math.sums_of_exponentials import EXPONENTIALS, NOTHING
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter, memory_type
from loopgrad.codegen.targets.cpu.vector.lanes import LaneLayout
from loopgrad.codegen.targets.cpu.vector.memory import element, store_vector, to_memory
from loopgrad.codegen.targets.cpu.vector.outline import combine
from loopgrad.codegen.targets.cpu.vector.reduce import combine_parts, parts, rounded
from loopgrad.codegen.targets.cpu.vector.vectors import FunctionText, Vector
from loopgrad.graph.identities import identity

FLAG: Final = 4  # bytes
Parts = tuple[Vector, ...]


def declare_carry(e: VectorEmitter) -> None:
    """Where what comes before the next vector is kept."""
    if e.kernel.running is not None:
        for part in range(parts(_reduction(e.kernel.running))):
            e.slot(e.b.vector_type(memory_type(e.kernel.running.dtype)), f"carry.{part}")


def begin(e: VectorEmitter) -> None:
    """A row begins."""
    if e.kernel.running is not None:
        _keep(e, _nothing(e, e.b.of_width(e.b.width)))


def emit_scan(e: VectorEmitter, op: KOp) -> None:
    running = e.kernel.running
    assert running is not None
    assert e.lane_start is not None
    r, one = _reduction(running), e.b.of_width(e.b.width)
    neutral = _nothing(e, one)
    x = e.b.vector(to_memory(e, e.wide(op.operands[0]), running.dtype))
    x = e.b.choose(e.mask, x, e.b.const(x.type, identity(running.kind, running.dtype)))
    if e.folding:
        total = _kept(e)
        for name in x.names:
            total = combine_parts(r, one, total, _of_term(one, running, Vector(x.type, (name,), False)))
        _keep(e, total)
        return
    before, found = _kept(e), [""] * len(x.names)
    for u in reversed(range(len(found))) if running.reverse else range(len(found)):
        term = Vector(x.type, (x.names[u],), False)
        if running.kind == "mul" and running.dtype.is_float:
            total = (_one_by_one(one, running, before[0], term),)
        else:
            total = _in_steps(one, running, _of_term(one, running, term), neutral)
            total = combine_parts(r, one, before, total)
        found[u] = one.vector(rounded(one, total)).names[0]
        before = tuple([_following(one, v, running) for v in total])
    _keep(e, before)
    start = e.integer("i64", "mul", e.row, e.b.const("i64", e.layout.lanes))
    place = e.integer("i64", "add", start, e.lane_start)
    target = element(e, e.param_names[running.param], x.type, place)
    store_vector(e, target, Vector(x.type, tuple(found), False), e.mask)


def _in_steps(one: FunctionText, running: RunningTotal, total: Parts, neutral: Parts) -> Parts:
    """The running total of one vector."""
    step, r = running.shape[2], _reduction(running)
    while step < one.width:
        earlier = tuple([_moved(one, v, n, step, running.reverse) for v, n in zip(total, neutral, strict=True)])
        total = combine_parts(r, one, earlier, total)
        step *= 2
    return total


def _one_by_one(one: FunctionText, running: RunningTotal, before: Vector, term: Vector) -> Vector:
    """The same after what was before, lane after lane: a product of two factors may overflow where that of all that
    came before them wouldn't."""
    shape, columns, width = one.vector_type(term.type), running.shape[2], one.width
    lanes = range(width)[::-1] if running.reverse else range(width)
    result, totals = "poison", [one.lane(before, i) for i in lanes[:columns]]
    for place, i in enumerate(lanes):
        totals.append(combine(one, running.kind, running.dtype, totals[place], one.lane(term, i)))
        name = one.fresh()
        one.line(f"{name} = insertelement {shape} {result}, {term.type} {totals[-1].name}, i64 {i}")
        result = name
    return Vector(term.type, (result,), False)


# ---- stretches of a row


def scratch_bytes(kernel: Kernel, layout: LaneLayout) -> tuple[int, ...]:
    """A flag for each stretch, then what it and those before it make."""
    if kernel.running is None or layout.pieces == 1:
        return ()
    each = parts(_reduction(kernel.running)) * kernel.running.dtype.itemsize
    return (cleared_bytes(kernel, layout) + layout.chunks * each,)


def cleared_bytes(kernel: Kernel, layout: LaneLayout) -> int:
    """The flags'."""
    return 0 if kernel.running is None or layout.pieces == 1 else FLAG * layout.chunks


def meet(e: VectorEmitter, chunk: Vector, pieces: int) -> None:
    """What this chunk has folded meets what the chunks before it of the row make; that is what comes next."""
    running, b = e.kernel.running, e.b
    assert running is not None
    r, scalars = _reduction(running), e.b.of_width(1)
    own = b.horizontal(_kept(e), partial(combine_parts, r))
    base, type = f"%p{len(e.kernel.params)}", memory_type(running.dtype)
    flags = element(e, base, "i32", chunk)
    totals = b.fresh()
    b.line(f"{totals} = getelementptr i8, ptr {base}, i64 {FLAG * e.layout.chunks}")
    before = _before(e, chunk, pieces, flags, totals)
    for part, value in enumerate(combine_parts(r, scalars, before, own)):
        b.line(f"store {type} {value.name}, ptr {_place(e, totals, chunk, part)}")
    b.line(f"store atomic i32 1, ptr {flags} release, align {FLAG}")
    _keep(e, tuple([Vector(type, (b.splat_name(v),), False) for v in before]))


def _before(e: VectorEmitter, chunk: Vector, pieces: int, flag: str, totals: str) -> Parts:
    """Nothing for a row's first chunk; the others wait for the one before them, which has begun before them."""
    running, b = e.kernel.running, e.b
    assert running is not None
    type, (wait, ready, have) = memory_type(running.dtype), [b.fresh_label(s) for s in ("wait", "ready", "have")]
    place = b.scalar("i64", f"urem i64 {chunk.name}, {pieces}")
    first = b.scalar("i1", f"icmp eq i64 {place.name}, 0")
    enter = b.label
    b.branch(first.name, have, wait)
    b.start(wait)
    left = b.fresh()
    b.line(f"{left} = getelementptr i8, ptr {flag}, i64 -{FLAG}")
    seen = b.scalar("i32", f"load atomic i32, ptr {left} acquire, align {FLAG}")
    done = b.scalar("i1", f"icmp ne i32 {seen.name}, 0")
    b.branch(done.name, ready, wait)
    b.start(ready)
    previous = b.scalar("i64", f"sub i64 {chunk.name}, 1")
    count = parts(_reduction(running))
    found = [b.scalar(type, f"load {type}, ptr {_place(e, totals, previous, i)}") for i in range(count)]
    b.jump(have)
    b.start(have)
    nothing = [b.const(type, value).name for value in _neutral(running)]
    pairs = zip(nothing, found, strict=True)
    return tuple([b.scalar(type, f"phi {type} [ {n}, %{enter} ], [ {v.name}, %{ready} ]") for n, v in pairs])


def _place(e: VectorEmitter, totals: str, chunk: Vector, part: int) -> str:
    running = e.kernel.running
    assert running is not None
    count = parts(_reduction(running))
    at = e.b.scalar("i64", f"mul i64 {chunk.name}, {count}")
    return element(e, totals, memory_type(running.dtype), e.integer("i64", "add", at, e.b.const("i64", part)))


def _reduction(running: RunningTotal) -> Reduction:
    return Reduction(running.kind, running.dtype, running.param, 0)


def _nothing(e: VectorEmitter, one: FunctionText) -> Parts:
    running = e.kernel.running
    assert running is not None
    type = memory_type(running.dtype)
    return tuple([one.vector(one.const(type, value)) for value in _neutral(running)])


def _neutral(running: RunningTotal) -> Sequence[float | int | bool]:
    """What nothing makes, part by part."""
    if running.kind == EXPONENTIALS:
        return NOTHING
    return (identity(running.kind, running.dtype),) * parts(_reduction(running))


def _of_term(one: FunctionText, running: RunningTotal, x: Vector) -> Parts:
    """What one term alone makes."""
    rests = (1.0, 0.0) if running.kind == EXPONENTIALS else _neutral(running)[1:]
    return (x, *[one.vector(one.const(x.type, value)) for value in rests])


def _keep(e: VectorEmitter, values: Parts) -> None:
    for part, v in enumerate(values):
        e.b.line(f"store {e.b.vector_type(v.type)} {v.names[0]}, ptr %carry.{part}")


def _kept(e: VectorEmitter) -> Parts:
    running = e.kernel.running
    assert running is not None
    type = memory_type(running.dtype)
    shape = e.b.vector_type(type)
    names = [e.b.scalar(shape, f"load {shape}, ptr %carry.{i}").name for i in range(parts(_reduction(running)))]
    return tuple([Vector(type, (name,), False) for name in names])


def _moved(b: FunctionText, v: Vector, neutral: Vector, step: int, down: bool) -> Vector:
    """Each lane's neighbour `step` lanes before (after, where `down`); nothing where there is none."""
    width = b.width
    if down:
        return _shuffled(b, v, neutral, [i + step if i + step < width else width for i in range(width)])
    return _shuffled(b, v, neutral, [i - step if i >= step else width for i in range(width)])


def _following(b: FunctionText, v: Vector, running: RunningTotal) -> Vector:
    """What each lane of the next vector has before it: the latest of its column."""
    columns, width = running.shape[2], b.width
    if running.reverse:
        return _shuffled(b, v, v, [(i - width) % columns for i in range(width)])
    return _shuffled(b, v, v, [width - columns + i % columns for i in range(width)])


def _shuffled(b: FunctionText, v: Vector, other: Vector, picks: Sequence[int]) -> Vector:
    shape, name = b.vector_type(v.type), b.fresh()
    mask = ", ".join(f"i32 {i}" for i in picks)
    b.line(f"{name} = shufflevector {shape} {v.names[0]}, {shape} {other.names[0]}, <{b.width} x i32> <{mask}>")
    return Vector(v.type, (name,), False)
