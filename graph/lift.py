"""Numbers in a graph that a script may change from run to run, made inputs.

Enters: a Graph. Leaves: a Graph that takes some of its numbers as extra scalar inputs at the end:

    constants, float or integer, but those that simplification lives on (0, 1, 2 ...)
    where a slice starts             slice            ->  gather at start + iota
    how much padding comes first     pad              ->  gather at iota - low, else the padding

    %1 = const {value=0.3, type=float64[4]}          (%x: float64[4], %c: float64[])
    %2 = mul(%x, %1)                           ->    %1 = broadcast(%c) {shape=(4,), dims=()}
                                                     %2 = mul(%x, %1)

Shapes never change: what a slice takes and a pad gives has the same extents wherever it starts. A number
inside a region becomes a capture of the region's node; what closed calls call keeps its numbers. Slots are numbered in
the order in which a walk over nodes, and into regions after their node, meets them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count
from math import isfinite
from typing import Any, Final, NamedTuple

from loopgrad.graph.closed_calls import is_closed_call
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.regions import Region
from loopgrad.graph.types import TensorType, int64

BAKED: Final = frozenset({0.0, 1.0, -1.0, 2.0, 0.5})
"""Constants that stay in the graph: simplification lives on them."""

POSITIONS: Final = {"slice": ("start", "stop"), "pad": ("low", "high")}
"""Operations whose positions can be inputs, and the attributes that have them."""

_INDEX: Final = TensorType((), int64)


class NumberPlace(NamedTuple):
    """A number of a node: of a constant its value (`axis` None), else a position along an axis."""

    node: Node
    axis: int | None

    @property
    def value(self) -> float | int:
        attrs = self.node.attrs
        if self.axis is None:
            number = open_number(attrs)
            assert number is not None, self.node
            return number
        position: int = attrs[POSITIONS[self.node.op][0]][self.axis]
        return position

    def moved(self, attrs: Mapping[str, Any], position: int) -> Mapping[str, Any]:
        """The attributes of the node, or those of one that other positions were put into, with this position."""
        first, last = POSITIONS[self.node.op]
        axis, by = self.axis, position - attrs[first][self.axis]
        assert axis is not None
        sign = 1 if first == "start" else -1  # what a pad has more in front it has less behind
        moved = {first: [*attrs[first]], last: [*attrs[last]]}
        moved[first][axis] = position
        moved[last][axis] += sign * by
        return {**attrs, first: tuple(moved[first]), last: tuple(moved[last])}

    @property
    def type(self) -> TensorType:
        return TensorType((), self.node.attrs["type"].dtype) if self.axis is None else _INDEX


def open_number(attrs: Mapping[str, Any]) -> float | int | None:
    """The number of a constant with these attributes, where it can be an input."""
    value, kind = attrs["value"], attrs["type"].dtype.kind
    if kind not in "fiu" or value in BAKED or not isfinite(value):
        return None
    return float(value) if kind == "f" else int(value)


def slots(node: Node) -> list[NumberPlace]:
    """The numbers of one node, not of its regions, that can be inputs."""
    attrs = node.attrs
    if node.op == "const":
        return [NumberPlace(node, None)] if open_number(attrs) is not None else []
    if node.op not in POSITIONS:
        return []
    return [NumberPlace(node, a) for a in open_axes(node.op, attrs, node.operands[0].shape, node.results[0].shape)]


def open_axes(op: str, attrs: Mapping[str, Any], given: tuple[int, ...], kept: tuple[int, ...]) -> list[int]:
    """The axes along which positions can be inputs, of an operation of POSITIONS on one shape that gives another."""
    if op == "slice":
        steps = attrs["step"]
        return [a for a, n in enumerate(kept) if steps[a] == 1 and 0 < n < given[a]]
    return [a for a, n in enumerate(given) if n and attrs["low"][a] + attrs["high"][a]]


def without_slots(node: Node, found: Sequence[NumberPlace]) -> dict[str, Any]:
    """The node's attributes with the numbers of its slots blanked out."""
    attrs = dict(node.attrs)
    if node.op == "const":
        attrs["value"] = None
        return attrs
    axes = {slot.axis for slot in found}
    names = POSITIONS[node.op]
    first, last = (attrs[name] for name in names)
    shape = node.results[0].shape
    attrs[names[0]] = tuple([None if a in axes else v for a, v in enumerate(first)])
    attrs[names[1]] = tuple([shape[a] if a in axes else v for a, v in enumerate(last)])
    return attrs


def lift(graph: Graph, chosen: Collection[int] | None = None) -> tuple[Graph, tuple[NumberPlace, ...]]:
    """`graph` with the numbered slots (all of them for None) as extra inputs at the end, and what they were."""
    lifted, inputs = _Lifter(chosen).graph(graph)
    return lifted, tuple(inputs)


