"""For how many registers a kernel is compiled where a recipe says so.

Elementwise kernels wait for memory, and more lanes in flight hide that. A compiler that may choose takes registers to
run the lanes of an invocation side by side; the bounds beside the recipes are those that were fastest when measured.
Not always by fewer registers: `log1p` takes 40 unbound and 46 with its bound of 48, in another order that is faster.
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, KOp
from loopgrad.codegen.math.table import RECIPES, REGISTERS
from loopgrad.codegen.targets.gpu.lanes.analysis import straight, weight, weight_of
from loopgrad.codegen.targets.gpu.lanes.plan import LaneMapping

MOST_BESIDE: Final = 2  # times the weight of the recipe: what a lane may be, that it keeps few values beside it


def recipe_registers(kernel: Kernel, plan: LaneMapping) -> int:
    """Of 32 bits; 0: as many as the compiler likes. Not of kernels whose invocations meet, or go on after one another
    with what they keep."""
    tiles = plan.tiles
    alone = (tiles is None or tiles.streamed) and plan == LaneMapping(group=plan.group, tiles=tiles)
    if not alone or not straight(kernel) or kernel.reductions:
        return 0
    recipes = [op for op in kernel.body.ops if op.opcode in RECIPES and op.operands[0].dtype.is_float]
    if not recipes or any(v.dtype.is_float and v.dtype.bits < 32 for op in recipes for v in op.operands):
        return 0
    heaviest = max(recipes, key=_size)
    if weight(kernel) > MOST_BESIDE * _size(heaviest)[0]:
        return 0
    return REGISTERS.get(heaviest.opcode, {}).get(heaviest.operands[0].dtype.bits, 0)


def _size(op: KOp) -> tuple[int, int]:
    """Wider ones are heavier among those that are as long, and then those that have a bound."""
    bits = op.operands[0].dtype.bits
    return weight_of([op]), REGISTERS.get(op.opcode, {}).get(bits, 0) + bits
