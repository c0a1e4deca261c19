"""Rows that are put together of single elements: coordinates of points, parts of complex numbers, entries of matrices.

    stack([x * c - y * s, x * s + y * c], axis=-1)

A lane for each row makes all elements of one; a lane for each element would choose among the ways to make it, or read
it where another kernel has stored it. On a CPU rotations of points by quaternions take 4.8 times as long by the latter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from loopgrad.codegen.schedule.access import keeps_lanes
from loopgrad.graph.nodes import Node, Value

LONGEST: Final = 16  # elements of a row
MANY_ROWS: Final = 1 << 8  # fewer are chosen where they are read, which saves a launch


def made_by_rows(node: Node, stored: bool, readers: Mapping[Value, Sequence[Node]]) -> bool:
    """Whether a concat is such rows, and `stored` anyway or read by what goes on row by row."""
    rows, pieces, whole = prod(node.operands[0].shape), len(node.operands), node.results[0]
    last = len(whole.shape) - 1
    if node.attrs["axis"] != last or not 1 < pieces <= LONGEST or any(v.shape[last] != 1 for v in node.operands):
        return False
    if stored:
        return True
    return rows >= MANY_ROWS and all(_goes_on(reader, whole, rows, readers) for reader in readers.get(whole, ()))


def _goes_on(reader: Node, value: Value, rows: int, readers: Mapping[Value, Sequence[Node]]) -> bool:
    """Whether it computes row by row; or computes nothing, and what reads it doesn't put it among others."""
    if not all(keeps_lanes(reader, i, rows) for i, v in enumerate(reader.operands) if v is value):
        return False
    (result, *_) = reader.results
    after = readers.get(result, ()) if reader.op == "reshape" else ()
    return all(_goes_on(node, result, rows, readers) for node in after if node.op in ("concat", "reshape"))
