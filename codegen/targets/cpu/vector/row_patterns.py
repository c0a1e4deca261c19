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

SHORT: Final = 8  # elements of a row, at most
FEW_VECTORS: Final = 4  # that hold what a vector of lanes reads
MANY_ROWS: Final = 8  # times as many lanes as move together, along the last two dims


def pattern_groups(kernel: Kernel, width: int, groups: int) -> int:
    """How many vectors of lanes move together where rows are read in patterns, about so many; 0 where none is."""
    domain, rank = kernel.domain, len(kernel.domain)
    row = domain[-1] if rank >= 2 else 1
    plain = not kernel.reductions and kernel.running is None and kernel.order_key is None and not kernel.stacks
    if width == 1 or not 1 < row <= SHORT or not plain or any(op.blocks for op in kernel.body.ops):
        return 0
    least = row // gcd(row, width)
    found = max(groups // least, 1) * least
    if rank > 2 and prod(domain[-2:]) < MANY_ROWS * width * found:
        return 0
    forms = linear(kernel)
    loads = [forms[op.operands[0]] for op in kernel.body.ops if op.opcode == "load" and op.operands[0] in forms]
    patterns = [index.factors[-2:] for index in loads if index.factors[-2] != row * index.factors[-1]]
    near = [spread(pattern, row, width) <= FEW_VECTORS * width for pattern in patterns]
    return found if near and all(near) else 0


def spread(pattern: tuple[int, ...], row: int, width: int) -> int:
    """Elements from the first that a vector of lanes reads to the last, roughly."""
    across, along = pattern
    return abs(across) * -(-width // row) + abs(along) * row
