"""`emulator:0` (gfx1100), `emulator:1` (gfx942), `emulator:2` (gfx90a): the code objects that these GPUs get, on an
emulator of our own, below the driver that HIP has. Only tests know them.

Memory is the host's. Launches are narrow: small programs still have invocations with several lanes.
"""

from __future__ import annotations

import ctypes
from functools import partial

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.amdgpu.architectures import lane_bytes
from loopgrad.codegen.targets.amdgpu.target import compile_program
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.runtime.devices import NUMBERED
from loopgrad.runtime.gpu.device import GpuDevice
from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.gpu.streams.driver import StreamDriver
from loopgrad.runtime.hip.device import update_code
from tests.emulator import disassembler
from tests.emulator.code_object import WORDS, CodeObject, Kernel
from tests.emulator.disassembler import EmulatorError
from tests.simulator.streams import HostApi

PROCESSORS = ("gfx1100", "gfx942", "gfx90a")
PADDING = 256  # that HostApi adds to what it allocates


class EmulatorApi(HostApi):
    """Implements StreamApi."""

    name = "emulator"
    group_limit = 4

    def load(self, image: bytes) -> CodeObject:
        return CodeObject(image)

    def function(self, module: CodeObject, entry: str, asked: int) -> Kernel:
        assert not asked, "code for AMD has the memory of its workgroups"
        return module.kernel(entry)

    def occupancy(self, function: Kernel, group: int) -> int:
        """A code object says how large workgroups are."""
        assert group == function.group
        return 2

    def launch(self, function: Kernel, groups: int, group: int, params: int) -> None:
        assert group == function.group
        words = (ctypes.POINTER(ctypes.c_uint64) * WORDS).from_address(params)
        block = (ctypes.c_uint64 * WORDS)(*[word[0] for word in words])
        first = ctypes.addressof(block)
        held = [(address, address + len(memory) - PADDING) for address, memory in self.memory.items()]
        try:
            function.launch(groups, first, sorted([*held, (first, first + ctypes.sizeof(block))]))
        except EmulatorError as stopped:
            raise StreamFailure(str(stopped)) from None


class EmulatorDevice(GpuDevice):
    kind = "emulator"
    stages = ("graph", "kernel", "llvm")

    def __init__(self, position: int) -> None:
        self.processor = PROCESSORS[position]
        update = partial(update_code, self.processor, None)
        super().__init__(f"emulator:{position}", StreamDriver(EmulatorApi(), update))

    def lane_bytes(self) -> int:
        return lane_bytes(self.processor)

    def target(self) -> tuple[str, ...]:
        return ("emulator", self.processor)

    def emit(self, program: Program, options: Options) -> Artifact[ProgramRecord]:
        return compile_program(program, options, self.processor)


def found() -> tuple[int, str]:
    """How many there are, or why there is none."""
    if disassembler.library() is None:
        return 0, "needs LLVM's shared library: apt-get install lld-19"
    return len(PROCESSORS), ""


def install() -> None:
    """Let the devices be some of this process."""
    NUMBERED["emulator"] = (found, EmulatorDevice)
