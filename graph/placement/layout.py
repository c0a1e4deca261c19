"""Which lanes a process holds.

The n elements along an axis of lanes are cut into virtual shards, whose boundaries depend on n alone: at most 64 of
them, or 1,024 where there are MANY lanes, all of the same extent but the last. A process owns the virtual shards of a
contiguous range, so that whatever is computed shard by shard, and combined in one tree over shards, has the same bits
on any number of processes.

    n = 10, of 3 processes: ten shards of one lane; lanes 0:3, 3:6, 6:10
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VIRTUAL: Final = 64
MOST_VIRTUAL: Final = 1024
MANY: Final = 1 << 26  # lanes, worth a thousand processes
LARGE: Final = 1 << 12  # lanes of a shard that may be some more
ALIGNED: Final = 128  # whose sixteenth parts, which a tree combines first, are whole vectors


def shard_extent(n: int) -> int:
    """Lanes of a virtual shard. Many are an odd multiple of ALIGNED: parts that lie a power of two apart would take
    turns in the same lines of a cache."""
    extent = max(-(-n // (MOST_VIRTUAL if n >= MANY else VIRTUAL)), 1)
    return extent if extent < LARGE else ALIGNED * (-(-extent // ALIGNED) | 1)


def shard_count(n: int) -> int:
    """Virtual shards that have lanes."""
    return -(-n // shard_extent(n))


@dataclass(frozen=True, slots=True)
class ProcessPart:
    """Process `rank` of `size`."""

    rank: int
    size: int

    def of(self, rank: int) -> ProcessPart:
        return ProcessPart(rank, self.size)

    def shards(self, n: int) -> range:
        """The virtual shards of n lanes that this process owns."""
        count = shard_count(n)
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def lanes(self, n: int) -> range:
        """The lanes, of n, that this process holds."""
        own, extent = self.shards(n), shard_extent(n)
        return range(min(own.start * extent, n), min(own.stop * extent, n))

    def each(self, n: int) -> tuple[int, ...]:
        """How many lanes each process holds."""
        return tuple([len(self.of(rank).lanes(n)) for rank in range(self.size)])

    def subtrees(self, n: int) -> list[tuple[int, int]]:
        """The largest subtrees, as (first shard, height), of a binary tree over all shards that are this process' own,
        in order. What would come behind the last shard is the last process' own, too."""
        own, found, count = self.shards(n), list[tuple[int, int]](), shard_count(n)
        stop = 1 << (count - 1).bit_length() if own.stop == count and own else own.stop
        at = own.start
        while at < own.stop:
            height = 0
            while at % (2 << height) == 0 and at + (2 << height) <= stop:
                height += 1
            found.append((at, height))
            at += 1 << height
        return found
