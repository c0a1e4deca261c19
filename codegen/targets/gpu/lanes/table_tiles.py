"""Which kernels have their small tables of integers in memory of workgroups (emit.group_table), and in what tiles: so
long that a workgroup adds much more to its copies than it then adds to the table, and enough to fill the device."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.kernel.ranges import Ranges
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator, contributions, writers
from loopgrad.codegen.targets.gpu.emit.group_table import GroupTable
from loopgrad.codegen.targets.gpu.lanes.analysis import shared_params, straight
from loopgrad.codegen.targets.gpu.lanes.plan import FEW_TILES, Geometry, Tiles, most_unrolled, power_below

MOST_COPIES: Final = 32
COPIES_BYTES: Final = 8 << 10  # of all copies of a table, where it is small
SHARE: Final = 2  # of a workgroup's memory that tables may take: a half
MORE_TERMS: Final = 4  # lanes of a tile for each element of its tables, at least
FEWEST_TILES: Final = 128
LARGEST_SUM: Final = (1 << 31) - 1


def table_tiles(
    kernel: Kernel, accumulators: Sequence[Accumulator], geometry: Geometry
) -> tuple[Tiles, tuple[Accumulator, ...]] | None:
    """The tiles, and the accumulators, some of which are tables of workgroups; None where there would be none."""
    if kernel.reductions or kernel.errors or not straight(kernel):
        return None
    left, found = geometry.memory // SHARE, []
    size = _size(prod(kernel.domain), [kernel.params[acc.param].size for acc in accumulators], left)
    for acc in accumulators:
        elements = kernel.params[acc.param].size
        if not elements or 4 * elements > left or size < MORE_TERMS * elements or not suits(kernel, acc.param, size):
            found.append(acc)
            continue
        copies = min(power_below(COPIES_BYTES // (4 * elements)), power_below(size // elements), MOST_COPIES)
        copies = max(min(copies, power_below(left // (4 * elements))), 1)
        left -= 4 * elements * copies
        found.append(GroupTable(acc.param, copies))
    if not any(isinstance(acc, GroupTable) for acc in found):
        return None
    tiles = long_tiles(kernel, geometry, size=size)
    return (tiles, tuple(found)) if tiles is not None else None


def _size(lanes: int, tables: Sequence[int], memory: int) -> int:
    """Lanes of a tile: as many as tables of so many elements need, if the tiles still fill a device. On an H200 a
    million lanes count to 1,000 in 6 us so, and by atomics in 57."""
    size = tile_size(lanes)
    needed = max([MORE_TERMS * elements for elements in tables if 4 * elements <= memory], default=0)
    wanted = 1 << max(needed - 1, 0).bit_length()
    return max(size, wanted) if lanes >= FEWEST_TILES * wanted else size


def long_tiles(kernel: Kernel, geometry: Geometry, more: int = 1, size: int = 0) -> Tiles | None:
    """Few tiles of many lanes, or `more` times as many, or those of `size`; None where there are too few lanes for
    that."""
    lanes = prod(kernel.domain)
    size = size or tile_size(lanes // more)
    if size < geometry.group:
        return None
    return Tiles(size, 1, lanes, min(most_unrolled(kernel), size // geometry.group))


def tile_size(lanes: int) -> int:
    return power_below(max(lanes // FEW_TILES, 1))


def suits(kernel: Kernel, param: int, lanes: int) -> bool:
    """Whether lanes only add integers to it, whose sums fit 32 bits or are made modulo no more."""
    dtype, numbers = kernel.params[param].dtype, contributions(kernel.body, param)
    if not dtype.is_integer or shared_params(kernel)[param] != {"add"} or numbers is None:
        return False
    if dtype.bits <= 32:
        return True
    ranges = Ranges(kernel)
    largest = max(abs(bound) for op in writers(kernel, param) for bound in ranges.of(op.operands[1]))
    return largest * numbers * lanes <= LARGEST_SUM
