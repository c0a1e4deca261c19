"""Rolled code: values of many elements in arrays of the lane, each computed by a loop.

    %2 = matmul(%0, %1)     ->     for i, for j: array[12 * i + j] = sum(load ...)
    %3 = add(%2, %q)               nothing: its reader computes each element, once

Where a lane's values are few, all are registers and code is written once for each element. Otherwise a value is kept
in an array where its elements are read more than once, since reading them computes them; what only moves elements
never is. Carries, results of branches and of factorisations are kept, whatever reads them. A small value that is read
in loops is computed before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.context import Frame, InArray, Lowering, Registers, StackRef, Stored, leading_dims
from loopgrad.codegen.lower.emitter import Index, KernelBuilder, Part, Position
from loopgrad.codegen.lower.indexing import places_of
from loopgrad.graph.lanes import iota_axis
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, LIBRARY, PRIMITIVES, REDUCTIONS, RUNNING_TOTALS, STACKS
from loopgrad.graph.primitives.primitive import Kind
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import TensorType, int64

FEW: Final = 8  # elements that are registers all the same
MOST: Final = 2048  # of what is computed beforehand though nothing but a lane reads it
MOST_JOINED: Final = 2  # pieces of a concat that are told apart at each element
CHEAP: Final = 1.0  # what is computed twice rather than kept


# ---- which values


def kept_values(nodes: Sequence[Node], outputs: Iterable[Value], count: Callable[[Value], int]) -> dict[Value, bool]:
    """Those made by these nodes (in order) that are computed before they are read, and whether into an array. `count`:
    of a lane's elements."""
    reads: dict[Value, float] = dict.fromkeys(outputs, 1.0)
    found: dict[Value, bool] = {}
    for node in reversed(nodes):
        times = max([reads.get(r, 0.0) for r in node.results], default=1.0)
        if not node.regions and node.op not in LIBRARY and node.op not in STACKS:
            value = node.results[0]
            many = count(value) > FEW
            if count(value) <= MOST and _worth_keeping(node, many, times):
                found[value], times = many, 1.0
        for i, v in enumerate(node.operands if node.op not in ELEMENTWISE else dict.fromkeys(node.operands)):
            if isinstance(v.type, TensorType):
                reads[v] = reads.get(v, 0.0) + _reads(node, i, times, count)
    return found


def in_pieces(node: Node) -> bool:
    """Whether an element alone would be looked for among many."""
    return node.op == "scatter" or (node.op == "concat" and len(node.operands) > MOST_JOINED)


def _worth_keeping(node: Node, many: bool, times: float) -> bool:
    row = PRIMITIVES[node.op]
    if in_pieces(node):
        return many
    if row.kind in (Kind.NULLARY, Kind.MOVEMENT) or row.cost == 0:
        return False
    cheap = row.kind is Kind.ELEMENTWISE and row.cost <= CHEAP
    return times > (2.0 if cheap and many else 1.0)


def _reads(node: Node, operand: int, times: float, count: Callable[[Value], int]) -> float:
    """How often an element of the operand is read where those of the results are read so often."""
    v = node.operands[operand]
    if node.regions:
        region = Region.of(node)
        again = operand in region.captured if isinstance(region, Loop) else operand >= region.first
        return 2.0 if again else 1.0
    if node.op == "triangular_solve" and operand == 0:
        return 1.0 * node.operands[1].shape[-1]
    if node.op in LIBRARY or node.op in STACKS or in_pieces(node):
        return 1.0
    result = node.results[0]
    if node.op == "matmul":
        return times * (result.shape[-1] if operand == 0 else result.shape[-2])
    if node.op in REDUCTIONS:
        return times
    if node.op in RUNNING_TOTALS:
        axis: int = node.attrs["axis"]
        return times * v.shape[axis]
    return times * max(count(result) / max(count(v), 1), 1.0)


# ---- computing them


