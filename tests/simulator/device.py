"""`simulator:0`: the GPU runtime and the LLVM emitter without a GPU; `simulator:1`: with the driver for streams
and graphs between them; `simulator:2`: as 0, with matrix units of warpgroups. Only tests know them."""

from __future__ import annotations

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import LONG_COLUMNS, Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.graph.primitives import attention, window_products
from loopgrad.runtime.devices import NUMBERED
from loopgrad.runtime.gpu.device import GpuDevice
from tests.simulator.code import compile_program
from tests.simulator.driver import SimulatorDriver
from tests.simulator.streams import GraphDriver

GRAPHS, WARPGROUPS = 1, 2  # positions


class SimulatorDevice(GpuDevice):
    """Kernels as they are for CUDA and HIP, as machine code of this computer."""

    kind = "simulator"
    stages = ("graph", "kernel", "llvm")
    routines = GpuDevice.routines.union(attention.ROWS, attention.OF_ALL, window_products.ROWS, (LONG_COLUMNS,))

    def __init__(self, position: int) -> None:
        self.warpgroups = position == WARPGROUPS
        if self.warpgroups:
            self.routines = self.routines.union((window_products.OF_CHANNELS,))
        super().__init__(f"simulator:{position}", GraphDriver() if position == GRAPHS else SimulatorDriver())

    def target(self) -> tuple[str, ...]:
        host = host_machine()
        return ("simulator", host.cpu, host.features, "warpgroups" * self.warpgroups)

    def emit(self, program: Program, options: Options) -> Artifact[ProgramRecord]:
        return compile_program(program, options, self.warpgroups)


def install() -> None:
    """Let the device be one of this process."""
    NUMBERED["simulator"] = (lambda: (3, ""), SimulatorDevice)
