"""Rows that aren't in memory, of what all of them have and a number of each:

    any(x[:, None] == few[None], 1)     x: 2^22 numbers, few: 64

Workgroups share out the elements of rows so that neighbours read neighbours. Here nobody has to: a lane that goes along
a row reads what all lanes read. On an H100 the above takes 235 us by workgroups, 27 by lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import ELEMENTWISE

FILLING: Final = 1 << 17  # lanes that keep a GPU busy
LONGEST: Final = 256  # elements of a row
MOST_LOOKED_AT: Final = 32


def made_by_lanes(reduction: Node, in_memory: Callable[[Value], bool]) -> bool:
    """Whether a lane had better reduce each row, of which there are many. Not where lanes would read what lies far
    apart: rows in memory, or of what is repeated, as each of some points beside each of others."""
    rows, axes = reduction.operands[0], reduction.attrs["axes"]
    length = prod([rows.shape[axis] for axis in axes])
    if length > LONGEST or prod(rows.shape) < FILLING * length:
        return False
    last = max([d for d, n in enumerate(rows.shape) if n != 1 and d not in axes], default=-1)
    pending, seen = [rows], {rows}
    while pending and len(seen) <= MOST_LOOKED_AT:
        value = pending.pop()
        made = value.node
        if made is None or in_memory(value):
            return False
        if made.op == "broadcast":
            (repeated,), dims = made.operands, made.attrs["dims"]
            wide = {dims[d] for d, n in enumerate(repeated.shape) if n != 1}
            if last in wide and not wide.isdisjoint(axes):
                return False
        elif made.op in ELEMENTWISE:
            fresh = [v for v in made.operands if v not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        elif made.op not in ("const", "iota"):
            return False
    return not pending
