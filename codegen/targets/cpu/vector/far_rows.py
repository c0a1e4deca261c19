"""Loops of which every trip reads another row of a large array, far behind the one before: sums and maxima over the
first axis of a matrix.

    for k:  load %table[(k * 2048) + lane]       lanes read 256 bytes of each row, then those beside them

Lanes go down all rows and then begin again with their neighbours, so memory hands out what lies in no order that a
core foresees. Each load asks for what lanes will read there when they come by again.
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.kernel.linear_index import Linear, form_of
from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter, memory_type

LARGE: Final = 1 << 20  # bytes of an array that a core doesn't have near
FAR: Final = 1 << 10  # bytes from row to row, at which cores foresee nothing
AHEAD: Final = 2  # times the lanes that move together
LINE: Final = 64


def far_loads(kernel: Kernel) -> frozenset[KOp]:
    """Such loads of the loops that a kernel's lanes run."""
    return frozenset([load for op in kernel.body.ops if op.opcode == "for" for load in _of_loop(kernel, op)])


def _of_loop(kernel: Kernel, loop: KOp) -> list[KOp]:
    (body,) = loop.blocks
    forms: dict[KValue, Linear] = {body.arguments[0]: Linear((1,), 0)}  # sums of multiples of the trip's number

    def form(value: KValue) -> Linear | None:
        if value not in forms and value.op is not None and value.op.opcode == "const":
            return form_of(value.op, (), 1)
        return forms.get(value, Linear((0,), 0))

    found = []
    for op in body.ops:
        if op.opcode == "load":
            param = kernel.params[op.attrs["param"]]
            step = form(op.operands[0])
            large = param.access == "read" and param.size * param.dtype.itemsize >= LARGE
            if large and step is not None and not -FAR < step.factors[0] * param.dtype.itemsize < FAR:
                found.append(op)
        elif op.results and op.results[0].dtype.is_integer and not op.blocks:
            made = form_of(op, [form(v) for v in op.operands], 1)
            if made is not None:
                forms[op.results[0]] = made
    return found


def ask_ahead(e: VectorEmitter, load: KOp) -> None:
    """Ask for the elements beside those that the load reads, where lanes lie side by side."""
    known = e.strided(load.operands[0])
    if known is None or known.step != 1:
        return
    param = load.attrs["param"]
    dtype, size = memory_type(e.kernel.params[param].dtype), e.kernel.params[param].dtype.itemsize
    first = e.b.fresh()
    e.b.line(f"{first} = getelementptr {dtype}, ptr {e.param_names[param]}, {known.start.type} {known.start.name}")
    flight = e.layout.flight * size
    for offset in range(0, flight, LINE):
        line = e.b.fresh()
        e.b.line(f"{line} = getelementptr i8, ptr {first}, i64 {AHEAD * flight + offset}")
        e.b.line(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 2, i32 1)")
