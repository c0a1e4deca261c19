"""Lanes that read across the order in which they write: a workgroup makes a box of the domain at a time.

A transpose's lanes write side by side and read far apart. In a box that is wide along both orders, each load that is
better made in another order (see footprint) is made in that one, by whichever invocation, and waits in memory of the
workgroup for the lane that needs it (see box_tiles). A box of 32 x 64 lanes so reads and writes whole lines of memory.
On an H200 a transpose of 8192 x 8192 float32 takes 4.2 times as long without boxes, of 16384 x 16384 int8 14 times, of
33 million triples 1.9 times.

Of elements narrower than a word an invocation moves as many side by side as a word has, in each order. Boxes of bytes
have whole lines in each: of 64 bytes a transpose on an H200 takes 1.5 times as long as a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Final

from loopgrad.codegen.kernel.footprint import LINE, Order, Read, scattered_reads
from loopgrad.codegen.kernel.linear_index import Linear, linear
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.targets.gpu.lanes.analysis import straight
from loopgrad.codegen.targets.gpu.lanes.side_by_side import WORD

FEWEST: Final = 4096  # lanes of a kernel
BOX_BYTES: Final = 8192  # of a box's smallest elements
MOST_EMPTY: Final = 1.125  # times as many lanes as there are, along a dim
ALIGNED: Final = 8  # elements
PADDED: Final = 1.1  # times as much memory as there are lanes
MOST_EXCHANGED: Final = 8  # loads
WIDTHS: Final = (128, 64, 32, 16, 8)  # lanes along each order
BANKS: Final = 5  # powers of two of them


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
    side: int = 1  # lanes side by side, in each order, of an invocation
    words: int | None = None  # the dim along which so many lanes' elements wait as one word

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
        for d in reversed(range(1, len(self.extents))):
            rows = self.rows(d)
            reach = rows + self.skipped(rows - 1)
            found.append(found[-1] * reach if rows == 1 else found[-1] * reach | 1)
        return tuple(reversed(found))

    def rows(self, d: int) -> int:
        """Elements along a dim in memory of the workgroup."""
        return self.extents[d] // self.side if d == self.words else self.extents[d]

    def skipped(self, digit: int) -> int:
        """How much further along a dim an element lies: invocations that have lanes side by side touch every so many
        elements, which meet in as many banks less unless those of each round of the banks are moved by one."""
        return digit >> BANKS if self.side > 1 else 0

    @property
    def room(self) -> int:
        rows = [self.rows(d) for d in range(len(self.extents))]
        places = [(n - 1) * p + self.skipped(n - 1) for n, p in zip(rows, self.pitches, strict=True)]
        return sum(places) + 1


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
    side, dim = _side(kernel, orders), _dim_of_words(kernel, reads, orders)
    bytes = sum(max(s, WORD) for s in sizes)
    for width in [w for w in WIDTHS if w * min(sizes) <= LINE]:
        room = int(memory / PADDED) // bytes * (1 if dim is None else side)
        most = min(max(BOX_BYTES // min(sizes), (LINE // min(sizes)) ** 2), room)
        extents = _extents(domain, orders, width, most)
        whole = all(extents[order[0]] % side == 0 for order in orders)
        found = Boxes(domain, extents, exchanges, side if whole else 1, dim if whole else None)
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


def _side(kernel: Kernel, orders: Sequence[Order]) -> int:
    """As many lanes as a word has elements, where whole words lie in every row."""
    side = max(WORD // max(param.dtype.itemsize for param in kernel.params), 1)
    return side if all(kernel.domain[order[0]] % side == 0 for order in orders) else 1


def _dim_of_words(kernel: Kernel, reads: Sequence[Read], orders: Sequence[Order]) -> int | None:
    """Along which dim words lie whose elements go to as many rows: that of the only order in which loads are made, if
    all are of whole words."""
    side, (usual, *others) = _side(kernel, orders), orders
    if side == 1 or len(others) > 1 or others[0][0] == usual[0]:
        return None
    forms, dim = linear(kernel), others[0][0]
    sizes = {kernel.params[read.op.attrs["param"]].dtype.itemsize for read in reads}
    words = all(in_words(forms.get(read.op.operands[0]), dim, side) for read in reads)
    return dim if words and sizes == {WORD // side} else None


def in_words(index: Linear | None, dim: int, side: int) -> bool:
    """Whether lanes side by side along the dim, from a multiple of `side` on, load neighbours from such a multiple
    on."""
    if index is None or index.factors[dim] != 1 or index.constant % side:
        return False
    return all(f % side == 0 for d, f in enumerate(index.factors) if d != dim)


def _even(extent: int, part: int) -> int:
    """The part, or that of as many equal ones where much of the last would be empty: whole sectors, or words, if it has
    some."""
    parts = -(-extent // part)
    if parts * part <= extent * MOST_EMPTY:
        return part
    even = -(-extent // parts)
    whole = gcd(extent, ALIGNED)
    return min(-(-even // whole) * whole, part) if part > ALIGNED else even
