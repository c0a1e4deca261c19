"""Random words as floats.

`unit_interval` has as many bits as the dtype's mantissa, as NumPy's floats in [0, 1) have. `open_interval`,
`half_interval` and `turn` use all bits of their words, so that what logarithms make of numbers close to 0 has digits
there, and reaches further: an exponential 22.9 in float32 and 45.0 in float64, a normal number 6.8 and 9.5 standard
deviations.
"""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING, Final

from loopgrad.graph import ops
from loopgrad.graph.types import DType, bool_, float32, int32
from loopgrad.lazy.tensor.core import cast_value, wrap

if TYPE_CHECKING:
    from loopgrad.lazy.random.source import WordSource
    from loopgrad.lazy.tensor.tensor import Tensor

MANTISSA: Final = {"float32": 24, "float16": 11, "bfloat16": 8}


def words_of_float(dtype: DType) -> int:
    """Words of 32 bits of which a float of that dtype is made."""
    return 2 if dtype.bits == 64 else 1


def unit_interval(source: WordSource, dtype: DType) -> Tensor:
    """Floats in [0, 1), all multiples of 2**-53 (float32 2**-24, float16 2**-11, bfloat16 2**-8) alike."""
    first, *more = [word._value for word in source.words(words_of_float(dtype))]
    if dtype.bits == 64:
        upper, lower = cast_value(ops.shr(first, 5), dtype), cast_value(ops.shr(more[0], 6), dtype)
        return wrap(ops.mul(ops.add(ops.mul(upper, 2.0**26), lower), 2.0**-53))
    bits = MANTISSA[dtype.name]
    exact = ops.mul(cast_value(ops.shr(first, 32 - bits), float32), 2.0**-bits)
    return wrap(cast_value(exact, dtype))


def open_interval(source: WordSource, dtype: DType) -> Tensor:
    """float32 (also for smaller dtypes) or float64 in (0, 1], with full precision near 0."""
    first, *more = [word._value for word in source.words(words_of_float(dtype))]
    if dtype.bits == 64:
        upper, lower = cast_value(first, dtype), cast_value(more[0], dtype)
        return wrap(ops.mul(ops.add(ops.mul(upper, 2.0**32), ops.add(lower, 0.5)), 2.0**-64))
    return wrap(ops.mul(ops.add(cast_value(first, float32), 0.5), 2.0**-32))


def half_interval(source: WordSource, dtype: DType) -> tuple[Tensor, Tensor]:
    """float32 (also for smaller dtypes) or float64 in (0, 1/2], with full precision near 0, and a bool: whether the
    number meant is as far below 1."""
    first, *more = [word._value for word in source.words(words_of_float(dtype))]
    upper, rest = ops.cast(ops.shr(first, 31), bool_), ops.and_(first, 0x7FFFFFFF)
    if dtype.bits == 64:
        high, low = cast_value(rest, dtype), cast_value(more[0], dtype)
        small = ops.mul(ops.add(ops.mul(high, 2.0**32), ops.add(low, 0.5)), 2.0**-64)
    else:
        small = ops.mul(ops.add(cast_value(rest, float32), 0.5), 2.0**-32)
    return wrap(small), wrap(upper)


def turn(source: WordSource, dtype: DType) -> Tensor:
    """Angles in [-pi, pi], float32 (also for smaller dtypes) or float64."""
    first, *more = [word._value for word in source.words(words_of_float(dtype))]
    upper = cast_value(first, int32)
    if dtype.bits == 64:
        fraction = ops.mul(cast_value(more[0], dtype), 2.0**-32)
        return wrap(ops.mul(ops.add(cast_value(upper, dtype), fraction), pi * 2.0**-31))
    return wrap(ops.mul(cast_value(upper, float32), pi * 2.0**-31))
