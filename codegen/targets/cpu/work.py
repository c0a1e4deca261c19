"""How much a call of a Program computes, at most: what decides how hard LLVM tries.

Its code generator takes some 40 microseconds for an instruction to make code that is a twentieth faster than the code
that it gives for a third of the time. A program that computes for a microsecond would have to run a hundred thousand
times before that pays; calling it takes several times as long as what it computes.
"""

from __future__ import annotations

from math import inf, prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, Kernel
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
    width = max(machine.vector_bits // 64, 1)
    total, works = 0.0, [0.0] * len(program.kernels)
    for step in steps:
        if isinstance(step, LaunchStep):
            works[step.kernel] = works[step.kernel] or _kernel(program.kernels[step.kernel], width)
            total += works[step.kernel]
        if total > LITTLE:
            return False
    return True


def _kernel(kernel: Kernel, width: int) -> float:
    """Instructions of vectors of so many lanes."""
    lanes = prod(kernel.domain)
    return -(-lanes // width) * _block(kernel.body, Ranges(kernel)) if lanes else 1.0


def _block(block: Block, ranges: Ranges) -> float:
    total = 1.0
    for op in block.ops:
        floats = bool(op.operands) and op.operands[0].dtype.is_float
        total += OPCODES[op.opcode].weight if floats else 1
        inside = sum([_block(inner, ranges) for inner in op.blocks])
        if op.opcode == "for":
            inside *= max(ranges.of(op.operands[0])[1], 0)
        elif op.opcode == "while":
            inside *= op.attrs.get("max_steps") or inf
        total += inside
    return total
