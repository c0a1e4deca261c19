"""Emitting the nodes of a region under masks; what `mask` puts into the bodies it makes.

Enters: a region, values for its inputs, masks (bool values of lane shapes), and which inputs are shared
accumulators. Leaves: the region's outputs, emitted into a GraphBuilder, where inside

    scatter into an accumulator     ->  its first index is -1 where a mask over its lanes is False
    for with lanes over the mask    ->  its count is 0 there
    while with lanes over the mask  ->  its condition is False there
    push of floats over the mask    ->  with `apart`: what is pushed there has no derivative

and regions that hold such nodes take the masks as captures.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from loopgrad.graph.accumulators import passed
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.regions import Call, Loop, Region
from loopgrad.graph.types import TensorType, bool_, int32, int64


class Mask:
    """Which lanes are active."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def covers(self, shape: tuple[int, ...]) -> bool:
        """Whether lanes (or values) of this shape extend the mask's lanes, or stand for rows of them."""
        lanes = self.value.shape
        return shape[: len(lanes)] == lanes or (bool(shape) and lanes[: len(shape)] == shape)

    def over(self, builder: GraphBuilder, shape: tuple[int, ...]) -> Value:
        """The mask in the shape of values that it covers; a row is active while any of its lanes is."""
        lanes = self.value.shape
        if shape == lanes:
            return self.value
        if len(shape) < len(lanes):
            return builder.value("reduce_or", self.value, axes=tuple(range(len(shape), len(lanes))))
        return builder.value("broadcast", self.value, shape=shape, dims=tuple(range(len(lanes))))

    def select(self, builder: GraphBuilder, new: Value, old: Value) -> Value:
        """`new` in active lanes."""
        if new is old:
            return new
        return builder.value("select", self.over(builder, new.shape), new, old)


def chosen_lanes(builder: GraphBuilder, index: Value, number: int, branches: int) -> Value:
    """Which lanes of a switch run branch `number`: the index is clamped to the branches."""
    if index.dtype is bool_:
        index = builder.value("cast", index, dtype=int32)
    type = index.type
    assert isinstance(type, TensorType)
    if branches == 1:
        return builder.const(True, TensorType(type.shape, bool_))
    op = "le" if number == 0 else "ge" if number == branches - 1 else "eq"
    return builder.value(op, index, builder.const(number, type))


def under_mask(
    builder: GraphBuilder,
    region: Graph,
    arguments: Sequence[Value],
    masks: Sequence[Mask],
    shared: Collection[int],
    apart: bool = False,
) -> list[Value]:
    """The outputs of `region`; `shared` are positions of inputs that are accumulators. `apart`: what inactive lanes
    push has no derivative. A lane node that pops it, and stays one, says nothing of their cotangents."""
    env = dict(zip(region.inputs, arguments, strict=True))
    accumulators = {region.inputs[p] for p in shared}
    outer_loc = builder.loc
    for node in region.nodes:
        operands = [env[v] for v in node.operands]
        builder.loc = node.loc
        joining = {i for i, v in enumerate(node.operands) if v in accumulators}
        if node.op == "scatter" and 0 in joining:
            results = _masked_scatter(builder, node, operands, masks)
            accumulators.add(node.results[0])
        elif node.regions and masks:
            results = _masked_region(builder, node, operands, masks, joining, apart)
            accumulators.update(_accumulated(node, joining))
        elif apart and _pushes_floats(node):
            results = builder.emit("push", (operands[0], _apart(builder, operands[1], masks)), node.attrs)
        else:
            results = builder.emit(node.op, operands, node.attrs, node.regions)
        env.update(zip(node.results, results, strict=True))
    builder.loc = outer_loc
    return [env[v] for v in region.outputs]


def _accumulated(node: Node, joining: Collection[int]) -> list[Value]:
    """The results of a region node through which accumulators leave it."""
    chains = [passed(node, i) for i in joining]
    return [node.results[chain.output] for chain in chains if chain is not None]


