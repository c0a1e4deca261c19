"""The order of sorted elements as that of unsigned integers: NaN after everything, -0.0 equal to 0.0.

Enters: the bits of an element as an unsigned integer, in 32 bits or more. Leaves: an integer of as many bits that is
below another's exactly where NumPy's stable sort puts the element first. Elements that are equal to a sort (zeros of
either sign, any two NaN) have the same.
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.scalar.ops import Ops, V
from loopgrad.graph.types import DType

EXPONENT_BITS: Final = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}


def ordered(m: Ops[V], bits: V, dtype: DType) -> V:
    """The integer, in the width of `bits`."""
    if dtype.kind in "bu":
        return bits
    top, every = 1 << (dtype.bits - 1), (1 << dtype.bits) - 1
    sign = m.integer(bits, top)
    if dtype.kind == "i":
        return m.ixor(bits, sign)
    digits = dtype.bits - 1 - EXPONENT_BITS[dtype.name]
    infinity = (top - 1) >> digits << digits
    size = m.iand(bits, m.integer(bits, top - 1))
    negative = m.test("INotEqual", m.iand(bits, sign), m.integer(bits, 0))
    key = m.select(negative, m.isub(sign, size), m.ior(bits, sign))  # -0.0 is 0.0
    return m.select(m.test("UGreaterThan", size, m.integer(bits, infinity)), m.integer(bits, every), key)


def unordered(m: Ops[V], key: V, dtype: DType) -> V:
    """The bits of an element that has this integer, of zeros those of the positive one."""
    if dtype.kind in "bu":
        return key
    sign = m.integer(key, 1 << (dtype.bits - 1))
    moved = m.ixor(key, sign)
    if dtype.kind == "i":
        return moved
    positive = m.test("INotEqual", m.iand(key, sign), m.integer(key, 0))
    return m.select(positive, moved, m.ior(m.isub(sign, key), sign))


def last_bits(dtype: DType) -> int:
    """The bits of an element that no other comes after: the largest integer, or NaN."""
    return (1 << (dtype.bits if dtype.kind in "bu" else dtype.bits - 1)) - 1


def first_bits(dtype: DType) -> int:
    """The bits of an element that comes before no other: the smallest integer, or the negative infinity."""
    if dtype.kind in "bu":
        return 0
    top = 1 << (dtype.bits - 1)
    if dtype.kind == "i":
        return top
    digits = dtype.bits - 1 - EXPONENT_BITS[dtype.name]
    return top | ((top - 1) >> digits << digits)
