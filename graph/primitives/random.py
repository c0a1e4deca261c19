"""Random bits: `philox`, which has no state. It gives a word of the block that belongs to a counter and a key.

Philox-4x32-10 and Philox-4x64-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011):
ten rounds on four words, each of them two widening products by constants and four exclusive ors.

Operands (c0, c1, c2, c3, k0, k1, word), all uint32 or all uint64: the counter, lowest word first, the key, and which of
the four words of the block is wanted (`word` modulo 4).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Kind,
    Primitive,
    Types,
    always_exact,
    dtype_error,
    same_axes,
    shape_error,
    table,
    tensor_type,
    types_text,
)

ROUNDS: Final = 10
FEW: Final = (
    16  # elements for which Python's integers take less time than arrays, of which each step takes as long as one
)


class PhiloxConstants(NamedTuple):
    """By which words 0 and 2 of the counter are multiplied, and what is added to the words of the key each round."""

    factors: tuple[int, int]
    steps: tuple[int, int]


CONSTANTS: Final = {
    32: PhiloxConstants((0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)),
    64: PhiloxConstants((0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)),
}
"""By the bits of a word."""


def _infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    types = [tensor_type("philox", v) for v in operands]
    first = types[0]
    if any(t.dtype is not first.dtype for t in types) or first.dtype.kind != "u" or first.dtype.bits not in CONSTANTS:
        raise dtype_error("philox", "operands of uint32, or of uint64", types_text(operands), "cast them first")
    if any(t.shape != first.shape for t in types):
        raise shape_error("philox", "operands of one shape", types_text(operands), "broadcast them first")
    return (first,)


def _product(x: Array, factor: int) -> tuple[Array, Array]:
    """The upper and the lower half of x times a constant."""
    bits = 8 * x.dtype.itemsize
    if bits == 32:
        wide = x.astype(np.uint64) * np.uint64(factor)
        return (wide >> np.uint64(32)).astype(np.uint32), wide.astype(np.uint32)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b = np.uint64(factor >> 32), np.uint64(factor & 0xFFFFFFFF)
    c, d = x >> half, x & low
    middle = b * c + (b * d >> half)
    second = a * d + (middle & low)
    return a * c + (middle >> half) + (second >> half), x * np.uint64(factor)


def _block_of_integers(bits: int, c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """The same of one counter and one key."""
    (first, second), (step, other) = CONSTANTS[bits]
    mask = (1 << bits) - 1
    for _ in range(ROUNDS):
        one, two = c0 * first, c2 * second
        c0, c1, c2, c3 = two >> bits ^ c1 ^ k0, two & mask, one >> bits ^ c3 ^ k1, one & mask
        k0, k1 = k0 + step & mask, k1 + other & mask
    return c0, c1, c2, c3


def block(counter: list[Array], key: list[Array]) -> list[Array]:
    """The four words of a counter and a key, arrays of uint32 or uint64."""
    bits = 8 * counter[0].dtype.itemsize
    if 0 < counter[0].size <= FEW:
        rows = zip(*[x.ravel().tolist() for x in (*counter, *key)], strict=True)
        words = zip(*[_block_of_integers(bits, *row) for row in rows], strict=True)
        return [np.array(each, counter[0].dtype).reshape(counter[0].shape) for each in words]
    (first, second), steps = CONSTANTS[bits]
    c0, c1, c2, c3 = counter
    with np.errstate(over="ignore"):
        for i in range(ROUNDS):
            k0, k1 = (k + k.dtype.type(step * i % (1 << bits)) for k, step in zip(key, steps, strict=True))
            (high, low), (upper, lower) = _product(c0, first), _product(c2, second)
            c0, c1, c2, c3 = upper ^ c1 ^ k0, lower, high ^ c3 ^ k1, low
    return [c0, c1, c2, c3]


def _reference(attrs: Attrs, *arrays: Array) -> tuple[Array]:
    *counter, k0, k1, word = arrays
    return (np.asarray(np.choose((word & word.dtype.type(3)).astype(np.intp), block(counter, [k0, k1]))),)


_TRAITS: Final[dict[str, Any]] = {"not_differentiable": "integers only", "cost": 40.0, "weight": 100}

ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="philox", kind=Kind.ELEMENTWISE, kinds="u", infer=_infer, public=None, reference=_reference,
        axes=same_axes, exact=always_exact, **_TRAITS,
    ),
)  # fmt: skip
