"""Creation and movement: an index becomes another index, or the value itself.

Dims that stay adjacent and whole move as one digit, so that contiguous accesses stay linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from loopgrad.codegen.kernel.nodes import Block, KValue
from loopgrad.codegen.lower.context import Frame, Lowering, Pull
from loopgrad.codegen.lower.emitter import Index, Part, Position
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import int64


def _const(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    yield from ()
    return ctx.emitter.const(node.attrs["value"], node.results[0].dtype)


def _literal(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    """An element known now is a constant; others are read from a constant buffer."""
    yield from ()
    type, data = node.attrs["type"], node.attrs["data"]
    at = ctx.emitter.linear(index)
    if isinstance(at, int) and type.dtype.name != "bfloat16":
        element: Any = np.frombuffer(data, type.dtype.np, 1, at * type.dtype.itemsize)[0].item()
        return ctx.emitter.const(element, type.dtype)
    return ctx.load(ctx.settings.constant(data, type), type, at)


def _iota(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    yield from ()
    type, axis = node.attrs["type"], node.attrs["axis"]
    shape = type.shape
    digits = ctx.radix(index, (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])))
    if isinstance(digits[1], int):
        return ctx.emitter.const(digits[1], type.dtype)
    return ctx.emitter.cast(digits[1], type.dtype)


def _broadcast(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    operand = node.operands[0]
    shape, dims = node.attrs["shape"], node.attrs["dims"]
    kept = {d for extent, d in zip(operand.shape, dims, strict=True) if extent == shape[d]}
    runs = dim_runs(shape, [d in kept for d in range(len(shape))])
    cuts = ctx.cuts(index, [prod(shape[a:b]) for a, b in runs])
    held = [c for (a, b), c in zip(runs, cuts, strict=True) if any(d in kept and shape[d] != 1 for d in range(a, b))]
    return (yield frame, operand, concatenated(held))


def dim_runs(shape: Sequence[int], labels: Sequence[object]) -> list[tuple[int, int]]:
    """Maximal ranges of dims with one label; extents of 1 join any range."""
    runs: list[tuple[int, int]] = []
    current: object = None
    for d, label in enumerate(labels):
        if runs and (shape[d] == 1 or current is None or label == current):
            runs[-1] = (runs[-1][0], d + 1)
            current = label if current is None and shape[d] != 1 else current
        else:
            runs.append((d, d + 1))
            current = None if shape[d] == 1 else label
    return runs


def concatenated(cuts: Iterable[Index]) -> Index:
    """One index from the indices of consecutive dims."""
    return tuple([part for cut in cuts for part in cut])


def digit(size: int, at: Position) -> Index:
    """An index of one digit."""
    return (Part(size, at),) if size != 1 else ()


def _reshape(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    return (yield frame, node.operands[0], index)


def _transpose(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    perm, shape = node.attrs["perm"], node.results[0].shape
    starts = [j for j in range(len(perm)) if j == 0 or perm[j] != perm[j - 1] + 1]
    ends = [*starts[1:], len(perm)]
    cuts = ctx.cuts(index, [prod(shape[a:b]) for a, b in zip(starts, ends, strict=True)])
    order = sorted(range(len(starts)), key=lambda r: perm[starts[r]])
    return (yield frame, node.operands[0], concatenated(cuts[r] for r in order))


def _axis_sizes(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Sizes of each dim in `axes` and of the ranges of dims between them."""
    sizes: list[int] = []
    last = 0
    for axis in axes:
        sizes += [prod(shape[last:axis]), shape[axis]]
        last = axis + 1
    return [*sizes, prod(shape[last:])]


def _tail(extents: Sequence[int], axis: int) -> tuple[int, ...]:
    """The dims from `axis` on taken as one."""
    return (*extents[:axis], prod(extents[axis:]))


