"""Which values matter to a derivative.

A value is *active* when it depends on a differentiated input along a differentiable path, and *useful* when
a wanted output depends on it that way. Both are boolean dataflow over a Graph; loops are solved by fixpoint
over their carries; where a call has its own rule, all results depend on all operands. The answers may say yes
too often (a cotangent may still turn out to be zero), never no.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.autodiff.rules import NONDIFFERENTIABLE
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import StackType, TensorType

Flags = list[bool]


def differentiable(type: TensorType | StackType) -> bool:
    """Whether values of this type have cotangents (for a stack: its elements do)."""
    return (type.element if isinstance(type, StackType) else type).dtype.differentiable


def active_values(graph: Graph, inputs: Sequence[bool]) -> set[Value]:
    """The values of `graph` that depend on the inputs flagged True."""
    active = {v for v, flag in zip(graph.inputs, inputs, strict=True) if flag and differentiable(v.type)}
    if not active:
        return active
    for node in graph.nodes:
        if node.op in NONDIFFERENTIABLE or not any(v in active for v in node.operands):
            continue
        if node.regions:
            flags = active_results(node, [v in active for v in node.operands])
            active.update(r for r, flag in zip(node.results, flags, strict=True) if flag)
        else:
            active.update(r for r in node.results if differentiable(r.type))
    return active


def active_outputs(graph: Graph, inputs: Sequence[bool]) -> Flags:
    active = active_values(graph, inputs)
    return [v in active for v in graph.outputs]


def active_results(node: Node, operands: Sequence[bool]) -> Flags:
    """Which results of a region node depend on the operands flagged True."""
    region = Region.of(node)
    if isinstance(region, Loop):
        _, carries, captures = region.split(operands)
        return active_carries(region, carries, captures)
    if region.own:
        return [any(operands) and differentiable(r.type) for r in node.results]
    bodies = [active_outputs(body, operands[region.first :]) for body in region.bodies]
    return [any(flags) for flags in zip(*bodies, strict=True)]


def active_carries(loop: Loop, inits: Sequence[bool], captures: Sequence[bool]) -> Flags:
    """The least fixpoint over the carries of a loop."""
    carries = list(inits)
    while True:
        outputs = active_outputs(loop.body, [False] * loop.first + carries + list(captures))
        grown = [a or b for a, b in zip(carries, outputs, strict=True)]
        if grown == carries:
            return carries
        carries = grown


def useful_inputs(graph: Graph, outputs: Sequence[bool]) -> Flags:
    """The inputs of `graph` that the outputs flagged True depend on."""
    useful = useful_values(graph, outputs)
    return [v in useful for v in graph.inputs]


def useful_values(graph: Graph, outputs: Sequence[bool]) -> set[Value]:
    """The values of `graph` that the outputs flagged True depend on."""
    useful = {v for v, flag in zip(graph.outputs, outputs, strict=True) if flag and differentiable(v.type)}
    for node in reversed(graph.nodes):
        if node.op in NONDIFFERENTIABLE or not any(r in useful for r in node.results):
            continue
        if node.regions:
            flags = useful_operands(node, [r in useful for r in node.results])
            useful.update(v for v, flag in zip(node.operands, flags, strict=True) if flag)
        else:
            useful.update(v for v in node.operands if differentiable(v.type))
    return useful


def useful_operands(node: Node, results: Sequence[bool]) -> Flags:
    """Which operands of a region node the results flagged True depend on."""
    region = Region.of(node)
    if isinstance(region, Loop):
        carries, captures = useful_carries(region, results)
        return [False] * region.first + carries + captures
    if region.own:
        return [any(results) and differentiable(v.type) for v in node.operands]
    bodies = [useful_inputs(body, results) for body in region.bodies]
    return [False] * region.first + [any(flags) for flags in zip(*bodies, strict=True)]


def useful_carries(loop: Loop, results: Sequence[bool]) -> tuple[Flags, Flags]:
    """The least fixpoint over the carries of a loop, and the flags of its captures."""
    carries = list(results)
    while True:
        _, inits, captures = loop.split(useful_inputs(loop.body, carries))
        grown = [a or b for a, b in zip(carries, inits, strict=True)]
        if grown == carries:
            return carries, list(captures)
        carries = grown
