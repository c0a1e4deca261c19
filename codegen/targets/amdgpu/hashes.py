"""The two hash tables by which a loader finds exported symbols by name.

System V ABI, chapter 5 "Hash Table"; GNU's: U. Drepper, "How To Write Shared Libraries", and binutils. Sizes
are those that lld chooses.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.targets.amdgpu.elf import Symbol

SHIFT: Final = 26  # the second bit of the Bloom filter
BLOOM_BITS: Final = 12  # of the filter, per symbol
WORD_BITS: Final = 64


def system_v_hash(name: str) -> int:
    h = 0
    for byte in name.encode():
        h = (h << 4) + byte
        h ^= (h & 0xF0000000) >> 24
        h &= 0x0FFFFFFF
    return h


def system_v_table(names: Sequence[str]) -> bytes:
    """Symbol 0 is the null symbol; as many buckets as symbols."""
    count = len(names) + 1
    buckets, chains = [0] * count, [0] * count
    for number, name in enumerate(names, 1):
        bucket = system_v_hash(name) % count
        chains[number], buckets[bucket] = buckets[bucket], number
    return struct.pack(f"<{2 + 2 * count}I", count, count, *buckets, *chains)


def gnu_hash(name: str) -> int:
    h = 5381
    for byte in name.encode():
        h = (h * 33 + byte) & 0xFFFFFFFF
    return h


def _gnu_buckets(count: int) -> int:
    return max(count // 4, 1)


def gnu_order(symbols: Sequence[Symbol]) -> list[Symbol]:
    """The order that GNU's table wants: by bucket."""
    buckets = _gnu_buckets(len(symbols))
    return sorted(symbols, key=lambda s: gnu_hash(s.name) % buckets)


def gnu_hash_table(names: Sequence[str]) -> bytes:
    """Of names in `gnu_order`, which are symbols 1, 2, ..."""
    buckets = _gnu_buckets(len(names))
    words = 1 << (len(names) * BLOOM_BITS // WORD_BITS).bit_length()
    hashes = [gnu_hash(name) for name in names]
    bloom, first = [0] * words, [0] * buckets
    values = []
    for i, h in enumerate(hashes):
        word = h // WORD_BITS & (words - 1)
        bloom[word] |= 1 << h % WORD_BITS | 1 << (h >> SHIFT) % WORD_BITS
        bucket = h % buckets
        first[bucket] = first[bucket] or i + 1
        last = i + 1 == len(hashes) or hashes[i + 1] % buckets != bucket
        values.append(h & ~1 | last)
    head = struct.pack("<4I", buckets, 1, words, SHIFT)
    return head + struct.pack(f"<{words}Q{buckets}I{len(values)}I", *bloom, *first, *values)
