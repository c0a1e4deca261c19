"""How reductions by shards (`graph.primitives.shards`) are laid over workgroups. What decides the order of additions is
the extent of a shard and the size of workgroups: not what else a kernel does, nor how many shards a process has.

    lanes   shards of `extent`, pieces of `size` lanes     one workgroup each; the last shard may be shorter
    pieces  columns, one for each invocation               its lanes one after the other, in their order
    shards  pieces                                         another launch: strided columns, then these
    roots   shards                                         neighbours first, as everywhere

Where a shard has fewer lanes than a workgroup invocations, a workgroup has several, side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, Shards

SHARDS: Final = 64  # of most arrays
FEW_PIECES: Final = 512  # an array has at least so many before an invocation gets more lanes of each
MOST_LANES: Final = 8  # of an invocation
MOST_COLUMNS: Final = 16  # of the pieces of a shard
FAN_IN: Final = 8  # neighbours that an invocation combines


@dataclass(frozen=True, slots=True)
class ShardPieces:
    """`lanes` in shards of `extent`, as workgroups of `group` invocations run them."""

    lanes: int
    extent: int
    group: int

    @property
    def shards(self) -> int:
        return -(-self.lanes // self.extent)

    @property
    def width(self) -> int:
        """Columns of a piece."""
        return min(self.extent, self.group)

    @property
    def beside(self) -> int:
        """Shards of a tile."""
        return self.group // self.width

    @property
    def size(self) -> int:
        """Lanes of a tile."""
        if self.extent <= self.group:
            return self.beside * self.extent
        each = self.extent * SHARDS // (self.group * FEW_PIECES)
        return self.group << max(min(each, MOST_LANES).bit_length() - 1, 0)

    @property
    def pieces(self) -> int:
        """Of a shard."""
        return max(-(-self.extent // self.size), 1)

    @property
    def count(self) -> int:
        """Pieces of all shards."""
        whole, rest = divmod(self.lanes, self.extent)
        return whole * self.pieces + -(-rest // self.size)

    @property
    def columns(self) -> int:
        """In which the pieces of a shard are combined."""
        return min(1 << (self.pieces - 1).bit_length(), MOST_COLUMNS)


def shards_of(kernel: Kernel) -> Shards | None:
    """Those of the kernel's reductions that are made by shards, all of which have one extent."""
    return next((r.shards for r in kernel.reductions if r.shards is not None), None)


def shard_pieces(kernel: Kernel, shards: Shards, group: int) -> ShardPieces:
    return ShardPieces(prod(kernel.domain), shards.extent, group)