def keeps(ctx: Lowering, value: Value) -> bool:
    """Whether a carry or a result is kept in an array."""
    return ctx.rolled and isinstance(value.type, TensorType) and ctx.register_count(value.shape) > FEW


def settle(ctx: Lowering, frame: Frame, value: Value, many: bool) -> None:
    """Compute the value here."""
    if isinstance(frame.bindings.get(value), Stored):
        return
    if many:
        frame.bindings[value] = computed(ctx, frame, value)
    else:
        frame.bindings[value] = Registers(tuple(ctx.pull_all(frame, value)), ctx.leads(value.shape))


def computed(ctx: Lowering, frame: Frame, value: Value) -> InArray:
    """The value in an array of its own."""
    kept = new_kept(ctx, value)
    node = frame.resolve(value)[1].node if frame.resolve(value)[2] is None else None
    if node is not None and node.op == "concat" and in_pieces(node) and _own_axis(ctx, node) >= 0:
        _join(ctx, frame, node, kept.array)
    elif node is not None and node.op == "scatter" and _own_rows(ctx, node):
        _scatter(ctx, frame, node, kept.array)
    else:
        fill(ctx, frame, value, kept.array)
    return kept


def gathered(ctx: Lowering, value: Value, elements: Sequence[KValue]) -> InArray:
    """What is in registers, in an array."""
    kept = new_kept(ctx, value)
    for t, x in enumerate(elements):
        ctx.put(kept.array, t, x)
    return kept


def new_kept(ctx: Lowering, value: Value) -> InArray:
    return InArray(ctx.new_array(value.dtype, ctx.register_count(value.shape)), ctx.leads(value.shape))


def fill(ctx: Lowering, frame: Frame, value: Value, array: int) -> None:
    """Every element of the value that belongs to the lane, into the array."""

    def put(parts: Index) -> None:
        index = (*ctx.lane_index, *parts) if ctx.leads(value.shape) else parts
        ctx.put(array, ctx.emitter.linear(parts), ctx.pull(frame, value, index))

    nest(ctx.emitter, own_dims(ctx, value), put)


def copied(ctx: Lowering, source: int, target: int) -> None:
    """One array into another."""
    size = ctx.arrays[source].size
    repeated(ctx.emitter, size, lambda k: ctx.put(target, k, ctx.element(source, k)))


def replace(ctx: Lowering, frame: Frame, values: Mapping[int, Value]) -> None:
    """New elements for the arrays of carries, of which any may be read until all are known."""
    moves: list[tuple[int, int]] = []
    for array, value in values.items():
        held = frame.resolve(value)[2]
        source = held.array if isinstance(held, InArray) else computed(ctx, frame, value).array
        if source in values and source != array:  # the carry of another one, which changes itself
            source = computed(ctx, frame, value).array
        moves.append((source, array))
    for source, array in moves:
        if source != array:
            copied(ctx, source, array)


def push(ctx: Lowering, frame: Frame, value: Value, ref: StackRef) -> None:
    """One element after the other."""
    e, (slot,) = ctx.emitter, ref.slots
    lane = ctx.leads(value.shape)

    def put(parts: Index) -> None:
        x = ctx.pull(frame, value, (*ctx.lane_index, *parts) if lane else parts)
        e.effect("push", (x,), (), {"stack": slot})

    nest(e, own_dims(ctx, value), put)


def popped(ctx: Lowering, value: Value, ref: StackRef) -> InArray:
    """The last element first."""
    kept, e, (slot,) = new_kept(ctx, value), ctx.emitter, ref.slots

    def put(k: KValue) -> None:
        ctx.put(kept.array, k, e.effect("pop", (), (value.dtype,), {"stack": slot})[0])

    repeated(e, ref.elements, put, reverse=True)
    return kept


def own_dims(ctx: Lowering, value: Value) -> tuple[int, ...]:
    """The dims of what a lane holds of the value."""
    return value.shape[leading_dims(value.shape, ctx.lanes) :] if ctx.leads(value.shape) else value.shape


