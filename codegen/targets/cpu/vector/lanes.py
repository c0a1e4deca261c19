"""How a kernel's domain is laid over rows, vector lanes, chunks and scratch memory.

Dims split into `outer` (scalar loops over rows), `lane` (linearised, laid over vector lanes) and `inner`
(scalar loops inside a lane, only for reductions over a short axis):

    (N,)            lane = (N,)                     (R, C), C long      outer = (R,), lane = (C,)
    (N, 3)          lane = (N, 3), by division      (N, 3) summed over its last axis: lane = (N,), inner = (3,)
    (M, N, 3) read in patterns: outer = (M,), lane = (N, 3), whole rows together (row_patterns.py)
    (N, 8) rows of a table at positions from data: outer = (N,), lane = (8,), narrower vectors (row_access.py)

Chunks are cut by shape and cost alone, never by the number of threads:

- long rows: a chunk is one piece of one row (`pieces` per row); short rows: `rows_per_chunk` rows.
- where rows are read across, as those of a transpose: `across` neighbours along an outer dim, a piece of each; a line
  of memory then serves all of them, while it is near.
- an accumulate parameter that several lanes may hit gets one private copy per chunk, so such kernels are
  cut into few chunks (at most 64) where the copies stay small, and run serially where they don't.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from loopgrad.codegen.kernel.footprint import scattered_reads
from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, Reduction, RunningTotal, walk
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.vector.lane_width import divides_wide_numbers, lane_width
from loopgrad.codegen.targets.cpu.vector.read_rows import read_rows, reads_tables
from loopgrad.codegen.targets.cpu.vector.row_access import SAVED, row_accesses
from loopgrad.codegen.targets.cpu.vector.row_patterns import row_pattern
from loopgrad.graph.primitives.shards import ALIGNED, TOGETHER, columns, part_extent
from loopgrad.graph.types import DType, float64

SORT_TILE = 4096
BLOCK = 1024  # lanes whose contributions to sums by shards wait for each other
WAITING = 24 << 10  # bytes of these, in a core's nearest cache
FULL = 8  # times the lanes in flight, of which the last may be few
TARGET_COST = 1 << 20  # abstract cost of one chunk, about 20 microseconds
COPY_BYTES = 32 << 20
SMALL_TARGET = 4096
SHARE = 4  # lanes for each element of a private copy
SHORTEST_ROW = 64  # of sums that have an order of their own
SETTLED = 8192  # lanes of a kernel whose sums have an order of their own
LINE = 256  # bytes that come from memory together: a line and those that are fetched ahead
LITTLE = 24  # operations of a lane
FEW_VECTORS = 4  # of a row
FEW_ROWS = 128
ARRAYS_IN_FLIGHT = 1 << 15  # bytes of lanes' arrays, which a core's nearest cache holds
STRETCH = 1 << 15  # elements of a row that a core's cache keeps until they are read again


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """How lanes are cut that are reduced in shards of `extent`, of parts of `part` (`graph.primitives.shards`).
    `block`: lanes whose contributions wait for each other; `chunk`: lanes of a chunk. Both are whole shards where a
    shard is one part, else neighbouring parts of one, a power of two of them."""

    extent: int
    part: int
    block: int
    chunk: int

    @property
    def alone(self) -> bool:
        """Whether a shard is one part."""
        return self.part == self.extent

    @property
    def parts_of_shard(self) -> int:
        return -(-self.extent // self.part)

    @property
    def parts_of_chunk(self) -> int:
        return self.chunk // self.part

    @property
    def chunks_of_shard(self) -> int:
        return -(-self.extent // self.chunk)

    def all_parts(self, lanes: int) -> int:
        return lanes // self.extent * self.parts_of_shard + -(-(lanes % self.extent) // self.part)

    def chunks(self, lanes: int) -> int:
        if self.alone:
            return -(-lanes // self.chunk)
        return lanes // self.extent * self.chunks_of_shard + -(-(lanes % self.extent) // self.chunk)


def shard_layout(kernel: Kernel, flight: int, wanted: int, sorting: bool) -> ShardLayout:
    """Blocks of neighbours, and chunks of about as many lanes as wanted."""
    extent = next(r.shards.extent for r in kernel.reductions if r.shards is not None)
    part = part_extent(extent)
    if not sorting and (part % flight == 0 or part >= FULL * flight) and all_direct(kernel, flight):
        block = part
    else:
        held = sum([r.dtype.itemsize for r in kernel.reductions if r.shards is not None])
        room = min(SORT_TILE, 8 * WAITING // held) if sorting else min(BLOCK, WAITING // held)
        unit = max(ALIGNED, flight)
        room = max(room // unit, 1) * unit
        block = min(part, room)
        if 2 * part <= min(room, wanted):
            several = min(room, wanted) // part
            fill = lambda k: k * part / round_up(k * part, flight)  # noqa: E731
            block = part * (several if sorting else max(range((several + 1) // 2, several + 1), key=fill))
            block = block if part == extent else part << (several.bit_length() - 1)
    least = max(block, part)
    if part == extent:
        return ShardLayout(extent, part, block, least * max(wanted // least, 1))
    most = min(max(wanted // least, 1), -(-extent // least))
    return ShardLayout(extent, part, block, least << (most.bit_length() - 1))


def row_width(r: Reduction) -> int:
    """Elements of a row of a part."""
    assert r.shards is not None
    return columns(r.dtype, r.shards.extent)


def adds_rows(r: Reduction, flight: int) -> bool:
    """Whether lanes in flight are as many rows of a part as are combined at once, or half of them."""
    rows, ragged = divmod(flight, row_width(r))
    return not ragged and (rows % TOGETHER == 0 or 2 * rows == TOGETHER)


def all_direct(kernel: Kernel, flight: int) -> bool:
    return all(adds_rows(r, flight) for r in kernel.reductions if r.shards is not None)


def is_direct(layout: LaneLayout, r: Reduction) -> bool:
    """Whether what lanes contribute to a reduction by shards needn't wait for others."""
    assert layout.shards is not None
    alike = not layout.single and layout.sort_tile is None and layout.shards.block <= layout.shards.part
    return alike and adds_rows(r, layout.flight)