class _Lifter:
    def __init__(self, chosen: Collection[int] | None) -> None:
        self.chosen = chosen
        self.numbers = count()

    def graph(self, graph: Graph) -> tuple[Graph, list[NumberPlace]]:
        builder = GraphBuilder()
        found: list[NumberPlace] = []
        extra: list[Value] = []
        env: dict[Value, Value] = {}
        for node in graph.nodes:
            own = [s for s in slots(node) if self._wanted(next(self.numbers))]
            regions, inner = self._regions(node)
            arguments = [Value(s.type) for s in (*own, *inner)]
            found += [*own, *inner]
            extra += arguments
            operands = [env.get(v, v) for v in node.operands]
            builder.loc = node.loc
            if own:
                env[node.results[0]] = computed(builder, node, operands, dict(zip(own, arguments, strict=True)))
                continue
            operands += arguments
            if tuple(operands) != node.operands:
                types = tuple([r.type for r in node.results])
                attrs = node.attrs if len(regions) == len(node.regions) else {**node.attrs, "kind": "plain"}
                copy = Node(node.op, tuple(operands), types, attrs, regions, node.loc)
                env.update(zip(node.results, copy.results, strict=True))
                node = copy
            builder.nodes.append(node)
        if not found:
            return graph, found
        outputs = tuple([env.get(v, v) for v in graph.outputs])
        return Graph((*graph.inputs, *extra), tuple(builder.nodes), outputs), found

    def _wanted(self, number: int) -> bool:
        return self.chosen is None or number in self.chosen

    def _regions(self, node: Node) -> tuple[tuple[Graph, ...], list[NumberPlace]]:
        """The node's regions that run, each taking the lifted numbers of all of them as last inputs."""
        if not node.regions or is_closed_call(node):
            return node.regions, []
        lifted = [self.graph(region) for region in Region.of(node).running]
        found = [slot for _, inner in lifted for slot in inner]
        if not found:
            return node.regions, []
        regions = []
        position = 0
        for region, inner in lifted:
            split = len(region.inputs) - len(inner)
            before = [Value(slot.type) for slot in found[:position]]
            after = [Value(slot.type) for slot in found[position + len(inner) :]]
            inputs = (*region.inputs[:split], *before, *region.inputs[split:], *after)
            regions.append(Graph(inputs, region.nodes, region.outputs))
            position += len(inner)
        return tuple(regions), found


def computed(b: GraphBuilder, node: Node, operands: Sequence[Value], given: Mapping[NumberPlace, Value]) -> Value:
    """The node's result from the numbers given."""
    if node.op == "const":
        (number,) = given.values()
        return b.splat(number, node.attrs["type"].shape)
    positions = {slot.axis: v for slot, v in given.items() if slot.axis is not None}
    rest = _static(b, node, operands, positions)
    for axis, position in positions.items():
        make = _sliced if node.op == "slice" else _padded
        rest = make(b, rest, axis, position, node.results[0].shape[axis], operands)
    return rest


def _static(b: GraphBuilder, node: Node, operands: Sequence[Value], lifted: Collection[int]) -> Value:
    """The operation along the axes whose numbers stay."""
    attrs, operand = node.attrs, operands[0]
    axes = range(len(operand.shape))
    if node.op == "slice":
        start = tuple([0 if a in lifted else attrs["start"][a] for a in axes])
        stop = tuple([operand.shape[a] if a in lifted else attrs["stop"][a] for a in axes])
        return b.value("slice", operand, start=start, stop=stop, step=attrs["step"])
    low, high = (tuple([0 if a in lifted else attrs[name][a] for a in axes]) for name in ("low", "high"))
    return b.value("pad", operand, operands[1], low=low, high=high) if any(low) or any(high) else operand


def _sliced(b: GraphBuilder, x: Value, axis: int, start: Value, extent: int, operands: Sequence[Value]) -> Value:
    type = TensorType((extent,), int64)
    index = b.value("add", b.value("iota", type=type, axis=0), b.splat(start, type.shape))
    return _along(b, x, axis, index)


def _padded(b: GraphBuilder, x: Value, axis: int, low: Value, extent: int, operands: Sequence[Value]) -> Value:
    type = TensorType((extent,), int64)
    index = b.value("sub", b.value("iota", type=type, axis=0), b.splat(low, type.shape))
    first, last = b.const(0, type), b.const(x.shape[axis] - 1, type)
    inside = b.value("and", b.value("ge", index, first), b.value("le", index, last))
    taken = _along(b, x, axis, b.value("min", b.value("max", index, first), last))
    wide = b.value("broadcast", inside, shape=taken.shape, dims=(axis,))
    return b.value("select", wide, taken, b.splat(operands[1], taken.shape))


def _along(b: GraphBuilder, x: Value, axis: int, index: Value) -> Value:
    """The elements at `index` along an axis."""
    rank = len(x.shape)
    if axis == 0:
        return b.value("gather", x, index)
    front = b.value("transpose", x, perm=(axis, *[a for a in range(rank) if a != axis]))
    taken = b.value("gather", front, index)
    return b.value("transpose", taken, perm=(*range(1, axis + 1), 0, *range(axis + 1, rank)))
