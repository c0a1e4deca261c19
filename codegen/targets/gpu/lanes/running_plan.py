"""How a running total is laid over workgroups: by its shape alone.

The array is `outer` rows of `extent` positions with `inner` elements each. A workgroup takes tiles: `rows` whole short
rows, or a piece of a long one; where `inner` is large, `columns` of its elements at a time. Within a tile an invocation
owns `each` neighbouring positions of one column. A long row is one workgroup's, tile after tile, where there are
many rows; else it is cut into `spans`, whose totals another launch leaves in scratch memory before, or workgroups hand
on as they go: then each tile is a span.

Where a target reads memory of the workgroup by vectors, and elements of a row are neighbours, an invocation owns whole
vectors: an odd number of them, so that those of neighbours lie in different banks. Rows then begin at multiples of what
their invocations own, and have a power of two of these, so that those of a short row exchange registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, RunningTotal
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, WARP
from loopgrad.codegen.targets.gpu.lanes.analysis import straight, weight
from loopgrad.codegen.targets.gpu.lanes.side_by_side import lanes_side_by_side

MOST_EACH: Final = 15  # positions of an invocation: odd, so that neighbours begin in different banks
TILE_BYTES: Final = 24 << 10  # of memory of the workgroup: several workgroups should run side by side
MOST_CHAINED: Final = 36  # the same of chained spans: what each waits for takes as long for a long one
CHAINED_BYTES: Final = 40 << 10
MOST_SHORT: Final = 36  # the same of short rows in vectors: a row had better be one tile
EXCHANGE_COST: Final = 4  # of combining what invocations of a row have, in positions of each; twice that beyond a warp
MOST_COLUMNS: Final = 128
ENOUGH: Final = 1024  # workgroups that fill a device
MANY: Final = 2048  # into which long rows are cut where there are fewer
FEW_COLUMNS: Final = 16  # at a time, of long rows: as few as still fill what memory hands out at once
FEW_BLOCKS: Final = 256  # of columns, so many that reading their terms twice takes longer than having no more
FEW_TILES: Final = 4  # of a row: one workgroup has made them before another launch has begun
FEWEST_CHAINED: Final = 1536  # spans: each waits for those before it, fewer are soon made twice
RESIDENT: Final = 6  # workgroups of 256 side by side, where they wait for each other
UNROLLED_WEIGHT: Final = 400  # of the lanes that an invocation runs at once
MOST_BESIDE: Final = 32  # lanes of vectors, or of a row, that it runs at once
LINE: Final = 32  # elements side by side that memory had better hand out at once


@dataclass(frozen=True, slots=True)
class RunningTiles:
    """See the module's text. `chunks`: invocations that share a column of a tile. `tiles`: of a row. `per_span`: tiles
    of a span. `unrolled`: lanes that an invocation runs at once, `side` of which lie side by side. `near`: elements of
    a vector in memory of the workgroup; 1: one by one. `own_rows`: invocations run lanes of the row in which they own
    positions. `totals`: only those of the spans are made. `chained`: workgroups wait for those of others."""

    outer: int
    extent: int
    inner: int
    columns: int
    chunks: int
    each: int
    rows: int
    tiles: int
    per_span: int
    group: int
    unrolled: int = 1
    side: int = 1
    near: int = 1
    own_rows: bool = False
    totals: bool = False
    chained: bool = False

    @property
    def positions(self) -> int:
        """Of a row in a whole tile."""
        return self.extent if self.tiles == 1 else self.chunks * self.each

    @property
    def size(self) -> int:
        """Elements of a whole tile."""
        return self.rows * self.positions * self.columns

    @property
    def pitch(self) -> int:
        """Places in memory of the workgroup from row to row of a tile."""
        return (self.positions if self.near == 1 else self.chunks * self.each) * self.columns

    @property
    def slack(self) -> int:
        """Places by which the invocations' positions reach beyond those of the last row."""
        return self.chunks * self.each * self.columns - self.pitch

    @property
    def room(self) -> int:
        """Places of a tile."""
        return self.rows * self.pitch + self.slack

    @property
    def padding(self) -> int:
        """Places of a row of a whole tile that no element has."""
        return self.pitch - self.positions * self.columns

    @property
    def owners(self) -> int:
        """Invocations that own positions."""
        return self.rows * self.chunks * self.columns

    @property
    def exact(self) -> bool:
        """Whether every invocation always has all its positions."""
        return self.owners == self.group and self.extent % (self.chunks * self.each) == 0

    @property
    def stride(self) -> int:
        """Invocations among which a tile's lanes are dealt out, one each in turn."""
        return self.owners if self.size % self.group and not self.size % self.owners else self.group

    @property
    def blocks(self) -> int:
        return -(-self.inner // self.columns)

    @property
    def spans(self) -> int:
        return -(-self.tiles // self.per_span)

    @property
    def count(self) -> int:
        """What workgroups take one after the other: tiles of short rows, spans of long ones."""
        return -(-self.outer // self.rows) * self.spans * self.blocks


def running_tiles(
    kernel: Kernel,
    running: RunningTotal,
    group: int,
    memory: int,
    sizes: tuple[int, int],
    waits: bool = False,
    near: int = 1,
) -> RunningTiles:
    """The layout for workgroups of `group` invocations with so much memory. `sizes`: bytes there of a term, and of what
    is combined so far. `waits`: workgroups may wait for those that have begun. `near`: elements of a vector in memory
    of the workgroup."""
    near = near if running.shape[2] == 1 else 1
    most = partial(most_each, group, memory, sizes, near)
    longest = most(CHAINED_BYTES, MOST_SHORT)
    if near > 1 and running.shape[1] <= group * longest:
        plan = _whole_rows(running.shape, group, near, longest)
    else:
        plan = _cut(running.shape, group, near, most(TILE_BYTES, MOST_EACH))
    # what a lane fails with may keep workgroups that begin later from running: nobody should wait for these
    sure = not (kernel.stacks or kernel.errors)
    if waits and sure and running.function is None and plan.spans > 1 and plan.inner == 1 and group % WARP == 0:
        longer = _cut(running.shape, group, near, most(CHAINED_BYTES, MOST_CHAINED))
        if longer.spans > 1 and longer.outer * longer.tiles >= FEWEST_CHAINED:
            plan = replace(longer, per_span=1, chained=True)
    if near > 1:
        side = _side(kernel, running, plan)
        lines = plan.tiles == 1 and plan.chunks * side >= LINE and straight(kernel)
        plan = replace(plan, side=side, own_rows=lines)
    return replace(plan, unrolled=most_unrolled(kernel, plan))


def _side(kernel: Kernel, running: RunningTotal, plan: RunningTiles) -> int:
    """Lanes that read, and whose totals are written, side by side: of every row, or of whole tiles of the only one."""
    widest = max(dtype.itemsize for dtype in running.leaves or (running.dtype,))
    side = lanes_side_by_side(kernel, VECTOR_BYTES // widest) if straight(kernel) else 1
    alone = plan.outer == 1 and plan.tiles > 1 and not running.reverse
    return side if alone or plan.extent % side == 0 else 1


def _cut(shape: tuple[int, int, int], group: int, near: int, most: int) -> RunningTiles:
    """With at most so many positions of an invocation."""
    outer, extent, inner = shape
    columns = even_columns(inner, min(MOST_COLUMNS, group))
    if extent > FEW_TILES * (group // columns) * most and outer * -(-inner // columns) < ENOUGH:
        columns = even_columns(inner, FEW_COLUMNS)
    chunks, blocks = group // columns, -(-inner // columns)
    if extent <= chunks * most:
        chunks = -(-extent // most)
        each = -(-extent // chunks) | 1
        rows, tiles, per_span = min(group // (chunks * columns), outer), 1, 1
    else:
        each, rows = most, 1
        tiles = -(-extent // (chunks * each))
        wanted, alone = (MANY, ENOUGH) if inner == 1 else (ENOUGH, FEW_BLOCKS)
        per_span = -(-tiles // spans(tiles, outer * blocks, wanted, alone))
    return RunningTiles(outer, extent, inner, columns, chunks, each, rows, tiles, per_span, group, near=near)


def _whole_rows(shape: tuple[int, int, int], group: int, near: int, most: int) -> RunningTiles:
    """One tile for a row, or for some: with the invocations of a row, a power of two, that have least to do."""
    outer, extent, _ = shape
    found = []
    for members in [1 << k for k in range(group.bit_length())]:
        each = (-(-extent // (members * near)) | 1) * near
        steps = (members - 1).bit_length() + (members > WARP) * WARP.bit_length()
        if each <= most and members <= group:
            found.append((members * (each + EXCHANGE_COST * steps), members, each))
    _, members, each = min(found)
    return RunningTiles(outer, extent, 1, 1, members, each, min(group // members, outer), 1, 1, group, near=near)


def most_each(group: int, memory: int, sizes: tuple[int, int], near: int, tile: int, limit: int) -> int:
    """As many positions of an invocation as memory of the workgroup allows: an odd number of vectors."""
    element, combined = sizes
    most = min((min(tile, memory) - 2 * group * combined) // (group * element), limit) // near
    return max(most - (most + 1) % 2, 1) * near


def even_columns(inner: int, most: int) -> int:
    """Those of each block, of as few blocks as can be."""
    return -(-inner // -(-inner // most))


def spans(tiles: int, rows: int, wanted: int, alone: int) -> int:
    """Into how many spans a row is cut, of so many rows; `alone`: so many need no spans. Each reads the totals of those
    before it."""
    if tiles <= FEW_TILES or rows >= alone:
        return 1
    return min(tiles, -(-wanted // rows))


def most_unrolled(kernel: Kernel, plan: RunningTiles) -> int:
    """A number of lanes that divides those of an invocation, or nearly: those that are left run one by one, or as many
    as lie side by side."""
    if not straight(kernel):
        return 1
    if plan.own_rows:
        return max(min(plan.each, MOST_BESIDE, UNROLLED_WEIGHT // weight(kernel)) // plan.side, 1) * plan.side
    beside = plan.stride * plan.side
    limit = MOST_EACH if plan.side == 1 else MOST_BESIDE
    most = max(min(plan.size // plan.stride, limit, UNROLLED_WEIGHT // weight(kernel)) // plan.side, 1)
    if plan.size % plan.stride and plan.side == 1:
        return min(most, 5)
    return plan.side * min(range(1, most + 1), key=lambda n: sum(divmod(plan.size // beside, n)))