def repeated(e: KernelBuilder, count: Position, body: Callable[[KValue], None], reverse: bool = False) -> None:
    """for k in [0, count): body(k)"""
    (k,) = e.open((int64,))
    body(k)
    e.effect("for", (e.value(count),), (), {"reverse": reverse}, (e.close(),))


def nest(e: KernelBuilder, dims: Sequence[int], body: Callable[[Index], None], parts: Index = ()) -> None:
    """body(the digits of each element) of an array of these dims, by nested loops."""
    if not dims:
        body(parts)
    elif dims[0] == 1:
        nest(e, dims[1:], body, parts)
    else:
        repeated(e, dims[0], lambda k: nest(e, dims[1:], body, (*parts, Part(dims[0], k))))


def _own_axis(ctx: Lowering, node: Node) -> int:
    """The axis of a concat among those of what a lane holds; below 0 where lanes are joined, each of which is in one
    operand."""
    value = node.results[0]
    axis: int = node.attrs["axis"]
    return axis - len(value.shape) + len(own_dims(ctx, value))


def _join(ctx: Lowering, frame: Frame, node: Node, array: int) -> None:
    """A concat, one operand after the other."""
    e, shape = ctx.emitter, node.results[0].shape
    axis, start = _own_axis(ctx, node), 0
    lead = node.attrs["axis"] - axis
    for operand in node.operands:
        dims = operand.shape[lead:]
        if not prod(dims):
            continue

        def put(parts: Index, operand: Value = operand, dims: Sequence[int] = dims, start: int = start) -> None:
            places = ctx.radix(parts, dims)
            places[axis] = e.add(places[axis], start)
            at = e.linear(tuple([Part(n, p) for n, p in zip(shape[lead:], places, strict=True)]))
            index = (*ctx.lane_index, *parts) if lead else parts
            ctx.put(array, at, ctx.pull(frame, operand, index))

        nest(e, dims, put)
        start += dims[axis]


# ---- scatters


def _own_rows(ctx: Lowering, node: Node) -> bool:
    """Whether the places of a lane's updates begin with the lane."""
    table, indices = node.operands[0], node.operands[1:-1]
    lead = len(table.shape) - len(own_dims(ctx, table))
    if not ctx.leads(table.shape):
        return not ctx.leads(node.operands[-1].shape)
    shape = indices[0].shape
    return shape[:lead] == table.shape[:lead] and [iota_axis(i) for i in indices[:lead]] == list(range(lead))


def _scatter(ctx: Lowering, frame: Frame, node: Node, array: int) -> None:
    """The table, then each update in order."""
    e, (table, *indices, updates) = ctx.emitter, node.operands
    fill(ctx, frame, table, array)
    lead = len(table.shape) - len(own_dims(ctx, table))
    shape, window = indices[0].shape, table.shape[len(indices) :]

    def update(parts: Index) -> None:
        index = (*ctx.lane_index, *parts) if lead else parts
        point, below = ctx.cuts(index, (prod(shape), prod(window)))
        places, inside = places_of(ctx, frame, node, point)
        digits = [Part(n, p) for n, p in zip(table.shape[lead : len(indices)], places[lead:], strict=True)]
        if inside is False:
            return
        at = e.linear((*digits, *below))
        x = ctx.pull(frame, updates, index)

        def change() -> None:
            kind = node.attrs["kind"]
            ctx.put(array, at, x if kind == "set" else e.op(kind, (ctx.element(array, at), x), x.dtype))

        if inside is True:
            change()
        else:
            when(e, inside, change)

    nest(e, updates.shape[lead:], update)


def when(e: KernelBuilder, condition: KValue, body: Callable[[], None]) -> None:
    e.open((), fence=True)
    body()
    then = e.close()
    e.open((), fence=True)
    e.effect("if", (condition,), (), {}, (then, e.close()))
