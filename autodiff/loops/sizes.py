"""How deep a stack gets: a size expression in ordinary nodes.

Enters: a loop or switch about to be emitted, whose body pushes on a stack, and its operands. Leaves: one
int64 scalar of the ambient scope, the most values that any lane will have pushed; or None where only running
the loop tells (a value-dependent while inside, a bound computed by float carries): such a stack is measured.

The expression is the forward program with the stack replaced by a counter, and everything the counter
doesn't need left out. Where the pushes per trip don't depend on the trip it is just a product:

    for i < n: for j < m[i]: push      ->   for i < n: total += max(m[i], 0)
    for i < n: for j < 3: push         ->   max(n, 0) * 3

then the maximum over the lanes. A switch counts as its deepest branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopgrad.autodiff.loops.normal import without_inputs
from loopgrad.graph import ops
from loopgrad.graph.build import inline, trace
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes.carries import run as without_dead_carries
from loopgrad.graph.primitives import STACKS
from loopgrad.graph.rebuild import read_values
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.stacks import uses_of_stack
from loopgrad.graph.types import StackType, TensorType, int64

Lookup = Callable[[int], Value]
"""The value, in the current scope, of a region's input."""

_SCALAR = TensorType((), int64)


class _UnknownDepthError(Exception):
    """The number of pushes isn't known before the loop runs."""


def depth_of(region: Region, operand: int) -> Value | None:
    """The depth of the stack that enters a region node as this operand. The node needn't be emitted, nor need there be
    stacks among its operands yet."""
    try:
        return _deepest(_pushes_of_region(region, operand, lambda i: region.node.operands[i]))
    except _UnknownDepthError:
        return None


def _deepest(total: Value) -> Value:
    """The maximum over lanes, where finding it takes no loop over floats or of unknown length."""
    _require_cheap(extract([total]))
    if 0 in total.shape:
        return ops.full(0, _SCALAR)
    return ops.reduce_max(total, range(len(total.shape)))


def _require_cheap(graph: Graph) -> None:
    """No loop of unknown length, none over floats, nothing saved."""
    for node in graph.nodes:
        floats = any(isinstance(r.type, TensorType) and r.dtype.differentiable for r in node.results)
        loop = Region.of(node) if node.regions else None
        if node.op in STACKS or (isinstance(loop, Loop) and (loop.count is None or floats)):
            raise _UnknownDepthError
        for region in node.regions:
            _require_cheap(region)


def _sliced(region: Graph, values: Sequence[Value]) -> Graph:
    """What `values` need of `region`, without carries that only others need (stacks among them)."""
    graph = extract(values, region.inputs)
    if any(node.regions for node in graph.nodes):
        graph = without_dead_carries(graph)
    _require_cheap(graph)
    return graph


def _pushes(region: Graph, position: int, lookup: Lookup) -> Value:
    """How many values one run of `region` pushes on the stack that is its input `position`."""
    total = ops.full(0, _SCALAR)
    for node, operand, _ in uses_of_stack(region, region.inputs[position]):
        total = _plus(total, _pushes_of(node, operand, region, lookup))
    return total


def _pushes_of(node: Node, operand: int, region: Graph, lookup: Lookup) -> Value:
    def inner(position: int) -> Value:
        return _evaluated(region, [node.operands[position]], lookup)[0]

    if node.op == "push":
        return ops.full(1, _SCALAR)
    if not node.regions:
        raise _UnknownDepthError
    return _pushes_of_region(Region.of(node), operand, inner)


def _pushes_of_region(region: Region, operand: int, lookup: Lookup) -> Value:
    """`lookup` answers for the operands."""
    if isinstance(region, Loop):
        return _pushes_of_loop(region, operand, lookup)
    at = operand - region.offset
    first, *others = [_pushes(body, at, lambda i: lookup(i + region.offset)) for body in region.bodies]
    for other in others:
        a, b = _aligned(first, other)
        first = ops.max(a, b)
    return first


def _pushes_of_loop(loop: Loop, operand: int, lookup: Lookup) -> Value:
    """The operands of a for are the inputs of its body, except the first."""
    if loop.count is None:
        raise _UnknownDepthError
    body, count = loop.body, lookup(0)
    per_trip, _ = trace(lambda *arguments: (_pushes(body, operand, lambda i: arguments[i]),), body.input_types)
    read = read_values(per_trip)
    trips = ops.max(ops.cast(count, int64), 0)
    closure = _closure(loop, per_trip, read)
    needed = [j for j in range(loop.width) if loop.argument(j) in closure]
    if not needed and per_trip.inputs[0] not in read:
        a, b = _aligned(trips, _evaluated(per_trip, per_trip.outputs, lookup)[0])
        return ops.mul(a, b)
    shape = _joined(trips.shape, per_trip.outputs[0].shape)

    def counting(k: Value, total: Value, *carried: Value) -> list[Value]:
        known = {0: k, **{loop.position(j): v for j, v in zip(needed, carried, strict=True)}}

        def inside(i: int) -> Value:
            return known[i] if i in known else lookup(i)

        pushed = ops.broadcast_leading(_evaluated(per_trip, per_trip.outputs, inside)[0], shape)
        following = _evaluated(body, [body.outputs[j] for j in needed], inside)
        return [ops.add(total, pushed), *following]

    start = ops.full(0, TensorType(shape, int64))
    inits = [start, *(lookup(loop.position(j)) for j in needed)]
    return traced_for(count, inits, counting, reverse=loop.node.attrs["reverse"], name="depth")[0]


def _closure(loop: Loop, per_trip: Graph, read: set[Value]) -> set[Value]:
    """The carries that counting must carry too: those read, and what their next values read."""
    body = loop.body
    names = dict(zip(per_trip.inputs, body.inputs, strict=True))
    pending = [names[v] for v in per_trip.inputs if v in read]
    needed: set[Value] = set()
    inputs = set(body.inputs)
    following = dict(zip(loop.split(body.inputs).carries, body.outputs, strict=True))
    while pending:
        v = pending.pop()
        if v in needed or v not in following:
            continue
        if isinstance(v.type, StackType) or v.dtype.differentiable:
            raise _UnknownDepthError
        needed.add(v)
        pending += [u for u in read_values(_sliced(body, [following[v]])) if u in inputs]
    return needed


def _evaluated(region: Graph, values: Sequence[Value], lookup: Lookup) -> tuple[Value, ...]:
    """`values` of `region`, computed in the current scope."""
    if not values:
        return ()
    graph = _sliced(region, values)
    read = read_values(graph)
    positions = [i for i, v in enumerate(graph.inputs) if v in read]
    if any(isinstance(graph.inputs[i].type, StackType) for i in positions):
        raise _UnknownDepthError
    pruned = without_inputs(graph, set(range(len(graph.inputs))) - set(positions))
    return inline(pruned, [lookup(i) for i in positions])


def _joined(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    short, long = sorted((a, b), key=len)
    if long[: len(short)] != short:
        raise _UnknownDepthError
    return long


def _aligned(a: Value, b: Value) -> tuple[Value, Value]:
    shape = _joined(a.shape, b.shape)
    return ops.broadcast_leading(a, shape), ops.broadcast_leading(b, shape)


def _plus(a: Value, b: Value) -> Value:
    return ops.add(*_aligned(a, b))
