"""Running combinations by a function of elements: kernels with running totals of several leaves (see
lanes/running_totals), whose terms are the arrays' elements. Long rows are cut into spans, whose totals a launch leaves
before."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, RunningTotal
from loopgrad.codegen.targets.gpu.lanes.layout import running_mapping, span_bytes
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.scalar_functions import ScalarFunction
from loopgrad.graph.types import int64


def _running(routine: Routine) -> RunningTotal:
    attrs, leaves = routine.attrs, routine.inputs
    shape, along, taken = leaves[0].type.shape, attrs["along"], attrs["taken"]
    assert isinstance(along, int)
    assert isinstance(taken, tuple)
    axis = len(shape) + along
    return RunningTotal(
        kind="function",
        dtype=leaves[0].type.dtype,
        param=len(leaves),
        shape=(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])),
        reverse=bool(attrs["reverse"]),
        function=ScalarFunction.of(attrs["function"]),
        leaves=tuple([leaf.type.dtype for leaf in leaves]),
        taken=taken,
    )


def _kernel(routine: Routine, running: RunningTotal) -> Kernel:
    """Whose lanes read an element of each leaf."""
    outer, extent, inner = running.shape
    domain, body = (outer, extent * inner) if outer > 1 else (extent * inner,), Body()
    place = [KValue(int64) for _ in domain]
    lane = place[-1]
    if outer > 1:
        lane = body.integer("add", body.integer("mul", place[0], extent * inner), lane)
    terms = [body.one("load", dtype, lane, param=k) for k, dtype in enumerate(running.leaves)]
    body.ops.append(KOp("scan", tuple(terms), ()))
    read = [BufferParam(a.type.dtype, a.type.size, "read") for a in routine.inputs]
    write = [BufferParam(a.type.dtype, a.type.size, "write") for a in routine.outputs]
    return Kernel("associative_scan", domain, (*read, *write), Block(tuple(place), body.ops), running=running)


def _make(routine: Routine) -> None:
    running = _running(routine)
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
