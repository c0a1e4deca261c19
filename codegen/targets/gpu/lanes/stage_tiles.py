"""How the lanes of a kernel with stages lie: the same rows in the same tile of every stage, by shape alone.

A row is a tile of its own, or, where rows are short and many, some whole rows are. Reductions of whole rows end in
their tile, so no launch has to follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import BufferParam, Kernel
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.targets.gpu.assembler import WARP
from loopgrad.codegen.targets.gpu.emit.context import GROUP_TYPE, SIZE, register_type
from loopgrad.codegen.targets.gpu.lanes.column_members import column_members
from loopgrad.codegen.targets.gpu.lanes.plan import (
    FEW_ROWS,
    FEW_TILES,
    LONG_ROW,
    MOST_PARTS,
    MOST_UNROLLED,
    Geometry,
    LaneMapping,
    RowMembers,
    Tiles,
    fold_columns,
    folds_together,
    group_size,
    most_unrolled,
    partial_size,
    power_below,
    reduced_rows,
    row_pitch,
)
from loopgrad.codegen.targets.gpu.lanes.row_members import REGISTERS, held_words, row_members, widest
from loopgrad.codegen.targets.gpu.lanes.side_by_side import lanes_side_by_side
from loopgrad.graph.types import DType

MOST_LANES: Final = 64  # of a row, per invocation
FEW_GROUPS: Final = 128  # fewer rows leave a device idle; then a row has at most
FEW_LANES: Final = 16  # lanes per invocation
UNIT: Final = 8  # in which an invocation gets them
COMMON: Final = 14  # of an invocation, whatever it runs
ADDRESS: Final = 2  # of an array
RECIPE: Final = 2  # numbers that a recipe of an elementwise operation holds
FEWEST_RESIDENT, MOST_RESIDENT = 2, 8
FEWEST_INVOCATIONS: Final = 512  # of held rows
HELD_BESIDE: Final = 32  # registers of an invocation that has part of a row
TWICE: Final = 12  # for each byte of an element, at most, where each has another one
SHARE: Final = 2  # of memory of the workgroup that is left free, so that several workgroups fit


def stage_plan(kernel: Kernel, geometry: Geometry) -> LaneMapping:
    """The plan of a kernel with stages."""
    rows, length = kernel.domain
    if kernel.columns:
        found = column_members(kernel, geometry)
        assert found is not None, "only columns that invocations hold are put together"
        tiles = Tiles(found.group // found.shape.members * length, 1, rows * length, partials=True)
        return LaneMapping(group=found.group, tiles=tiles, members=found.shape, resident=found.resident)
    held = row_members(kernel, geometry)
    if held is not None:
        members, group = held
        tiles = Tiles(group // members.members * length, 1, rows * length, partials=True)
        left = held_resident(kernel, members, group)
        return LaneMapping(group=group, tiles=tiles, members=members, resident=left)
    between = kernel.stages[0].params[len(kernel.params) :]
    each = stage_tiles(rows, length, kernel.stages, geometry, between)
    assert each is not None, "only stages that fit are put together"
    size = next(t.size for t, k in zip(each, kernel.stages, strict=True) if prod(k.domain) == rows * length)
    whole = Tiles(size, 1, rows * length, partials=True)
    left = resident(kernel, each, geometry.group)
    return LaneMapping(group=geometry.group, tiles=whole, stages=each, resident=left)


def held_resident(kernel: Kernel, shape: RowMembers, group: int) -> int:
    """As many workgroups on a multiprocessor as have registers for their elements and some others, where several warps
    have a row and wait for each other; 0: any number. Of narrower elements fewer bytes are under way, so there are
    more. On an H200 softmax of rows of 8,192 bfloat16 takes 1.09 times as long with three workgroups as with four, and
    1.26 times with two, layer norm of float32 1.07 times with four as with three."""
    if shape.members <= WARP:
        return 0
    held = held_words(kernel, shape)
    itemsize = widest(kernel)
    needed = max(min(2 * held, TWICE * itemsize), held) + HELD_BESIDE
    return max(min(REGISTERS // (group * -(-needed // UNIT) * UNIT), MOST_RESIDENT), FEWEST_INVOCATIONS // group, 1)


def resident(kernel: Kernel, tiles: Sequence[Tiles], group: int) -> int:
    """As many workgroups on a multiprocessor as have the registers that stages seem to need: while one waits at a
    barrier, others run. On an H200 a layer norm with its gradient takes 1.27 times as long where the compiler takes as
    many registers as it likes, an argmax of rows 1.2 times as long with those of a layer norm."""
    pairs = zip(kernel.stages, tiles, strict=True)
    lanes = max(_lanes_registers(stage, t, kernel.domain[0]) for stage, t in pairs)
    needed = lanes + ADDRESS * len(kernel.params) + COMMON
    return max(min(REGISTERS // (group * -(-needed // UNIT) * UNIT), MOST_RESIDENT), FEWEST_RESIDENT)


def _lanes_registers(stage: Kernel, tiles: Tiles, rows: int) -> int:
    """Of the lanes that an invocation runs at once: what each loads of its own, and what the largest recipe holds."""
    types = [stage.params[op.attrs["param"]] for op in stage.body.ops if op.opcode == "load"]
    own = [param.dtype.itemsize for param in types if param.size != rows]
    computed = [(OPCODES[op.opcode], op.results[0].dtype) for op in stage.body.ops if op.results]
    recipe = any(dtype.is_float and not (row.own or row.quick) for row, dtype in computed)
    words: int = max([4, *own]) // 4
    return tiles.unrolled * words * (len(own) + RECIPE * recipe)


def reduces_rows(kernel: Kernel, rows: int) -> bool:
    """Whether a stage's reductions are of each row, not of all rows."""
    found = reduced_rows(kernel)
    return found is not None and found[0] == rows


