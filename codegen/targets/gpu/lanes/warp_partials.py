"""What the invocations of a workgroup have folded, where neighbours exchange registers: a tree within each warp, then
one of what warps leave in memory of the workgroup.

Sums of f32 go in f64 where an addition of these is one instruction in place of eight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from loopgrad.codegen.kernel.nodes import Reduction
from loopgrad.codegen.math.compensated import balanced
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter, register_type
from loopgrad.codegen.targets.gpu.lanes.exchanged import exchanged, joined_in_order, shared_out_by_exchange
from loopgrad.codegen.targets.gpu.lanes.partials import GroupArray, GroupPartials, Partial, combined
from loopgrad.codegen.targets.gpu.lanes.plan import parts


def in_f64(e: Emitter, r: Reduction) -> bool:
    """Whether invocations add up what each has in f64."""
    return e.b.wide_sums and parts(r) == 2 and register_type(r.dtype) == "f32"


def widened_sum(e: Emitter, total: Val, rest: Val) -> Val:
    """A sum of f32 and its rest as one f64. The rest of an infinite total says nothing."""
    b = e.b
    finite = b.inst("FOrdLessThan", "bool", b.extended("FAbs", "f32", total), b.const("f32", inf))
    wide = [b.exact("FConvert", "f64", v) for v in (total, e.select(finite, rest, b.const("f32", -0.0)))]
    return b.exact("FAdd", "f64", *wide)


def added_by_exchange(e: Emitter, x: Val, count: int, apart: int = 1) -> Val:
    """The sum of the f64 of so many invocations that are that far apart, known to all of them."""
    distance = apart
    while distance < count * apart:
        other = exchanged(e, x, partial(e.b.across, distance=distance))
        x, distance = e.b.exact("FAdd", "f64", x, other), 2 * distance
    return x


class WarpPartials:
    """Of some reductions of one kind, so many at a time."""

    def __init__(self, e: Emitter, r: Reduction, many: int) -> None:
        self.e, self.b, self.r = e, e.b, r
        self.warps = e.b.group // e.b.neighbours
        self.wide = GroupArray(e, "f64", many * self.warps) if in_f64(e, r) else None
        self.narrow = GroupPartials(e, r, many * self.warps) if self.wide is None else None

    def fold(self, values: Sequence[Partial], leave: Callable[[Partial], None]) -> None:
        """What all invocations have of each is left by one of them: of the first by the first, and so on."""
        e, b, own = self.e, self.b, self.b.local_id()
        lanes, warps = b.const("i32", b.neighbours), b.const("i32", self.warps)
        warp, lane = b.inst("UDiv", "i32", own, lanes), b.inst("UMod", "i32", own, lanes)
        mine = self._of_warp(lane, values)
        b.barrier()  # what was here before has been read
        for j, value in enumerate(mine):
            number = b.inst("IAdd", "i32", lane, b.const("i32", j * b.neighbours)) if j else lane
            place = b.inst("IAdd", "i32", b.inst("IMul", "i32", number, warps), warp)
            there = b.inst("ULessThan", "bool", number, b.const("i32", len(values)))
            e.when(there, partial(self._set, place, value))
        b.barrier()
        first = b.inst("IMul", "i32", own, warps)
        places = [first] + [b.inst("IAdd", "i32", first, b.const("i32", k)) for k in range(1, self.warps)]
        enough = b.inst("ULessThan", "bool", own, b.const("i32", len(values)))
        e.when(enough, lambda: leave(self._of_group(places)))

    def _of_warp(self, lane: Val, values: Sequence[Partial]) -> list[Partial]:
        e, b = self.e, self.b
        if self.wide is None:
            return shared_out_by_exchange(e, lane, values, b.neighbours, partial(joined_in_order, e, self.r, lane))

        def added(mine: Partial, other: Partial, _: int) -> Partial:
            return (b.exact("FAdd", "f64", *mine, *other),)

        wide = [(widened_sum(e, *value),) for value in values]
        return shared_out_by_exchange(e, lane, wide, b.neighbours, added)

    def _set(self, place: Val, value: Partial) -> None:
        if self.wide is not None:
            self.wide.set(place, *value)
        elif self.narrow is not None:
            self.narrow.set(place, value)

    def _of_group(self, places: Sequence[Val]) -> Partial:
        b = self.b
        if self.narrow is not None:
            return balanced(partial(combined, self.e, self.r), [self.narrow.get(place) for place in places])
        assert self.wide is not None, "partials are in one of the arrays"
        x = balanced(partial(b.exact, "FAdd", "f64"), [self.wide.get(place) for place in places])
        total = b.exact("FConvert", "f32", x)
        finite = b.inst("FOrdLessThan", "bool", b.extended("FAbs", "f32", total), b.const("f32", inf))
        left = b.exact("FConvert", "f32", b.exact("FSub", "f64", x, b.exact("FConvert", "f64", total)))
        return total, self.e.select(finite, left, b.const("f32", -0.0))
