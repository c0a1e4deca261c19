"""A second run of loops reads what the first one kept, where it would compute it again.

Stacks give back last what was pushed first, and a second run wants it first. So the reverse of the call turns such
stacks round before it runs a loop again, which pops one value where it made and pushed one, and goes on with that:

    first run                      turned round                   second run
    for k < n:                     for k < n (reverse):           for k < n:
      h = exp(v)                     s, h = pop(s)                  q, h = pop(q)
      s = push(s, h)                 q = push(q, h)                 s = push(s, h)
      v = v + h                                                     v = v + h

Loops in loops are turned round as nests of the same shape, run backwards: where lanes go in step, rows of several lanes
lie beside each other, and only the same lanes may meet again. So the trips of inner loops must be there, computed from
the index and what the loop captures, or kept like any other value. A `while` whose trips were kept becomes a `for`.

A stack that turns out too small gives zeros until it has grown, and what is computed from them must end (`settles`): no
loop's trips may depend on what is computed from values that were read. Where they would, or where a branch fills a
stack, the second run computes once more, and the reverse loops pop what was kept, as they do wherever nobody else does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

from loopgrad.autodiff.loops.saveable import turned_stack
from loopgrad.graph import ops
from loopgrad.graph.build import inline
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, renewed
from loopgrad.graph.region_ops import for_form, traced_for
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.stacks import stack_type, uses_of_stack

Pair = tuple[Value, Value]


# ---- what fills stacks


class Inner(NamedTuple):
    """A loop in the body of one that fills stacks, which fills some of them, or whose trips one of them holds
    (`counted`). `places`: operand of the inner loop -> operand of the outer one that is the same stack."""

    filling: Filling
    places: Mapping[int, int]
    counted: int | None


@dataclass(frozen=True, slots=True)
class Filling:
    """A loop, and how its trips fill the stacks at some of its operands: each pushes one value on those of `pushed`,
    the others are filled by loops inside."""

    node: Node
    pushed: Mapping[int, Value]
    inner: Sequence[Inner] = field(default_factory=list)

    @property
    def loop(self) -> Loop:
        return Loop.of(self.node)

    @property
    def places(self) -> list[int]:
        """The operands that are stacks which it fills."""
        return [*self.pushed, *(i for inner in self.inner for i in inner.places.values())]

    def only(self, places: Collection[int]) -> Filling:
        """The same of fewer stacks."""
        inner = []
        for part, at, counted in self.inner:
            fewer = {i: outer for i, outer in at.items() if outer in places}
            still = counted if counted in places else None
            if fewer or still is not None:
                inner.append(Inner(part.only(fewer), fewer, still))
        return Filling(self.node, {i: v for i, v in self.pushed.items() if i in places}, inner)


class Refill(NamedTuple):
    """A loop that the second run lets read stacks, which are `made` in the graph around it: operand -> where it is
    made. Its trips: computed from the graph's inputs, or one of the values that are there anyway."""

    filling: Filling
    made: Mapping[int, Value]
    trips: Graph | Value

    def only(self, stacks: Collection[Value]) -> Refill:
        made = {i: v for i, v in self.made.items() if v in stacks}
        return self._replace(filling=self.filling.only(made), made=made)


def refills(graph: Graph, stacks: Iterable[Value], values: Sequence[Value]) -> list[Refill]:
    """How loops of `graph` fill `stacks`, as far as a second run can read them; it has `values`."""
    places: dict[Node, dict[int, Value]] = {}
    for stack in stacks:
        node, operand = _first_use(graph, stack)
        if _is_loop(node):
            places.setdefault(node, {})[operand] = stack
    found = []
    for node, made in places.items():
        loop = Loop.of(node)
        counted = next((v for v in values if _counts(node, v)), None)
        trips = _part(graph, loop.count, graph.inputs) if loop.count is not None and counted is None else counted
        if trips is not None:
            filling = _filling(node, made, _given_inside(graph, loop, graph.inputs))
            found.append(Refill(filling, {i: made[i] for i in filling.places}, trips))
    return [r for r in found if r.made]


def _filling(node: Node, places: Iterable[int], given: Collection[Value]) -> Filling:
    """`given`: the inputs of the body that the second run has before it runs the loop."""
    loop = Loop.of(node)
    pushed, loops = dict[int, Value](), dict[Node, dict[int, int]]()
    for i in places:
        use, operand = _first_use(loop.body, loop.body.inputs[i])
        alike = stack_type(node.operands[i]).element.shape[: loop.lanes] == loop.lane_shape
        if use is not None and use.op == "push" and alike:
            pushed[i] = use.operands[1]
        elif _is_loop(use):
            loops.setdefault(use, {})[operand] = i
    inner = []
    for child, outer in loops.items():
        part = _filling(child, outer, _given_inside(loop.body, Loop.of(child), given))
        counted = next((i for i, v in pushed.items() if _counts(child, v)), None)
        if counted is not None or _trips_of(loop.body, Loop.of(child), given) is not None:
            inner.append(Inner(part, {i: outer[i] for i in part.places}, counted))
    return Filling(node, pushed, inner)


