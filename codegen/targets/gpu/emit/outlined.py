"""Which math recipes are functions: those that a kernel uses so often that copies of them would be most of its code.

LLVM's time, and ptxas', grows faster than the length of a kernel, and so do the registers that it finds no use for. A
call costs about as much as a short recipe, so those of ordinary kernels are copies.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, walk
from loopgrad.codegen.math.table import RECIPES, outlined_part

MOST_COPIES: Final = 64


def crowded(kernel: Kernel) -> frozenset[tuple[str, str]]:
    """(part of a recipe, type of its operands in registers)."""
    uses: Counter[tuple[str, str]] = Counter()
    for op in walk(kernel.body):
        if op.opcode in RECIPES and op.operands[0].dtype.is_float:
            type = "f64" if op.operands[0].dtype.bits == 64 else "f32"  # halves compute in f32
            uses[outlined_part(op.opcode), type] += 1
    return frozenset([key for key, count in uses.items() if count > MOST_COPIES])
