"""One kernel on a GPU of a test's choice: arrays in, arrays out, against the kernel interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import ArraySlot, Initial, LaunchStep, Program
from loopgrad.graph.types import TensorType
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.gpu.executable import GpuExecutable

Array = np.ndarray[Any, Any]


class Choice:
    """The device of the test that runs."""

    name = ""


def device() -> Any:
    return get_device(Choice.name)


def program_of(kernel: Kernel) -> Program:
    """Inputs: one per parameter; outputs: the parameters that the kernel writes."""
    slots = [ArraySlot(TensorType((p.size,), p.dtype), "input") for p in kernel.params]
    written, initials, used = [], [], list(range(len(slots)))
    for i, p in enumerate(kernel.params):
        if p.access != "read":
            used[i] = len(slots)
            written.append(len(slots))
            slots.append(ArraySlot(TensorType((p.size,), p.dtype), "output"))
            initials.append((i, Initial(i)))
    step = LaunchStep(0, tuple(used), tuple(initials))
    return Program(tuple(slots), tuple(range(len(kernel.params))), tuple(written), (kernel,), (step,))


def executable_of(program: Program, options: Options = Options()) -> GpuExecutable:  # noqa: B008
    artifact = device().emit(program, options)
    executable: GpuExecutable = device().load(artifact, options, artifact.texts.__getitem__, "")
    return executable


def run_kernel(kernel: Kernel, arrays: Sequence[Array], options: Options = Options()) -> None:  # noqa: B008
    """As the interpreter: parameters that the kernel writes change in place."""
    results = executable_of(program_of(kernel), options).run([device().put(a) for a in arrays])
    written = [i for i, p in enumerate(kernel.params) if p.access != "read"]
    for i, buffer in zip(written, results, strict=True):
        arrays[i][...] = device().get(buffer)


def check(kernel: Kernel, arrays: Sequence[Array], rtol: float = 0.0, atol: float = 0.0) -> None:
    """The device against the kernel interpreter; exactly, where no tolerance is given."""
    wanted, got = ([a.copy() for a in arrays] for _ in range(2))
    with np.errstate(all="ignore"):
        interpret_kernel(kernel, wanted)
    run_kernel(kernel, got)
    for w, g in zip(wanted, got, strict=True):
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)
