"""How a kernel's lanes are laid over invocations: by its shape and its options, never by the device's size.

Untiled, any invocation may run any lane. A tiled kernel's unit is the workgroup, and a tile some thousand
consecutive lanes of one row, where a row is what a reduction makes one element of:

- reductions: every invocation folds its lanes of the tile, the workgroup folds those, and one partial
  result per tile goes to memory, so that reading the inputs is nearly all the traffic that is left;
- reductions over many short rows: a tile is some whole rows, which are folded side by side (see short_rows);
- sorted lanes (`order_key`): the workgroup sorts its tile by expected trip counts, so that invocations that
  step together end together. Contributions then go by lane number through memory of the workgroup;
- measured lanes: the same where a loop on values has the trip counts, and only where they turn out to be uneven
  enough (see measured_order);
- kernels that only stream: an invocation runs some lanes at once, so that their loads are under way together;
- kernels that read across the order in which they write: workgroups run boxes of lanes (see boxes).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final, Protocol

from loopgrad.codegen.kernel.linear_index import linear
from loopgrad.codegen.kernel.nodes import Kernel, Reduction, Shards
from loopgrad.codegen.math.sums_of_exponentials import EXPONENTIALS, PARTS
from loopgrad.codegen.options import Options
from loopgrad.codegen.scalar.sort_key import BUCKETS
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator
from loopgrad.codegen.targets.gpu.emit.context import GROUP_TYPE, SIZE, Emitter, register_type
from loopgrad.codegen.targets.gpu.interface import NO_MATRICES, SubgroupShapes
from loopgrad.codegen.targets.gpu.lanes.analysis import doubles, straight, weight
from loopgrad.codegen.targets.gpu.lanes.boxes import Boxes
from loopgrad.codegen.targets.gpu.lanes.interleaved import writes_ragged_rows
from loopgrad.codegen.targets.gpu.lanes.matrix_plan import MatrixProduct
from loopgrad.codegen.targets.gpu.lanes.product_plan import Epilogue, Product
from loopgrad.codegen.targets.gpu.lanes.running_plan import RunningTiles
from loopgrad.codegen.targets.gpu.lanes.shard_plan import ShardPieces, shard_pieces, shards_of
from loopgrad.codegen.targets.gpu.lanes.side_by_side import lanes_side_by_side
from loopgrad.codegen.targets.gpu.lanes.trip_counts import trip_count
from loopgrad.codegen.targets.gpu.lanes.windows import TOGETHER, overlapping
from loopgrad.graph.types import DType

TILES_OF_ROW: Final = 8  # where tiles are of one row each, at least: the last one may be nearly empty
MOST_UNROLLED: Final = 8  # lanes that an invocation runs at once, and what they may weigh together
UNROLLED_WEIGHT: Final = 450
DOUBLE_WEIGHT: Final = 444  # with floats of 64 bits, which take two registers
IN_ROWS: Final = 1800  # together, where that makes vectors of the rows that they write
STREAMED: Final = 16  # bytes of an array that an invocation reads at once, but of FEWEST_STREAMED lanes
FEWEST_STREAMED: Final = 4
SORTED_LANES: Final = 8  # lanes of a sorted tile per invocation, where that leaves memory for workgroups beside it
FOLDED_LANES: Final = 32  # lanes of a reduced tile per invocation, at most
HEAVY: Final = 2000  # the weight of lanes after one another that takes as long as another launch
FEW_TILES: Final = 512  # a kernel has at least so many tiles before an invocation gets more lanes of each
SHORT_ROW: Final = 128  # shorter rows are folded by single invocations
LONG_ROW: Final = 512  # longer rows are folded by a workgroup each
MOST_PARTS: Final = 8  # of a short row
FEW_ROWS: Final = 256  # but for so few of them
FEW_SUMS: Final = 8  # that an invocation keeps in registers while it runs loops
FEW_LANES: Final = 8  # with loops, per invocation
MEASURED_LANES: Final = 4  # of a tile per invocation, at least, where its first is looked at
SORTED: Final = 256  # fewer lanes aren't worth sorting


@dataclass(frozen=True, slots=True)
class Geometry:
    """What the workgroups of a target can be."""

    group: int = 256  # invocations of a workgroup that shares a tile
    memory: int = 48 << 10  # bytes that a workgroup shares
    columns_group: int = 0  # invocations of a workgroup that holds long columns or rows; 0: `group`
    asked_memory: int = 0  # bytes that it shares where a launch asks for them; 0: none can
    resumable: int = 0  # kernels with loops must be left and continued, by at most so many invocations; 0: they needn't
    wide: bool = True  # there are atomics of 64 bits
    sums_group: int = 0  # invocations of a workgroup whose loops have many sums beside them; 0: `group`
    unit_types: tuple[str, ...] = ()  # of factors that matrix units of warps multiply
    warpgroups: bool = False  # which have matrix units together
    sorted_lanes: int = SORTED_LANES  # of a sorted tile per invocation, at most
    own_bytes: int = 0  # of arrays that an invocation can have; 0: any number
    matrices: SubgroupShapes = NO_MATRICES  # that subgroups multiply
    exchanges: bool = False  # neighbouring invocations exchange registers
    waits: bool = False  # workgroups that have begun go on whatever others wait for
    group_vectors: bool = False  # memory of a workgroup is read and written by vectors


@dataclass(frozen=True, slots=True)
class Tiles:
    """`rows` of `length` lanes each, cut into tiles of `size` lanes; the last of a row may be shorter."""

    size: int
    rows: int
    length: int
    unrolled: int = 1  # lanes that an invocation runs at once
    side: int = 1  # so many of which lie side by side
    sorted: bool = False  # by the kernel's order_key
    measured: bool = False  # or by trip counts that the workgroup finds first
    partials: bool = False  # a reduction leaves one element per tile, otherwise one per lane
    per_pass: int = 1  # reductions that are folded at a time
    targets: int = 1  # parameters, from that of the reduction on, among which its rows are divided
    row_length: int = 0  # a tile is some rows of so many lanes, folded side by side; then `rows` is 1
    parts: int = 1  # in which each of these rows is folded
    group: int = 0  # invocations that share a tile; 0: as many as elsewhere
    spilled: bool = False  # what an invocation has folded waits in memory of the workgroup for its next lane
    shards: ShardPieces | None = None  # lanes are reduced by shards, whose rows these are
    convergent: bool = False  # all invocations run a whole tile's lanes at the same time, and may exchange registers

    @property
    def streamed(self) -> bool:
        """Whether invocations only run their lanes, and meet nowhere."""
        return not (self.sorted or self.partials)

    @property
    def per_row(self) -> int:
        return -(-self.length // self.size)

    @property
    def even(self) -> bool:
        """Whether all tiles have as many lanes."""
        ragged = self.shards is not None and self.shards.lanes % self.length
        return self.length % self.size == 0 and not ragged

    @property
    def count(self) -> int:
        if self.shards is not None and self.rows > 1:
            return self.shards.count
        return self.rows * self.per_row


class GroupProgram(Protocol):
    """What a workgroup does for one tile, where a kernel isn't written as a program of lanes. Equal ones are the same
    code, so they are frozen dataclasses of what the code depends on."""

    def emit(self, e: Emitter, tile: Val) -> None:
        """The program of tile `tile` (an i64). All invocations of the workgroup run it, one tile after the other."""
        ...


@dataclass(frozen=True, slots=True)
class RowMembers:
    """A row is had by so many neighbouring invocations, each of which has, in so many turns, the elements that lie
    `side` by side (see row_members). Where rows are columns of an array, neighbours have neighbouring ones, and members
    of one are as far apart as a workgroup has columns (see column_members). `at_once`: elements whose operations are
    written one beside the other; 0: as many as usual."""

    members: int
    turns: int
    side: int
    columns: bool = False
    at_once: int = 0


@dataclass(frozen=True, slots=True)
class LaneMapping:
    """How the lanes of a kernel lie over invocations and workgroups."""

    copies: int = 0  # invocations that take their lanes in order; 0: any order will do
    copied: tuple[int, ...] = ()  # parameters of which each invocation has a copy
    group: int = 0  # invocations of a workgroup; 0: the target's choice
    tiles: Tiles | None = None
    product: Product | MatrixProduct | None = None  # the kernel is a product, which workgroups make in rectangles
    epilogue: Epilogue | None = None  # the kernel's body is what goes on with the elements of the product
    boxes: Boxes | None = None  # workgroups run boxes of lanes
    program: GroupProgram | None = None  # what workgroups do in place of the kernel's body
    resumable: int = 0  # the most invocations of a kernel that can be left and continued; 0: it can't be (see resume)
    accumulators: tuple[Accumulator, ...] = ()  # how lanes in any order meet in a parameter
    stages: tuple[Tiles, ...] = ()  # the tiles of each stage, where there are some
    members: RowMembers | None = None  # stages have their rows in registers
    resident: int = 0  # workgroups that registers should be left for, where they wait at barriers; 0: any number
    running: RunningTiles | None = None  # the tiles of a kernel with a running total
    asks: bool = False  # whether launches ask for the workgroups' memory
    matrix_units: bool = False  # whether the program needs some
    held: int = 0  # invocations whose arrays lie in device memory; 0: in memory of their own


UNTILED: Final = LaneMapping()


class Support(Protocol):
    """Where kernels around a program's own come from: `add` gives the number of a kernel's module, `own` that of one
    that does what a kernel of the program does."""

    options: Options
    geometry: Geometry

    def add(self, kernel: Kernel, plan: LaneMapping = UNTILED) -> int: ...

    def own(self, kernel: Kernel, fast: bool, shape: LaneMapping) -> int: ...


def power_below(value: int) -> int:
    """The largest power of two that isn't above; 1 at least."""
    return 1 << max(value.bit_length() - 1, 0)


