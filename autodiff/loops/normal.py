"""Loops and branches in the form that differentiation wants: invariants hoisted.

Enters: a region node of the ambient DAG. Leaves: its operands and regions rewritten so that

- what a loop body computes from captured values alone is computed before the loop and captured instead;
- a carry that every trip hands on unchanged is read as a captured value;
- captured constants and iotas are made inside, where the rules can see what they are;
- inside lanes, the branches of a switch (a call without rules has one) receive what they compute from values
  without the lane dims.

The point is where cotangents meet: a captured scalar that the body broadcasts to the lanes would need a sum
over lanes in every trip; hoisted, its cotangent accumulates in the shape of the lanes and is summed once.

    for k < n: v = v * broadcast(a)      ->      b = broadcast(a);  for k < n: v = v * b
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from loopgrad.autodiff.activity import differentiable
from loopgrad.graph.accumulators import passed
from loopgrad.graph.build import at, copy_node, current_scope, emit, inline, trace
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import ARRANGING, NULLARY, STACKS
from loopgrad.graph.regions import Call, Form, Loop, Region, Switch
from loopgrad.graph.types import TensorType

Key = TypeVar("Key")


class NotLaneLocalError(Exception):
    """The cotangents of a lane loop or branch can't stay in their lanes: it must be masked first."""


class Normal(NamedTuple):
    """The operands are the node's own followed by `hoisted`, new values of the ambient scope."""

    form: Form
    hoisted: tuple[Value, ...]


def normalized(node: Node, lanes: tuple[int, ...]) -> Normal:
    """`lanes` is the shape of the enclosing lane loop, () where there is none."""
    region = Region.of(node)
    if isinstance(region, Call) and not region.optional:
        return Normal(region.form, ())
    lanes = region.lane_shape or lanes
    form = region.form._replace(regions=tuple([_normalized_graph(r, lanes) for r in node.regions]))
    inner = Region.of(form.node(node.loc))
    return _loop(inner) if isinstance(inner, Loop) else _branches(inner, lanes)


@dataclass(frozen=True, slots=True)
class NormalLoop(Loop):
    """A loop in normal form, of which no node is emitted. `within`: its own lanes, else those of the lane loop around
    it."""

    original: Node
    hoisted: tuple[Value, ...]
    within: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NormalSwitch(Switch):
    """A switch in normal form, as above."""

    original: Node
    hoisted: tuple[Value, ...]
    within: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NormalCall(Call):
    """A call without rules in normal form, as above."""

    original: Node
    hoisted: tuple[Value, ...]
    within: tuple[int, ...]


def normal_call(node: Node, lanes: tuple[int, ...]) -> NormalCall:
    form, hoisted = normalized(node, lanes)
    return NormalCall(form.node(node.loc), node, hoisted, lanes)


def normal_loop(node: Node, lanes: tuple[int, ...]) -> NormalLoop:
    form, hoisted = normalized(node, lanes)
    return NormalLoop(form.node(node.loc), node, hoisted, Region.of(node).lane_shape or lanes)


def normal_switch(node: Node, lanes: tuple[int, ...]) -> NormalSwitch:
    form, hoisted = normalized(node, lanes)
    return NormalSwitch(form.node(node.loc), node, hoisted, Region.of(node).lane_shape or lanes)


def looked_up(graph: Graph, value: Value) -> bool:
    """Whether `graph` gathers from `value`, itself or in a region."""
    for node in graph.nodes:
        for i, v in enumerate(node.operands):
            if v is not value:
                continue
            if node.op == "gather" and i == 0:
                return True
            if node.regions and _looked_up_inside(Region.of(node), i):
                return True
    return False


def _looked_up_inside(region: Region, operand: int) -> bool:
    if operand < region.first:
        return False
    return any(looked_up(r, v) for r, v in zip(region.running, region.inputs_of(operand), strict=True))


def without_inputs(region: Graph, positions: set[int]) -> Graph:
    """`region` without its (unused) inputs at these positions."""
    return Graph(tuple([v for i, v in enumerate(region.inputs) if i not in positions]), region.nodes, region.outputs)


def _normalized_graph(graph: Graph, lanes: tuple[int, ...]) -> Graph:
    if not any(node.regions for node in graph.nodes):
        return graph
    return trace(lambda *arguments: _replay(graph, arguments, lanes), graph.input_types)[0]


def _replay(graph: Graph, arguments: Sequence[Value], lanes: tuple[int, ...]) -> list[Value]:
    """Copy the nodes into the current scope, region nodes in normal form."""
    env = dict(zip(graph.inputs, arguments, strict=True))
    for node in graph.nodes:
        copy = copy_node(node, env, current_scope())
        if node.regions:
            with at(node.loc):
                results = emit(*normalized(copy, lanes).form)
            env.update(zip(node.results, results, strict=True))
    return [env[v] for v in graph.outputs]


