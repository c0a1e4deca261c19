"""Where everything that a program works on is found: symbols, the arena, control blocks, the state of recorded loops.

Owns nothing that changes: a context makes one Placement, and all its executions read it. A symbol is a number whose
64-bit value (an address, a capacity) tables of launches list; Bindings holds the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from loopgrad.codegen.program import ProgramStack
from loopgrad.codegen.targets.gpu.interface import KernelInterface, control_bytes
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.runtime.gpu.driver import Driver, Shared
from loopgrad.runtime.gpu.memory import Bytes
from loopgrad.runtime.gpu.state_layout import StateLayout

ALIGNMENT: Final = 256
CONTROL: Final = 64  # control blocks are aligned to this
ZERO, VOID, SUPPORT, SPARE, SLOTS = 0, 1, 2, 3, 4  # symbols; those of the slots begin at SLOTS


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    return -(-size // alignment) * alignment


def row_bytes(stack: ProgramStack) -> int:
    """From one row of a stack of whole tensors to the next."""
    return aligned(max(stack.element.nbytes, 1))


@dataclass(frozen=True, slots=True)
class KernelSymbols:
    """Of one kernel: its control block, the invocations in flight, scratch blocks, then per stack its address and
    capacity."""

    control: int
    scratch: int  # the first one's
    stacks: int  # the first one's

    @property
    def resident(self) -> int:
        return self.control + 1


@dataclass(frozen=True, slots=True)
class Placement:
    # symbols
    kernels: tuple[KernelSymbols, ...]
    tops: int  # where the next row of the first stack of whole tensors begins, in recordings
    count: int
    # the arena: symbols and their offsets there; slots with memory of their own (and its size) lie elsewhere
    arena_size: int
    offsets: tuple[tuple[int, int], ...]
    own: tuple[tuple[int, int], ...]
    constants: tuple[int, ...]
    # words that the host and the device share: control blocks, then the state of recorded loops, if there is one
    shared: Shared
    control: Bytes  # the bytes of the control blocks on the host
    control_at: tuple[int, ...]  # offset of each kernel's block
    state: StateLayout | None

    @property
    def state_address(self) -> int:
        return self.shared.address + self.control.nbytes


def place(driver: Driver, program: ProgramRecord, device_decided: bool) -> Placement:
    """`device_decided`: the device may decide on the program's loops and branches, and has a state for it."""
    kernels, tops = _kernel_symbols(program)
    count = tops + len(program.stacks)
    control_at, control_size = _control_blocks(program.kernels)
    state = StateLayout(program.steps, len(program.stacks), count) if device_decided else None
    shared = driver.shared(control_size // 8 + (0 if state is None else state.size))
    constants = tuple([i for i, slot in enumerate(program.slots) if slot.constant is not None])
    placed = {*constants, *program.inputs, *program.arena.slots}
    scratch = [
        (symbols.scratch + i, offset)
        for blocks, symbols in zip(program.arena.scratch, kernels, strict=True)
        for i, offset in enumerate(blocks)
    ]
    return Placement(
        kernels=kernels,
        tops=tops,
        count=count,
        arena_size=program.arena.size,
        offsets=(*[(SLOTS + slot, offset) for slot, offset in program.arena.slots.items()], *scratch),
        own=tuple(
            [
                (i, 0 if i in program.rows else slot.type.nbytes)
                for i, slot in enumerate(program.slots)
                if i not in placed
            ]
        ),
        constants=constants,
        shared=shared,
        control=shared.words.view(np.uint8)[:control_size],
        control_at=control_at,
        state=state,
    )


def _kernel_symbols(program: ProgramRecord) -> tuple[tuple[KernelSymbols, ...], int]:
    """Of every kernel, and the number of the symbol after them."""
    found, position = [], SLOTS + len(program.slots)
    for kernel in program.kernels:
        scratch = position + 2
        stacks = scratch + len(kernel.scratch)
        found.append(KernelSymbols(position, scratch, stacks))
        position = stacks + 2 * len(kernel.stacks)
    return tuple(found), position


def _control_blocks(kernels: tuple[KernelInterface, ...]) -> tuple[tuple[int, ...], int]:
    """Each kernel's offset, and the size of all; before them the word `void` and the support kernels' block."""
    places, size = [], 2 * CONTROL
    for kernel in kernels:
        places.append(size)
        size += aligned(control_bytes(len(kernel.stacks)), CONTROL)
    return tuple(places), size
