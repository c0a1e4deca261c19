"""The reference semantics of graphs, in NumPy: slow and obviously right.

Enter: a Graph and one array per input. Leave: one array per output. Nodes run in order through their
primitive's `reference`; region nodes are run by `graph.interpret_regions`, stacks here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopgrad.graph.errors import ShapeError, VerifyError
from loopgrad.graph.interpret_regions import (
    Activation,
    check_indices,
    run_region,
    scatter_under,
)
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import BARE
from loopgrad.graph.primitives.primitive import Array
from loopgrad.graph.types import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """A linked list: the top tensor and what lies under it; None twice where the stack is empty."""

    top: Array | None = None
    below: Stack | None = None


Datum = Array | Stack


def interpret(graph: Graph, arrays: Sequence[Any], checked: bool = False) -> list[Array]:
    """The outputs of `graph` for these inputs; `checked` raises where an index is out of range."""
    if len(arrays) != len(graph.inputs):
        raise ShapeError(f"interpret: expected {len(graph.inputs)} arrays, got {len(arrays)}")
    inputs: list[Datum] = []
    for position, (value, array) in enumerate(zip(graph.inputs, arrays, strict=True)):
        given = np.asarray(array)
        if not isinstance(value.type, TensorType) or given.shape != value.shape or given.dtype != value.dtype.np:
            got = f"{given.dtype}{list(given.shape)}"
            raise ShapeError(f"interpret: expected input {position} of type {value.type}, got {got}")
        inputs.append(given)
    run = Interpretation().run
    with np.errstate(all="ignore"):
        outputs = run(graph, inputs, Activation(run, check_indices=checked))
    return [_exported(graph, x) for x in outputs]


def _exported(graph: Graph, result: Datum) -> Array:
    """A dense array of its own; references may have returned views of their operands."""
    if isinstance(result, Stack):
        raise VerifyError(
            f"interpret: expected tensor outputs, got {graph.output_types}; pop the stack inside the graph"
        )
    return np.array(result, order="C")


class Interpretation:
    """One call of `interpret`. What a loop runs again and again is looked at once: after which node each value isn't
    used again, and whether results have the types of their values, which the first trip shows."""

    def __init__(self) -> None:
        self._orders: dict[Graph, list[tuple[Node, tuple[Value, ...]]]] = {}

    def run(self, graph: Graph, inputs: list[Datum], frame: Activation) -> list[Datum]:
        """Run the nodes in order; an array is dropped after its last use."""
        env: dict[Value, Datum] = dict(zip(graph.inputs, inputs, strict=True))
        new = graph not in self._orders
        if new:
            self._orders[graph] = _order(graph)
        for node, last in self._orders[graph]:
            results = _run_node(node, [env[v] for v in node.operands], frame)
            for value, result in zip(node.results, results, strict=True):
                if new:
                    _check(node, value, result)
                env[value] = result
            for value in last:
                del env[value]
        return [env[v] for v in graph.outputs]


def _order(graph: Graph) -> list[tuple[Node, tuple[Value, ...]]]:
    """The nodes, each with the operands that are used there for the last time."""
    last_use: dict[Value, Node | None] = {v: node for node in graph.nodes for v in node.operands}
    last_use.update((v, None) for v in graph.outputs)
    return [(node, tuple(v for v in dict.fromkeys(node.operands) if last_use[v] is node)) for node in graph.nodes]


def _run_node(node: Node, operands: list[Any], frame: Activation) -> Sequence[Datum]:
    if frame.check_indices and node.op in ("gather", "scatter"):
        check_indices(node, operands, frame.masks)
    if node.regions:
        return run_region(node, operands, frame)
    match node.op:
        case "stack_new":
            return (Stack(),)
        case "push":
            return (Stack(operands[1], operands[0]),)
        case "pop":
            stack = operands[0]
            if stack.below is None:
                raise VerifyError(f"pop from an empty stack of {node.operands[0].type}, made at {node.loc}")
            return (stack.below, stack.top)
        case "scatter" if node.operands[0] in frame.shared:
            frame.shared.add(node.results[0])
            return (scatter_under(frame.masks, node.attrs, *operands),)
        case op:
            return BARE[op](node.attrs, *operands)


def _check(node: Node, value: Value, result: Datum) -> None:
    """The rule that inferred the type and the reference that made the array must agree."""
    if isinstance(value.type, TensorType):
        assert isinstance(result, np.ndarray), (node, type(result))
        assert result.shape == value.type.shape, (node, result.shape)
        assert result.dtype == value.type.dtype.np, (node, result.dtype)
    else:
        assert isinstance(result, Stack), (node, type(result))