def _loop(loop: Loop) -> Normal:
    body = loop.body
    _, arguments, captured = loop.split(body.inputs)
    outer = dict(zip(body.inputs, loop.node.operands, strict=True))
    constant_carries = [j for j, v in enumerate(body.outputs) if v is arguments[j] and isinstance(v.type, TensorType)]
    carried = [arguments[j] for j in constant_carries]
    fixed = [*carried, *captured]
    frontier = _frontier(body, fixed)
    read = {v for inner in body.nodes for v in inner.operands}
    moved = [v for v in carried if v in read and differentiable(v.type)]
    sunk = {v: outer[v] for v in captured if v in read and _is_constant(outer[v])}
    if not frontier and not moved and not sunk:
        return Normal(loop.form, ())
    hoisted = (*(outer[v] for v in moved), *_computed_outside(frontier, fixed, outer))
    inner = extract(body.outputs, (*body.inputs, *frontier))

    def function(*arguments: Value) -> list[Value]:
        own, added = arguments[: len(body.inputs)], arguments[len(body.inputs) :]
        stand_in = dict(zip(moved, added, strict=False)) | _made_inside(sunk)
        seen = [stand_in.get(v, a) for v, a in zip(body.inputs, own, strict=True)]
        outputs = list(inline(inner, (*seen, *added[len(moved) :])))
        for j in constant_carries:
            outputs[j] = own[loop.position(j)]
        return outputs

    new_body, _ = trace(function, [*body.input_types, *(v.type for v in hoisted)])
    condition = None if loop.condition is None else loop.taking(loop.condition, (), hoisted)
    return Normal(loop.rebuilt(captures=(*loop.captures, *hoisted), condition=condition, body=new_body), hoisted)


def _branches(region: Region, lanes: tuple[int, ...]) -> Normal:
    if not lanes:
        return Normal(region.form, ())
    hoisted: list[Value] = []
    parts: list[tuple[Graph, int, int]] = []
    operands = region.arguments
    # these come in from outside, constants too, and are only updated inside: those of lanes around as well
    around = [i for i in range(len(operands)) if (c := passed(region.node, region.first + i)) and c.scatters]
    shared = {*around, *[i - region.offset for i in region.accumulators]}
    sunk = {i: v for i, v in enumerate(operands) if _is_constant(v) and i not in shared}
    for branch in region.bodies:
        outer = dict(zip(branch.inputs, operands, strict=True))
        accumulators = {branch.inputs[i] for i in shared}
        fixed = [
            v
            for v in branch.inputs
            if isinstance(v.type, TensorType) and v.shape[: len(lanes)] != lanes and v not in accumulators
        ]
        frontier = _frontier(branch, fixed)
        start = len(hoisted)
        hoisted += _computed_outside(frontier, fixed, outer)
        parts.append((extract(branch.outputs, (*branch.inputs, *frontier)), start, len(hoisted)))
    if not hoisted and not sunk:
        return Normal(region.form, ())
    own, types = len(operands), [v.type for v in (*operands, *hoisted)]

    def rebuilt(graph: Graph, start: int, stop: int) -> Graph:
        def function(*arguments: Value) -> Sequence[Value]:
            stand_in = _made_inside(sunk)
            seen = [stand_in.get(i, a) for i, a in enumerate(arguments[:own])]
            return inline(graph, (*seen, *arguments[own + start : own + stop]))

        return trace(function, types)[0]

    return Normal(region.recaptured((), hoisted, [rebuilt(*part) for part in parts]), tuple(hoisted))


def _is_constant(value: Value) -> bool:
    """Whether `value` is a constant or iota, or one moved about. An alias isn't one: what is differentiated with
    respect to is the alias of some value, which may be a constant."""
    node = value.node
    while node is not None and (node.op in ARRANGING or node.op == "cast"):
        node = node.operands[0].node
    return node is not None and node.op in NULLARY


def _made_inside(sunk: Mapping[Key, Value]) -> dict[Key, Value]:
    """The constants, emitted into the current scope."""
    return {key: inline(extract([v]), ())[0] for key, v in sunk.items()}


def _frontier(graph: Graph, fixed: Sequence[Value]) -> list[Value]:
    """The differentiable values computed from `fixed` inputs (and constants) alone that others read."""
    known, constant = set(fixed), set[Value]()
    hoistable: set[Node] = set()
    for node in graph.nodes:
        if node.op in NULLARY or (node.operands and all(v in constant for v in node.operands)):
            constant.update(node.results)
        elif not node.regions and node.op not in STACKS and all(v in known or v in constant for v in node.operands):
            known.update(node.results)
            hoistable.add(node)
    if not hoistable:
        return []
    read = {v: None for node in graph.nodes if node not in hoistable for v in node.operands}
    read.update(dict.fromkeys(graph.outputs))
    return [v for v in read if v.node in hoistable and differentiable(v.type)]


def _computed_outside(frontier: Sequence[Value], fixed: Sequence[Value], outer: dict[Value, Value]) -> list[Value]:
    """The values of `frontier` emitted into the ambient scope."""
    if not frontier:
        return []
    graph = extract(frontier, fixed)
    return list(inline(graph, [outer[v] for v in graph.inputs]))
