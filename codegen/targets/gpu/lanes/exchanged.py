"""What neighbouring invocations hand each other in registers, where they do: numbers of all types, by exchanges of
f32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Reduction
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.lanes.partials import Folding, Partial, combined

Exchange = Callable[[Val], Val]
HALF: Final = 32  # bits


def exchanged(e: Emitter, x: Val, exchange: Exchange) -> Val:
    """What `exchange` gives of a number, f32 by f32."""
    b = e.b
    match x.type:
        case "f32":
            return exchange(x)
        case "i32":
            return e.bitcast(exchange(e.bitcast(x, "f32")), "i32")
        case "bool":
            word = e.select(x, b.const("i32", 1), b.const("i32", 0))
            return b.inst("INotEqual", "bool", exchanged(e, word, exchange), b.const("i32", 0))
        case "f64":
            return e.bitcast(exchanged(e, e.bitcast(x, "i64"), exchange), "f64")
        case "f16":
            return e.bitcast(exchanged(e, e.bitcast(x, "i16"), exchange), "f16")
        case "i64":
            half = b.const("i64", HALF)
            words = [e.resize(v, "i32") for v in (x, b.inst("ShiftRightLogical", "i64", x, half))]
            low, high = (e.resize(exchanged(e, v, exchange), "i64", signed=False) for v in words)
            return b.inst("BitwiseOr", "i64", b.inst("ShiftLeftLogical", "i64", high, half), low)
    return e.resize(exchanged(e, e.resize(x, "i32"), exchange), x.type)


def folded_by_exchange(e: Emitter, r: Folding, member: Val, mine: Partial, members: int, apart: int = 1) -> Partial:
    """What so many invocations make that are that far apart, powers of two and together at most a warp; in order, known
    to all of them. `member`: the invocation's number, a multiple of it taken away or not."""
    distance = apart
    while distance < members * apart:
        mine = joined_in_order(e, r, member, mine, _across(e, mine, distance), distance)
        distance *= 2
    return mine


def shared_out_by_exchange(
    e: Emitter, member: Val, mine: Sequence[Partial], members: int, join: Callable[[Partial, Partial, int], Partial]
) -> list[Partial]:
    """What so many neighbours, a power of two and at most a warp, make of each of several: that of number n is known to
    invocation n % members, at n // members. At each distance an invocation gives one of two away and gets the other, so
    many of them take one exchange each, in place of one for each distance. `join` makes one of what an invocation has
    and what it gets from that distance."""
    distance = 1
    while distance < members:
        lower = _is_lower(e, member, distance)
        halved = []
        for n in range(0, len(mine), 2):
            kept = given = mine[n]
            if n + 1 < len(mine):
                pairs = [*zip(mine[n], mine[n + 1], strict=True)]
                kept = tuple([e.select(lower, x, y) for x, y in pairs])
                given = tuple([e.select(lower, y, x) for x, y in pairs])
            halved.append(join(kept, _across(e, given, distance), distance))
        mine, distance = halved, 2 * distance
    return [*mine]


def joined_in_order(e: Emitter, r: Folding, member: Val, mine: Partial, other: Partial, distance: int) -> Partial:
    """What an invocation has and what the one at that distance has."""
    if isinstance(r, Reduction) and r.kind == "add":  # either way round it is the same
        return combined(e, r, mine, other)
    lower = _is_lower(e, member, distance)
    pairs = ((mine, other), (other, mine))
    x, y = (tuple([e.select(lower, *pair) for pair in zip(p, q, strict=True)]) for p, q in pairs)
    return combined(e, r, x, y)


def _across(e: Emitter, mine: Partial, distance: int) -> Partial:
    return tuple([exchanged(e, x, partial(e.b.across, distance=distance)) for x in mine])


def _is_lower(e: Emitter, member: Val, distance: int) -> Val:
    """Whether the invocation at that distance comes after this one."""
    bit = e.b.inst("BitwiseAnd", "i32", member, e.b.const("i32", distance))
    return e.b.inst("IEqual", "bool", bit, e.b.const("i32", 0))


def scanned_by_exchange(e: Emitter, r: Folding, member: Val, mine: Partial, members: int) -> Partial:
    """What those of so many neighbours make that are no later than this one."""
    b, distance = e.b, 1
    while distance < members:
        other = tuple([exchanged(e, x, partial(b.behind, distance=distance)) for x in mine])
        enough = b.inst("UGreaterThanEqual", "bool", member, b.const("i32", distance))
        joined = combined(e, r, other, mine)
        mine = tuple([e.select(enough, x, y) for x, y in zip(joined, mine, strict=True)])
        distance *= 2
    return mine
