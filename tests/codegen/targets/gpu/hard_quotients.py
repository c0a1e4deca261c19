"""Quotients that are hard to round, next to the middle between two numbers, and what is done with them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from loopgrad.codegen.targets.gpu.assembler import Assembler, Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.shared_branches import LaneOps, Lanes
from tests.codegen.targets.cpu.kernel_build import Build

PRECISION = {np.float32: 24, np.float64: 53}
BITS = {np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}


def near_middle(dtype: type, divisors: Iterable[int], distance: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """All x and y of which 2**s x = (2 m + 1) y + k for a small k, for the odd whole numbers y."""
    bits = PRECISION[dtype]
    pairs = []
    for y in divisors:
        for shift in (bits, bits + 1):
            inverse = pow(y, -1, 1 << shift)
            for k in range(-distance, distance + 1, 2):
                middle = -k * inverse % (1 << shift)
                x = (middle * y + k) >> shift
                if middle >> bits and x.bit_length() == bits:
                    pairs.append((x, y))
    x, y = np.array(pairs, np.uint64).T.astype(dtype)
    return x, y


def nearly_ones(dtype: type, most: int) -> range:
    """The largest odd whole numbers that fill a mantissa: 1/y is next to the middle between two numbers."""
    last = (1 << PRECISION[dtype]) - 1
    return range(last, last - 2 * most, -2)


def any_divisors(dtype: type, count: int) -> list[int]:
    half = 1 << (PRECISION[dtype] - 1)
    found = np.random.default_rng(0).integers(half, 2 * half, count, dtype=np.uint64) | np.uint64(1)
    return [int(y) for y in found]


def differing(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where the bits differ; one NaN is as good as another."""
    bits = BITS[wanted.dtype]
    return np.flatnonzero((got.view(bits) != wanted.view(bits)) & ~(np.isnan(got) & np.isnan(wanted)))


def divided_at_once(i: int, b: Assembler, x: Val, y: Val) -> Val:
    """Element i of x/y and y/x as two lanes of one invocation."""
    lanes = LaneOps(Emitter(Build(1).kernel("empty"), b), 2)
    return lanes.div(Lanes((x, y)), Lanes((y, x))).values[i]
