"""Loops that Ctrl-C can end: now and then they ask whether to go on.

A kernel asks at least after every 2**24 trips of its innermost loops or so, however deep they are nested: the deeper,
the more often each of them asks. A loop that is known to be short doesn't ask. What a kernel computes after it was told
to stop is meaningless; the driver reports the interruption.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import Block
from loopgrad.codegen.targets.cpu.entry.call_context import CONTROL_TAIL, HEADER
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter
from loopgrad.codegen.targets.cpu.vector.outline import attend_function
from loopgrad.codegen.targets.cpu.vector.vectors import Vector

TRIPS = 24  # the logarithm of the trips between two questions, in all loops of a nest together
MOST, LEAST = 16, 4  # of one loop
BOUNDED = 1 << 20  # trips of a loop without others around or inside that ends soon enough


def patience(e: VectorEmitter) -> int:
    """Trips of one of the kernel's loops between two questions whether to go on."""
    if e.nesting is None:
        e.nesting = nesting(e.kernel.body)
    return 1 << min(max(TRIPS // max(e.nesting, 1), LEAST), MOST)


def nesting(block: Block) -> int:
    """How many loops contain each other."""
    deepest = 0
    for op in block.ops:
        inner = max([nesting(b) for b in op.blocks], default=0)
        deepest = max(deepest, inner + (op.opcode in ("for", "while")))
    return deepest


def ends_soon(e: VectorEmitter, most: int | None) -> bool:
    """Whether a loop of at most this many trips needn't ask."""
    if most is None:
        return False
    return most <= patience(e) or (e.nesting == 1 and most <= BOUNDED)


def context(e: VectorEmitter) -> str:
    """The address of the call's context, loaded where it is used: it isn't worth a register in the loop."""
    e.interruptible, b = True, e.b
    where = b.scalar("ptr", f"getelementptr i64, ptr %control, i64 {2 * len(e.kernel.stacks) + CONTROL_TAIL - 1}")
    return b.scalar("ptr", f"load ptr, ptr {where.name}").name


def going(e: VectorEmitter) -> str:
    """Whether the call wasn't told to stop, as an i1."""
    stop_at = e.b.scalar("ptr", f"getelementptr i64, ptr {context(e)}, i64 {HEADER['stop']}")
    stop = e.b.scalar("i64", f"load atomic i64, ptr {stop_at.name} monotonic, align 8")
    return e.b.scalar("i1", f"icmp eq i64 {stop.name}, 0").name


def told_to_stop(e: VectorEmitter) -> str:
    """Asks; an i1."""
    e.b.outlined.setdefault("lg.attend", attend_function)
    return e.b.scalar("i1", f"call i1 @lg.attend(ptr {context(e)}, ptr %worker)").name


class Stretches:
    """A counted loop in stretches: between two of them it asks whether to go on. A trip costs what it costs without.

        enter:    %end0 = min(trips, patience)
        head:     %end = phi [%end0, enter], [%end, latch], [%end1, on]
        latch:    k + 1 < %end: head, else between
        between:  k + 1 < trips: ask, else leave
        ask:      lg.attend(): leave, else on
        on:       %end1 = min(trips, k + 1 + patience)

    Where the loop counts down, ends are lower ones. An outermost loop that begins after the call was told to stop
    makes one trip.
    """

    def __init__(self, e: VectorEmitter, trips: Vector, reverse: bool) -> None:
        self.e, self.b, self.trips, self.reverse = e, e.b, trips, reverse
        self.patience = patience(e)
        self.label = e.b.fresh_label("between")
        last = self._last(trips.name if reverse else "0")
        if not e.loops:
            step = f"{'sub' if reverse else 'add'} {trips.type} {trips.name if reverse else '0'}, 1"
            one = e.b.scalar(trips.type, step).name
            last = e.b.scalar(trips.type, f"select i1 {going(e)}, {trips.type} {last}, {trips.type} {one}").name
        self.first = last

    def _last(self, k: str) -> str:
        """Where the stretch that begins at k ends."""
        b, type = self.b, self.trips.type
        left = k if self.reverse else b.scalar(type, f"sub nsw {type} {self.trips.name}, {k}").name
        far = b.scalar("i1", f"icmp sgt {type} {left}, {self.patience}").name
        step = b.scalar(type, f"{'sub' if self.reverse else 'add'} {type} {k}, {self.patience}").name
        end = "0" if self.reverse else self.trips.name
        return b.scalar(type, f"select i1 {far}, {type} {step}, {type} {end}").name

    def head(self) -> None:
        self.line, self.end = self.b.reserve(), self.b.fresh()

    def between(self, following: Vector, enter: str, latch: str, head: str, leave: str) -> tuple[str, list[str]]:
        """The blocks after a stretch. The one that goes back to the head, and those that leave."""
        b, type = self.b, self.trips.type
        ask, on = b.fresh_label("ask"), b.fresh_label("on")
        b.start(self.label)
        final = "0" if self.reverse else self.trips.name
        more = b.scalar("i1", f"icmp {'sgt' if self.reverse else 'slt'} {type} {following.name}, {final}")
        b.branch(more.name, ask, leave, rarely=True)
        b.start(ask)
        b.branch(told_to_stop(self.e), leave, on, rarely=True)
        b.start(on)
        next_end = self._last(following.name)
        b.jump(head)
        b.lines[self.line] = (
            f"  {self.end} = phi {type} [ {self.first}, %{enter} ], [ {self.end}, %{latch} ], [ {next_end}, %{on} ]"
        )
        return on, [self.label, ask]


class Pause:
    """What lets a `while` be interrupted that need not end. It counts down trips; at 0 it asks whether to go on, and a
    loop that begins after the call was told to stop makes one trip.

        enter:  %left0 = patience, or 1 where `stop` is set
        head:   %left, %going = phi ...;     the loop goes on while %going
        latch:  %left - 1 == 0: %going = not lg.attend()

    Where a loop's lanes have a mask, the mask becomes empty instead.
    """

    def __init__(self, e: VectorEmitter) -> None:
        b = e.b
        self.e, self.b = e, b
        self.patience = patience(e)
        self.first = b.scalar("i64", f"select i1 {going(e)}, i64 {self.patience}, i64 1").name

    def head(self) -> None:
        self.lines = (self.b.reserve(), self.b.reserve())
        self.left, self.going = self.b.fresh(), self.b.fresh()

    def latch(self, enter: str, alive: Vector | None) -> Vector | None:
        """Ends in the block that jumps back; `enter` is the one from which the loop is entered. The mask of the
        following trip."""
        b = self.b
        ask, back = b.fresh_label("ask"), b.fresh_label("back")
        left = b.scalar("i64", f"add nsw i64 {self.left}, -1")
        due = b.scalar("i1", f"icmp eq i64 {left.name}, 0")
        before = b.label
        b.branch(due.name, ask, back, rarely=True)
        b.start(ask)
        on = b.scalar("i1", f"xor i1 {told_to_stop(self.e)}, true")
        with b.scope():
            kept = None if alive is None else b.both(alive, b.vector(on))
        b.jump(back)
        b.start(back)
        counted = b.scalar("i64", f"phi i64 [ {left.name}, %{before} ], [ {self.patience}, %{ask} ]")
        going = b.scalar("i1", f"phi i1 [ true, %{before} ], [ {on.name}, %{ask} ]")
        following = None
        if alive is not None and kept is not None:
            names = [b.fresh() for _ in alive.names]
            for name, old, new in zip(names, alive.names, kept.names, strict=True):
                b.line(f"{name} = phi {b.vector_type('i1')} [ {old}, %{before} ], [ {new}, %{ask} ]")
            following = Vector("i1", tuple(names), False)
        for line, name, type, start, new in (
            (self.lines[0], self.left, "i64", self.first, counted.name),
            (self.lines[1], self.going, "i1", "true", going.name),
        ):
            b.lines[line] = f"  {name} = phi {type} [ {start}, %{enter} ], [ {new}, %{back} ]"
        return following
