"""What an executable knows from its runs: capacities of stacks, depths, how often a stack grew.

Machines of one executable share it, under the device's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from loopgrad.runtime.vulkan.failures import capacity_failure, check_failure, needs, truncated, truncation
from loopgrad.runtime.vulkan.memory import Bytes
from loopgrad.runtime.vulkan.program import ProgramRecord

ROOM_ELEMENTS: Final = 1 << 20  # above this a stack grows to the exact need


class Learned:
    """`capacities[k][s]` in rows; `depths[k][s]` what the last run needed, None before one did."""

    def __init__(self, program: ProgramRecord, forced: int | None, device: str) -> None:
        self.program = program
        self.forced = forced
        self.device = device
        self.capacities = [[forced or 0 for _ in kernel.stacks] for kernel in program.kernels]
        self.depths: list[list[int | None]] = [[None for _ in kernel.stacks] for kernel in program.kernels]
        self.ran = False
        self.growths = 0

    def know(self, k: int, s: int, depth: int) -> None:
        """A depth that was computed before the launch."""
        self.depths[k][s] = max(depth, 0)
        if self.forced is None:
            self.capacities[k][s] = max(self.capacities[k][s], depth)

    def settle(self, words: Bytes, launched: Iterable[int], places: Sequence[int], support: int) -> bool:
        """Whether a stack must grow (it has grown here); raises what the control blocks report."""
        if truncated(words[support:]):
            raise truncation(None, self.device)
        grew = False
        for k in launched:
            kernel, control = self.program.kernels[k], words[places[k] :]
            if truncated(control):
                raise truncation(kernel, self.device)
            for s, needed in needs(control, kernel, self.capacities[k]).items():
                if self.forced is not None:
                    raise capacity_failure(control, kernel, s, needed, self.forced)
                roomy = needed + needed // 4
                self.capacities[k][s] = roomy if roomy * kernel.lanes < ROOM_ELEMENTS else needed
                self.depths[k][s] = needed
                grew = True
        if grew:
            self.growths += 1
            return True
        for k in launched:
            failure = check_failure(words[places[k] :], self.program.kernels[k])
            if failure is not None:
                raise failure
        return False

    def forget(self) -> None:
        """Start small again, after memory was refused."""
        for rows in self.capacities:
            rows[:] = [self.forced or 0] * len(rows)
        self.ran = False
