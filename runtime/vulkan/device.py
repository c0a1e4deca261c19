"""A `vulkan:N` device."""

from __future__ import annotations

import warnings

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import LONG_COLUMNS, Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.graph.primitives import attention
from loopgrad.runtime.cache import DiskCache, default_cache
from loopgrad.runtime.gpu.device import GpuDevice
from loopgrad.runtime.gpu.ledger import Ledger
from loopgrad.runtime.processes import lost_in_children
from loopgrad.runtime.vulkan.api import api, usable
from loopgrad.runtime.vulkan.driver import VulkanDriver
from loopgrad.runtime.vulkan.gpu import Gpu
from loopgrad.runtime.vulkan.probes import probed

WRONG = (
    "vulkan:{position} is {name}, and NVIDIA's Vulkan driver computes some kernels wrongly (see docs/devices.md): use "
    "cuda:{position} instead, or compare results with another device's"
)


class VulkanDevice(GpuDevice):
    """SPIR-V for what the driver says and the probes find."""

    kind = "vulkan"
    stages = ("graph", "kernel", "spirv")

    def __init__(self, position: int, cache: DiskCache | None = None) -> None:
        self.gpu = Gpu(api(), usable(position))
        if self.gpu.is_nvidia:
            warnings.warn(WRONG.format(position=position, name=self.gpu.name), RuntimeWarning, stacklevel=2)
        disk = cache if cache is not None else default_cache()
        lost_in_children(self.gpu)
        driver = VulkanDriver(self.gpu, disk)
        self.gpu.features = probed(driver, self.gpu.features)
        if driver.endless_loops:  # elsewhere kernels with loops may report that the driver stopped them
            driver.ledger = Ledger(driver, driver.available())
        super().__init__(f"vulkan:{position}", driver, disk)
        if self.gpu.features.columns_group:
            self.routines = self.routines.union((LONG_COLUMNS,))
        for routine, dtypes in self.gpu.features.attention.items():
            self.routines = self.routines.union((routine,), [attention.OF.format(routine, name) for name in dtypes])

    def target(self) -> tuple[str, ...]:
        return ("spirv", self.gpu.features.key())

    def emit(self, program: Program, options: Options) -> Artifact[ProgramRecord]:
        from loopgrad.codegen.targets.spirv.target import compile_program  # late: a warm cache needs no emitter

        return compile_program(program, options, self.gpu.features)

    def emit_continued(self, program: Program, options: Options) -> Artifact[ProgramRecord]:
        from loopgrad.codegen.targets.spirv.target import compile_program  # late, as above

        return compile_program(program, options, self.gpu.features, continued=True)
