"""Where a draw takes its random words from: the blocks of Philox, one for each element.

A block belongs to a key and a counter. The counter is made of three numbers: `lane`, which number among those that are
drawn at once; `step`, how many draws came before; and the *attempt*, which a sampler that rejects counts by itself, so
that a draw is one step however often it tried. (Numbers that are made of several have 2**20 attempts for each.)
Philox-4x32-10: a block is four words of 32 bits; lane has 40 bits, the attempt 24, step 64. Philox-4x64-10: four words
of 64 bits (eight of 32); lane, step and attempt have 64 bits each, and the last bit of the counter is set, where
NumPy's counters never get to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType, TensorType, uint32, uint64
from loopgrad.lazy.tensor.core import broadcast_value, cast_value, wrap

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.operands import Shape
    from loopgrad.lazy.tensor.tensor import Tensor

ATTEMPTS_BESIDE_LANE: Final = 8
"""The bit of the counter's second word of 32 from which on attempts are counted; below it are bits of the lane."""
ATTEMPTS: Final = 20  # bits, of each part of a draw
OWN_COUNTERS: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class WordSource:
    """Random words for elements of `shape`. `key` has one word of 64 bits for Philox-4x32, and two for Philox-4x64;
    key words, `lane` and `step` broadcast to the shape. `first`: the word of 32 bits with which the draw begins.
    `offset`, of Philox-4x32 only, is added to that: one for each element. `attempt` counts blocks beside the first one,
    from `part` times 2**20 on."""

    shape: Shape
    key: tuple[Value, ...]
    lane: Value
    step: Value
    first: int = 0
    offset: Value | None = None
    part: int = 0
    attempt: Value | None = None

    def word(self, number: int) -> Tensor:
        """Words of 32 bits, that number of the block of each element."""
        number += self.first
        if len(self.key) == 1:
            return wrap(self._short(number))
        both = self._long(number // 2)
        return wrap(_lower(both) if number % 2 == 0 else _upper(both))

    def long_word(self, number: int) -> Tensor:
        """Words of 64 bits, that number of each block (of Philox-4x32 two words of 32 bits, the lower one first)."""
        if len(self.key) == 2 and not self.first % 2:
            return wrap(self._long(number + self.first // 2))
        low, high = self.word(2 * number)._value, self.word(2 * number + 1)._value
        return wrap(ops.or_(cast_value(low, uint64), ops.shl(cast_value(high, uint64), 32)))

    def numbers(self, value: float, dtype: DType) -> Tensor:
        """A number for each element."""
        return wrap(ops.full(value, TensorType(self.shape, dtype)))

    def after(self, first: int) -> WordSource:
        """The words from that one on."""
        return replace(self, first=self.first + first)

    def apart(self, part: int) -> WordSource:
        """Other blocks of the same draw, for another number that it is made of."""
        return replace(self, part=part)

    def at(self, attempt: Tensor) -> WordSource:
        """The block of that attempt (uint32), one for each element."""
        return replace(self, attempt=attempt._value)

    def _attempt(self) -> Value | None:
        """The number of the block among those of a draw, uint32; None for 0."""
        base = self.part << ATTEMPTS
        if self.attempt is None:
            return ops.full(base, TensorType((), uint32)) if base else None
        return ops.add(self.attempt, base) if base else self.attempt

    def _short(self, number: int) -> Value:
        upper, attempt = _upper(self.lane), self._attempt()
        if attempt is not None:
            counted = ops.shl(attempt, ATTEMPTS_BESIDE_LANE)
            upper = ops.or_(broadcast_value(upper, self.shape), broadcast_value(counted, self.shape))
        (key,) = self.key
        parts = [_lower(self.lane), upper, _lower(self.step), _upper(self.step), _lower(key), _upper(key)]
        return philox(parts, number if self.offset is None else ops.add(self.offset, number), self.shape)

    def _long(self, number: int) -> Value:
        attempt = self._attempt()
        third = ops.full(0, TensorType((), uint64)) if attempt is None else cast_value(attempt, uint64)
        last = ops.full(OWN_COUNTERS, TensorType((), uint64))
        return philox([self.lane, self.step, third, last, *self.key], number, self.shape)


def philox(parts: Sequence[Value], number: int | Value, shape: Shape) -> Value:
    """The words of that number of the blocks of a counter and a key, six words that broadcast to the shape."""
    dtype = parts[0].dtype
    word = ops.full(number, TensorType((), dtype)) if isinstance(number, int) else number
    return emit("philox", [broadcast_value(v, shape) for v in (*parts, word)])[0]


def _lower(v: Value) -> Value:
    return cast_value(v, uint32)


def _upper(v: Value) -> Value:
    """The upper half of a number of 64 bits; 0 of one of 32."""
    if v.dtype.bits == 32:
        return ops.full(0, TensorType((), uint32))
    return cast_value(ops.shr(v, 32), uint32)


def numbered(shape: Shape, dtype: DType | None = None) -> Value:
    """The number of each element, row by row; in 32 bits where they suffice and no dtype is given."""
    size = 1
    for extent in shape:
        size *= extent
    dtype = dtype or (uint32 if size <= 1 << 32 else uint64)
    return ops.reshape(ops.iota(TensorType((size,), dtype), 0), shape)
