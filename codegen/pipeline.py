"""Graph -> Program, as all targets take it.

Scheduling runs the graph passes, forms kernels and lowers them; the kernel passes, shared by all targets,
go over each. Machine code of a Program is what a target's `compile_program` makes; the device that runs it
asks for it, so that nobody imports the emitters of another kind of device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loopgrad.codegen.kernel.passes import optimise
from loopgrad.codegen.options import LANE_BYTES, Options, OwnProducts
from loopgrad.codegen.program import NO_LIBRARIES, Program
from loopgrad.codegen.schedule import schedule
from loopgrad.graph.nodes import Graph


def build_program(
    graph: Graph,
    options: Options,
    libraries: Mapping[str, str] = NO_LIBRARIES,
    in_order: bool = False,
    wide_products: bool = False,
    lane_bytes: int = LANE_BYTES,
    own_products: OwnProducts = OwnProducts.NONE,
    routines: frozenset[str] = frozenset(),
) -> Program:
    """The steps, kernels and slots that compute `graph`, after the kernel passes. `libraries`: the routines that the
    target calls a library for, and its name; `routines`: those it has kernels of its own for, of which
    other targets have none; `in_order`, `wide_products`, `lane_bytes`, `own_products`: see `schedule`."""
    there = routines.union(libraries)
    program = schedule(graph, options, there, in_order, wide_products, lane_bytes, own_products)
    kernels = tuple([optimise(kernel) for kernel in program.kernels])
    return replace(program, kernels=kernels, libraries=tuple(sorted(libraries.items())))
