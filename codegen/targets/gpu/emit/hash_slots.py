"""Hash tables in device memory, in which the lanes of a launch find or take slots in any order: open addressing by
linear probing (Knuth, The Art of Computer Programming 3, 6.4).

A key is in the first slot, from a place on that is made of it, that has it or had none. Slots are never given back, so
a key has one only. Which one it is depends on the order of lanes; what is added up there needn't.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import emit_loop

SPREAD: Final = 0x9E3779B1  # 2**32 times the golden ratio: numbers times that differ in the upper ones of 32 bits
PRODUCT: Final = 32  # so many bits
MOST: Final = 8  # numbers of a bucket: their keys, and what 64 bits each are beside them, are in two sectors of a line


@dataclass(frozen=True, slots=True)
class HashSlots:
    """A power of two of `slots`; `owners`: the word of 64 bits of a scratch block at which their keys begin, 1 + a
    number; 0: a slot is free. Numbers of a `bucket`, as many from a multiple of that on, have slots side by side."""

    slots: int
    owners: int
    bucket: int

    @property
    def down(self) -> int:
        """Which bit of a product with SPREAD is the lowest of a slot's number."""
        return PRODUCT - ((self.slots // self.bucket).bit_length() - 1)


def slots_for(keys: int, bucket: int = 1) -> int:
    """For so many keys, none of which is then far from where it is looked for first."""
    return bucket << (2 * max(keys // bucket, 1) - 1).bit_length()


def bucket_of(width: int) -> int:
    """For numbers of elements in rows of that width; 0: of elements at random. All places in a bucket are taken by as
    many of them, so that none is full before others are."""
    return gcd(width, MOST) if width else 1


def find_slot(e: Emitter, words: Val, table: HashSlots, number: Val) -> Val:
    """The slot of 1 + this number, which it takes if it has none; `words`: the block's address."""
    b = e.b
    slot, missing = b.local("i64"), b.local("bool")
    key, free = b.inst("IAdd", "i64", number, b.const("i64", 1)), b.const("i64", 0)
    b.set(slot, _first(e, table, number))
    b.set(missing, b.const("bool", True))

    def probe() -> None:
        here = b.get(slot, "i64")
        owner = e.at(e.offset(words, 8 * table.owners), here, 8)
        known = b.load(owner, "i64")
        unowned = b.inst("IEqual", "bool", known, free)
        (seen,) = e.choose(unowned, lambda: (b.compare_exchange(owner, free, key),), lambda: (known,))
        mine = e.either(b.inst("IEqual", "bool", seen, free), b.inst("IEqual", "bool", seen, key))
        after = b.inst("IAdd", "i64", here, b.const("i64", table.bucket))
        after = b.inst("BitwiseAnd", "i64", after, b.const("i64", table.slots - 1))
        b.set(slot, e.select(mine, here, after))
        b.set(missing, b.inst("LogicalNot", "bool", mine))

    emit_loop(e, lambda: b.get(missing, "bool"), probe)
    return b.get(slot, "i64")


def _first(e: Emitter, table: HashSlots, number: Val) -> Val:
    """The slot that is looked at first."""
    b, shift = e.b, table.bucket.bit_length() - 1
    group = b.inst("ShiftRightLogical", "i64", number, b.const("i64", shift)) if shift else number
    product = b.inst("IMul", "i64", b.inst("IAdd", "i64", group, b.const("i64", 1)), b.const("i64", SPREAD))
    first = b.inst("ShiftRightLogical", "i64", product, b.const("i64", table.down))
    first = b.inst("BitwiseAnd", "i64", first, b.const("i64", table.slots // table.bucket - 1))
    if not shift:
        return first
    within = b.inst("BitwiseAnd", "i64", number, b.const("i64", table.bucket - 1))
    return b.inst("BitwiseOr", "i64", b.inst("ShiftLeftLogical", "i64", first, b.const("i64", shift)), within)
