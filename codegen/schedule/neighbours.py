"""Sums over the neighbours of each point, which are looked up:

    apart = x[near] - x[:, None]                                      x: 2^18 points, near: the numbers of 32 for each
    sum(f(sum(apart * apart, -1))[..., None] * apart, 1)

All coordinates of a neighbour take the same factor. A lane for each neighbour makes it once for the sums of all
coordinates, from coordinates that it looks up once, and workgroups reduce these side by side. Lanes for each point and
coordinate would read what kernels before them left: differences, then factors.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, REDUCTIONS

FEWEST: Final = 8  # neighbours of a point
MANY: Final = 1 << 16  # of all points
MOST_LOOKED_AT: Final = 64  # values
GOES_ON: Final = frozenset({*ELEMENTWISE, *REDUCTIONS, "broadcast", "reshape", "slice"})


def over_neighbours(reduction: Node, kept: int) -> bool:
    """Whether a reduction keeps so many elements of each neighbour, which have a factor in common."""
    rows = reduction.operands[0]
    count = prod([rows.shape[axis] for axis in reduction.attrs["axes"]])
    enough = count >= FEWEST and prod(rows.shape) >= kept * MANY
    return enough and kept > 1 and _looks_up(rows, prod(rows.shape), kept, lambda _: False)


def of_neighbours(rows: Value, in_memory: Callable[[Value], bool]) -> bool:
    """Whether rows are one of the elements of each neighbour, in the place of such a reduction."""
    column = rows.node
    while column is not None and column.op == "reshape":
        column = column.operands[0].node
    if column is None or column.op != "slice" or in_memory(column.operands[0]):
        return False
    whole, size = column.operands[0], prod(rows.shape)
    kept = prod(whole.shape) // size
    return kept > 1 and size >= MANY and _looks_up(whole, kept * size, kept, in_memory)


def _looks_up(value: Value, size: int, kept: int, in_memory: Callable[[Value], bool]) -> bool:
    """Whether so many elements are made of as many that are looked up, and of one in common for each `kept`."""
    pending, seen, looked_up, common = [value], {value}, False, False
    while pending and len(seen) <= MOST_LOOKED_AT:
        v = pending.pop()
        if v.node is None or in_memory(v):
            continue
        if v.node.op == "gather":
            looked_up = looked_up or prod(v.shape) >= size
        elif v.node.op in GOES_ON:
            common = common or (v.node.op == "broadcast" and kept * prod(v.node.operands[0].shape) == size)
            fresh = [o for o in v.node.operands if o not in seen]
            seen.update(fresh)
            pending.extend(fresh)
    return looked_up and common
