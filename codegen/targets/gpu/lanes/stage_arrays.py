"""What stages hand on in memory of the workgroup: arrays with an element for each lane of its rows, or for each row.

Of rows that are a tile each, the one invocation that ends a stage's only reduction also runs the stages of single rows
that follow, whose operands it has written itself: nobody need wait for it before. On an H200 a layer norm with its
gradient takes 1.26 times as long where values of rows are in memory of the device, an argmax of rows 1.8 times.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from loopgrad.codegen.kernel.nodes import Kernel, walk
from loopgrad.codegen.targets.gpu.emit.context import Emitter, LaneArray, register_type
from loopgrad.codegen.targets.gpu.lanes.partials import GroupArray, RowArray, SideArray
from loopgrad.codegen.targets.gpu.lanes.plan import LaneMapping


class StageArrays:
    """The arrays of a kernel's stages, which are the parameters that it hasn't itself."""

    def __init__(self, e: Emitter, kernel: Kernel, plan: LaneMapping) -> None:
        assert plan.tiles is not None
        self.total, self.length = kernel.domain
        self.rows, self.size = plan.tiles.size // self.length, plan.tiles.size
        self.side = max(tiles.side for tiles in plan.stages)
        self.arrays: dict[int, GroupArray] = {}
        for number in range(len(kernel.params), len(kernel.stages[0].params)):
            param = kernel.stages[0].params[number]
            whole = -(-self.size // self.side) * self.side
            count = self.rows if param.size == self.total else whole
            self.arrays[number] = GroupArray(e, register_type(param.dtype), count)

    def of(self, stage: Kernel) -> Mapping[int, LaneArray]:
        """The arrays as this stage's lanes see them."""
        length = 1 if prod(stage.domain) == self.total else self.length
        found: dict[int, LaneArray] = {}
        for number, array in self.arrays.items():
            of_rows = stage.params[number].size == self.total
            found[number] = RowArray(array, self.rows, length) if of_rows else SideArray(array, self.size, self.side)
        return found


def barriers(kernel: Kernel, plan: LaneMapping) -> list[bool]:
    """Whether the workgroup meets after each stage."""
    assert plan.tiles is not None
    by_one = plan.tiles.size == kernel.domain[1]
    found: list[bool] = []
    others: set[int] = set()  # what other invocations than the first have written since they met
    for stage in kernel.stages:
        alone = by_one and prod(stage.domain) == kernel.domain[0]
        found.append(not alone or not others.isdisjoint(_touched(stage, "load")))
        if found[-1]:
            others = set()
        if not alone:
            others = _touched(stage, "store")
        if len(stage.reductions) > 1:
            others |= {r.param for r in stage.reductions}
    return [*found[1:], True]


def _touched(stage: Kernel, opcode: str) -> set[int]:
    return {op.attrs["param"] for op in walk(stage.body) if op.opcode == opcode}
