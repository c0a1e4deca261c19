"""Which accesses keep a lane at its own index.

Enters: a node, an operand position, a number of lanes n. The lanes of a value are its leading dims that
hold n elements (for an elementwise program all of them). `keeps_lanes` answers whether the operand is read
at the very lanes of the result: then producer and consumer fit into one kernel.

    add(x, y)                      yes, for any n
    broadcast(x) (n,) -> (n, 3)    yes, dims kept in front
    transpose, slice of dim 0      no
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from loopgrad.codegen.lower.context import leading_dims
from loopgrad.graph.lanes import iota_axis
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives.elementwise import ROWS as ELEMENTWISE

Rule = Callable[[Node, int, int, int], bool]


def keeps_lanes(node: Node, operand: int, n: int) -> bool:
    """Whether operand's leading n elements are the result's."""
    if n == 1 or node.op in ELEMENTWISE:
        return True
    rule = RULES.get(node.op)
    if rule is None:  # also stack_new, whose result has no elements to index
        return False
    dims = leading_dims(node.results[0].shape, n)
    return dims is not None and rule(node, operand, n, dims)


def _wide(shape: Sequence[int]) -> list[int]:
    """Dims of more than one element."""
    return [d for d, extent in enumerate(shape) if extent != 1]


def _broadcast(node: Node, operand: int, n: int, dims: int) -> bool:
    shape, inner = node.attrs["shape"], node.operands[0].shape
    source = dict(zip(node.attrs["dims"], inner, strict=True))
    return all(source.get(d) == shape[d] for d in _wide(shape[:dims]))


def _reshape(node: Node, operand: int, n: int, dims: int) -> bool:
    return leading_dims(node.operands[0].shape, n) is not None


def _transpose(node: Node, operand: int, n: int, dims: int) -> bool:
    shape = node.results[0].shape
    source = [node.attrs["perm"][d] for d in _wide(shape[:dims])]
    return source == _wide(node.operands[0].shape)[: len(source)]


def _slice(node: Node, operand: int, n: int, dims: int) -> bool:
    old, new = node.operands[0].shape, node.results[0].shape
    return all(old[d] == new[d] and (node.attrs["step"][d] == 1 or old[d] == 1) for d in range(dims))


def _pad(node: Node, operand: int, n: int, dims: int) -> bool:
    return operand == 0 and not any(node.attrs["low"][:dims]) and not any(node.attrs["high"][:dims])


def _concat(node: Node, operand: int, n: int, dims: int) -> bool:
    return bool(node.attrs["axis"] >= dims)


def _flip(node: Node, operand: int, n: int, dims: int) -> bool:
    return all(axis >= dims for axis in node.attrs["axes"])


def _reduce(node: Node, operand: int, n: int, dims: int) -> bool:
    shape = node.operands[0].shape
    kept = leading_dims(shape, n)
    return kept is not None and all(axis >= kept or shape[axis] == 1 for axis in node.attrs["axes"])


def _along(node: Node, operand: int, n: int, dims: int) -> bool:
    shape = node.operands[0].shape
    kept = leading_dims(shape, n)
    return kept is not None and (node.attrs["axis"] >= kept or shape[node.attrs["axis"]] == 1)


def _gather(node: Node, operand: int, n: int, dims: int) -> bool:
    index_shape = node.operands[1].shape
    if operand:
        return leading_dims(index_shape, n) is not None
    table, m = node.operands[0].shape, len(node.operands) - 1
    kept = leading_dims(table, n)
    if kept is None or kept > m:
        return False
    axes = [iota_axis(node.operands[1 + d]) for d in _wide(table[:kept])]
    extents = [table[d] for d in _wide(table[:kept])]
    leading = _wide(index_shape)[: len(axes)]
    return axes == leading and extents == [index_shape[a] for a in leading]


def _matmul(node: Node, operand: int, n: int, dims: int) -> bool:
    kept = leading_dims(node.operands[operand].shape, n)
    rank = len(node.operands[operand].shape)
    return kept is not None and kept <= rank - (1 if operand == 0 else 2)


RULES: Final[dict[str, Rule]] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "concat": _concat,
    "flip": _flip,
    **dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_min", "reduce_max", "reduce_and", "reduce_or"), _reduce),
    **dict.fromkeys(("argmin", "argmax", "cumsum", "cumprod", "cummax", "cummin"), _along),
    "gather": _gather,
    "matmul": _matmul,
}
