"""Where an operation puts the axes of its operands.

`moved_axes(node, i, axes)` answers: if the elements of operand i that share coordinates along
`axes` belong to one lane, along which axes of the results do they still? None means that elements
of different lanes meet (a reduction over a lane axis, a shift, a gather by computed index).

    transpose {perm=(1, 0)}    axes (0,) -> (1,)
    reduce_sum {axes=(1,)}     axes (0,) -> (0,);  axes (1,) -> None
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives.elementwise import ROWS as ELEMENTWISE

Axes = tuple[int, ...]
Rule = Callable[[Node, int, Axes], Axes | None]


def moved_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    """The result axes that `axes` of an operand become; None where lanes mix."""
    if not axes:
        return ()
    if node.op in ELEMENTWISE:
        return axes
    rule = RULES.get(node.op)
    return rule(node, operand, axes) if rule is not None else None


def preserves(node: Node, operand: int, k: int) -> bool:
    """Whether the operand's leading k dims are, unchanged, the results' leading k dims."""
    leading = tuple(range(k))
    return moved_axes(node, operand, leading) == leading


def _broadcast(node: Node, operand: int, axes: Axes) -> Axes | None:
    shape, dims = node.attrs["shape"], node.attrs["dims"]
    if any(node.operands[0].shape[a] != shape[dims[a]] for a in axes):
        return None
    return tuple([dims[a] for a in axes])


def _reshape(node: Node, operand: int, axes: Axes) -> Axes | None:
    """An axis survives where the extents before it multiply to the same stride count."""
    old, new = node.operands[0].shape, node.attrs["shape"]
    moved: list[int] = []
    for a in axes:
        before = prod(old[:a])
        for j, extent in enumerate(new):
            if extent == old[a] and j not in moved and prod(new[:j]) == before:
                moved.append(j)
                break
        else:
            return None
    return tuple(moved)


def _transpose(node: Node, operand: int, axes: Axes) -> Axes | None:
    perm = node.attrs["perm"]
    return tuple([perm.index(a) for a in axes])


def _slice(node: Node, operand: int, axes: Axes) -> Axes | None:
    old, new = node.operands[0].shape, node.results[0].shape
    whole = all(node.attrs["step"][a] == 1 and old[a] == new[a] for a in axes)
    return axes if whole else None


def _pad(node: Node, operand: int, axes: Axes) -> Axes | None:
    low, high = node.attrs["low"], node.attrs["high"]
    return None if any(low[a] or high[a] for a in axes) else axes


def _concat(node: Node, operand: int, axes: Axes) -> Axes | None:
    return None if node.attrs["axis"] in axes else axes


def _flip(node: Node, operand: int, axes: Axes) -> Axes | None:
    return None if any(a in node.attrs["axes"] for a in axes) else axes


def _along(node: Node, operand: int, axes: Axes) -> Axes | None:
    return None if node.attrs["axis"] in axes else axes


def _reduce(node: Node, operand: int, axes: Axes) -> Axes | None:
    removed = node.attrs["axes"]
    if any(a in removed for a in axes):
        return None
    return tuple([a - sum(r < a for r in removed) for a in axes])


def _arg(node: Node, operand: int, axes: Axes) -> Axes | None:
    removed = node.attrs["axis"]
    return None if removed in axes else tuple([a - (removed < a) for a in axes])


def _matmul(node: Node, operand: int, axes: Axes) -> Axes | None:
    contracted = len(node.operands[operand].shape) - (1 if operand == 0 else 2)
    return None if contracted in axes else axes


def _gather(node: Node, operand: int, axes: Axes) -> Axes | None:
    """Window dims of the table and all dims of the indices survive; looked-up dims don't."""
    if operand:
        return axes
    m = len(node.operands) - 1
    if any(a < m for a in axes):
        return None
    return tuple([len(node.operands[1].shape) + a - m for a in axes])


def _scatter(node: Node, operand: int, axes: Axes) -> Axes | None:
    """Window dims survive: of the table as they are, of the updates at the table's position."""
    m = len(node.operands) - 2
    if operand == 0:
        return None if any(a < m for a in axes) else axes
    rank = len(node.operands[1].shape)
    if operand <= m or any(a < rank for a in axes):
        return None
    return tuple([a - rank + m for a in axes])


RULES: Final[dict[str, Rule]] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "concat": _concat,
    "flip": _flip,
    **dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_min", "reduce_max", "reduce_and", "reduce_or"), _reduce),
    **dict.fromkeys(("argmin", "argmax"), _arg),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "sort", "argsort"), _along),
    "matmul": _matmul,
    "gather": _gather,
    "scatter": _scatter,
}