@dataclass(frozen=True, slots=True)
class LaneLayout:
    """See the module docstring. `single`: one lane only, so that every value is a scalar."""

    outer: tuple[int, ...]
    lane: tuple[int, ...]
    inner: tuple[int, ...]
    width: int
    groups: int
    chunks: int
    pieces: int
    piece_lanes: int
    rows_per_chunk: int
    sort_tile: int | None
    copies: tuple[int, ...]  # parameters accumulated through private copies
    serial: bool
    single: bool
    across: tuple[int, int] | None = None  # the outer dim of a chunk's rows, and how many these are
    shards: ShardLayout | None = None

    @property
    def rows(self) -> int:
        return prod(self.outer)

    @property
    def lanes(self) -> int:
        """Lanes of one row."""
        return prod(self.lane)

    @property
    def flight(self) -> int:
        """Lanes that move together."""
        return self.width * self.groups


def cost(block: Block) -> int:
    """A rough cost per lane; loops count for 16 trips."""
    total = 0
    for op in block.ops:
        total += OPCODES[op.opcode].cost
        factor = 16 if op.opcode in ("for", "while") else 1
        total += factor * sum([cost(inner) for inner in op.blocks])
    return total


def group_count(ops: list[KOp], machine: Machine) -> int:
    """Vectors interleaved: more hide latency in small loops, fewer keep big bodies in registers."""
    if machine.registers < 32 or divides_wide_numbers(ops):
        return 1
    size = len(ops)
    loops = [op for op in ops if op.opcode in ("for", "while")]
    if loops:
        carried = max([len(op.results) for op in loops])
        return 4 if size <= 64 and carried <= 4 else 2 if carried <= 24 else 1
    return 4 if size <= 40 else 2 if size <= 100 else 1


def array_bytes(kernel: Kernel) -> int:
    """Of the arrays of one lane."""
    return sum([a.size * a.dtype.itemsize for a in kernel.arrays])


def along_rows(kernel: Kernel, machine: Machine) -> bool:
    """Whether a running total is made within vectors of neighbours, rather than by lanes that walk: rows are long
    enough, and neighbours of few columns."""
    if kernel.running is None:
        return False
    _, extent, inner = kernel.running.shape
    width = lane_width(kernel, [*walk(kernel.body)], machine)
    return 2 * inner <= width and extent * inner >= FEW_VECTORS * width