def _masked_scatter(
    builder: GraphBuilder, node: Node, operands: Sequence[Value], masks: Sequence[Mask]
) -> tuple[Value, ...]:
    table, *indices, updates = operands
    applying = [m for m in masks if m.covers(indices[0].shape)]
    if applying and indices[0].dtype.kind == "u":
        indices = [builder.value("cast", i, dtype=int64) for i in indices]  # -1 must be out of range
    for mask in applying:
        type = indices[0].type
        assert isinstance(type, TensorType)
        indices[0] = mask.select(builder, indices[0], builder.const(-1, type))
    return builder.emit("scatter", (table, *indices, updates), node.attrs)


def _pushes_floats(node: Node) -> bool:
    """Whether it is a push, or holds one, of what derivatives go through."""
    if node.op == "push":
        return node.operands[1].dtype.is_float
    return any(_pushes_floats(n) for r in node.regions for n in r.nodes)


def _apart(builder: GraphBuilder, value: Value, masks: Sequence[Mask]) -> Value:
    """The value, whose derivative is that of active lanes."""
    assert isinstance(value.type, TensorType)
    for mask in masks:
        if mask.covers(value.type.shape):
            value = mask.select(builder, value, builder.value("stop_gradient", value))
    return value


def _masked_region(
    builder: GraphBuilder,
    node: Node,
    operands: list[Value],
    masks: Sequence[Mask],
    joining: Collection[int],
    apart: bool,
) -> tuple[Value, ...]:
    """A region node inside a masked body."""
    view = Region.of(node)
    condition: Graph | None = None
    if view.lanes and isinstance(view, Loop):
        condition = view.condition
        if condition is None:
            (count,), inits, captures = view.split(operands)
            operands = [_masked_count(builder, count, masks), *inits, *captures]
    accumulators = _inner_accumulators(view, joining)
    inner_lanes = any(_has_lanes(r) for r in node.regions) or condition is not None
    if not accumulators and not inner_lanes and not (apart and _pushes_floats(node)):
        return builder.emit(node.op, operands, node.attrs, node.regions)
    regions = []
    for number, region in enumerate(node.regions):
        inner = GraphBuilder()
        inner.loc = node.loc
        arguments = [Value(v.type) for v in region.inputs]
        captured = [Mask(Value(m.value.type)) for m in masks]
        outputs = under_mask(inner, region, arguments, captured, accumulators, apart)
        if region is condition:
            outputs = [_and_masks(inner, outputs[0], captured)]
        given, first = [m.value for m in captured], len(arguments)
        if isinstance(view, Call) and number:
            first, outputs = _in_a_rule(view, number, outputs, given)
        inputs = (*arguments[:first], *given, *arguments[first:])
        regions.append(Graph(inputs, tuple(inner.nodes), tuple(outputs)))
    return builder.emit(node.op, (*operands, *[m.value for m in masks]), node.attrs, tuple(regions))


def _in_a_rule(call: Call, number: int, outputs: list[Value], masks: Sequence[Value]) -> tuple[int, list[Value]]:
    """Before which input a rule of a call takes the masks (captured ones, the last residuals), and its outputs."""
    count, residuals = len(call.node.operands), len(call.rules[0].outputs) - len(call.node.results)
    if call.kind == "vjp":
        return (count, [*outputs, *masks]) if number == 1 else (residuals, outputs)
    return count, outputs


def _masked_count(builder: GraphBuilder, count: Value, masks: Sequence[Mask]) -> Value:
    for mask in masks:
        if mask.covers(count.shape):
            assert isinstance(count.type, TensorType)
            count = mask.select(builder, count, builder.const(0, count.type))
    return count


def _inner_accumulators(view: Region, joining: Collection[int]) -> set[int]:
    """Input positions of the node's regions that are accumulators."""
    entering = {i for i in joining if i in view.captured or isinstance(view, Loop)}
    if isinstance(view, Loop):
        entering = {i for i in entering if view.carry_at(i) is not None}
    return {i - view.offset for i in entering.union(view.accumulators)}


def _has_lanes(graph: Graph) -> bool:
    """Whether the graph or a region in it holds a lane loop or switch."""
    return any(n.regions and (Region.of(n).lanes or any(map(_has_lanes, n.regions))) for n in graph.nodes)


def _and_masks(builder: GraphBuilder, condition: Value, masks: Sequence[Mask]) -> Value:
    for mask in masks:
        if mask.covers(condition.shape):
            condition = builder.value("and", condition, mask.over(builder, condition.shape))
    return condition
