"""Which factorisations GPUs do by a routine of their own: those of small matrices, whose columns neighbouring
invocations have (`codegen/targets/gpu/routines/matrix_columns.py`). A lane for each matrix would be too few lanes, each
of which does one thing after the other; libraries take matrices of that size one after the other, in several launches
each, or wait between them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, NamedTuple

from loopgrad.codegen.options import IN_COLUMNS
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives.factorisations import batch_rank, extents

MOST: Final = 32  # rows and columns, whose code is written out
MOST_PIVOTED: Final = 16  # those where pivots are looked for, which one invocation does for all
FEWEST: Final = 9  # those that a lane has in registers are fewer (QR factors of 24 x 5 take it half the time)
MANY: Final = 17  # matrices, which lanes or libraries may have; fewer are always had by columns


def _itself(node: Node) -> int:
    return max(extents(node, 0))


def _system(node: Node) -> int:
    return max(*extents(node, 0), *extents(node, 3))


class Columns(NamedTuple):
    """The most rows or columns of what is had by columns, and for how many that is worth it."""

    largest: Callable[[Node], int]
    most: int = MOST


ROWS: Final[dict[str, Columns]] = {
    "cholesky": Columns(_itself),
    "lu": Columns(_itself, MOST_PIVOTED),
    "qr": Columns(_itself),
    "solve_factored": Columns(_system, MOST_PIVOTED),
}


def in_columns(node: Node, library: frozenset[str]) -> bool:
    """Whether it is done so, outside of loops."""
    if IN_COLUMNS not in library or node.op not in ROWS or "pairs" in node.attrs or not prod(node.results[0].shape):
        return False
    row, count = ROWS[node.op], prod(node.operands[0].shape[: batch_rank(node)])
    if count < MANY:
        return FEWEST <= row.largest(node) <= MOST
    return min(extents(node, 0)) >= FEWEST and row.largest(node) <= row.most
