"""A Program's kernels as one LLVM module: texts, shared outlined functions, attributes, metadata."""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.lower.walked import walked
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface
from loopgrad.codegen.targets.cpu.vector.emit import KernelEmission
from loopgrad.codegen.targets.cpu.vector.halves import runtime_functions
from loopgrad.codegen.targets.cpu.vector.lanes import along_rows


def emit_kernels(
    kernels: Sequence[Kernel], machine: Machine, options: Options
) -> tuple[str, tuple[CpuKernelInterface, ...]]:
    """The text of all kernels (symbols k0, k1, ...) and what the driver must know of each."""
    texts, interfaces = [], []
    outlined: dict[str, str] = {}
    for i, kernel in enumerate(kernels):
        emission = KernelEmission(kernel if along_rows(kernel, machine) else walked(kernel), f"k{i}", machine, options)
        texts.append(emission.text())
        interfaces.append(emission.interface())
        outlined.update(emission.outlined)
    text = "\n".join([*texts, *outlined.values()])
    return "\n".join([text, runtime_functions(text), trailer(machine)]), tuple(interfaces)


def trailer(machine: Machine) -> str:
    """Attributes and metadata that kernels refer to."""
    width = f'"prefer-vector-width"="{machine.vector_bits}"'
    return f"""
attributes #0 = {{ nounwind {width} }}

!0 = !{{!"branch_weights", i32 1, i32 2000}}
!1 = !{{}}
"""
