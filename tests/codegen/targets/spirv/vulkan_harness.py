"""One kernel on the first Vulkan device: arrays in, arrays out, every module checked by spirv-val."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.program import Initial, LaunchStep, Program, Slot
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.target import compile_program
from loopgrad.graph.types import TensorType
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.options import Options
from loopgrad.runtime.vulkan.driver import device_count
from loopgrad.runtime.vulkan.executable import VulkanExecutable
from loopgrad.runtime.vulkan.program import read_program
from loopgrad.runtime.vulkan.resources import Resources

Array = np.ndarray[Any, Any]
needs_device = pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")


def validate(artifact: Artifact) -> None:
    """Every module passes spirv-val, where that is installed."""
    validator = shutil.which("spirv-val")
    if validator is None:
        return
    for module in artifact.metadata["modules"]:
        code = artifact.code[module["offset"] : module["offset"] + module["size"]]
        run = subprocess.run([validator, "--target-env", "vulkan1.2", "-"], input=code, capture_output=True)
        assert run.returncode == 0, f"{module['name']}: {run.stderr.decode()}{run.stdout.decode()}"


def program_of(kernel: Kernel) -> Program:
    """Inputs: one per parameter; outputs: the parameters that the kernel writes."""
    slots = [Slot(TensorType((p.size,), p.dtype), "input") for p in kernel.params]
    written, initials, used = [], [], list(range(len(slots)))
    for i, p in enumerate(kernel.params):
        if p.access != "read":
            used[i] = len(slots)
            written.append(len(slots))
            slots.append(Slot(TensorType((p.size,), p.dtype), "output"))
            initials.append((i, Initial(i)))
    step = LaunchStep(0, tuple(used), tuple(initials))
    return Program(tuple(slots), tuple(range(len(kernel.params))), tuple(written), (kernel,), (step,))


def executable_of(program: Program, options: Options = Options(), features: Features | None = None) -> VulkanExecutable:  # noqa: B008
    device: Any = get_device("vulkan:0")
    artifact = compile_program(program, options, features or device.gpu.features)
    validate(artifact)
    record = read_program(artifact.metadata)
    resources = Resources(device.memory, record, artifact.code, artifact.constants)
    return VulkanExecutable(device.name, record, resources, artifact.texts.__getitem__, "", options.stack_capacity)


def run_kernel(kernel: Kernel, arrays: Sequence[Array], options: Options = Options()) -> None:  # noqa: B008
    """As the interpreter: parameters that the kernel writes change in place."""
    device = get_device("vulkan:0")
    results = executable_of(program_of(kernel), options).run([device.put(a) for a in arrays])
    written = [i for i, p in enumerate(kernel.params) if p.access != "read"]
    for i, buffer in zip(written, results, strict=True):
        arrays[i][...] = device.get(buffer)


def check(kernel: Kernel, arrays: Sequence[Array], rtol: float = 0.0, atol: float = 0.0) -> None:
    """The device against the kernel interpreter; exactly, where no tolerance is given."""
    wanted, got = ([a.copy() for a in arrays] for _ in range(2))
    with np.errstate(all="ignore"):
        interpret_kernel(kernel, wanted)
    run_kernel(kernel, got)
    for w, g in zip(wanted, got, strict=True):
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)