def _first_use(graph: Graph, stack: Value) -> tuple[Node | None, int]:
    return next(((node, operand) for node, operand, _ in uses_of_stack(graph, stack)), (None, 0))


def _is_loop(node: Node | None) -> TypeGuard[Node]:
    return node is not None and bool(node.regions) and isinstance(Region.of(node), Loop)


def _aliases(value: Value) -> list[Value]:
    """`value` and what it is an alias of."""
    found = [value]
    while value.node is not None and value.node.op == "alias":
        (value,) = value.node.operands
        found.append(value)
    return found


def _counts(node: Node, value: Value) -> bool:
    """Whether a value is what a loop is told to run, or has counted."""
    loop, value = Loop.of(node), _aliases(value)[-1]
    if loop.count is not None:
        return value is _aliases(loop.count)[-1]
    if value.node is not node:
        return False
    step, start = loop.body.outputs[value.index].node, loop.init(value.index).node
    if step is None or step.op != "add" or step.operands[0] is not loop.argument(value.index):
        return False
    return _is_const(step.operands[1].node, 1) and _is_const(start, 0)


def _is_const(node: Node | None, value: int) -> bool:
    while node is not None and node.op == "broadcast":
        node = node.operands[0].node
    return node is not None and node.op == "const" and node.attrs["value"] == value


def _part(graph: Graph, value: Value, given: Collection[Value]) -> Graph | None:
    """`value` as a function of `given` inputs; None where it takes more, or a region."""
    part = extract([value], tuple(given))
    more = len(part.inputs) > len(given) or any(node.regions or node.op == "pop" for node in part.nodes)
    return None if more else part


def _trips_of(graph: Graph, loop: Loop, given: Collection[Value]) -> Graph | None:
    return None if loop.count is None else _part(graph, loop.count, given)


def _given_inside(graph: Graph, loop: Loop, given: Collection[Value]) -> list[Value]:
    """The inputs of a loop's body that are known where `given` inputs of the graph around it are."""
    lead, _, captures = loop.split(loop.body.inputs)
    known = zip(captures, loop.captures, strict=True)
    return [*lead, *(inside for inside, outside in known if _part(graph, outside, given) is not None)]


# ---- turning round


def turned(
    graph: Graph, refill: Refill, filled: Mapping[Value, Value], count: Value, given: Mapping[Value, Value]
) -> dict[Value, tuple[Value, Value]]:
    """Each stack when it is empty, and one that holds its values the other way round. `given`: values for inputs of
    `graph`."""
    pairs = {i: (filled[made], turned_stack(made)) for i, made in refill.made.items()}
    left = _turned(graph, refill.filling, pairs, count, given)
    return {refill.made[i]: pair for i, pair in left.items()}


def _turned(
    graph: Graph, filling: Filling, pairs: Mapping[int, Pair], count: Value, given: Mapping[Value, Value]
) -> dict[int, Pair]:
    loop, places = filling.loop, list(pairs)
    lead, _, captures = loop.split(loop.body.inputs)
    outside = zip(captures, loop.captures, strict=True)
    known = {inner: v for inner, outer in outside if (v := _computed(graph, outer, given)) is not None}

    def body(index: Value, *carried: Value) -> Sequence[Value]:
        here = dict(zip(places, zip(carried[::2], carried[1::2], strict=True), strict=True))
        values = dict[int, Value]()
        for i in filling.pushed:
            rest, values[i] = ops.pop(here[i][0])
            here[i] = rest, ops.push(here[i][1], values[i])
        inside = {**dict.fromkeys(lead, index), **known}
        for part, at, counted in reversed(filling.inner):
            own = part.loop.count
            trips = values[counted] if counted is not None else _computed(loop.body, own, inside)
            assert trips is not None
            left = _turned(loop.body, part, {i: here[outer] for i, outer in at.items()}, trips, inside)
            here.update({outer: left[i] for i, outer in at.items()})
        return [v for i in places for v in here[i]]

    backwards = not loop.node.attrs.get("reverse", False)
    left = traced_for(count, [v for pair in pairs.values() for v in pair], body, reverse=backwards, name="turned")
    return dict(zip(places, zip(left[::2], left[1::2], strict=True), strict=True))


def _computed(graph: Graph, value: Value | None, given: Mapping[Value, Value]) -> Value | None:
    part = None if value is None else _part(graph, value, given)
    return None if part is None else inline(part, list(given.values()))[0]


# ---- the second run


class LoopReading(NamedTuple):
    """A loop that is to read stacks in place of computing, the stacks at its places, and its trips if it is a while."""

    filling: Filling
    queues: Sequence[Value]
    trips: Value | None


