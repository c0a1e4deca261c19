"""Which values matter to a derivative.

A value is *active* when it depends on a differentiated input along a differentiable path, and *useful* when
a wanted output depends on it that way. Both are boolean dataflow over a Graph; loops are solved by fixpoint
over their carries. The answers may say yes too often (a cotangent may still turn out to be zero), never no.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.autodiff.rules import NONDIFFERENTIABLE
from loopgrad.graph.nodes import Graph, Node, Value
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
    if node.op == "switch":
        branches = [active_outputs(branch, operands[1:]) for branch in node.regions]
        return [any(flags) for flags in zip(*branches, strict=True)]
    first = 1 if node.op == "for" else 0
    n = node.attrs["carries"]
    return active_carries(node.regions[-1], first, list(operands[first : first + n]), list(operands[first + n :]))


def active_carries(body: Graph, first: int, carries: Flags, captures: Flags) -> Flags:
    """The least fixpoint over the carries of a loop; `first` inputs of the body come before them."""
    while True:
        outputs = active_outputs(body, [False] * first + carries + captures)
        grown = [a or b for a, b in zip(carries, outputs, strict=True)]
        if grown == carries:
            return carries
        carries = grown


def useful_inputs(graph: Graph, outputs: Sequence[bool]) -> Flags:
    """The inputs of `graph` that the outputs flagged True depend on."""
    useful = {v for v, flag in zip(graph.outputs, outputs, strict=True) if flag and differentiable(v.type)}
    for node in reversed(graph.nodes):
        if node.op in NONDIFFERENTIABLE or not any(r in useful for r in node.results):
            continue
        if node.regions:
            flags = useful_operands(node, [r in useful for r in node.results])
            useful.update(v for v, flag in zip(node.operands, flags, strict=True) if flag)
        else:
            useful.update(v for v in node.operands if differentiable(v.type))
    return [v in useful for v in graph.inputs]


def useful_operands(node: Node, results: Sequence[bool]) -> Flags:
    """Which operands of a region node the results flagged True depend on."""
    if node.op == "switch":
        branches = [useful_inputs(branch, results) for branch in node.regions]
        return [False, *(any(flags) for flags in zip(*branches, strict=True))]
    first = 1 if node.op == "for" else 0
    n = node.attrs["carries"]
    carries, inputs = useful_carries(node.regions[-1], first, list(results))
    return [False] * first + carries + inputs[first + n :]


def useful_carries(body: Graph, first: int, carries: Flags) -> tuple[Flags, Flags]:
    """The least fixpoint over the carries of a loop, and the flags of all inputs of its body."""
    while True:
        inputs = useful_inputs(body, carries)
        grown = [a or b for a, b in zip(carries, inputs[first:], strict=False)]
        if grown == carries:
            return carries, inputs
        carries = grown
