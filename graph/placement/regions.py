"""How one process' part of loops, branches and calls is emitted (see `partition`).

A region in which processes meet takes a token and gives one: loops carry it. Where lanes decide that all processes
have (`vmap` of a loop in which sharded lanes are added up), a token goes with each, of the same collectives: such a
loop runs in lockstep.
"""

from __future__ import annotations

from loopgrad.graph.errors import VerifyError
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.placement.partition import GraphPartition, localised
from loopgrad.graph.placement.places import Place, Places, RegionPlaces
from loopgrad.graph.placement.rules import added_to, private_type
from loopgrad.graph.primitives.collectives import TOKEN
from loopgrad.graph.regions import Call, Form, Loop, Region, Switch
from loopgrad.graph.types import TensorType


def emit_region(walk: GraphPartition, node: Node) -> None:
    """Emit a node with regions."""
    places = walk.partition.analysis.region(node, tuple([walk.places[v] for v in node.operands]))
    region = Region.of(node)
    if isinstance(region, Loop):
        _loop(walk, region, places)
    elif isinstance(region, Switch):
        _switch(walk, region, places)
    else:
        assert isinstance(region, Call)
        _call(walk, region, places)


def _input(walk: GraphPartition, node: Node, value: Value, place: Place, lanes: int) -> Value:
    """The input of a region for an argument."""
    if place.private:
        assert isinstance(value.type, TensorType)
        return Value(private_type(walk, node, value.type, lanes))
    return Value(localised(value.type, place, walk.part))


def tokens(walk: GraphPartition, token: Value, lanes: tuple[int, ...]) -> Value:
    """A token for each lane of a region."""
    return walk.builder.value("broadcast", token, shape=lanes, dims=()) if lanes else token


def one_token(walk: GraphPartition, each: Value) -> Value:
    """One token behind those of all lanes. What it is doesn't matter."""
    axes = tuple(range(len(each.shape)))
    return walk.builder.value("reduce_sum", each, axes=axes) if axes else each


class _Inside:
    """A region walked: its inputs, outputs and nodes, and the token that goes in and comes out."""

    def __init__(
        self, walk: GraphPartition, node: Node, graph: Graph, inputs: Places, outputs: Places, split: int | None
    ) -> None:
        lanes, shape = walk.lanes, Region.of(node).lane_shape
        if split is not None:
            lanes = shape[split]
        inside = walk.inside or split is not None
        self.walk = GraphPartition(walk.partition, graph, inputs, inside, lanes)
        self.inputs = [_input(walk, node, v, p, lanes) for v, p in zip(graph.inputs, inputs, strict=True)]
        self.token = Value(TensorType(shape, TOKEN.dtype))
        self.walk.outermost = False
        self.walk.enter = lambda: one_token(self.walk, self.token)
        self.outputs = self.walk.run(self.inputs, outputs)
        self.met = self.walk.met

    def closed(self, at: int, gives: bool = True) -> Graph:
        """The region with a token, before input `at`, and as the last output."""
        outputs = self.outputs
        if gives:
            outputs = (*outputs, tokens(self.walk, self.walk.token, self.token.shape) if self.met else self._passed())
        return Graph((*self.inputs[:at], self.token, *self.inputs[at:]), tuple(self.walk.builder.nodes), outputs)

    def _passed(self) -> Value:
        """The token of a region in which nobody meets, changed: of a loop where they meet in the condition alone, a
        carry that stays as it is would be taken for what it was before the loop, and what comes behind for what may
        come before."""
        b, type = self.walk.builder, self.token.type
        assert isinstance(type, TensorType)
        return b.value("add", self.token, b.const(1, type))

    def plain(self) -> Graph:
        return Graph(tuple(self.inputs), tuple(self.walk.builder.nodes), self.outputs)


