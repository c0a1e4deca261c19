"""Running combinations by a function of elements: kernels with running totals of several leaves (see
lanes/running_totals), whose terms are the arrays' elements. Long rows are cut into spans, whose totals a launch leaves
before."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, RunningTotal
from loopgrad.codegen.targets.gpu.lanes.layout import running_mapping, span_bytes
from loopgrad.codegen.targets.gpu.lanes.running_terms import running_total
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.types import int64


def _kernel(routine: Routine, running: RunningTotal) -> Kernel:
    """Whose lanes read an element of each leaf."""
    lane, body = KValue(int64), Body()
    terms = [body.one("load", dtype, lane, param=k) for k, dtype in enumerate(running.leaves)]
    body.ops.append(KOp("scan", tuple(terms), ()))
    read = [BufferParam(a.type.dtype, a.type.size, "read") for a in routine.inputs]
    write = [BufferParam(a.type.dtype, a.type.size, "write") for a in routine.outputs]
    block = Block((lane,), body.ops)
    return Kernel("associative_scan", (prod(running.shape),), (*read, *write), block, running=running)


def _make(routine: Routine) -> None:
    leaves = [leaf.type for leaf in routine.inputs]
    running = running_total(routine.attrs, leaves, len(leaves))
    kernel, arrays = _kernel(routine, running), [*routine.inputs, *routine.outputs]
    shape = running_mapping(kernel, running, routine.geometry)
    tiles = shape.running
    assert tiles is not None
    if tiles.spans > 1:
        arrays.append(routine.scratch(-(-span_bytes(running, tiles) // int64.itemsize)))
        totals = replace(shape, running=replace(tiles, totals=True))
        routine.by_mapping(replace(kernel, name="associative_spans"), totals, tiles.count, *arrays)
    routine.by_mapping(kernel, shape, tiles.count, *arrays)


PROVIDER: Final = Provider("running totals of any function", lambda _: "", _make)