def tiling(kernel: Kernel, options: Options, geometry: Geometry) -> Tiles | None:
    """The tiles of a kernel whose lanes may run in any order."""
    lanes = prod(kernel.domain)
    if not lanes:
        return None
    if (shards := shards_of(kernel)) is not None:
        return sharded_tiles(kernel, shard_pieces(kernel, shards, geometry.group), options, geometry)
    if kernel.order_key is not None and options.sort_lanes and lanes >= SORTED:
        return sorted_tiles(kernel, geometry)
    if (measured := measured_tiles(kernel, options, geometry)) is not None:
        return measured
    if kernel.reductions:
        return folded_tiles(kernel, geometry)
    return streamed_tiles(kernel, geometry) if straight(kernel) else None


def reduced_rows(kernel: Kernel) -> tuple[int, int] | None:
    """(rows, length) of all reductions, where these agree."""
    ranks = {r.rank for r in kernel.reductions}
    if len(ranks) != 1:
        return None
    cut = len(kernel.domain) - ranks.pop()
    rows, length = prod(kernel.domain[:cut]), prod(kernel.domain[cut:])
    return rows, length


def many_sums(kernel: Kernel) -> bool:
    """Whether loops have more sums beside them than an invocation should keep in registers. On an H200 the gradient of
    sphere tracing by 32 parameters takes 1.54 times as long where they aren't told from others."""
    return len(kernel.reductions) > FEW_SUMS and not straight(kernel)


