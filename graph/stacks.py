"""Following stacks forward through a graph, from node to node.

A stack is used once, so its values form a line: what pushes, pops or a region makes of one is the next. The way back is
`graph.regions.previous`.

    %1 = stack_new();  %2 = push(%1, %x);  %3, %4 = for(%n, %y, %2)      %1 -> %2 -> %4, which ends

Rows are pushed and popped by each lane for itself, inside a region with lanes, or by all of them together. A stack that
sees both can't be in a kernel (`handled_in_lanes`): the last row of a lane that has ended before others isn't its own
last one. What masks make of a region with lanes pushes for all of them; that inactive lanes' rows have no derivative
says `graph.passes.mask_region` itself, before it is known who will pop.
"""

from __future__ import annotations

from collections.abc import Iterator

from loopgrad.graph.accumulators import value_uses
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Region
from loopgrad.graph.types import StackType


def stack_type(value: Value) -> StackType:
    """The type of a value that is a stack."""
    assert isinstance(value.type, StackType)
    return value.type


def next_stack(node: Node, operand: int) -> Value | None:
    """The result that continues the stack at operand `operand`; None where no region looks at it."""
    if not node.regions:
        return node.results[0]
    region = Region.of(node)
    stacks = (r for r in node.results if isinstance(r.type, StackType))
    return next((r for r in stacks if region.source(r.index) == operand), None)


def uses_of_stack(graph: Graph, stack: Value) -> Iterator[tuple[Node, int, Value]]:
    """The nodes that a stack goes through, each with the operand's position and the stack after it."""
    uses = value_uses(graph)
    while True:
        steps = ((node, i, next_stack(node, i)) for node, i in uses.get(stack, ()) if node is not None)
        node, operand, after = next((step for step in steps if step[2] is not None), (None, 0, None))
        if node is None or after is None:
            return
        yield node, operand, after
        stack = after


def last_stack(graph: Graph, stack: Value) -> Value:
    """The last value of a stack in `graph`: consumed by no node of it."""
    for _, _, after in uses_of_stack(graph, stack):
        stack = after
    return stack


def handled_in_lanes(graph: Graph, stack: Value, lanes: bool = False) -> set[bool]:
    """Whether lanes push and pop a stack for themselves: what is true of it wherever it goes in `graph` and in the
    regions there. `lanes`: the graph is inside a region with lanes."""
    found: set[bool] = set()
    uses, values = value_uses(graph), [stack]
    for value in values:
        for node, operand in uses.get(value, ()):
            if node is None:
                continue
            if node.regions:
                region = Region.of(node)
                for inner, inside in zip(region.running, region.inputs_of(operand), strict=True):
                    found |= handled_in_lanes(inner, inside, lanes or region.lanes > 0)
            else:
                found.add(lanes)
            after = next_stack(node, operand)
            values += [] if after is None else [after]
    return found
