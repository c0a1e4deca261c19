"""Arrays of another dtype, as the primitive `cast` makes them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from loopgrad.graph.primitives.primitive import Array
from loopgrad.graph.types import DType, bfloat16


def cast_array(x: Array, dtype: DType) -> Array:
    """`cast` on an array."""
    if dtype.kind == "b":
        return np.asarray(x != 0)
    if x.dtype.kind in "biu" and dtype is not bfloat16 and dtype.bits > 16:  # which can't overflow
        return x.astype(dtype.np)
    if not (dtype.is_integer and x.dtype.kind not in "biu"):
        with np.errstate(all="ignore"):
            return (_bfloat16_source(x) if dtype is bfloat16 else x).astype(dtype.np)
    whole = np.trunc(x.astype(np.float64, copy=False))
    least, most = _integer_limits(dtype.np)
    low, high = float(least), float(most + 1)  # both are powers of two: exact
    inside = (whole >= low) & (whole < high)
    if inside.all():
        return np.asarray(whole.astype(dtype.np))
    result = np.where(inside, whole, 0.0).astype(dtype.np)
    result = np.where(whole >= high, dtype.np.type(most), result)
    return np.asarray(np.where(whole < low, dtype.np.type(least), result))


@cache
def _integer_limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _bfloat16_source(x: Array) -> Array:
    """What ml_dtypes, which makes a float32 first, makes bfloat16 of with one rounding: rounded toward zero to float32,
    and made odd where that isn't exact (Boldo and Melquiond, When double rounding is odd, 2004)."""
    if x.dtype.itemsize < 4 or x.dtype == np.float32:
        return x
    exact = x.astype(np.float64)
    near = exact.astype(np.float32)
    bits = near.view(np.int32) - (np.abs(exact) < np.abs(near))
    return np.asarray(bits | ((near != exact) & ~np.isnan(exact))).view(np.float32)