def most_unrolled(kernel: Kernel) -> int:
    """As many lanes at once as keep the code small. On an H200 a sum of sines and exponentials takes 1.38 times as long
    one lane after the other, a product and a sum of two arrays 1.05 times. Prices of options (weight 112) take 1.12
    times as long with two lanes as with four, in float64 1.38 times with four; with their derivatives and sum (222)
    1.09 times with one, 1.21 with four."""
    if not straight(kernel):
        return 1
    most = DOUBLE_WEIGHT if doubles(kernel) else UNROLLED_WEIGHT
    return power_below(min(MOST_UNROLLED, most // weight(kernel)))


def most_streamed(kernel: Kernel) -> int:
    """As many lanes at once as a stream is fastest with: so many that an invocation has STREAMED bytes of an array on
    the way. On an H200 x + 1 takes 1.03 times as long with twice as many, and 1.14 times with half."""
    widest = max([param.dtype.itemsize for param in kernel.params], default=1)
    many = max(FEWEST_STREAMED, STREAMED // widest)
    if straight(kernel) and overlapping(kernel, FEWEST_STREAMED):
        return power_below(max(min(many, TOGETHER // weight(kernel)), 1))
    if straight(kernel) and FEWEST_STREAMED * weight(kernel) <= IN_ROWS and writes_ragged_rows(kernel, FEWEST_STREAMED):
        return FEWEST_STREAMED
    return min(most_unrolled(kernel), many)


def streamed_tiles(kernel: Kernel, geometry: Geometry) -> Tiles | None:
    """As many lanes at once as keep the device full."""
    lanes = prod(kernel.domain)
    unrolled = min(most_streamed(kernel), power_below(lanes // (geometry.group * FEW_TILES)))
    if unrolled == 1:
        return None
    size = geometry.group * unrolled
    rows = rows_in_common(kernel, size)
    return Tiles(size, rows, lanes // rows, unrolled, lanes_side_by_side(kernel, unrolled))


def rows_in_common(kernel: Kernel, size: int) -> int:
    """Into how many rows, each several tiles long, lanes had better be cut, since they read what is their row's: an
    invocation then reads it once for all of its lanes. 1: they don't."""
    forms = linear(kernel)
    read = [forms.get(op.operands[0]) for op in kernel.body.ops if op.opcode == "load"]
    for cut in range(1, len(kernel.domain)):
        if prod(kernel.domain[cut:]) < TILES_OF_ROW * size:
            break
        if any(form is not None and any(form.factors[:cut]) and not any(form.factors[cut:]) for form in read):
            return prod(kernel.domain[:cut])
    return 1


def folded_tiles(kernel: Kernel, geometry: Geometry) -> Tiles | None:
    """Lanes with loops wait for the longest of their tile, so an invocation gets few of them (on an H200 sphere tracing
    takes 1.41 times as long with one). Many sums would take registers in the loops of the next: they are kept elsewhere
    meanwhile (1.25 times)."""
    found = reduced_rows(kernel)
    if found is None:
        return None
    short = short_rows(kernel, geometry, *found) if found[0] > FEW_ROWS and 1 < found[1] <= LONG_ROW else None
    if short is not None or not by_groups(*found):
        return short
    rows, length = found
    many, unrolled = many_sums(kernel), most_unrolled(kernel)
    own_group = geometry.sums_group if many else 0
    group = own_group or geometry.group
    while folds_together(kernel, group, geometry.memory) < 1:  # one of each of many types
        group = own_group = group // 2
    if straight(kernel):
        once = min(FOLDED_LANES * unrolled // MOST_UNROLLED, HEAVY // weight(kernel))
        each = folded_lanes(rows, length, group, max(once, 1))
    else:  # smaller groups don't mean that fewer lanes fill the device
        each = power_below(min(FEW_LANES, rows * length // (geometry.group * FEW_TILES)))
    kept = group * sum(group_size(r) for r in kernel.reductions) if many and each > 1 else 0
    together = folds_together(kernel, group, geometry.memory - kept)
    if kept and not together > 0:
        each, kept, together = 1, 0, folds_together(kernel, group, geometry.memory)
    unrolled = min(each, unrolled)
    return Tiles(
        each * group, rows, length, unrolled, lanes_side_by_side(kernel, unrolled),
        partials=True, per_pass=together, group=own_group, spilled=kept > 0,
    )  # fmt: skip


def sharded_tiles(kernel: Kernel, pieces: ShardPieces, options: Options, geometry: Geometry) -> Tiles | None:
    """Lanes that are reduced by shards: in tiles that their extent decides, each shard a row or a part of one."""
    lanes, group, size = pieces.lanes, geometry.group, pieces.size
    shape = (1, lanes) if pieces.extent <= group else (pieces.shards, pieces.extent)
    tiles = Tiles(size, *shape, partials=True, shards=pieces)
    sorts = kernel.order_key is not None and options.sort_lanes and lanes >= SORTED
    measures = kernel.order_key is None and options.sort_lanes and not geometry.resumable
    measures = measures and size >= MEASURED_LANES * group and trip_count(kernel) is not None
    left = geometry.memory - sorting_bytes(size, group) - sum(size * group_size(r) for r in kernel.reductions)
    together = folds_together(kernel, group, left, pieces) if (sorts or measures) and left > 0 else 0
    if together > 0:
        return replace(tiles, sorted=True, measured=measures, per_pass=together)
    if sorts:  # what lanes contribute is in nobody's way then
        found = sorted_tiles(kernel, geometry)
        return None if found is None else replace(found, partials=False)
    kept = group * sum(partial_size(r) for r in kernel.reductions) if many_sums(kernel) and size > group else 0
    together = folds_together(kernel, group, geometry.memory - kept, pieces)
    if kept and not together > 0:
        kept, together = 0, folds_together(kernel, group, geometry.memory, pieces)
    unrolled = min(max(size // group, 1), most_unrolled(kernel))
    return replace(tiles, unrolled=unrolled, per_pass=together, spilled=kept > 0) if together > 0 else None


def short_rows(kernel: Kernel, geometry: Geometry, rows: int, length: int) -> Tiles | None:
    """As many rows a tile as memory of the workgroup and the number of tiles allow. On an H200 rows of 100 elements
    take 1.86 times as long otherwise, rows of 400 1.6 times (1.5 times where each is folded in one part)."""
    group, unrolled = geometry.group, most_unrolled(kernel)
    each = unrolled if straight(kernel) else power_below(min(FEW_LANES, rows * length // (group * FEW_TILES)))
    size = sum(group_size(r) * row_pitch(length) + partial_size(r) * MOST_PARTS for r in kernel.reductions)
    most = min(each * group // length, geometry.memory // (2 * size), max(rows // FEW_TILES, group // length, 1))
    if most < 1:
        return None
    parts = power_below(min(MOST_PARTS, group // most, length))
    unrolled = min(unrolled, power_below(most * length // group))
    return Tiles(most * length, 1, rows * length, unrolled, partials=True, row_length=length, parts=parts)


def row_pitch(length: int) -> int:
    """The distance of short rows in memory of a workgroup: odd, so that rows begin in different banks."""
    return length | 1


def folded_lanes(rows: int, length: int, group: int, once: int = FOLDED_LANES) -> int:
    """Lanes per invocation: where that takes at most `once`, so many that a row is one tile, which saves a
    launch; else so few that the tiles fill the device, yet few enough tiles for one launch to fold them."""
    each = 1
    while each < FOLDED_LANES and each * group < length:
        tiles = rows * -(-length // (each * group))
        if length > once * group and tiles <= MOST_UNROLLED * group:
            break
        each *= 2
    return each


def sorted_tiles(kernel: Kernel, geometry: Geometry) -> Tiles | None:
    lanes, group = prod(kernel.domain), geometry.group
    found = reduced_rows(kernel)
    most = geometry.sorted_lanes
    rows, length = found if found is not None and found[1] >= most * group else (1, lanes)
    size = group * power_below(min(most, lanes // (group * FEW_TILES)))
    left = geometry.memory - sorting_bytes(size, group)
    if left < 0:
        return None
    left -= sum(size * group_size(r) for r in kernel.reductions)
    together = folds_together(kernel, group, left)
    return Tiles(size, rows, length, sorted=True, partials=(rows, length) == found and together > 0, per_pass=together)


def sorting_bytes(size: int, group: int) -> int:
    """Of memory of a workgroup that sorts a tile."""
    return 4 * (BUCKETS + size + 2 * group + 2)


def measured_tiles(kernel: Kernel, options: Options, geometry: Geometry) -> Tiles | None:
    """Not where every lane's contributions would go through the device's memory, nor where the lanes that are looked
    at were a good part of all."""
    lanes = prod(kernel.domain)
    if kernel.order_key is not None or not options.sort_lanes or lanes < SORTED or geometry.resumable:
        return None
    tiles = sorted_tiles(kernel, geometry) if trip_count(kernel) is not None else None
    if tiles is None or tiles.size < MEASURED_LANES * geometry.group or (kernel.reductions and not tiles.partials):
        return None
    return replace(tiles, measured=True)


def folds_together(kernel: Kernel, group: int, memory: int, shards: ShardPieces | None = None) -> int:
    """Reductions of one kind that a workgroup folds at a time. On an H200 the gradient of sphere tracing by 32
    parameters takes 1.31 times as long where it is one."""
    columns = fold_columns(group)
    if shards is not None:
        columns = max(columns, shards.beside * fold_columns(shards.width))
    largest = max([partial_size(r) for r in kernel.reductions], default=4)
    types = len({(register_type(r.dtype), parts(r), r.shards is None) for r in kernel.reductions})
    room = memory // (largest * max(types, 1) * (group + columns))
    return min(room, len(kernel.reductions), group // columns)


def fold_columns(group: int) -> int:
    """Into so many elements a workgroup first folds those of its invocations; it divides them."""
    return power_below(max(int(group**0.5), 1))


def group_size(reduction: Reduction) -> int:
    """Bytes of a contribution in memory of a workgroup."""
    return SIZE[group_type(reduction.dtype)]


def group_type(dtype: DType) -> str:
    """How elements are kept in memory of a workgroup."""
    type = register_type(dtype)
    return GROUP_TYPE.get(type, type)


def parts(reduction: Reduction) -> int:
    """Numbers that a reduction is until it is stored: sums of floats have a rest (see partials)."""
    if reduction.kind == EXPONENTIALS:
        return PARTS
    return 2 if reduction.kind == "add" and reduction.dtype.name in ("float32", "float64") else 1


def partial_size(reduction: Reduction) -> int:
    """Bytes of what is reduced so far, in memory of a workgroup."""
    return group_size(reduction) * parts(reduction)


def by_groups(rows: int, length: int) -> bool:
    """Whether rows are folded by a workgroup each: long ones, and few short ones, for which it is one launch."""
    return length >= SHORT_ROW or (length > 1 and rows <= FEW_ROWS)


def fold_tiles(rows: int, length: int, group: int, targets: int) -> Tiles:
    """Of a kernel that only folds; its rows make `targets` arrays."""
    each = folded_lanes(rows, length, group)
    return Tiles(each * group, rows, length, min(each, MOST_UNROLLED), partials=True, targets=targets)


def at_once(tiles: Tiles, shards: Shards) -> bool:
    """Whether a workgroup has all lanes that are reduced by shards, and makes the result itself."""
    return tiles.shards is not None and tiles.count == 1 and len(shards.roots) == 1


def batches(kernel: Kernel, tiles: Tiles | None) -> list[list[int]]:
    """Reductions that share a scratch block and the launches that fold it: those of one kind, dtype and rank. On an
    H200 the gradient of sphere tracing by 32 parameters takes 1.26 times as long with launches for each."""
    found: dict[tuple[str, str, int, Shards | None], list[list[int]]] = {}
    for slot, r in enumerate(kernel.reductions):
        row_lists = found.setdefault((r.kind, r.dtype.name, r.rank, r.shards), [])
        if row_lists and by_groups(*left_by(kernel, tiles, r)):
            row_lists[0].append(slot)
        else:
            row_lists.append([slot])
    return sorted([batch for row_lists in found.values() for batch in row_lists])


def left_by(kernel: Kernel, tiles: Tiles | None, r: Reduction) -> tuple[int, int]:
    """(rows, length) of what the kernel leaves of a reduction."""
    cut = len(kernel.domain) - r.rank
    rows, length = prod(kernel.domain[:cut]), prod(kernel.domain[cut:])
    if tiles is None or not tiles.partials:
        return rows, length
    if tiles.shards is not None and r.shards is not None:
        return 1, 1 if at_once(tiles, r.shards) else tiles.shards.count
    if tiles.shards is not None:
        return 1, tiles.count
    return rows, 1 if tiles.row_length else tiles.per_row
