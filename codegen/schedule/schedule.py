"""Graph -> Program: passes, then blocks of steps, then slots."""

from __future__ import annotations

from loopgrad.codegen.lower.context import Stored
from loopgrad.codegen.options import DEFAULT_OPTIONS, LANE_BYTES, Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.schedule.assign import assign_slots
from loopgrad.codegen.schedule.block import BlockRequest, schedule_block
from loopgrad.codegen.schedule.canonical import prepare
from loopgrad.codegen.schedule.program_builder import ProgramBuffer, ProgramBuilder
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType


def schedule(
    graph: Graph,
    options: Options = DEFAULT_OPTIONS,
    library: frozenset[str] = frozenset(),
    in_order: bool = False,
    lane_bytes: int = LANE_BYTES,
) -> Program:
    """The steps, kernels and slots that compute `graph`. Every legal Graph has a Program. `library`: the routines that
    the target calls a library for; `in_order`: its lanes that meet in an element come one after the other;
    `lane_bytes`: as much as the arrays of a lane may take, as `lane_memory` estimates it."""
    builder = ProgramBuilder(options, in_order, lane_bytes)
    inputs = [builder.buffer(_tensor(v), "input") for v in graph.inputs]
    ready = prepare(graph, library)
    outputs: dict[Value, ProgramBuffer] = {}
    for v in ready.outputs:
        if v not in outputs:
            outputs[v] = builder.buffer(_tensor(v), "output")
    targets: list[ProgramBuffer | None] = [outputs[v] for v in ready.outputs]
    bound = {v: Stored((b,)) for v, b in zip(ready.inputs, inputs, strict=True)}
    block = schedule_block(BlockRequest(ready, bound, targets), builder)
    slots, steps, numbers, constants = assign_slots(
        builder.buffers, builder.known.kernels, block.steps, [*inputs, *outputs.values()]
    )
    return Program(
        slots,
        tuple([numbers[b.number] for b in inputs]),
        tuple([numbers[outputs[v].number] for v in ready.outputs]),
        tuple(builder.known.kernels),
        steps,
        tuple(builder.stacks),
        tuple([row for _, row in builder.residuals.values()]),
        tuple(builder.notes),
        constants,
    )


def _tensor(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType), f"a stack can't cross the program's boundary: {value}"
    return value.type
