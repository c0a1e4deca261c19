"""The way of a graph through the compiler: Graph -> Program -> Artifact.

Scheduling runs the graph passes, forms kernels and lowers them; the kernel passes, shared by all targets,
go over each; the target turns the Program into machine code. A target is a function of the Program and the
options, one per kind of device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.kernel.passes import optimise
from loopgrad.codegen.program import Program
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.amdgpu import target as amdgpu
from loopgrad.codegen.targets.cpu import target as cpu
from loopgrad.codegen.targets.nvptx import target as nvptx
from loopgrad.codegen.targets.spirv import target as spirv
from loopgrad.graph.nodes import Graph

TARGETS: Final[dict[str, Callable[[Program, Any], Artifact]]] = {
    "cpu": cpu.compile_program,
    "spirv": spirv.compile_program,
    "nvptx": nvptx.compile_program,
    "amdgpu": amdgpu.compile_program,
}


def compile_graph(graph: Graph, options: Any, target: str = "cpu") -> Artifact:
    """Machine code and metadata for a kind of device."""
    return TARGETS[target](optimised(schedule(graph, options)), options)


def optimised(program: Program) -> Program:
    """The program with its kernels after the kernel passes."""
    return replace(program, kernels=tuple([optimise(kernel) for kernel in program.kernels]))
