"""How many lanes one vector has: as many as it has room for of what the arithmetic uses."""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.targets.cpu.features import Machine


def lane_width(kernel: Kernel, ops: list[KOp], machine: Machine) -> int:
    """Lanes of one vector: as many as fit of the widest element type that the arithmetic uses."""
    wide = narrow = 0
    for op in ops:
        for r in op.results:
            if r.dtype.is_float:
                wide += r.dtype.bits == 64
                narrow += r.dtype.bits < 64
    floats = [p.dtype.bits for p in kernel.params if p.dtype.is_float]
    if not wide and not narrow and floats:
        wide = int(max(floats) == 64)
    bits = 64 if wide > narrow else 32 if narrow or floats else bits_of_data(kernel, ops)
    return max(machine.vector_bits // bits, 1)


def bits_of_data(kernel: Kernel, ops: list[KOp]) -> int:
    """8 or 16 where neither what is read and written has more bits nor what is computed of it, so that as many more
    lanes fit into a vector; else 32. Positions, which are one number for all lanes or nearly so, don't count. What is
    slow, as quotients are, is computed in wider numbers."""
    slow = [op.opcode for op in ops if not (OPCODES[op.opcode].own or OPCODES[op.opcode].quick)]
    if kernel.running is not None or kernel.order_key is not None or slow or any(op.blocks for op in ops):
        return 32
    described = [p.dtype for p in kernel.params] + [r.dtype for r in kernel.reductions]
    dtypes = described + [v.dtype for v in read_data(ops)]
    return min(max([8 * dtype.itemsize for dtype in dtypes], default=32), 32)


def read_data(ops: list[KOp]) -> set[KValue]:
    """What comes from memory, and what is computed of it."""
    data: set[KValue] = set()
    for op in ops:
        if op.opcode == "load" or not data.isdisjoint(op.operands):
            data.update(op.results)
    return data


def divides_wide_numbers(ops: list[KOp]) -> bool:
    """Whether 64-bit integers that come from memory are divided, or the like: no machine does that by vectors, so it is
    code for each element, which has no latency to hide and which LLVM takes long for. Positions mostly have fewer
    bits."""
    data = read_data(ops)
    slow = [op for op in ops if not (OPCODES[op.opcode].own or OPCODES[op.opcode].quick)]
    return any(r in data and r.dtype.is_integer and r.dtype.bits == 64 for op in slow for r in op.results)
