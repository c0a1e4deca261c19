"""The way of a graph through the compiler: Graph -> Program -> Artifact.

Scheduling runs the graph passes, forms kernels and lowers them; the target turns the Program into
machine code. A target is a function of the Program and the options, one per kind of device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.program import Program
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.cpu.target import compile_program
from loopgrad.graph.nodes import Graph

TARGETS: Final[dict[str, Callable[[Program, Any], Artifact]]] = {"cpu": compile_program}


def compile_graph(graph: Graph, options: Any, target: str = "cpu") -> Artifact:
    """Machine code and metadata for a kind of device."""
    return TARGETS[target](schedule(graph, options), options)
