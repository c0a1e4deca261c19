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

    @classmethod
    def of(cls, shape: Shape, key: tuple[Value, ...], step: Value) -> WordSource:
        """A block for each element of the shape, for one draw of a bit generator with this key and counter."""
        return cls(shape, key, numbered(shape, uint64 if len(key) == 2 else None), step)

    def words(self, count: int) -> list[Tensor]:
        """Words of 32 bits, the first ones of the block of each element."""
        numbers = range(self.first, self.first + count)
        if len(self.key) == 1:
            parts = self._short_parts()
            places = numbers if self.offset is None else [ops.add(self.offset, n) for n in numbers]
            return [wrap(philox(parts, n, self.shape)) for n in places]
        parts = self._long_parts()
        long = {n // 2: philox(parts, n // 2, self.shape) for n in numbers}
        return [wrap((_upper if n % 2 else _lower)(long[n // 2])) for n in numbers]

    def long_words(self, count: int) -> list[Tensor]:
        """Words of 64 bits, the first ones of each block (of Philox-4x32 two words of 32 bits, the lower one first)."""
        if len(self.key) == 2 and not self.first % 2:
            parts = self._long_parts()
            return [wrap(philox(parts, n + self.first // 2, self.shape)) for n in range(count)]
        halves = [cast_value(word._value, uint64) for word in self.words(2 * count)]
        return [wrap(ops.or_(low, ops.shl(high, 32))) for low, high in zip(halves[::2], halves[1::2], strict=True)]

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

    def _short_parts(self) -> list[Value]:
        """Counter and key of each block, of words of 32 bits."""
        upper, attempt = _upper(self.lane), self._attempt()
        if attempt is not None:
            counted = ops.shl(attempt, ATTEMPTS_BESIDE_LANE)
            upper = ops.or_(broadcast_value(upper, self.shape), broadcast_value(counted, self.shape))
        (key,) = self.key
        parts = [_lower(self.lane), upper, _lower(self.step), _upper(self.step), _lower(key), _upper(key)]
        return [broadcast_value(v, self.shape) for v in parts]

    def _long_parts(self) -> list[Value]:
        """The same of words of 64 bits."""
        attempt = self._attempt()
        third = ops.full(0, TensorType((), uint64)) if attempt is None else cast_value(attempt, uint64)
        last = ops.full(OWN_COUNTERS, TensorType((), uint64))
        return [broadcast_value(v, self.shape) for v in (self.lane, self.step, third, last, *self.key)]


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
