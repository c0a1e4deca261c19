"""What invocations that share a column of a tile make together, in their order: before each of them, and all."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from loopgrad.codegen.targets.gpu.assembler import WARP, Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.lanes.exchanged import exchanged, scanned_by_exchange
from loopgrad.codegen.targets.gpu.lanes.partials import Folding, GroupPartials, Partial, combined, nothing
from loopgrad.codegen.targets.gpu.lanes.running_plan import RunningTiles


class Member(NamedTuple):
    """The invocation: its number in the workgroup, and among those of its column (i32); whether it is one of those that
    own positions, where not all are."""

    own: Val
    chunk: Val
    owner: Val | None


class Across(Protocol):
    def totals(self, own: Partial) -> tuple[Partial, Partial]:
        """What the invocations before this one have of its column, and what all have. All invocations come here, and
        meet again before they come back."""
        ...

    def before(self, own: Partial) -> Partial:
        """The first of these. All invocations come here."""
        ...


def across(e: Emitter, r: Folding, plan: RunningTiles, member: Member) -> Across:
    return AcrossWarps(e, r, plan, member) if in_warps(e, plan) else AcrossGroup(e, r, plan, member)


def in_warps(e: Emitter, plan: RunningTiles) -> bool:
    """Whether the invocations of a row are whole warps, or a part of one, and exchange registers."""
    if not e.b.hand_on or plan.columns > 1:
        return False
    return plan.chunks % WARP == 0 or (WARP % plan.chunks == 0 and e.b.group % WARP == 0)


class AcrossGroup:
    """In memory of the workgroup: log2(chunks) steps (Hillis and Steele, 1986)."""

    def __init__(self, e: Emitter, r: Folding, plan: RunningTiles, member: Member) -> None:
        self.e, self.r, self.plan, self.member = e, r, plan, member
        self.levels = [GroupPartials(e, r, e.b.group) for _ in range(2)]

    def totals(self, own: Partial) -> tuple[Partial, Partial]:
        t, e, b, r, plan = self.member, self.e, self.e.b, self.r, self.plan
        if plan.chunks == 1:
            return nothing(e, r), own
        arrays, step = self.levels, 1
        arrays[0].set(t.own, own)
        b.barrier()
        while step < plan.chunks:
            enough = b.inst("UGreaterThanEqual", "bool", t.chunk, b.const("i32", step))
            distance = b.const("i32", step * plan.columns)
            place = e.select(enough, b.inst("ISub", "i32", t.own, distance), t.own)
            joined = combined(e, r, arrays[0].get(place), own)
            own = tuple([e.select(enough, x, y) for x, y in zip(joined, own, strict=True)])
            arrays = arrays[::-1]
            arrays[0].set(t.own, own)
            b.barrier()
            step *= 2
        some = b.inst("UGreaterThan", "bool", t.chunk, b.const("i32", 0))
        one = b.const("i32", plan.columns)
        neighbour = arrays[0].get(e.select(some, b.inst("ISub", "i32", t.own, one), t.own))
        before = [e.select(some, x, y) for x, y in zip(neighbour, nothing(e, r), strict=True)]
        ahead = b.inst("ISub", "i32", b.const("i32", plan.chunks - 1), t.chunk)
        last = b.inst("IAdd", "i32", t.own, b.inst("IMul", "i32", ahead, one))
        if t.owner is not None:
            last = e.select(t.owner, last, t.own)
        return tuple(before), arrays[0].get(last)

    def before(self, own: Partial) -> Partial:
        return self.totals(own)[0]


class AcrossWarps:
    """Within a warp in registers, then what the warps of a row have, one after the other."""

    def __init__(self, e: Emitter, r: Folding, plan: RunningTiles, member: Member) -> None:
        self.e, self.r, self.member = e, r, member
        self.warps = plan.chunks // WARP  # of a row
        self.members = min(plan.chunks, WARP)
        self.array = GroupPartials(e, r, e.b.group // self.members)

    def totals(self, own: Partial) -> tuple[Partial, Partial]:
        t, e, b, r = self.member, self.e, self.e.b, self.r
        none = nothing(e, r)
        if self.members == 1:
            return none, own
        before, mine = self._of_warp(own)
        array = self.array
        last = b.inst("IEqual", "bool", self._lane(), b.const("i32", self.members - 1))
        place = b.inst("UDiv", "i32", t.own, b.const("i32", self.members))
        e.when(last, lambda: array.set(place, mine))
        b.barrier()
        if self.warps < 2:
            return before, array.get(place)
        warp = b.inst("UDiv", "i32", t.chunk, b.const("i32", WARP))
        first = b.inst("ISub", "i32", place, warp)
        whole = above = none
        for k in range(self.warps):
            found = array.get(b.inst("IAdd", "i32", first, b.const("i32", k)) if k else first)
            later = combined(e, r, whole, found) if k else found
            mark = b.inst("IEqual", "bool", warp, b.const("i32", k))
            above = tuple([e.select(mark, x, y) for x, y in zip(whole, above, strict=True)])
            whole = later
        return combined(e, r, above, before), whole

    def before(self, own: Partial) -> Partial:
        if self.members == 1:
            return nothing(self.e, self.r)
        return self._of_warp(own)[0] if self.warps < 2 else self.totals(own)[0]

    def _lane(self) -> Val:
        """The invocation's number among those that exchange registers."""
        return self.e.b.inst("BitwiseAnd", "i32", self.member.chunk, self.e.b.const("i32", self.members - 1))

    def _of_warp(self, own: Partial) -> tuple[Partial, Partial]:
        """What those before this one have, and what it has with them."""
        e, b, lane = self.e, self.e.b, self._lane()
        mine = scanned_by_exchange(e, self.r, lane, own, self.members)
        some = b.inst("UGreaterThan", "bool", lane, b.const("i32", 0))
        behind = [exchanged(e, x, lambda v: b.behind(v, 1)) for x in mine]
        return tuple([e.select(some, x, y) for x, y in zip(behind, nothing(e, self.r), strict=True)]), mine
