"""Which products of float32 libraries are slow at, by shape alone: who schedules, plans and calls asks here."""

from __future__ import annotations

from typing import Final

FEWEST: Final = 8  # rows, columns and terms: of fewer there are other ways
THIN: Final = 64  # terms, and rows or columns, of a thin product
LONG: Final = 1 << 15  # its other side
SHORT: Final = 32  # terms of a short product
MANY_RESULTS: Final = 1 << 22  # its results
DEEP: Final = 1 << 15  # terms of a deep product
FEW: Final = 64  # its rows, and columns
FEW_SUMS: Final = 1 << 10  # both together
SLICE: Final = 256  # terms of one of its slices, at least
ALL_RESULTS: Final = 1 << 19  # of all slices


def thin_product(m: int, k: int, n: int) -> bool:
    """Whether it has few terms, and few rows of many columns or few columns of many rows, so that it takes as long as
    its long operand is read and its result written: rectangles of workgroups do that, and go on with the elements in
    registers. 2^20 x 16 x 16 takes 49 us on an H200 so, 79 by cuBLAS; 2^19 x 16 x 64 57 and 80, 2^18 x 32 x 32 with
    what follows it 47 and 68."""
    return min(m, k, n) >= FEWEST and max(k, min(m, n)) <= THIN and max(m, n) >= LONG


def short_product(m: int, k: int, n: int) -> bool:
    """Whether it has few terms and so many results that it takes as long as these are written, and what follows it
    would take as long again if it weren't done in registers: 4,096 x 32 x 4,096 and what follows take 88 us on an H200
    by rectangles of workgroups, 106 by cuBLAS and another launch, 4,096 x 8 x 4,096 58 and 76."""
    return FEWEST <= k <= SHORT and min(m, n) >= FEWEST and m * n >= MANY_RESULTS


def deep_product(batch: int, m: int, k: int, n: int) -> bool:
    """Whether it has few rows and columns and very many terms, whole or in slices (schedule.deep_products). Both
    derivatives of 2^20 x 16 times 16 x 16 take 123 us on an H200 so, 279 by cuBLAS; 32 x 2^18 x 24 takes 45 and 68, but
    64 x 2^18 x 64 150 and 88. Of coupled flows, two of 64 x 2^15 x 16 and two of 8 x 2^15 x 64, all derivatives take
    154 us on an H100 so, 181 by cuBLAS."""
    few = max(m, n) <= FEW and min(m, n) >= FEWEST and m * n <= FEW_SUMS and batch * m * n <= ALL_RESULTS
    return few and k >= SLICE and batch * k >= DEEP
