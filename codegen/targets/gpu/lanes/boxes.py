"""Lanes that read across the order in which they write: a workgroup makes a box of the domain at a time.

A transpose's lanes write side by side and read far apart. In a box that is wide along both orders, each load that is
better made in another order (see footprint) is made in that one, by whichever invocation, and waits in memory of the
workgroup for the lane that needs it (see box_tiles). A box of 32 x 64 lanes so reads and writes whole lines of memory.
On an H200 a transpose of 8192 x 8192 float32 takes 4.2 times as long without boxes, of 16384 x 16384 int8 14 times, of
33 million triples 1.9 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from loopgrad.codegen.kernel.footprint import LINE, Order, scattered_reads
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.targets.gpu.lanes.analysis import straight

FEWEST: Final = 4096  # lanes of a kernel
BOX_BYTES: Final = 8192  # of a box's smallest elements
MOST_EMPTY: Final = 1.125  # times as many lanes as there are, along a dim
ALIGNED: Final = 8  # elements
PADDED: Final = 1.1  # times as much memory as there are lanes
MOST_EXCHANGED: Final = 8  # loads
WIDTHS: Final = (64, 32, 16, 8)  # lanes along each order


@dataclass(frozen=True, slots=True)
class Exchange:
    """A load that is made in another order: which operation of the body, and the dims by that order."""

    place: int
    order: Order


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of `extents` lanes in a domain. `pitches`: from neighbour to neighbour along each dim, in memory of the
    workgroup, whose arrays have `room` elements."""

    domain: tuple[int, ...]
    extents: tuple[int, ...]
    exchanges: tuple[Exchange, ...]

    @property
    def lanes(self) -> int:
        return prod(self.extents)

    @property
    def counts(self) -> tuple[int, ...]:
        """Boxes along each dim."""
        return tuple([-(-n // e) for n, e in zip(self.domain, self.extents, strict=True)])

    @property
    def count(self) -> int:
        return prod(self.counts)

    @property
    def pitches(self) -> tuple[int, ...]:
        """Odd, so that neighbours along any dim lie in different banks."""
        found = [1]
        for extent in reversed(self.extents[1:]):
            found.append(found[-1] * extent if extent == 1 else found[-1] * extent | 1)
        return tuple(reversed(found))

    @property
    def room(self) -> int:
        return sum((e - 1) * p for e, p in zip(self.extents, self.pitches, strict=True)) + 1


def boxed(kernel: Kernel, memory: int) -> Boxes | None:
    """The boxes of a kernel that has any use for them, in so much memory of a workgroup."""
    domain = kernel.domain
    wide = [n for n in domain if n > 1]
    if len(wide) < 2 or prod(domain) < FEWEST or not straight(kernel):
        return None
    if kernel.reductions or kernel.errors or kernel.order_key is not None:
        return None
    reads = scattered_reads(kernel)[:MOST_EXCHANGED]
    if not reads:
        return None
    places = {op: i for i, op in enumerate(kernel.body.ops)}
    exchanges = tuple([Exchange(places[read.op], read.order) for read in reads])
    orders = [tuple(reversed(range(len(domain)))), *dict.fromkeys(read.order for read in reads)]
    sizes = [kernel.params[read.op.attrs["param"]].dtype.itemsize for read in reads]
    bytes = sum(max(s, 4) for s in sizes)
    most = min(BOX_BYTES // min(sizes), int(memory / PADDED) // bytes)
    for width in [w for w in WIDTHS if w * min(sizes) <= LINE]:
        found = Boxes(domain, _extents(domain, orders, width, most), exchanges)
        if found.lanes <= most and found.room * bytes <= memory:
            return found
    return None


def _extents(domain: tuple[int, ...], orders: Sequence[Order], width: int, most: int) -> tuple[int, ...]:
    """Of a box that has `width` lanes side by side in each order, and more where it is small."""
    extents = [1] * len(domain)
    for order in orders:
        side = 1
        for d in order:
            if side < width:
                extents[d] = max(extents[d], min(domain[d], -(-width // side)))
            side *= extents[d]
    for d in (d for order in orders for d in order):
        while extents[d] < domain[d] and 2 * prod(extents) <= most:
            extents[d] = min(2 * extents[d], domain[d])
    return tuple([_even(n, e) for n, e in zip(domain, extents, strict=True)])


def _even(extent: int, part: int) -> int:
    """The part, or that of as many equal ones where much of the last would be empty: whole sectors, if it has some."""
    parts = -(-extent // part)
    if parts * part <= extent * MOST_EMPTY:
        return part
    even = -(-extent // parts)
    return min(-(-even // ALIGNED) * ALIGNED, part) if part > ALIGNED and extent % ALIGNED == 0 else even
