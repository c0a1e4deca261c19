"""Graph -> Program: passes, then blocks of steps, then slots."""

from __future__ import annotations

from collections import Counter

from loopgrad.codegen.lower.context import Stored
from loopgrad.codegen.options import DEFAULT_OPTIONS, LANE_BYTES, LONG_COLUMNS, Options, OwnProducts
from loopgrad.codegen.program import Program
from loopgrad.codegen.schedule.assign import assign_slots
from loopgrad.codegen.schedule.block import BlockRequest, schedule_block
from loopgrad.codegen.schedule.canonical import prepare
from loopgrad.codegen.schedule.program_builder import ProgramBuffer, ProgramBuilder
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.passes import dce
from loopgrad.graph.types import TensorType


def schedule(
    graph: Graph,
    options: Options = DEFAULT_OPTIONS,
    library: frozenset[str] = frozenset(),
    in_order: bool = False,
    wide_products: bool = False,
    lane_bytes: int = LANE_BYTES,
    own_products: OwnProducts = OwnProducts.NONE,
) -> Program:
    """The steps, kernels and slots that compute `graph`. Every legal Graph has a Program. `library`: the routines that
    the target calls a library for, or alone has; `in_order`: its lanes that meet in an element come one after the
    other; `wide_products`: its products of matrices read no 16-bit floats; `lane_bytes`: as much as the arrays of a
    lane may take, as `lane_memory` estimates it; `own_products`: those that its kernels do, of which narrow ones are
    sums."""
    builder = ProgramBuilder(options, in_order, wide_products, lane_bytes, own_products, LONG_COLUMNS in library)
    inputs = [builder.buffer(_tensor(v), "input") for v in graph.inputs]
    ready = prepare(graph, library, wide_products, options.matmul_precision, in_order)
    outputs: dict[Value, ProgramBuffer] = {}
    for v in ready.outputs:
        if v not in outputs:
            outputs[v] = builder.buffer(_tensor(v), "output")
    targets: list[ProgramBuffer | None] = [outputs[v] for v in ready.outputs]
    bound = {v: Stored((b,)) for v, b in zip(ready.inputs, inputs, strict=True)}
    block = schedule_block(BlockRequest(_as_multiplied(ready), bound, targets), builder)
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


def _as_multiplied(graph: Graph) -> Graph:
    """With products of matrices in the place of outputs that are these in another shape: who multiplies doesn't look at
    shapes, and stores a product where it is wanted."""
    products = {v: v.node.operands[0] for v in graph.outputs if v.node is not None and v.node.op == "reshape"}
    taken = Counter([*products.values(), *graph.outputs])
    found = {v: p for v, p in products.items() if taken[p] == 1 and p.node is not None and p.node.op == "matmul"}
    if not found:
        return graph
    return dce.run(Graph(graph.inputs, graph.nodes, tuple([found.get(v, v) for v in graph.outputs])))


def _tensor(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType), f"a stack can't cross the program's boundary: {value}"
    return value.type
