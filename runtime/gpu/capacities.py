"""How deep the stacks of a program are, and how they grow: what an executable learns from its runs.

Contexts of one executable share it, under the device's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from loopgrad.codegen.targets.gpu.interface import MOST_ROWS
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.runtime.gpu.failures import capacity_failure, check_failure, needs, truncated, truncation
from loopgrad.runtime.gpu.memory import Bytes

ROOM_BYTES: Final = 1 << 28  # above this a stack grows to the exact need


class Capacities:
    """`kernels[k][s]`: rows of stack s in kernel k; `tensors[s]`: rows of stack s of whole tensors, in recordings.
    `forced`: the rows that options demand, which never grow. `residents[k]`: the lanes in flight of a kernel with
    stacks that were chosen last, 0 before. `ran`: the program ran, so that these are known; `growths`: how often
    they were too small."""

    def __init__(self, program: ProgramRecord, forced: int | None, device: str) -> None:
        self.program = program
        self.forced = forced
        self.device = device
        self.kernels = [[forced or 0 for _ in kernel.stacks] for kernel in program.kernels]
        self.residents = [0 for _ in program.kernels]
        self.tensors = [0 for _ in program.stacks]
        self.version = 0  # of `kernels`
        self.ran = False
        self.growths = 0

    def know(self, k: int, s: int, depth: int) -> None:
        """A depth that was computed before the launch."""
        if self.forced is None and depth > self.kernels[k][s]:
            self.kernels[k][s] = depth
            self.version += 1

    def know_tensors(self, peaks: Sequence[int]) -> None:
        """How deep stacks of whole tensors became."""
        self.tensors = [max(known, peak) for known, peak in zip(self.tensors, peaks, strict=True)]

    def grow_tensors(self, s: int, needed: int, size: int, counts: bool) -> None:
        """A stack of whole tensors was too small. `counts`: nothing else grew in that run."""
        self.tensors[s] = roomy(needed, size)
        self.growths += counts

    def settle(self, words: Bytes, launched: Iterable[int], places: Sequence[int], support: int) -> bool:
        """Whether a stack must grow (it has grown here); raises what the control blocks report."""
        if truncated(words[support:]):
            raise truncation(None, self.device)
        grew = False
        for k in launched:
            kernel, control = self.program.kernels[k], words[places[k] :]
            if truncated(control):
                raise truncation(kernel, self.device)
            for s, needed in needs(control, kernel, self.kernels[k]).items():
                if self.forced is not None:
                    raise capacity_failure(control, kernel, s, needed, self.forced)
                self.kernels[k][s] = roomy(needed, (self.residents[k] or kernel.lanes) * kernel.stacks[s].itemsize)
                grew = True
        if grew:
            self.growths += 1
            self.version += 1
            return True
        for k in launched:
            failure = check_failure(words[places[k] :], self.program.kernels[k])
            if failure is not None:
                raise failure
        return False

    def forget(self) -> None:
        """Start small again, after memory was refused."""
        for rows in self.kernels:
            rows[:] = [self.forced or 0] * len(rows)
        self.tensors = [0] * len(self.tensors)
        self.version += 1
        self.ran = False


def roomy(needed: int, row_bytes: int) -> int:
    """The rows of a stack that was too small: a quarter more than it needed, so that trip counts which creep up
    don't make it grow every time."""
    more = needed + needed // 4
    return more if more <= MOST_ROWS and more * row_bytes < ROOM_BYTES else needed
