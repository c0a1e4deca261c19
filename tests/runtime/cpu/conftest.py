"""Executables made from hand-written Programs and kernels in LLVM IR text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.cpu.entry import entry
from loopgrad.codegen.targets.cpu.entry.entry import emit_entry
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.codegen.targets.cpu.record import record
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.cpu.executable import CpuExecutable

Load = Callable[..., CpuExecutable]


@pytest.fixture(scope="session")
def cpu_device() -> CpuDevice:
    return CpuDevice()


@pytest.fixture(params=["written out", "as rows"])
def load(cpu_device: CpuDevice, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Steps after each other as straight code, and as rows of a table, which else only many of them are."""
    if request.param == "as rows":
        monkeypatch.setattr(entry, "MANY", 0)

    def make(
        program: Program, interfaces: Sequence[CpuKernelInterface] = (), kernels: str = "", capacity: int | None = None
    ) -> CpuExecutable:
        text = emit_entry(program, interfaces) + kernels
        artifact = Artifact(record(program, interfaces), program.constants, compile_module(text, host_machine()))
        return cpu_device.load(artifact, Options(stack_capacity=capacity), lambda _: text, "handmade")

    return make