def reading(graph: Graph, found: Sequence[Refill]) -> tuple[Graph, dict[Value, Value]]:
    """`graph` with inputs in place of computing them: stacks that give what is pushed on those that loops fill, and
    behind them trips that are one of the values. Where a stack is made -> the input that feeds its loop."""
    queues = [[Value(v.type) for v in r.made.values()] for r in found]
    trips = [Value(r.trips.type) for r in found if isinstance(r.trips, Value)]
    counts, loops = iter(trips), dict[Node, LoopReading]()
    for r, own in zip(found, queues, strict=True):
        count = next(counts) if isinstance(r.trips, Value) else None
        loops[r.filling.node] = LoopReading(r.filling, own, count)
    builder = GraphBuilder()
    env, _ = _with_readers(graph, loops, {}, builder)
    made = [v for r in found for v in r.made.values()]
    fed = dict(zip(made, [v for own in queues for v in own], strict=True))
    outputs = tuple([env.get(v, v) for v in graph.outputs])
    return Graph((*graph.inputs, *fed.values(), *trips), tuple(builder.nodes), outputs), fed


def _with_readers(
    graph: Graph, loops: Mapping[Node, LoopReading], instead: Mapping[Value, Value], builder: GraphBuilder
) -> tuple[dict[Value, Value], dict[Node, Sequence[Value]]]:
    """Copy the nodes: what stands for their results, and the stacks that are left of what loops read. `instead` of
    some values there are others."""
    env, left = dict(instead), dict[Node, Sequence[Value]]()
    for node in graph.nodes:
        current = renewed(node, tuple([env.get(v, v) for v in node.operands]), node.regions)
        results: Sequence[Value] = current.results
        builder.loc = node.loc
        if node in loops:
            made = _loop_reading(current, loops[node], builder)
            results, left[node] = made[: len(node.results)], made[len(node.results) :]
        else:
            builder.nodes.append(current)
        env.update([(old, new) for old, new in zip(node.results, results, strict=True) if old is not new])
        env.update(instead)
    return env, left


def _loop_reading(node: Node, found: LoopReading, builder: GraphBuilder) -> Sequence[Value]:
    loop = Loop.of(node)
    body = _body_reading(loop.body, found.filling)
    lead, carries, captures = loop.split(body.inputs[: len(loop.body.inputs)])
    inits = (*loop.inits, *found.queues)
    lead = [Value(found.trips.type)] if loop.count is None and found.trips is not None else lead
    queues = body.inputs[len(loop.body.inputs) :]
    body = Graph((*lead, *carries, *queues, *captures), body.nodes, body.outputs)
    count = loop.count if found.trips is None else found.trips
    assert count is not None, "a while is run again by its trips"
    form = for_form(
        count, inits, body, loop.captures,
        shared=loop.shared, reverse=node.attrs.get("reverse", False), name=node.attrs["name"],
    )  # fmt: skip
    return builder.emit(form.op, form.operands, form.attrs, form.regions)


def _body_reading(body: Graph, filling: Filling) -> Graph:
    """`body` with stacks at its end, before and after popping what `filling` pushes."""
    builder, instead = GraphBuilder(), dict[Value, Value]()
    before = {i: Value(body.inputs[i].type) for i in filling.places}
    after, popped = dict(before), dict[int, Value]()
    for i, value in filling.pushed.items():
        builder.loc = None if value.node is None else value.node.loc
        after[i], popped[i] = builder.emit("pop", (before[i],))
        instead.update(dict.fromkeys(_aliases(value), popped[i]))
    loops = {}
    for part, at, counted in filling.inner:
        trips = popped[counted] if counted is not None else None
        loops[part.node] = LoopReading(part, [before[at[i]] for i in part.places], trips)
    env, left = _with_readers(body, loops, instead, builder)
    for part, at, _ in filling.inner:
        after.update(zip([at[i] for i in part.places], left[part.node], strict=True))
    outputs = (*[env.get(v, v) for v in body.outputs], *after.values())
    return Graph((*body.inputs, *before.values()), tuple(builder.nodes), outputs)


# ---- what must end


def settles(graph: Graph, doubtful: Collection[Value]) -> bool:
    """Whether all loops end, whatever the `doubtful` inputs hold: trips may be popped, not computed from them."""
    taint = set(doubtful)
    for node in graph.nodes:
        if not any(v in taint for v in node.operands):
            continue
        taint.update(node.results)
        if not node.regions:
            continue
        region = Region.of(node)
        handed = [i for i, v in enumerate(node.operands) if v in taint and i >= region.first]
        inside = {v for i in handed for v in region.inputs_of(i)}
        if isinstance(region, Loop):
            lead, carries, _ = region.split(region.body.inputs)
            if region.count is None or (region.count in taint and not _is_popped(region.count)):
                return False
            inside.update(carries)
            inside.update(lead if region.count in taint else ())
        if not all(settles(r, inside) for r in region.running):
            return False
    return True


def _is_popped(value: Value) -> bool:
    node = _aliases(value)[-1].node
    return node is not None and node.op == "pop"
