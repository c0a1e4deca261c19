"""How much a call of a Program computes, at most: what decides how hard LLVM tries.

Its code generator takes some 40 microseconds for an instruction to make code that is a twentieth faster than the code
that it gives for a third of the time. A program that computes for a microsecond would have to run a hundred thousand
times before that pays; calling it takes several times as long as what it computes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from math import inf, prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.kernel.ranges import Ranges
from loopgrad.codegen.program import LaunchStep, Program, SwitchStep
from loopgrad.codegen.steps import all_steps, blocks
from loopgrad.codegen.targets.cpu.features import Machine

LITTLE: Final = 6000  # instructions, about a microsecond


def computes_little(program: Program, machine: Machine) -> bool:
    """Whether a call is done at once, whatever its arguments are."""
    steps = [*all_steps(program.steps)]
    if any(blocks(step) and not isinstance(step, SwitchStep) for step in steps):
        return False  # loops of steps
    width, total = max(machine.vector_bits // 64, 1), 0.0
    for step in steps:
        if isinstance(step, LaunchStep):
            kernel = program.kernels[step.kernel]
            total += _LaunchWork(kernel, _constants(program, step)).of_all(width)
        if total > LITTLE:
            return False
    return True


def _constants(program: Program, launch: LaunchStep) -> dict[int, int]:
    """The parameters that are one known integer each: the trips of a loop that has a stack are such a one."""
    found = {}
    for param, number in enumerate(launch.slots):
        slot = program.slots[number]
        if slot.constant is not None and slot.type.size == 1 and slot.type.dtype.kind == "i":
            word = program.constants[slot.constant : slot.constant + slot.type.nbytes]
            found[param] = int.from_bytes(word, sys.byteorder, signed=True)
    return found


class _LaunchWork:
    """Of one launch of a kernel, where these parameters are known."""

    def __init__(self, kernel: Kernel, constants: Mapping[int, int]) -> None:
        self._kernel, self._constants = kernel, constants
        self._ranges = Ranges(kernel)
        self._known: dict[KValue, int] = {}

    def of_all(self, width: int) -> float:
        """Instructions of vectors of so many lanes."""
        lanes = prod(self._kernel.domain)
        return -(-lanes // width) * self._block(self._kernel.body) if lanes else 1.0

    def _block(self, block: Block) -> float:
        total = 1.0
        for op in block.ops:
            if op.opcode == "load" and op.attrs["param"] in self._constants:
                self._known[op.results[0]] = self._constants[op.attrs["param"]]
            floats = bool(op.operands) and op.operands[0].dtype.is_float
            total += OPCODES[op.opcode].weight if floats else 1
            total += self._trips(op) * sum([self._block(inner) for inner in op.blocks])
        return total

    def _trips(self, op: KOp) -> float:
        if op.opcode == "for":
            count = op.operands[0]
            return max(self._known.get(count, self._ranges.of(count)[1]), 0)
        return op.attrs.get("max_steps") or inf if op.opcode == "while" else 1
