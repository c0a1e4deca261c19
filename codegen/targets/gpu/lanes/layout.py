"""How a kernel's lanes and shared elements are laid out for launches; everything by shape alone.

Lanes that meet in elements do so in ways that don't depend on their order (see accumulate). Where there is none
(products of floats, several kinds on one parameter, a `set` in a loop, sums of more elements than there is room
for), the parameter gets private copies, one per invocation that owns a stretch of lanes, combined in order
afterwards; where a copy is large there are few, down to one invocation for all lanes, which is announced. A million
lanes that multiply into 1,000 elements take 427 times as long on an H200 in one invocation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, Reduction, RunningTotal, walk
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import RoutineRow
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES
from loopgrad.codegen.targets.gpu.emit.accumulate import LastWriter, accumulator, number_type
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator
from loopgrad.codegen.targets.gpu.emit.context import GROUP_TYPE, SIZE, memory_type, register_type
from loopgrad.codegen.targets.gpu.emit.exact_sum import ExactSum, exact_format
from loopgrad.codegen.targets.gpu.emit.resume import DEPTHS, WORD, state_words
from loopgrad.codegen.targets.gpu.emit.scaled_sum import LargestTerm, only_terms
from loopgrad.codegen.targets.gpu.emit.window_sum import SampledTerms, WindowSum, by_pairs, sampled
from loopgrad.codegen.targets.gpu.interface import PARAM, SCRATCH, Dispatch, KernelInterface
from loopgrad.codegen.targets.gpu.lanes.analysis import shared_params, straight
from loopgrad.codegen.targets.gpu.lanes.boxes import boxed
from loopgrad.codegen.targets.gpu.lanes.chained_spans import WORD as CHAIN_WORD
from loopgrad.codegen.targets.gpu.lanes.chained_spans import chain_words, number_words
from loopgrad.codegen.targets.gpu.lanes.partials import folding, group_sizes, kept, kept_size
from loopgrad.codegen.targets.gpu.lanes.plan import (
    UNTILED,
    Geometry,
    LaneMapping,
    Support,
    Tiles,
    batches,
    by_groups,
    fold_tiles,
    group_type,
    left_by,
    parts,
    streamed_tiles,
    tiling,
)
from loopgrad.codegen.targets.gpu.lanes.running_plan import RESIDENT, RunningTiles, running_tiles
from loopgrad.codegen.targets.gpu.lanes.stage_tiles import stage_plan
from loopgrad.codegen.targets.gpu.lanes.table_tiles import long_tiles, table_tiles
from loopgrad.codegen.targets.gpu.support.finished_sums import (
    NUMBERS,
    last_kernel,
    round_kernel,
    scaled_kernel,
)
from loopgrad.codegen.targets.gpu.support.shard_folds import shard_folds
from loopgrad.codegen.targets.gpu.support.support_kernels import (
    combine_kernel,
    copy_kernel,
    fill_kernel,
    fold_kernel,
    tree_kernel,
    tree_widths,
)
from loopgrad.graph.identities import identity
from loopgrad.graph.types import int64

COPY_ELEMENTS: Final = 1 << 22
MOST_COPIES: Final = 4096
LARGEST_GROUP: Final = 1024  # invocations of any workgroup
HELD_GROUP: Final = 256  # of one whose lanes aren't in tiles
MOST_HELD: Final = 1 << 28  # bytes of arrays of lanes in device memory, of one kernel
FILLED: Final = 2  # as many tiles fill a device with lanes that take few registers and wait for what they read
FEW_LANES: Final = 8  # that one invocation runs in order, without anything around it
LARGE_SUMS: Final = 1 << 28  # bytes of exact sums that are announced
FEW_COPIES: Final = 64  # fewer invocations than this for more lanes are announced
NOTHING: Final[Mapping[int, float]] = MappingProxyType({})

AddModule = Callable[[Kernel], int]
Array = tuple[str, int]


def plan(kernel: Kernel, options: Options, geometry: Geometry) -> LaneMapping:
    """How lanes of this kernel are laid out and how they may meet."""
    if kernel.running is not None:
        return running_mapping(kernel, kernel.running, geometry)
    shape = with_held_arrays(kernel, arrangement(kernel, options, geometry), geometry)
    if not geometry.resumable or not has_loops(kernel):
        return shape
    rows = shape.copies or min(prod(kernel.domain), geometry.resumable)
    return replace(shape, group=0, tiles=None, resumable=max(-(-rows // LARGEST_GROUP), 1) * LARGEST_GROUP)


def with_held_arrays(kernel: Kernel, shape: LaneMapping, geometry: Geometry) -> LaneMapping:
    """In device memory where invocations can't have so much; of fewer lanes at a time the larger they are."""
    size = own_bytes(kernel)
    if not geometry.own_bytes or size <= geometry.own_bytes or geometry.resumable or shape.boxes is not None:
        return shape
    lanes = shape.copies or min(prod(kernel.domain), max(MOST_HELD // size, 1))
    return replace(shape, group=0, tiles=None, held=max(-(-lanes // HELD_GROUP), 1) * HELD_GROUP)


def own_bytes(kernel: Kernel) -> int:
    """Of the arrays of a lane."""
    types = [register_type(array.dtype) for array in kernel.arrays]
    return sum(SIZE[GROUP_TYPE.get(t, t)] * a.size for t, a in zip(types, kernel.arrays, strict=True))


def running_mapping(kernel: Kernel, running: RunningTotal, geometry: Geometry) -> LaneMapping:
    """That of a kernel with a running total."""
    sizes, leaves = group_sizes(folding(running)), running.leaves or (running.dtype,)
    near = VECTOR_BYTES // min(SIZE[group_type(dtype)] for dtype in leaves) if geometry.group_vectors else 1
    tiles = running_tiles(kernel, running, geometry.group, geometry.memory, sizes, geometry.waits, near)
    return LaneMapping(group=geometry.group, running=tiles, resident=RESIDENT if tiles.chained else 0)


def for_sums(
    kernel: Kernel, accumulators: Sequence[Accumulator], tiles: Tiles | None, geometry: Geometry
) -> Tiles | None:
    """Tiles whose invocations come together where some of their sums are made by two of them; and have one lane each
    where these look for sums in a hash table: whoever waits for memory several times in turn had better be many."""
    if not straight(kernel):
        return tiles
    if tiles is not None and (not tiles.streamed or tiles.row_length or tiles.spilled):
        return tiles
    if tiles is not None and any(isinstance(acc, WindowSum) and acc.repair.table.bucket for acc in accumulators):
        tiles = replace(tiles, size=tiles.group or geometry.group, unrolled=1, side=1)
    if not geometry.exchanges or not any(map(by_pairs, accumulators)):
        return tiles
    return replace(tiles or Tiles(geometry.group, 1, prod(kernel.domain)), convergent=True)


def has_loops(kernel: Kernel) -> bool:
    return any(op.opcode in ("for", "while") for op in walk(kernel.body))


def arrangement(kernel: Kernel, options: Options, geometry: Geometry) -> LaneMapping:
    """The plan, as if no lane were ever left."""
    if kernel.stages:
        return stage_plan(kernel, geometry)
    shared = shared_params(kernel)
    found = [accumulator(kernel, p, kinds, options.deterministic, geometry.wide) for p, kinds in sorted(shared.items())]
    accumulators = tuple([a for a in found if a is not None])
    lanes = prod(kernel.domain)
    if lanes <= FEW_LANES and any(a is None or a.blocks for a in found):
        return LaneMapping(1)
    if len(accumulators) == len(found):
        boxes = boxed(kernel, geometry.memory)
        if boxes is not None:
            return LaneMapping(group=geometry.group, boxes=boxes, accumulators=accumulators)
        tables = table_tiles(kernel, accumulators, geometry)
        if tables is not None:
            return LaneMapping(group=geometry.group, tiles=tables[0], accumulators=tables[1])
        tiles = for_sums(kernel, accumulators, tiling(kernel, options, geometry), geometry)
        group = (tiles.group or geometry.group) if tiles else 0
        return LaneMapping(group=group, tiles=tiles, accumulators=accumulators)
    if any(len(kinds) > 1 or "set" in kinds for kinds in shared.values()):
        return LaneMapping(1)
    elements = sum(kernel.params[p].size for p in shared)
    copies = max(min(COPY_ELEMENTS // max(elements, 1), MOST_COPIES, lanes), 1)
    return LaneMapping(copies, tuple(sorted(shared)) if copies > 1 else ())


def interface(
    kernel: Kernel, module: int, shared: LaneMapping, support: Support, starts: Mapping[int, float] = NOTHING
) -> KernelInterface:
    """What surrounds the kernel's own module. `starts`: numbers with which kernels behind it start parameters."""
    lanes, tiles, add = prod(kernel.domain), shared.tiles, support.add
    blocks = batches(kernel, tiles)
    scratch: list[int] = [block_bytes(kernel, tiles, slots) for slots in blocks]
    before: list[Dispatch] = []
    after: list[Dispatch] = []
    for param in shared.copied:
        described = kernel.params[param]
        (kind,) = shared_params(kernel)[param]
        position, size = len(scratch), described.size
        scratch.append(max(size * shared.copies * SIZE[memory_type(described.dtype)], 8))
        fill = add(fill_kernel(described.dtype, identity(kind, described.dtype)))
        before.append(Dispatch(fill, size * shared.copies, ((SCRATCH, position),)))
        merge = add(combine_kernel(kind, described.dtype, size, shared.copies))
        after.append(Dispatch(merge, size, ((SCRATCH, position), (PARAM, param))))
    positions = accumulator_blocks(kernel, shared.accumulators, scratch)
    if shared.resumable:
        state = len(scratch)
        scratch.append(state_words(kernel) * WORD * shared.resumable)
        before.append(Dispatch(add(fill_kernel(int64, 0)), DEPTHS * shared.resumable, ((SCRATCH, state),)))
    if shared.held:
        scratch.append(own_bytes(kernel) * shared.held)
    for acc, position in zip(shared.accumulators, positions, strict=True):
        first, last = around_accumulator(kernel, acc, position, scratch, support, starts.get(acc.param))
        before += first
        after += last
    if shared.running is not None and shared.running.spans > 1:
        around = cleared_chain if shared.running.chained else span_totals
        before.append(around(kernel, shared.running, scratch, support))
    for number, slots in enumerate(blocks):
        after += folds(kernel, number, slots, tiles, scratch, support)
    return KernelInterface(
        name=kernel.name,
        domain=kernel.domain,
        params=len(kernel.params),
        module=module,
        lanes=lanes,
        tiles=sum(part.count for part in (tiles, shared.boxes, shared.running) if part is not None),
        streams=shared.boxes is not None
        or (shared.running is not None and shared.running.tiles > 1)
        or (tiles is not None and tiles.streamed),
        copies=shared.copies,
        loops=has_loops(kernel),
        scratch=tuple(scratch),
        own_scratch=own_blocks(shared, len(blocks)),
        resumable=shared.resumable,
        held=shared.held,
        before=tuple(before),
        after=tuple(after),
        stacks=kernel.stacks,
        errors=kernel.errors,
    )


def own_blocks(shared: LaneMapping, reductions: int) -> int:
    """Scratch blocks in the table of the kernel itself."""
    spans = shared.running is not None and shared.running.spans > 1
    last = bool(shared.resumable) + spans + bool(shared.held)
    return reductions + len(shared.copied) + sum(a.blocks for a in shared.accumulators) + last


def span_totals(kernel: Kernel, tiles: RunningTiles, scratch: list[int], support: Support) -> Dispatch:
    """The launch of the kernel's lanes that leaves the totals of a running total's spans, in a new scratch block."""
    assert kernel.running is not None
    terms = replace(kernel, name=f"{kernel.name}_spans", body=without_checks(kernel.body), errors=(), order_key=None)
    block = (SCRATCH, len(scratch))
    scratch.append(span_bytes(kernel.running, tiles))
    module = support.add(terms, LaneMapping(group=tiles.group, running=replace(tiles, totals=True)))
    params = [(PARAM, i) for i in range(len(kernel.params))]
    return Dispatch(module, prod(kernel.domain), (*params, block), tiles.count)


def span_bytes(running: RunningTotal, tiles: RunningTiles) -> int:
    """Of the totals of a running total's spans."""
    dtypes = kept(folding(running))
    return max(tiles.outer * tiles.spans * tiles.inner * kept_size(dtypes) * len(dtypes), 8)


def cleared_chain(kernel: Kernel, tiles: RunningTiles, scratch: list[int], support: Support) -> Dispatch:
    """The launch that clears what workgroups leave for each other, in a new scratch block."""
    assert kernel.running is not None
    numbers = len(kept(folding(kernel.running)))
    words = chain_words(tiles, number_words(numbers, register_type(kernel.running.dtype)))
    block = (SCRATCH, len(scratch))
    scratch.append(CHAIN_WORD * words)
    return Dispatch(support.add(fill_kernel(int64, 0)), words, (block,))


def without_checks(block: Block) -> Block:
    """The kernel itself makes them."""
    return Block(block.arguments, [op for op in block.ops if op.opcode != "check"], block.yields)


def accumulator_blocks(kernel: Kernel, accumulators: tuple[Accumulator, ...], scratch: list[int]) -> list[int]:
    """Adds their scratch blocks; gives the position of each one's first."""
    positions = []
    for acc in accumulators:
        described = kernel.params[acc.param]
        positions.append(len(scratch))
        if isinstance(acc, ExactSum):
            scratch.append(max(8 * described.size * exact_format(described.dtype).words * acc.copies, 8))
        elif isinstance(acc, WindowSum):
            scratch.append(8 * acc.repair.table.words)
        elif isinstance(acc, LastWriter):
            values = acc.numbers * prod(kernel.domain) * SIZE[memory_type(described.dtype)]
            scratch += [max(described.size * SIZE[number_type(kernel, acc)], 8), max(values, 8)]
    return positions


def around_accumulator(
    kernel: Kernel, acc: Accumulator, position: int, scratch: list[int], support: Support, start: float | None
) -> tuple[list[Dispatch], list[Dispatch]]:
    """What comes before and after the kernel, for a parameter that several lanes write in any order, and whose elements
    start with what they are, or all with a number."""
    dtype, size = kernel.params[acc.param].dtype, kernel.params[acc.param].size
    block, target = (SCRATCH, position), (PARAM, acc.param)
    if isinstance(acc, ExactSum):
        words = size * exact_format(dtype).words
        fill = Dispatch(support.add(fill_kernel(int64, 0)), words * acc.copies, (block,))
        rounding = support.add(round_kernel(dtype, size, start))
        if acc.copies == 1:
            return [fill], [Dispatch(rounding, size, (block, target))]
        sums = (SCRATCH, len(scratch))
        scratch.append(max(8 * words, 8))
        added = fold(Reduction("add", int64, 0, 1), block, [sums], (words, acc.copies), scratch, support)
        return [fill], [*added, Dispatch(rounding, size, (sums, target))]
    if isinstance(acc, WindowSum):
        return around_window(kernel, acc, block, target, support, start)
    if isinstance(acc, LastWriter):
        number, values = NUMBERS[number_type(kernel, acc)], acc.numbers * prod(kernel.domain)
        fill = Dispatch(support.add(fill_kernel(number, 0)), size, (block,))
        arrays = (block, (SCRATCH, position + 1), target)
        return [fill], [Dispatch(support.add(last_kernel(dtype, size, number, values)), size, arrays)]
    return [], []


def around_window(
    kernel: Kernel, acc: WindowSum, block: Array, target: Array, support: Support, start: float | None
) -> tuple[list[Dispatch], list[Dispatch]]:
    """As around_accumulator, for sums in fixed point."""
    table, param, dtype = acc.repair.table, acc.param, kernel.params[acc.param].dtype
    terms = only_terms(kernel, param)
    before = [Dispatch(support.add(fill_kernel(int64, 0)), table.words, (block,))]
    before.append(of_terms(sampled(terms), SampledTerms(param), block, support))
    after = [of_terms(terms, again, block, support) for again in (LargestTerm(param, acc.repair), acc.repair)]
    finish = scaled_kernel(dtype, kernel.params[param].size, acc.repair, start)
    tiles = streamed_tiles(finish, support.geometry)
    shape = UNTILED if tiles is None else LaneMapping(group=support.geometry.group, tiles=tiles)
    rounding = support.add(finish, shape)
    after.append(Dispatch(rounding, prod(finish.domain), (block, target), tiles.count if tiles else 0))
    return before, after


def of_terms(terms: Kernel, acc: Accumulator, block: Array, support: Support, few: int = FILLED) -> Dispatch:
    """A launch of lanes that only have terms, which this accumulator looks at or adds. `few`: times as many tiles as
    fill a device, after which what is unneeded is soon over; 0: as many as any lanes have."""
    geometry = support.geometry
    tiles = long_tiles(terms, geometry, few) if few else streamed_tiles(terms, geometry)
    if tiles is None:
        tiles = Tiles(geometry.group, 1, prod(terms.domain))
    params = [(PARAM, i) for i in range(len(terms.params))]
    module = support.add(terms, LaneMapping(group=geometry.group, tiles=tiles, accumulators=(acc,)))
    return Dispatch(module, prod(terms.domain), (*params, block), tiles.count)


def block_bytes(kernel: Kernel, tiles: Tiles | None, slots: list[int]) -> int:
    """Of a scratch block with what the kernel leaves of these reductions."""
    r = kernel.reductions[slots[0]]
    rows, left = left_by(kernel, tiles, r)
    if tiles is not None and tiles.partials and left == 1:  # these are results
        return 0
    each = SIZE[memory_type(r.dtype)] * (parts(r) if in_parts(r, tiles) else 1)
    return max(len(slots) * rows * left * each, 8)


def in_parts(r: Reduction, tiles: Tiles | None) -> bool:
    """Whether the kernel leaves totals and their rests, rather than contributions."""
    return tiles is not None and tiles.partials and parts(r) == 2


def folds(
    kernel: Kernel, number: int, slots: list[int], tiles: Tiles | None, scratch: list[int], support: Support
) -> list[Dispatch]:
    """From what the kernel leaves in a scratch block (a contribution per lane or per tile) to an element per
    row, for all reductions of the block."""
    r = kernel.reductions[slots[0]]
    if r.shards is not None:
        return shard_folds(kernel, number, slots, tiles, scratch, support)
    rows, length = left_by(kernel, tiles, r)
    targets = [(PARAM, kernel.reductions[slot].param) for slot in slots]
    if not rows:
        return []
    if not length:
        fill = support.add(fill_kernel(r.dtype, identity(r.kind, r.dtype)))
        return [Dispatch(fill, rows, (target,)) for target in targets]
    if tiles is not None and tiles.partials and length == 1:
        return []
    return fold(r, (SCRATCH, number), targets, (rows, length), scratch, support, in_parts(r, tiles))


def fold(
    r: Reduction,
    source: Array,
    targets: list[Array],
    shape: tuple[int, int],
    scratch: list[int],
    support: Support,
    partial: bool = False,
) -> list[Dispatch]:
    """Passes over (rows, length) elements per target, down to one element per row. `partial`: rests follow them."""
    rows, length = shape
    size = SIZE[memory_type(r.dtype)]
    if length == 1:
        return [Dispatch(support.add(copy_kernel(size)), rows, (source, *targets))]
    if not by_groups(rows, length):
        return tree(r, source, targets[0], shape, scratch, support.add, partial)
    count = len(targets)
    tiles = fold_tiles(rows * count, length, support.geometry.group, count)
    kernel = fold_kernel(r, tiles.rows, length, count, partial)
    module = support.add(kernel, LaneMapping(group=support.geometry.group, tiles=tiles))
    partials = (SCRATCH, len(scratch))
    scratch.append(max(tiles.count * size * parts(r), 8))
    passes = [Dispatch(module, tiles.rows * length, (source, *targets, partials), tiles.count)]
    if tiles.per_row == 1:
        return passes
    return passes + fold(r, partials, targets, (rows, tiles.per_row), scratch, support, parts(r) == 2)


def tree(
    r: Reduction,
    source: Array,
    result: Array,
    shape: tuple[int, int],
    scratch: list[int],
    add: AddModule,
    partial: bool,
) -> list[Dispatch]:
    """As `fold`, for many short rows: passes of one invocation per element that is left."""
    rows, length = shape
    passes = []
    for width in tree_widths(length):
        target = result
        if width > 1:
            target = (SCRATCH, len(scratch))
            scratch.append(rows * width * SIZE[memory_type(r.dtype)] * parts(r))
        module = add(tree_kernel(r, rows, length, width, partial))
        passes.append(Dispatch(module, rows * width, (source, target)))
        source, length, partial = target, width, parts(r) == 2
    return passes


def notes(kernel: Kernel, shared: LaneMapping) -> tuple[str, ...]:
    """What runs slower than one would expect."""
    found = [large_sums(kernel, acc) for acc in shared.accumulators if isinstance(acc, ExactSum)]
    found.append(held_note(kernel, shared))
    return (*[note for note in found if note], *serial_note(kernel, shared, prod(kernel.domain)))


def held_note(kernel: Kernel, shared: LaneMapping) -> str:
    if not shared.held:
        return ""
    size = own_bytes(kernel)
    return (
        f"kernel {kernel.name}: arrays of {size:,} bytes for each lane lie in {size * shared.held:,} bytes of device "
        f"memory, for {shared.held:,} lanes at a time: the driver takes no code with so much memory of an invocation"
    )


def large_sums(kernel: Kernel, acc: ExactSum) -> str:
    described = kernel.params[acc.param]
    size = 8 * exact_format(described.dtype).words * described.size
    if size < LARGE_SUMS:
        return ""
    return (
        f"kernel {kernel.name}: lanes add {described.dtype.name} values to {described.size:,} elements in any order; "
        f"that the sums have the same bits every time takes {size:,} bytes of scratch memory, which are written and "
        "read in every run; with deterministic=False there are none"
    )


def serial_note(kernel: Kernel, shared: LaneMapping, lanes: int) -> tuple[str, ...]:
    if not shared.copies or shared.copies >= min(lanes, FEW_COPIES):
        return ()
    how = "one invocation" if shared.copies == 1 else f"{shared.copies} invocations"
    return (
        f"kernel {kernel.name}: {lanes:,} lanes accumulate in a fixed order, so {how} of the device run it; "
        "sums, minima and maxima of one kind into fewer elements don't need that",
    )


def ways(kernel: Kernel, shared: LaneMapping) -> tuple[RoutineRow, ...]:
    """How lanes meet in elements, for `plan`."""
    running = kernel.running
    if running is not None and running.function is not None:
        operands = ", ".join([f"{dtype.name}[{prod(kernel.domain)}]" for dtype in running.leaves])
        return (RoutineRow("associative_scan", operands, "a running total whose lanes make its terms"),)
    found = {acc.param: acc.way(kernel) for acc in shared.accumulators}
    found |= dict.fromkeys(shared.copied, f"{shared.copies} private copies")
    rows, lanes = [], prod(kernel.domain)
    for param, kinds in sorted(shared_params(kernel).items()):
        described, done = kernel.params[param], found.get(param, "one lane after the other")
        operands = f"{described.dtype.name}[{described.size}] by {lanes} lanes"
        rows.append(RoutineRow(f"scatter {'/'.join(sorted(kinds))}", operands, done))
    return tuple(rows)
