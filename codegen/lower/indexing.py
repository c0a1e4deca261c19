"""Gather and scatter at one index.

    gather(x, i) at (p)        x[clamp(i[p])]; where i is the iota of a dim, x[p] itself
    scatter(x, i, u) at (e)    x[e], combined in order with every u[p] whose i[p] is e

A scatter into an accumulator is an effect instead: `scatter_into` combines the lane's updates into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.context import AccumulatorRef, Frame, Lowering, Pull
from loopgrad.codegen.lower.emitter import Index, Part, Position
from loopgrad.codegen.lower.reduction import unroll_limit
from loopgrad.graph.lanes import iota_axis
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import bool_, int64, integer, uint64


def _lookup_sizes(node: Node) -> tuple[list[int], tuple[int, ...], tuple[int, ...]]:
    """Extents that are looked up, the shape of the indices, and the window below."""
    table, index = node.operands[0].shape, node.operands[1].shape
    m = len(node.operands) - (1 if node.op == "gather" else 2)
    return list(table[:m]), index, table[m:]


def _gather(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    extents, index_shape, window = _lookup_sizes(node)
    table, indices = node.operands[0], node.operands[1:]
    if prod(table.shape) == 0:
        return ctx.emitter.const(0, table.dtype)
    point, below = ctx.cuts(index, (prod(index_shape), prod(window)))
    parts: list[Part] = []
    for extent, i in zip(extents, indices, strict=True):
        axis = iota_axis(i)
        if axis is not None and index_shape[axis] <= extent:
            at: Position = ctx.radix(point, index_shape)[axis]
        else:
            raw = yield frame, i, point
            at = _clamped(ctx, node, raw, extent)
        if extent != 1:
            parts.append(Part(extent, at))
    return (yield frame, table, (*parts, *below))


def _clamped(ctx: Lowering, node: Node, raw: KValue, extent: int) -> Position:
    at = _wide(ctx, raw)
    _check(ctx, node, at, extent)
    return ctx.emitter.clamp(at, extent, signed=raw.dtype.kind == "i")


def _wide(ctx: Lowering, raw: KValue) -> Position:
    """As int64; what only uint64 can hold becomes the largest int64."""
    e = ctx.emitter
    if raw.op is not None and raw.op.opcode == "const":
        return min(integer(raw.op.attrs["value"]), (1 << 63) - 1)
    if raw.dtype is uint64:
        raw = e.op("min", (raw, e.const((1 << 63) - 1, uint64)), uint64)
    return e.cast(raw, int64)


def _check(ctx: Lowering, node: Node, at: Position, extent: int) -> None:
    """Where the caller wants it: stop with an error at an index that is out of range."""
    if not ctx.settings.check_indices or (isinstance(at, int) and 0 <= at < extent):
        return
    e = ctx.emitter
    inside = e.inside(at, extent)
    inside = e.const(inside, bool_) if isinstance(inside, bool) else inside
    message = (
        f"{node.op}: expected an index in [0, {extent}), got {{detail}} in lane {{lane}}; fix the index, or turn "
        f"check_indices off to {'clamp' if node.op == 'gather' else 'drop'} it"
    )
    e.effect("check", (inside, e.value(at)), (), {"error": ctx.error_site("index", message, node)})


# ---- scatter as a value


def _scatter(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    """Every update that may fall on the element is tried, in order."""
    e = ctx.emitter
    extents, index_shape, window = _lookup_sizes(node)
    table, indices, updates = node.operands[0], node.operands[1:-1], node.operands[-1]
    element = ctx.radix(index, (*extents, prod(window)))
    axes = [iota_axis(i) for i in indices]
    fixed: dict[int, Position] = {}  # axis of the updates -> where along it the element is met
    fixing: set[int] = set()
    for j, a in enumerate(axes):
        if a is not None and a not in fixed and index_shape[a] == extents[j]:
            fixed[a] = element[j]
            fixing.add(j)
    tried = [d for d in range(len(index_shape)) if d not in fixed]
    count = prod([index_shape[d] for d in tried])
    value = yield frame, table, index
    if count == 0:
        return value

    def attempt(at: Sequence[Position], held: KValue) -> Pull:
        point: dict[int, Position] = {**fixed, **dict(zip(tried, at, strict=True))}
        where = tuple([Part(n, point[d]) for d, n in enumerate(index_shape) if n != 1])
        hits: list[bool | KValue] = []
        for j, i in enumerate(indices):
            if j not in fixing:
                axis = axes[j]
                known = None if axis is None else fixed.get(axis)
                place = _wide(ctx, (yield frame, i, where)) if known is None else known
                _check(ctx, node, place, extents[j])
                hits.append(_equal(ctx, place, element[j]))
        hit = e.all_of(hits)
        if hit is False:
            return held
        below = (Part(prod(window), element[-1]),) if prod(window) != 1 else ()
        u = yield frame, updates, (*where, *below)
        kind = node.attrs["kind"]
        changed = u if kind == "set" else e.op(kind, (held, u), u.dtype)
        return changed if hit is True else e.op("select", (hit, changed, held), u.dtype)

    sizes = [index_shape[d] for d in tried]
    if count <= unroll_limit(ctx):
        for t in range(count):
            value = yield from attempt(_digits(ctx, t, sizes), value)
        return value
    k, held = e.open((int64, value.dtype))
    changed = yield from attempt(ctx.radix((Part(count, k),), sizes), held)
    body = e.close((changed,))
    return e.effect("for", (e.const(count, int64), value), (value.dtype,), {"reverse": False}, (body,))[0]


def _digits(ctx: Lowering, t: int, sizes: Sequence[int]) -> list[Position]:
    return ctx.radix((Part(prod(sizes), t),) if prod(sizes) != 1 else (), sizes)


def _equal(ctx: Lowering, a: Position, b: Position) -> bool | KValue:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return ctx.emitter.compare("eq", ctx.emitter.value(a), ctx.emitter.value(b))


# ---- scatter as an effect


def scatter_into(ctx: Lowering, frame: Frame, node: Node, target: AccumulatorRef, lead: Index) -> None:
    """Combine the updates at `lead` (a prefix of the updates' index) into memory."""
    updates: Value = node.operands[-1]
    rest = prod(updates.shape) // prod([p.size for p in lead])
    if rest <= unroll_limit(ctx):
        for t in range(rest):
            _update(ctx, frame, node, target, (*lead, Part(rest, t)) if rest != 1 else lead)
        return
    e = ctx.emitter
    (k,) = e.open((int64,))
    _update(ctx, frame, node, target, (*lead, Part(rest, k)))
    e.effect("for", (e.const(rest, int64),), (), {"reverse": False}, (e.close(),))


def _update(ctx: Lowering, frame: Frame, node: Node, target: AccumulatorRef, at: Index) -> None:
    e = ctx.emitter
    extents, index_shape, window = _lookup_sizes(node)
    point, below = ctx.cuts(at, (prod(index_shape), prod(window)))
    places, pred = places_of(ctx, frame, node, point)
    if pred is False:
        return
    x = ctx.pull(frame, node.operands[-1], at)
    position = e.linear((*[Part(n, p) for n, p in zip(extents, places, strict=True)], *below))
    flag = e.const(True, bool_) if isinstance(pred, bool) else pred
    attrs = {"param": target.param, "kind": node.attrs["kind"], "exclusive": target.exclusive}
    e.effect("accumulate", (e.value(position), x, flag), (), attrs)


def places_of(ctx: Lowering, frame: Frame, node: Node, point: Index) -> tuple[list[Position], bool | KValue]:
    """Where a scatter's update at this point of its indices goes, and whether that is inside of the table."""
    e = ctx.emitter
    extents, index_shape, _ = _lookup_sizes(node)
    inside: list[bool | KValue] = []
    places: list[Position] = []
    for extent, i in zip(extents, node.operands[1:-1], strict=True):
        axis = iota_axis(i)
        if axis is not None and index_shape[axis] <= extent:
            place: Position = ctx.radix(point, index_shape)[axis]
        else:
            place = _wide(ctx, ctx.pull(frame, i, point))
            _check(ctx, node, place, extent)
            inside.append(e.inside(place, extent))
        places.append(place)
    return places, e.all_of(inside)


RULES: Final = {"gather": _gather, "scatter": _scatter}
