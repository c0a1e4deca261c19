"""Reference semantics of a Program, in NumPy: steps in order, kernels by the kernel interpreter.

Enter: a Program and one array per input. Leave: one array per output. No LLVM is involved: this checks
scheduling and lowering alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.program import (
    CopyStep,
    ForStep,
    LaunchStep,
    MatmulStep,
    PopStep,
    Program,
    PushStep,
    RoutineStep,
    Step,
    SwitchStep,
    WhileStep,
)
from loopgrad.graph.errors import LoopLimitError
from loopgrad.graph.primitives import REFERENCE

Array = np.ndarray[Any, np.dtype[Any]]


class _ProgramInterpreter:
    """`memory[slot]` is the array that the slot points at."""

    def __init__(self, program: Program, inputs: Sequence[Any]) -> None:
        self.program = program
        self.memory: list[Array] = []
        for slot in program.slots:
            type = slot.type
            if slot.constant is not None:
                data = np.frombuffer(program.constants, type.dtype.np, type.size, slot.constant).copy()
                data = data.reshape(type.shape)
            else:
                data = np.empty(type.shape, type.dtype.np)
                data.view(np.uint8).fill(0xAB) if data.ndim and data.size else None
            self.memory.append(data)
        for slot_number, array in zip(program.inputs, inputs, strict=True):
            self.memory[slot_number] = np.array(array, order="C")
        self.stacks: list[list[Array]] = [[] for _ in program.stacks]

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        memory = self.memory
        match step:
            case LaunchStep():
                self.launch(step)
            case CopyStep():
                memory[step.target].reshape(-1)[:] = memory[step.source].reshape(-1)
            case MatmulStep():
                self.matmul(step)
            case RoutineStep():
                self.call(step)
            case PushStep():
                memory[step.slot] = row = memory[step.slot].copy() if step.in_place else memory[step.slot]
                self.stacks[step.stack].append(row if step.in_place else row.copy())
            case PopStep():
                memory[step.slot] = self.stacks[step.stack].pop()
            case ForStep():
                count = int(memory[step.count].item())
                for k in reversed(range(count)) if step.reverse else range(count):
                    memory[step.index].reshape(-1)[:] = k
                    self.run(step.body)
                    self.rotate(step.rotate)
            case WhileStep():
                self.loop(step)
            case SwitchStep():
                index = min(max(int(memory[step.index].item()), 0), len(step.branches) - 1)
                self.run(step.branches[index])

    def loop(self, step: WhileStep) -> None:
        trips = 0
        while True:
            self.run(step.condition)
            if not self.memory[step.pred].item():
                return
            if step.max_steps is not None and trips >= step.max_steps:
                raise LoopLimitError(step.max_steps, step.loc)
            self.run(step.body)
            self.rotate(step.rotate)
            trips += 1

    def rotate(self, pairs: Sequence[tuple[int, int]]) -> None:
        memory = self.memory
        for a, b in pairs:
            memory[a], memory[b] = memory[b], memory[a]

    def launch(self, step: LaunchStep) -> None:
        kernel = self.program.kernels[step.kernel]
        for position, initial in step.initials:
            target = self.memory[step.slots[position]].reshape(-1)
            target[:] = initial.value if initial.source is None else self.memory[initial.source].reshape(-1)
        arrays = [self.memory[slot].reshape(-1) for slot in step.slots]
        typed = [a.view(p.dtype.np) if a.dtype != p.dtype.np else a for a, p in zip(arrays, kernel.params, strict=True)]
        interpret_kernel(kernel, typed)

    def matmul(self, step: MatmulStep) -> None:
        batch = (step.batch,)
        left = (step.k, step.m) if step.transpose_left else (step.m, step.k)
        right = (step.n, step.k) if step.transpose_right else (step.k, step.n)
        a = self.memory[step.left].reshape(batch + left)
        b = self.memory[step.right].reshape(batch + right)
        a = a.swapaxes(1, 2) if step.transpose_left else a
        b = b.swapaxes(1, 2) if step.transpose_right else b
        given, dtype = (self.program.slots[slot].type.dtype for slot in (step.left, step.out))
        (product,) = REFERENCE["matmul"]({} if given is dtype else {"dtype": dtype}, a, b)
        self.memory[step.out].reshape(-1)[:] = product.reshape(-1)
        if step.epilogue is not None:
            self.launch(step.epilogue)

    def call(self, step: RoutineStep) -> None:
        results = REFERENCE[step.name](dict(step.attrs), *[self.memory[i] for i in step.inputs])
        for slot, result in zip(step.outputs, results, strict=True):
            self.memory[slot].reshape(-1)[:] = np.asarray(result).reshape(-1)


def interpret_program(program: Program, inputs: Sequence[Any]) -> list[Array]:
    """The outputs of `program` for these inputs."""
    machine = _ProgramInterpreter(program, inputs)
    machine.run(program.steps)
    return [machine.memory[slot].reshape(program.slots[slot].type.shape).copy() for slot in program.outputs]