def _loop(walk: GraphPartition, loop: Loop, places: RegionPlaces) -> None:
    node, width, first = loop.node, loop.width, loop.first
    carried = places.inner
    body = _Inside(walk, node, loop.body, places.arguments, carried, places.split)
    condition = None
    if loop.condition is not None:
        decides = Place(places.split)
        condition = _Inside(walk, node, loop.condition, places.arguments, (decides,), places.split)
    given = [_argument(walk, node, v, p, body.walk.lanes) for v, p in zip(node.operands, places.operands, strict=True)]
    lead, inits, captures = loop.split(given)
    met = body.met or (condition is not None and condition.met)
    at = first + width
    if met:
        walk.met = True
        inits = [*inits, tokens(walk, walk.token, loop.lane_shape)]
    form = loop.rebuilt(
        count=lead[0] if lead else None,
        inits=inits,
        captures=captures,
        condition=None if condition is None else condition.closed(at, gives=False) if met else condition.plain(),
        body=body.closed(at) if met else body.plain(),
    )
    results = walk.builder.emit(*form)
    if met:
        walk.token, results = one_token(walk, results[-1]), results[:-1]
    for j, (result, made, place) in enumerate(zip(node.results, results, carried, strict=True)):
        if place.private and not walk.places[loop.inits[j]].private:
            added_to(walk, node, result, loop.inits[j], made, body.walk.lanes)
        else:
            walk.env[result] = made


def _argument(walk: GraphPartition, node: Node, value: Value, place: Place, lanes: int) -> Value:
    """What is handed to a region: private accumulators start with nothing."""
    if place.private and not walk.places[value].private:
        assert isinstance(value.type, TensorType)
        return walk.builder.const(0, private_type(walk, node, value.type, lanes))
    return walk.at(value, place)


def _switch(walk: GraphPartition, switch: Switch, places: RegionPlaces) -> None:
    node = switch.node
    branches = [_Inside(walk, node, branch, places.arguments, places.inner, places.split) for branch in switch.branches]
    lanes = branches[0].walk.lanes
    index, *handed = [_argument(walk, node, v, p, lanes) for v, p in zip(node.operands, places.operands, strict=True)]
    met = any(branch.met for branch in branches)
    if met:
        walk.met = True
        handed.append(tokens(walk, walk.token, switch.lane_shape))
    regions = [branch.closed(len(branch.inputs)) if met else branch.plain() for branch in branches]
    results = walk.builder.emit(*_plain_sums(node, switch.rebuilt(index=index, operands=handed, branches=regions)))
    if met:
        walk.token, results = one_token(walk, results[-1]), results[:-1]
    for result, made, place in zip(node.results, results, places.inner, strict=True):
        source = node.operands[switch.source(result.index)] if place.private else None
        if source is not None and not walk.places[source].private:
            added_to(walk, node, result, source, made, lanes)
        else:
            walk.env[result] = made


def _plain_sums(node: Node, form: Form) -> Form:
    """A branch or a call of the whole program into whose accumulators processes bring sums: such a result is a value
    then, no memory that goes through. Of lanes that all processes have, each would add the sum once more."""
    region = Region.of(Node(form.op, form.operands, (), form.attrs, form.regions, node.loc))  # asked before it is there
    if region.lanes:
        return form
    return form._replace(attrs={**form.attrs, "shared": tuple([j for j in region.shared if _goes_through(region, j)])})


def _goes_through(region: Region, result: int) -> bool:
    """Whether an accumulator that is a result still comes from one operand."""
    try:
        region.source(result)
    except VerifyError:
        return False
    return True


def _call(walk: GraphPartition, call: Call, places: RegionPlaces) -> None:
    """A function: one whose derivative is stated is plain now."""
    node = call.node
    inside = _Inside(walk, node, call.function, places.arguments, places.inner, None)
    given = [walk.at(v, p) for v, p in zip(node.operands, places.operands, strict=True)]
    attrs = {**node.attrs, "kind": "plain"} if call.own else node.attrs
    region = inside.closed(len(inside.inputs)) if inside.met else inside.plain()
    if inside.met:
        walk.met = True
        given.append(walk.token)
    results = walk.builder.emit(*_plain_sums(node, Form("call", tuple(given), attrs, (region,))))
    if inside.met:
        walk.token, results = results[-1], results[:-1]
    walk.env.update(zip(node.results, results, strict=True))