def in_stretches(kernel: Kernel, running: RunningTotal) -> bool:
    """Whether rows are so long and few that several threads share one. Products of floats go from left to right."""
    outer, extent, inner = running.shape
    ordered = running.kind == "mul" and running.dtype.is_float
    return inner == 1 and extent >= 2 * STRETCH and outer < FEW_ROWS and not ordered


def sums_of_little(kernel: Kernel) -> bool:
    """Whether adding up is most of the work: more vectors that are added up first make it cheaper."""
    sums = [r.kind == "add" and r.dtype.is_float for r in kernel.reductions]
    return sums == [True] and len(kernel.body.ops) <= LITTLE and not any(op.blocks for op in kernel.body.ops)


def settled(kernel: Kernel) -> bool:
    """Whether floats of a small kernel are combined in an order that depends on how many there are alone, not on what
    else the kernel does: programs that run without being compiled have the same (`runtime.cpu.expanded`)."""
    floats = kernel.running is None and any(r.dtype.is_float for r in kernel.reductions)
    if any(r.shards is not None for r in kernel.reductions):
        return False
    if not floats or prod(kernel.domain) > SETTLED or kernel.order_key is not None:
        return False
    if prod(kernel.domain[len(kernel.domain) - min([r.rank for r in kernel.reductions]) :]) < SHORTEST_ROW:
        return False
    return not any(op.opcode in ("for", "while") for op in walk(kernel.body))


