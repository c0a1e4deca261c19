"""A code object, loaded: its kernels' records, and what their descriptors ask of a launch.

LLVM, "User Guide for AMDGPU Backend", Kernel Descriptor and Initial Kernel Execution State.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from loopgrad.codegen.targets.amdgpu import elf
from loopgrad.codegen.targets.amdgpu.notes import kernel_notes, note
from tests.emulator import layout
from tests.emulator.decode import decode
from tests.emulator.disassembler import EmulatorError, disassemble
from tests.emulator.layout import Inst, Range

DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")  # sizes of group, private, arguments; entry; resources 3, 1, 2; bits
USER_REGISTERS = ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1))  # bit of the properties, registers
ARGUMENTS_BIT = 3
WAVE32 = 1 << 10
NOWHERE = 124  # a scalar register that keeps nothing
WORDS = 6


@dataclass(frozen=True)
class Kernel:
    """`place`: of the arguments' address and of the workgroup's number among scalar registers."""

    name: str
    records: ctypes.Array[Inst]
    lanes: int
    group: int
    group_bytes: int
    private_bytes: int
    arguments_place: int
    group_place: int
    mode: int
    older: bool

    def launch(
        self, groups: int, arguments: int, ranges: Sequence[tuple[int, int]], error: int = layout.ANY_ERROR
    ) -> int:
        """Runs it; instructions of waves that ran. `ranges`: what may be touched, sorted, as (first, end). `error`: of
        approximate instructions, -1, 0 or 1 of what is documented."""
        c = layout.library()
        table = (Range * len(ranges))(*ranges)
        launch = layout.Launch(
            code=ctypes.addressof(self.records), count=len(self.records), entry=0, lanes=self.lanes,
            group=self.group, groups=groups, group_bytes=self.group_bytes, private_bytes=self.private_bytes,
            group_id_register=self.group_place, argument_register=self.arguments_place, arguments=arguments,
            mode=self.mode, zeroes_high_half=self.older, ranges=ctypes.addressof(table), range_count=len(ranges),
            error=error,
        )  # fmt: skip
        if c.run_launch(ctypes.byref(launch)):
            raise EmulatorError(f"kernel {self.name}: {launch.message.decode()}")
        return int(launch.steps)


class CodeObject:
    """Implements what an image is to the emulator's driver."""

    def __init__(self, data: bytes) -> None:
        self.file = elf.read(data)
        self.notes = kernel_notes(self.file)
        target = str(note(self.file)["amdhsa.target"])
        self.processor = target.rpartition("--")[2].partition(":")[0]
        self.kernels: dict[str, Kernel] = {}

    def kernel(self, name: str) -> Kernel:
        if name not in self.kernels:
            self.kernels[name] = self._load(name)
        return self.kernels[name]

    def code(self, name: str) -> tuple[int, bytes]:
        """A function's address and bytes."""
        symbol = next(s for s in self.file.symbols if s.name == name)
        section = self.file.sections[symbol.section]
        first = symbol.value - section.address
        return symbol.value, section.content[first : first + symbol.size]

    def _load(self, name: str) -> Kernel:
        symbol = next(s for s in self.file.dynamic if s.name == f"{name}.kd")
        section = self.file.sections[symbol.section]
        row = DESCRIPTOR.unpack_from(section.content, symbol.value - section.address)
        group_bytes, private_bytes, _, entry, _, first, second, properties, preload = row
        address, code = self.code(name)
        if symbol.value + entry != address:
            raise EmulatorError(f"expected the entry {address:#x} of {name}, got {symbol.value + entry:#x}")
        if preload:
            raise EmulatorError(f"kernel {name}: arguments in registers from the start")
        older = not self.processor.startswith(("gfx10", "gfx11"))
        place, arguments_place = 0, -1
        for bit, count in USER_REGISTERS:
            if properties >> bit & 1:
                arguments_place = place if bit == ARGUMENTS_BIT else arguments_place
                place += count
        if second >> 8 & 3 or arguments_place < 0:
            raise EmulatorError(f"kernel {name}: expected arguments, and numbers of workgroups in one dimension")
        group_place = second >> 1 & 0x1F if second >> 7 & 1 else NOWHERE
        mode = (first >> 12 & 0xFF) | (first >> 23 & 1) << 9
        if mode & 0xF:
            raise EmulatorError(f"kernel {name}: expected rounding to nearest")
        records = decode(list(disassemble(code, address, self.processor)), older)
        lanes, group = 32 if properties & WAVE32 else 64, self.notes[name].largest_group
        places = (arguments_place, group_place)
        return Kernel(name, records, lanes, group, group_bytes, private_bytes, *places, mode, older)
