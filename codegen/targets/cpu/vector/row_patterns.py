"""Kernels of short rows that read them in another order, or others than their own: colours of pixels, turned around or
scaled by three numbers.

    domain (N, 3):  image[3 * (N - 1 - i) + j]     scale[j]

As many lanes move together as are a multiple of a row, so each lane's place in its row is known when code is written,
and with it how far what it reads is from what the first lane reads (patterns.py). A gather takes an access for each
lane, and machines have none for elements of one or two bytes.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Final

from loopgrad.codegen.kernel.linear_index import linear
from loopgrad.codegen.kernel.nodes import Kernel

SHORT: Final = 16  # elements of a row, at most
FEW_VECTORS: Final = 4  # that hold what a vector of lanes reads
MORE: Final = 4  # times as many vectors as would move together otherwise, at most
NARROWEST: Final = 4  # lanes of a vector
TWICE: Final = 1 / 3  # of the lanes along the last two dims, at most, that the last group takes once more


def row_pattern(kernel: Kernel, width: int, groups: int) -> tuple[int, int] | None:
    """Of how many lanes are vectors, and how many of these move together, where rows are read in patterns: about as
    many as given. None where no row is."""
    domain, rank = kernel.domain, len(kernel.domain)
    row = domain[-1] if rank >= 2 else 1
    plain = not kernel.reductions and kernel.running is None and kernel.order_key is None and not kernel.stacks
    if width == 1 or not 1 < row <= SHORT or not plain or any(op.blocks for op in kernel.body.ops):
        return None
    forms = linear(kernel)
    loads = [forms[op.operands[0]] for op in kernel.body.ops if op.opcode == "load" and op.operands[0] in forms]
    patterns = [index.factors[-2:] for index in loads if index.factors[-2] != row * index.factors[-1]]
    if not patterns:
        return None
    for narrow in (width, width // 2, width // 4):
        count = _whole_rows(kernel, narrow, groups) if narrow >= min(NARROWEST, width) else None
        if count is not None and all(spread(pattern, row, narrow) <= FEW_VECTORS * narrow for pattern in patterns):
            return narrow, count
    return None


def _whole_rows(kernel: Kernel, width: int, groups: int) -> int | None:
    """How many vectors are a number of rows, of which those along the last two dims make up most of what moves
    together; None where no few are."""
    row, lanes = kernel.domain[-1], prod(kernel.domain[-2:])
    least = row // gcd(row, width)
    if least > MORE * groups:
        return None
    if len(kernel.domain) == 2:
        return max(groups // least, 1) * least
    for count in range(max(groups // least, 1) * least, 0, -least):
        flight = width * count
        if flight <= lanes and -lanes % flight <= TWICE * lanes:
            return count
    return None


def spread(pattern: tuple[int, ...], row: int, width: int) -> int:
    """Elements from the first that a vector of lanes reads to the last, roughly."""
    across, along = pattern
    return abs(across) * -(-width // row) + abs(along) * row