def _slice(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    operand, e = node.operands[0], ctx.emitter
    shape, result = operand.shape, node.results[0].shape
    start, step = node.attrs["start"], node.attrs["step"]
    axes = [d for d, extent in enumerate(shape) if result[d] != extent or (step[d] != 1 and extent != 1)]
    starts, steps = [min(start[d], shape[d] - 1) for d in axes], [step[d] for d in axes]
    if axes and steps[-1] == 1:  # the last sliced dim and all below it are one range
        starts[-1] *= prod(shape[axes[-1] + 1 :])
        shape, result = _tail(shape, axes[-1]), _tail(result, axes[-1])
    cuts = ctx.cuts(index, _axis_sizes(result, axes))
    for position, (start, step) in enumerate(zip(starts, steps, strict=True)):
        at = e.add(e.mul(e.linear(cuts[2 * position + 1]), step), start)
        cuts[2 * position + 1] = digit(shape[axes[position]], at)
    return (yield frame, operand, concatenated(cuts))


def _flip(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    operand = node.operands[0]
    axes = sorted(node.attrs["axes"])
    cuts = ctx.cuts(index, _axis_sizes(operand.shape, axes))
    for position, d in enumerate(axes):
        extent = operand.shape[d]
        at = ctx.emitter.linear(cuts[2 * position + 1])
        cuts[2 * position + 1] = digit(extent, ctx.emitter.sub(extent - 1, at))
    return (yield frame, operand, concatenated(cuts))


def _pad(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    """Outside reads the padding; the operand is not read there, or at a clamped index."""
    operand, padding = node.operands
    e = ctx.emitter
    shape, result = operand.shape, node.results[0].shape
    axes = [d for d in range(len(shape)) if node.attrs["low"][d] or node.attrs["high"][d]]
    low = [node.attrs["low"][d] for d in axes]
    guarded = _can_guard(ctx)
    if axes and guarded:
        low[-1] *= prod(shape[axes[-1] + 1 :])
        shape, result = _tail(shape, axes[-1]), _tail(result, axes[-1])
    if prod(shape) == 0:
        return (yield frame, padding, ())
    cuts = ctx.cuts(index, _axis_sizes(result, axes))
    inside: list[bool | KValue] = []
    for position, d in enumerate(axes):
        at = e.sub(e.linear(cuts[2 * position + 1]), low[position])
        inside.append(_within(ctx, at, shape[d], low[position] > 0, low[position] + shape[d] < result[d]))
        cuts[2 * position + 1] = digit(shape[d], at if guarded else e.clamp(at, shape[d]))
    within = e.all_of(inside)
    if within is False:
        return (yield frame, padding, ())
    if within is True:
        return (yield frame, operand, concatenated(cuts))
    fill = yield frame, padding, ()
    if guarded:
        e.open((), fence=True)
        x = yield frame, operand, concatenated(cuts)
        return _if(ctx, within, e.close((x,)), fill)
    x = yield frame, operand, concatenated(cuts)
    return e.op("select", (within, x, fill), x.dtype)


def _within(ctx: Lowering, at: Position, extent: int, below: bool, above: bool) -> bool | KValue:
    """Whether `at` is in [0, extent), where it can be below or above."""
    e = ctx.emitter
    if isinstance(at, int):
        return 0 <= at < extent
    tests: list[bool | KValue] = []
    if below:
        tests.append(e.compare("ge", at, e.const(0, int64)))
    if above:
        tests.append(e.compare("lt", at, e.const(extent, int64)))
    return e.all_of(tests)


def _can_guard(ctx: Lowering) -> bool:
    """Whether an operand may be read under an `if`, at an index that is only valid there. That keeps the
    index affine in the lane, where a clamped one would be a gather. Inside loops a load might be hoisted
    out of the `if`, and with lanes of their own indices are seldom affine anyway."""
    return not ctx.lane_loops and all(opened.fence for opened in ctx.emitter.blocks)


def _if(ctx: Lowering, condition: KValue, then: Block, other: KValue | Block) -> KValue:
    e = ctx.emitter
    if isinstance(other, KValue):
        value = other
        e.open((), fence=True)
        other = e.close((value,))
    return e.effect("if", (condition,), (then.yields[0].dtype,), {}, (then, other))[0]


def _concat(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    """Each operand owns a range of the axis. Where it is found by branches, the axis and all dims after it
    are one digit; where indices are clamped, the axis alone is, so that the others stay affine."""
    e = ctx.emitter
    axis, shape = node.attrs["axis"], node.results[0].shape
    below = prod(shape[axis + 1 :]) if _can_guard(ctx) else 1
    rest = prod(shape[axis + 1 :]) // below
    lead, low, tail = ctx.cuts(index, (prod(shape[:axis]), shape[axis] * below, rest))
    at, start = e.linear(low), 0
    pieces: list[tuple[Value, int, int]] = []
    for operand in node.operands:
        size = operand.shape[axis] * below
        if size and not (isinstance(at, int) and not 0 <= at - start < size):
            pieces.append((operand, start, size))
        start += size
    if _can_guard(ctx):
        return (yield from _nested(ctx, frame, lead, at, pieces))
    result: KValue | None = None
    for operand, start, size in pieces:
        x = yield frame, operand, (*lead, *digit(size, e.clamp(e.sub(at, start), size)), *tail)
        if result is None:
            result = x
        else:
            here = e.compare("ge", e.value(at), e.const(start, int64))
            result = e.op("select", (here, x, result), x.dtype)
    assert result is not None
    return result


def _nested(ctx: Lowering, frame: Frame, lead: Index, at: Position, pieces: Sequence[tuple[Value, int, int]]) -> Pull:
    """The piece that owns the position, the others not evaluated: a search among halves."""
    e = ctx.emitter
    if len(pieces) == 1:
        operand, start, size = pieces[0]
        return (yield frame, operand, (*lead, *digit(size, e.sub(at, start))))
    half = len(pieces) // 2
    later = e.compare("ge", e.value(at), e.const(pieces[half][1], int64))
    e.open((), fence=True)
    second = yield from _nested(ctx, frame, lead, at, pieces[half:])
    then = e.close((second,))
    e.open((), fence=True)
    first = yield from _nested(ctx, frame, lead, at, pieces[:half])
    return _if(ctx, later, then, e.close((first,)))


RULES: Final = {
    "const": _const,
    "literal": _literal,
    "iota": _iota,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "concat": _concat,
    "flip": _flip,
}
