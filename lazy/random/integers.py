"""Integers of a range, without rejection: a word of 128 random bits times the size of the range, divided by 2**128.

A number's probability is off by less than 2**-64 of itself, which no sample shows; so each draw takes one block, and
all lanes do the same. (Lemire, Fast random integer generation in an interval, 2019, rejects to be exact.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import DType, bool_, int64, uint64
from loopgrad.lazy.tensor.core import TensorCore, as_tensor, broadcast_value, cast_value, wrap
from loopgrad.lazy.tensor.promotion import as_dtype

if TYPE_CHECKING:
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.tensor import Tensor

DIGIT: Final = 0xFFFFFFFF


class IntegerRange:
    """`low` to `high` (`endpoint`: with it) as numbers of `dtype`; ValueError and TypeError as NumPy's."""

    def __init__(self, low: Any, high: Any, dtype: Any, endpoint: bool) -> None:
        self.dtype = as_dtype(int if dtype is None else dtype)
        if self.dtype.kind not in "biu":
            raise DTypeError(explained("integers", "a dtype of integers", self.dtype, "pass one such as lg.int64"))
        if high is None:
            low, high = 0, low
        self.ends: list[Any] = [self._end("low", low), self._end("high", high)]
        self.known = not any(isinstance(x, TensorCore) for x in self.ends)
        if self.known:
            self._check(self.ends[0], self.ends[1], endpoint)
        self.endpoint = endpoint

    def _end(self, name: str, x: Any) -> Any:
        """A tensor, or an array of Python ints."""
        if isinstance(x, TensorCore):
            if x._value.dtype.kind not in "biu":
                raise DTypeError(explained("integers", f"{name} of integers", x._value.type, "convert it with .astype"))
            return x
        array = np.asarray(x)
        if array.dtype.kind == "f" and (array == np.floor(array)).all():
            array = array.astype(object)
            array = np.vectorize(int, otypes=[object])(array)
        if array.dtype.kind not in "biuO":
            raise DTypeError(explained("integers", f"{name} of integers", x, "round it first"))
        return array.astype(object)

    def _check(self, low: Any, high: Any, endpoint: bool) -> None:
        first, last = limits(self.dtype)
        if np.any(low < first):
            raise ValueError(explained("integers", f"low of at least {first}", low, f"that is {self.dtype}'s least"))
        if np.any(high > (last if endpoint else last + 1)):
            raise ValueError(explained("integers", f"high of at most {last}", high, f"that is {self.dtype}'s largest"))
        if np.any(low > high if endpoint else low >= high):
            raise ValueError(explained("integers", "low below high", f"{low} and {high}", "exchange them"))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [x._value.shape if isinstance(x, TensorCore) else x.shape for x in self.ends]

    def numbers(self, source: WordSource) -> Tensor:
        """Random integers of the source's shape."""
        low, size, narrow = self._low_and_size()
        if self.dtype.bits == 64 and size is None:
            drawn = source.long_words(1)[0]._value
        else:
            assert size is not None
            drawn = _scaled(broadcast_value(size, source.shape), source, narrow)
        number = ops.add(cast_value(drawn, int64), broadcast_value(low, source.shape))
        return wrap(
            cast_value(ops.and_(number, 1), bool_) if self.dtype.kind == "b" else cast_value(number, self.dtype)
        )

    def _low_and_size(self) -> tuple[Value, Value | None, bool]:
        """The lowest number modulo 2**64, how many there are (None: 2**64), and whether that has 32 bits."""
        low, high = self.ends
        if self.known:
            sizes = high - low + (1 if self.endpoint else 0)
            if np.all(sizes == 1 << 64):
                return _constant(low, int64), None, False
            if np.any(sizes == 1 << 64):
                got, fix = "some that are all of 64 bits, and others", "draw them apart"
                raise ValueError(explained("integers", "ranges of fewer numbers", got, fix))
            return _constant(low, int64), _constant(sizes, uint64), bool(np.all(sizes <= DIGIT))
        shape = np.broadcast_shapes(*self.shapes)
        parts = [x._value if isinstance(x, TensorCore) else _constant(x, int64) for x in self.ends]
        first, last = [broadcast_value(cast_value(v, int64), shape) for v in parts]
        if self.endpoint:
            last = ops.add(last, 1)
        empty = ops.le(last, first) if self.dtype.kind != "u" else ops.eq(last, first)
        size = cast_value(ops.sub(last, first), uint64)
        return first, ops.select(empty, ops.full(0, size.type), size), False  # type: ignore[arg-type]


def integers_between(source: WordSource, low: Any, high: Any, dtype: DType, endpoint: bool) -> Tensor:
    """Random integers of that range, of the source's shape."""
    return IntegerRange(low, high, dtype, endpoint).numbers(source)


def _constant(x: Any, dtype: DType) -> Value:
    """Python ints modulo 2**64."""
    flat = [int(n) % (1 << 64) for n in np.ravel(x)]
    array = np.array(flat, np.uint64).astype(dtype.np).reshape(np.shape(x))
    return as_tensor(int(array), dtype)._value if not array.shape else as_tensor(array)._value


def _scaled(size: Value, source: WordSource, narrow: bool) -> Value:
    """floor(size * w / 2**128) of a random word w of 128 bits, by digits of 32 bits; `narrow`: the size has one."""
    mask = ops.full(DIGIT, size.type)  # type: ignore[arg-type]
    zero = ops.zeros_like(size)
    factors = [size] if narrow else [ops.and_(size, mask), ops.shr(size, 32)]
    product = [zero] * (4 + len(factors))
    for i, word in enumerate(source.words(4)):
        digit = cast_value(word._value, uint64)
        carry = zero
        for j, factor in enumerate(factors):
            total = ops.add(ops.add(product[i + j], carry), ops.mul(digit, factor))
            product[i + j], carry = ops.and_(total, mask), ops.shr(total, 32)
        product[i + len(factors)] = carry
    return product[4] if narrow else ops.or_(product[4], ops.shl(product[5], 32))
