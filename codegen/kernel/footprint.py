"""What neighbouring lanes read: found by looking at indices of some lanes, where these follow from the lanes' numbers.

Memory comes in sectors and lines, of 32 and 128 bytes on GPUs, of 64 on CPUs. Lanes in their order may need many more
of them than in the order in which what they read lies in memory; then it is better to read in that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Final

import numpy as np

from loopgrad.codegen.extents.extent import representative
from loopgrad.codegen.kernel.linear_index import Linear, linear
from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.graph.primitives import REFERENCE

SECTOR, LINE = 32, 128
TEAM: Final = 32  # lanes whose loads are one instruction
RUN: Final = 256  # lanes of a workgroup that read at about the same time
SAMPLES: Final = 7  # places of the domain that are looked at
WASTE: Final = 1.5  # times as many sectors
SCATTERED: Final = 8  # lines of one instruction, where others would do with a third of them

Lanes = np.ndarray[Any, np.dtype[np.int64]]
Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A load of the body, and the dims of the domain from that on along which neighbours lie side by side in memory."""

    op: KOp
    order: Order


def index_of(op: KOp, inside: set[KOp]) -> list[KOp] | None:
    """The operations of the body that the index of a load follows from, in no order; None where it is read itself."""
    found: dict[KOp, None] = {}
    todo = list(op.operands)
    while todo:
        made = todo.pop().op
        if made is None or made in found:
            continue
        if made not in inside or made.blocks or made.opcode in ("load", "pop"):
            return None
        found[made] = None
        todo += made.operands
    return list(found)


def scattered_reads(kernel: Kernel) -> list[Read]:
    """Loads that lanes make better in another order than theirs."""
    lanes = prod(kernel.domain)
    body, inside = kernel.body, set(kernel.body.ops)
    stored = {op.operands[0] for op in body.ops if op.opcode == "store"}
    found: dict[KOp, list[KOp]] = {}
    for op in body.ops:
        if op.opcode == "load" and kernel.params[op.attrs["param"]].access == "read" and op.operands[0] not in stored:
            needs = index_of(op, inside)
            if needs is not None:
                found[op] = needs
    if found:  # of an index that is linear every sample says the same
        forms = linear(kernel)
        found = {op: needs for op, needs in found.items() if not _lies_in_order(forms.get(op.operands[0]))}
    if not found or lanes < RUN:
        return []
    needed = {need for needs in found.values() for need in needs}
    return _Footprint(kernel, [op for op in body.ops if op in needed], list(found)).scattered()


def _lies_in_order(index: Linear | None) -> bool:
    """Whether lanes in their order are the nearer to each other in memory, the later the dim of the domain. Along dims
    that the index doesn't depend on they read the same again, for which no order has fewer places."""
    if index is None:
        return False
    return all(far >= near for far, near in pairwise([abs(f) for f in index.factors if f]))


def _by_distance(distance: Sequence[Any]) -> Order:
    """The dims, those along which nothing changes last."""
    return tuple(sorted(range(len(distance)), key=lambda d: (distance[d] == 0, distance[d], -d)))


class _Footprint:
    """`ops`: in order, what the indices of `loads` follow from."""

    def __init__(self, kernel: Kernel, ops: Sequence[KOp], loads: Sequence[KOp]) -> None:
        self.kernel, self.ops, self.loads = kernel, ops, loads
        self.domain = tuple(map(representative, kernel.domain))
        lanes, self.rank = prod(self.domain), len(self.domain)
        self.starts = np.linspace(0, lanes - RUN, SAMPLES).astype(np.int64)

    def scattered(self) -> list[Read]:
        usual = self._indices(tuple(reversed(range(self.rank))))
        orders = self._orders()
        others = {order: self._indices(order) for order in {o for row in orders.values() for o in row}}
        found = []
        for op in self.loads:
            size = self.kernel.params[op.attrs["param"]].dtype.itemsize
            worst, best = 1.0, None
            for s, order in enumerate(orders[op]):
                waste = _waste(usual[op][s] * size, others[order][op][s] * size)
                if waste > worst:
                    worst, best = waste, order
            if best is not None:
                found.append(Read(op, best))
        return found

    def _indices(self, order: Order) -> dict[KOp, Lanes]:
        """Of RUN lanes in that order, from each sample on."""
        extents = [self.domain[d] for d in reversed(order)]
        points = np.unravel_index(self.starts, self.domain)
        first = np.ravel_multi_index([points[d] for d in reversed(order)], extents)
        numbers = np.minimum(first, prod(extents) - RUN)[:, None] + np.arange(RUN)
        along = np.unravel_index(numbers, extents)
        return self._evaluated([along[self.rank - 1 - order.index(d)] for d in range(self.rank)])

    def _orders(self) -> dict[KOp, list[Order]]:
        """For each sample the dims by how far neighbours are apart in memory."""
        domain = self.domain
        points = np.stack(np.unravel_index(self.starts, domain))  # [rank, samples]
        lanes = np.repeat(points[:, :, None], self.rank + 1, axis=2)
        for d in range(self.rank):
            lanes[d, :, d + 1] += np.where(points[d] + 1 < domain[d], 1, np.where(points[d] > 0, -1, 0))
        found = {}
        for op, index in self._evaluated(list(lanes)).items():
            distance = np.abs(index[:, 1:] - index[:, :1])
            found[op] = [_by_distance(row) for row in distance]
        return found

    def _evaluated(self, arguments: Sequence[Lanes]) -> dict[KOp, Lanes]:
        values: dict[KValue, Any] = dict(zip(self.kernel.body.arguments, arguments, strict=True))
        for op in self.ops:
            (result,) = op.results
            values[result] = _result(op, [values[v] for v in op.operands])
        shape = np.shape(arguments[0])
        return {op: np.broadcast_to(values[op.operands[0]], shape) for op in self.loads}


def _result(op: KOp, operands: list[Any]) -> Any:
    if op.opcode == "const":
        return op.results[0].dtype.np.type(representative(op.attrs["value"]))
    attrs = {"dtype": op.results[0].dtype} if op.opcode == "cast" else op.attrs
    with np.errstate(all="ignore"):
        return REFERENCE[op.opcode](attrs, *operands)[0]


def _waste(usual: Lanes, other: Lanes) -> float:
    """How many times as many sectors as in the other order, where that is worth changing it; else 1. Not more than for
    as many elements: lanes that read some again, as those of overlapping windows do in the other order, need few."""
    again = _count(other, 1) / _count(usual, 1)
    sectors = _count(usual, SECTOR) / _count(other, SECTOR) * min(again, 1.0)
    lines, fewest = _count(usual[:TEAM], LINE), _count(other[:TEAM], LINE)
    if sectors >= WASTE:
        return sectors
    return 1.0 + sectors / WASTE if lines >= max(SCATTERED, 3 * fewest) else 1.0


def _count(places: Lanes, size: int) -> int:
    return len(np.unique(places // size))
