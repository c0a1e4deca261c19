"""push and pop: per-lane stacks in the heap, interleaved by invocation: [depth][invocation].

A push beyond the capacity isn't stored; the rows that would have been needed go to the control block (an
atomic maximum), and pops there read zeros, so that nothing that is computed from them runs away.

Rows are counted in 32 bits. Every loop that pushes ends before it could make a counter wrap around (`most_trips`), and
every such loop is followed by a look at the counter, so one that has passed MOST_ROWS is always seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, KOp, walk
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter, memory_type
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory, to_memory
from loopgrad.codegen.targets.gpu.interface import MOST_ROWS, NEEDED, OVERFLOW_LANE, UNCOUNTED

SHORT: Final = 1 << 10  # trips


def address(e: Emitter, s: int, depth: Val) -> Val:
    """One product of two 32-bit numbers and one sum."""
    rows, pitch = (e.resize(v, "i64", signed=False) for v in (depth, e.stacks[s].pitch))
    return e.offset(e.stacks[s].base, e.b.inst("IMul", "i64", rows, pitch))


def fits(e: Emitter, s: int, depth: Val) -> Val:
    return e.b.inst("ULessThan", "bool", depth, e.stacks[s].capacity)


@contextmanager
def popping(e: Emitter, op: KOp, count: Val) -> Iterator[Val]:
    """The trips of a counted loop: none where a stack of the lane has overflowed or a check has failed, since then
    the stacks that it only pops may hold fewer rows than it has trips. So its pops needn't look, which would keep
    the loads of several trips from being under way together (a Zipf law's lanes take 1.12 times as long on an H200
    where they look). A kernel that is continued doesn't know what has overflowed before."""
    ops = list(walk(op.blocks[0]))
    pushed, popped = ({x.attrs["stack"] for x in ops if x.opcode == kind} for kind in ("push", "pop"))
    new = set() if e.stacks.spilled is None else popped - pushed - e.stacks.sure
    if new:
        spilled = e.b.get(e.stacks.spilled, "bool")
        count = e.select(spilled, e.b.const(count.type, 0), count)
        for s in sorted(new):  # the depth of a stack may be the count, and then one register serves for both
            e.b.set(e.stacks[s].depth, e.select(spilled, e.b.const("i32", 0), e.b.get(e.stacks[s].depth, "i32")))
    e.stacks.sure |= new
    yield count
    e.stacks.sure -= new


def most_trips(e: Emitter, op: KOp) -> int | None:
    """The trips after which a loop that makes stacks deeper is left; None for any other. Loops that contain each other
    push no more than MOST_ROWS together before one of them ends."""
    deepened = deepens(e, op)
    if not deepened:
        return None
    times: dict[int, int] = {}
    for s, number in pushes(e, [e.kernel.body], True):
        times[s] = times.get(s, 0) + number
    return MOST_ROWS // max(times[s] for s in deepened)


def deepens(e: Emitter, op: KOp) -> set[int]:
    """The stacks that trips of a loop push, other than by long loops inside it, and never pop."""
    popped = {x.attrs["stack"] for block in op.blocks for x in walk(block) if x.opcode == "pop"}
    return {s for s, _ in pushes(e, op.blocks, False)} - popped


def pushes(e: Emitter, blocks: Sequence[Block], long: bool) -> Iterator[tuple[int, int]]:
    """Each push: the stack, and how often at most these blocks do it. Loops that may be long count as one trip, or
    without `long` are left out."""
    for op in [op for block in blocks for op in block.ops]:
        if op.opcode == "push":
            yield op.attrs["stack"], 1
        elif op.opcode == "if" or short(e, op):
            times = 1 if op.opcode == "if" else max(e.ranges.of(op.operands[0])[1], 1)
            yield from [(s, times * number) for s, number in pushes(e, op.blocks, long)]
        elif long:
            yield from pushes(e, op.blocks, long)


def short(e: Emitter, op: KOp) -> bool:
    """Whether it is a loop that is known to end soon."""
    return op.opcode == "for" and e.ranges.of(op.operands[0])[1] <= SHORT


@contextmanager
def pushing(e: Emitter, op: KOp, endless: Callable[[], Val | None]) -> Iterator[None]:
    """A loop. A stack that it makes deeper is deepest at its end, so one look there is enough, and a push in the
    loop is no more than a store that happens or doesn't: on an H200 an adaptive integrator, which pushes dozens of
    values a step, takes 10 times as long with a look after each. `endless()` says afterwards whether the loop was left
    since it made its `most_trips`, where that can be."""
    deepened = deepens(e, op)
    new = deepened - e.stacks.watched
    e.stacks.watched |= new
    yield
    e.stacks.watched -= new
    left = endless()
    for s in sorted(new if short(e, op) else deepened):
        depth = e.b.get(e.stacks[s].depth, "i32")
        over = e.b.inst("ULessThan", "bool", e.stacks[s].capacity, depth)
        rows = units(e, s, depth)
        if left is not None:
            over, rows = e.either(over, left), e.select(left, e.b.const("i32", UNCOUNTED - (1 << 32)), rows)
        e.continuation.effect(e, partial(e.when, over, partial(overflow, e, s, rows)))


def units(e: Emitter, s: int, pushed: Val) -> Val:
    """The depth that holds so many elements."""
    elements = e.kernel.stacks[s].elements
    if elements == 1:
        return pushed
    last = e.b.inst("IAdd", "i32", pushed, e.b.const("i32", elements - 1))
    return e.b.inst("UDiv", "i32", last, e.b.const("i32", elements))


def overflow(e: Emitter, s: int, depth: Val) -> None:
    """The stack would need `depth` rows."""
    if e.stacks.spilled is not None:
        e.b.set(e.stacks.spilled, e.b.const("bool", True))
    e.b.atomic("AtomicUMax", e.reporting.control(e.b, NEEDED + 4 * s), depth)
    e.b.store(e.reporting.control(e.b, OVERFLOW_LANE), e.lane)
    e.b.store(e.reporting.void(e.b), e.b.const("i32", 1))


def emit_push(e: Emitter, op: KOp) -> None:
    b, s = e.b, op.attrs["stack"]
    value = to_memory(e, e.get(op.operands[0]), e.kernel.stacks[s].dtype)
    depth = b.get(e.stacks[s].depth, "i32")
    deeper = b.inst("IAdd", "i32", depth, b.const("i32", 1))
    b.set(e.stacks[s].depth, deeper)

    def push() -> None:
        inside = fits(e, s, depth)
        e.when(inside, lambda: b.store(address(e, s, depth), value))
        if s not in e.stacks.watched:
            e.when(b.inst("LogicalNot", "bool", inside), lambda: overflow(e, s, units(e, s, deeper)))

    e.continuation.effect(e, push)


def emit_pop(e: Emitter, op: KOp) -> Val:
    b, s = e.b, op.attrs["stack"]
    dtype = e.kernel.stacks[s].dtype
    type = memory_type(dtype)
    depth = b.inst("ISub", "i32", b.get(e.stacks[s].depth, "i32"), b.const("i32", 1))
    b.set(e.stacks[s].depth, depth)
    if s in e.stacks.sure:
        value = b.load(address(e, s, depth), type)
    else:
        (value,) = e.choose(
            fits(e, s, depth), lambda: (b.load(address(e, s, depth), type),), lambda: (b.const(type, 0),)
        )
    return from_memory(e, e.continuation.spilled(e, value), dtype)
