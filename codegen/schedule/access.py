"""Which accesses keep a lane at its own index.

Enters: a node, an operand position, a number of lanes n. The lanes of a value are its leading dims that
hold n elements (for an elementwise program all of them). `keeps_lanes` answers whether the operand is read
at the very lanes of the result: then producer and consumer fit into one kernel.

    add(x, y)                      yes, for any n
    broadcast(x) (n,) -> (n, 3)    yes, dims kept in front
    transpose, slice of dim 0      no
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.lower.context import leading_dims
from loopgrad.graph.lanes import iota_axis, owned_axes
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, PRIMITIVES
from loopgrad.graph.primitives.primitive import Axes
from loopgrad.graph.types import StackType


def keeps_lanes(node: Node, operand: int, n: int) -> bool:
    """Whether operand's leading n elements are the result's."""
    if n == 1 or node.op in ELEMENTWISE:
        return True
    rule = PRIMITIVES[node.op].axes
    if rule is None:  # also stack_new, whose result has no elements to index
        return False
    lanes = _lane_axes(node.operands[operand].shape, n)
    if lanes is None:
        return False
    if node.op == "gather" and operand == 0:  # each lane may read its own rows
        moved = owned_axes(node, lanes, [iota_axis(index) for index in node.operands[1:]])
    else:
        moved = rule(node, operand, lanes)
    return moved is not None and moved == _lane_axes(node.results[0].shape, n)


def is_stack(value: Value) -> bool:
    return isinstance(value.type, StackType)


def _lane_axes(shape: Sequence[int], n: int) -> Axes | None:
    """The leading dims that hold n elements, without those of one."""
    dims = leading_dims(shape, n)
    return None if dims is None else tuple([d for d in range(dims) if shape[d] != 1])
