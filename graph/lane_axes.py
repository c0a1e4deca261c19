"""Where an operation puts the axes of its operands.

`moved_axes(node, i, axes)` answers: if the elements of operand i that share coordinates along
`axes` belong to one lane, along which axes of the results do they still? None means that elements
of different lanes meet (a reduction over a lane axis, a shift, a gather by computed index).

    transpose {perm=(1, 0)}    axes (0,) -> (1,)
    reduce_sum {axes=(1,)}     axes (0,) -> (0,);  axes (1,) -> None
    reshape (2, 3) -> (6,)     axes (0,) -> None;  axes (0, 1) -> None: they are no axes any more
"""

from __future__ import annotations

from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.primitives.primitive import Axes


def moved_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    """The result axes that `axes` of an operand become, one by one; None where lanes mix."""
    if not axes:
        return ()
    rule = PRIMITIVES[node.op].axes
    moved = None if rule is None else rule(node, operand, axes)
    if moved is None or moved is axes:  # the same extents too: the usual case, asked thousands of times
        return moved
    old, new = node.operands[operand].shape, node.results[0].shape
    return moved if [old[a] for a in axes] == [new[a] for a in moved] else None


def preserves(node: Node, operand: int, k: int) -> bool:
    """Whether the operand's leading k dims are, unchanged, the results' leading k dims."""
    leading = tuple(range(k))
    return moved_axes(node, operand, leading) == leading