def settled_layout(kernel: Kernel, machine: Machine, copies: tuple[int, ...] | None) -> LaneLayout:
    """One width, and a segment in one piece; rows are chunks' own as elsewhere."""
    width, groups = machine.vector_bits // 64, 2 if machine.registers >= 32 else 1
    cut = len(kernel.domain) - min([r.rank for r in kernel.reductions])
    outer, lane = kernel.domain[:cut], kernel.domain[cut:]
    row, rows = prod(lane), prod(outer)
    chunk = chunk_lanes(cost(kernel.body), rows * row, width * groups, None)
    if copies:
        chunk = max(chunk, -(-rows * row // most_copies(kernel, copies, rows * row)))
    rows_per_chunk = max(chunk // max(row, 1), 1)
    chunks = -(-rows // rows_per_chunk) if rows * row else 0
    return LaneLayout(
        outer, lane, (), width, groups, chunks, 1, max(row, 1), rows_per_chunk, None, copies or (), copies is None,
        single=False,
    )  # fmt: skip


def split_dims(kernel: Kernel, width: int, flight: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(outer, lane, inner) dims."""
    domain = kernel.domain
    rank = len(domain)
    if kernel.running is not None:
        cut = next(d for d in range(rank + 1) if prod(domain[:d]) == kernel.running.shape[0])
        return domain[:cut], domain[cut:], ()
    ranks = {r.rank for r in kernel.reductions}
    if min(ranks, default=rank) < rank:
        cut = rank - min(ranks)
        segment, segments = prod(domain[cut:]), prod(domain[:cut])
        if len(ranks) == 1 and segment < width and flight <= segments:
            return (), domain[:cut], domain[cut:]
        return domain[:cut], domain[cut:], ()
    if rank >= 2 and domain[-1] >= flight:
        return domain[:-1], domain[-1:], ()
    return (), domain, ()


def widest(kernel: Kernel, width: int) -> int:
    """How many lanes may move together, at most: not twice as many as a segment that is reduced has, where it has a
    vector's."""
    if kernel.running is not None:
        return prod(kernel.running.shape[1:])
    total, rank = prod(kernel.domain), len(kernel.domain)
    segment = prod(kernel.domain[rank - min([r.rank for r in kernel.reductions], default=rank) :])
    return 2 * segment - 1 if width <= segment < total else 2 * total


def sharing(ops: list[KOp]) -> list[tuple[int, str]]:
    """(param, kind) of accumulations that several lanes may hit."""
    shared = [op.attrs for op in ops if op.opcode == "accumulate" and not op.attrs["exclusive"]]
    return sorted({(a["param"], a["kind"]) for a in shared})


def copied_params(kernel: Kernel, shared: list[tuple[int, str]], lanes: int) -> tuple[int, ...] | None:
    """Parameters to give private copies, None where the kernel must run serially instead."""
    params = tuple([p for p, _ in shared])
    if len(set(params)) != len(params) or any(kind == "set" for _, kind in shared):
        return None
    if any(kernel.params[p].size > max(SMALL_TARGET, lanes // 64) for p in params):
        return None
    return params if copies_bytes(kernel, params) * 8 <= COPY_BYTES else None


def most_copies(kernel: Kernel, params: tuple[int, ...], lanes: int) -> int:
    """How many chunks have copies of these parameters: few enough for memory, and for adding up copies, whose elements
    are SHARE times fewer than lanes."""
    elements = sum([kernel.params[p].size for p in params])
    fewest = COPY_BYTES // max(copies_bytes(kernel, params), 1), lanes // max(SHARE * elements, 1)
    return max(min(64, *fewest), 1)


def copies_bytes(kernel: Kernel, params: tuple[int, ...]) -> int:
    """Bytes of one private copy of each parameter."""
    return sum([copy_bytes(kernel, p) for p in params])


def copy_bytes(kernel: Kernel, param: int) -> int:
    described = kernel.params[param]
    return described.size * copied_dtype(described.dtype, copy_kind(kernel, param)).itemsize


def copy_kind(kernel: Kernel, param: int) -> str:
    """How lanes combine into a parameter that has private copies."""
    return next(kind for p, kind in sharing([*walk(kernel.body)]) if p == param)


def copied_dtype(dtype: DType, kind: str) -> DType:
    """Of a private copy."""
    return float64 if kind == "add" and dtype.is_float else dtype


def chunk_lanes(per_lane: int, total: int, flight: int, tile: int | None) -> int:
    """Lanes of one chunk, a multiple of the lanes in flight (and of the sorting tile): enough work to pay for
    a chunk's start and end, yet a hundred chunks where each has a microsecond or two to do."""
    unit = tile or flight
    wanted = min(max(TARGET_COST // max(per_lane, 1), 16 * flight), 1 << 16)
    enough = max(total // 128, TARGET_COST // (16 * max(per_lane, 1)), flight)
    return round_up(min(wanted, enough), unit)


def round_up(value: int, unit: int) -> int:
    return max((value + unit - 1) // unit, 1) * unit


def vectors_of_rows(kernel: Kernel, width: int, groups: int) -> tuple[int, int]:
    """Vectors that lie along rows, where those are accessed as a whole: short rows have narrower ones, if what that
    costs the arithmetic is less than accesses lane by lane would."""
    saved = row_accesses(kernel)
    columns = kernel.domain[-1] if saved else width * groups
    if columns >= width * groups:
        return width, groups
    narrow = min(width, 1 << (columns.bit_length() - 1))
    if (width // narrow - 1) * cost(kernel.body) >= 2 * saved:
        return width, groups
    return narrow, 1 << ((columns // narrow).bit_length() - 1)


def groups_of_rows(kernel: Kernel, ops: list[KOp], width: int, groups: int) -> int:
    """Vectors that move together along rows: none begins behind a row's last lane. Where much of a row's last vector is
    computed for nothing, at more than it costs to find each lane's elements, all rows are one line of lanes."""
    if len(kernel.domain) < 2 or kernel.reductions or kernel.order_key is not None or kernel.domain[-1] < width:
        return groups
    row = kernel.domain[-1]
    accesses = sum([op.opcode in ("load", "store") for op in ops])
    if (-(-row // width) * width - row) * cost(kernel.body) > SAVED["load"] * accesses * row:
        return groups
    while width * groups > row:
        groups //= 2
    return groups


def rows_across(kernel: Kernel, outer: tuple[int, ...]) -> tuple[int, int] | None:
    """The outer dim along which what lanes read lies side by side, and how many of its rows share lines of memory; None
    where there is none, or where rows need their order."""
    ordered = kernel.reductions or kernel.stacks or kernel.errors or kernel.running is not None
    if not outer or ordered or kernel.order_key is not None or any(op.blocks for op in kernel.body.ops):
        return None
    if sharing(kernel.body.ops):
        return None
    for read in scattered_reads(kernel):
        dim = read.order[0]
        if dim < len(outer):
            itemsize = kernel.params[read.op.attrs["param"]].dtype.itemsize
            return dim, min(LINE // itemsize, outer[dim])
    return None


def laid_across(layout: LaneLayout, across: tuple[int, int], chunk: int) -> LaneLayout:
    """The layout with chunks of so many lanes, which are pieces of neighbouring rows."""
    dim, size = across
    piece = round_up(min(chunk // size, layout.lanes), layout.flight)
    pieces = -(-layout.lanes // piece)
    blocks = layout.rows // layout.outer[dim] * -(-layout.outer[dim] // size)
    return replace(
        layout, chunks=blocks * pieces, pieces=pieces, piece_lanes=piece, rows_per_chunk=size, across=across
    )  # fmt: skip


def plan_lanes(kernel: Kernel, machine: Machine, options: Options) -> LaneLayout:
    """The layout of a kernel on a machine."""
    ops = [*walk(kernel.body)]
    total = prod(kernel.domain)
    single = total == 1
    if not single and settled(kernel):
        shared = sharing(ops)
        return settled_layout(kernel, machine, copied_params(kernel, shared, total) if shared else ())
    width, groups = (1, 1) if single else (lane_width(kernel, ops, machine), group_count(ops, machine))
    if not single and kernel.running is None:
        width, groups = vectors_of_rows(kernel, width, groups)
        groups = groups_of_rows(kernel, ops, width, groups)
    tables = not single and reads_tables(kernel)
    in_rows = read_rows(kernel, width, groups) if tables else None
    a_row_each = in_rows is not None or (tables and kernel.domain[-1] >= width * groups)
    patterns = None if a_row_each else row_pattern(kernel, width, groups)
    width, groups = patterns or (width, groups)
    most, each = widest(kernel, width), array_bytes(kernel)
    while groups > 1 and (width * groups > most or width * groups * each > ARRAYS_IN_FLIGHT):
        groups //= 2
    in_rows = in_rows or (None if single or patterns else read_rows(kernel, width, groups))
    width, groups = (width, groups) if in_rows is None else in_rows[1:]
    flight = width * groups
    across = None if single or patterns or kernel.domain[-1] < width else rows_across(kernel, kernel.domain[:-1])
    if across is not None:
        groups, flight = 1, width
    extent = next((r.shards.extent for r in kernel.reductions if r.shards is not None), None)
    if single or extent is not None or patterns or in_rows is not None:
        cut = 0 if single or extent is not None else -2 if in_rows is None else in_rows[0]
        outer, lane, inner = kernel.domain[:cut], kernel.domain[cut:], kernel.domain[:0]
    else:
        outer, lane, inner = split_dims(kernel, width, flight)
    row, rows = prod(lane), prod(outer)
    if groups == 4 and not inner and row >= 16 * flight and sums_of_little(kernel):
        groups, flight = 8, 8 * width
    shared = sharing(ops)
    ordered = kernel.order_key is None or any(kind == "set" for _, kind in shared)
    sorting = not ordered and options.sort_lanes and not inner and 4 * flight <= row < 1 << 31
    tile = SORT_TILE if sorting else None
    copies = copied_params(kernel, shared, total) if shared else ()
    chunk = chunk_lanes(cost(kernel.body) * max(prod(inner), 1), rows * row, flight, tile)
    if copies:
        chunk = max(chunk, round_up(max(rows * row // most_copies(kernel, copies, rows * row), 1), tile or flight))
    if kernel.running is not None:
        chunk = round_up(STRETCH, flight) if in_stretches(kernel, kernel.running) else max(chunk, row)
    if extent is not None:
        shards = shard_layout(kernel, flight, chunk, sorting)
        chunks, tile = shards.chunks(row), shards.block if sorting else None
        return LaneLayout(
            outer, lane, inner, width, groups, chunks, chunks, shards.chunk, 1, tile, copies or (), copies is None,
            single, shards=shards,
        )  # fmt: skip
    pieces = max((row + chunk - 1) // chunk, 1)
    rows_per_chunk = 1 if pieces > 1 else max(chunk // max(row, 1), 1)
    chunks = rows * pieces if pieces > 1 else (rows + rows_per_chunk - 1) // rows_per_chunk
    layout = LaneLayout(
        outer, lane, inner, width, groups, chunks if total else 0, pieces, min(chunk, max(row, 1)),
        rows_per_chunk, tile, copies or (), copies is None, single,
    )  # fmt: skip
    return layout if across is None or not total else laid_across(layout, across, chunk)