def stage_tiles(
    rows: int, length: int, stages: Sequence[Kernel], geometry: Geometry, between: Sequence[BufferParam] = ()
) -> tuple[Tiles, ...] | None:
    """The tiles of each stage; None where rows are too long, or so are the arrays of a workgroup. `between`: arrays of
    the rows in its memory, with an element of each lane or of each row."""
    each = sum(array_size(param.dtype) * (length if param.size > rows else 1) for param in between)
    if rows > FEW_ROWS and length <= LONG_ROW:
        return _short(rows, length, stages, geometry, each)
    return _long(rows, length, stages, geometry, each)


def array_size(dtype: DType) -> int:
    """Bytes of an element in memory of a workgroup."""
    type = register_type(dtype)
    return SIZE[GROUP_TYPE.get(type, type)]


def _short(rows: int, length: int, stages: Sequence[Kernel], geometry: Geometry, each: int) -> tuple[Tiles, ...] | None:
    """`each`: bytes of a row's arrays."""
    group = geometry.group
    reductions = [r for kernel in stages if reduces_rows(kernel, rows) for r in kernel.reductions]
    size = each + sum(group_size(r) * row_pitch(length) + partial_size(r) * MOST_PARTS for r in reductions)
    room = geometry.memory // SHARE - sum(folds_size(k, group, 1) for k in stages if not reduces_rows(k, rows))
    held = max(rows // FEW_TILES, group // length, 1)
    most = min(MOST_UNROLLED * group // length, held, room // max(size, 1))
    if most < 1:
        return None
    lanes, parts = most * length, power_below(min(MOST_PARTS, group // most, length))

    def tiles(kernel: Kernel) -> Tiles:
        if prod(kernel.domain) == rows:
            return Tiles(most, 1, rows)
        unrolled = min(most_unrolled(kernel), power_below(lanes // group))
        if not kernel.reductions:
            return Tiles(lanes, 1, rows * length, unrolled)
        if not reduces_rows(kernel, rows):
            return Tiles(lanes, 1, rows * length, unrolled, partials=True, per_pass=1)
        return Tiles(lanes, 1, rows * length, unrolled, partials=True, row_length=length, parts=parts)

    return tuple(map(tiles, stages))


def _long(rows: int, length: int, stages: Sequence[Kernel], geometry: Geometry, each: int) -> tuple[Tiles, ...] | None:
    """As `_short`."""
    group = geometry.group
    if length > group * (FEW_LANES if rows < FEW_GROUPS else MOST_LANES):
        return None
    left = geometry.memory - each
    found = []
    for kernel in stages:
        if prod(kernel.domain) == rows:
            found.append(Tiles(1, 1, rows))
            continue
        side = lanes_side_by_side(kernel, most_unrolled(kernel))
        unrolled = min(most_unrolled(kernel), max(power_below(length // group), side))
        together = folds_together(kernel, group, left // SHARE) if kernel.reductions else 1
        if together < 1:
            return None
        left -= folds_size(kernel, group, together)
        shape = (rows, length) if not kernel.reductions or reduces_rows(kernel, rows) else (1, rows * length)
        found.append(Tiles(length, *shape, unrolled, side, partials=bool(kernel.reductions), per_pass=together))
    return tuple(found) if left >= 0 else None


def folds_size(kernel: Kernel, group: int, together: int) -> int:
    """Bytes of the arrays in which a workgroup folds so many reductions at a time."""
    kinds = {(register_type(r.dtype), partial_size(r)) for r in kernel.reductions}
    return together * sum(size for _, size in kinds) * (group + fold_columns(group))
