"""Arrays of lanes (`Kernel.arrays`); where they lie `own_arrays` knows.

Elements of unusual width are kept in 32 bits, as in memory of a workgroup.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import KOp
from loopgrad.codegen.targets.gpu.assembler import Assembler, Val
from loopgrad.codegen.targets.gpu.emit.context import GROUP_TYPE, Emitter, register_type
from loopgrad.codegen.targets.gpu.emit.loops import counted


def widened(b: Assembler, type: str, value: Val) -> Val:
    """A value of that type in registers as arrays keep it."""
    stored = GROUP_TYPE.get(type, type)
    if type == stored:
        return value
    if type == "bool":
        return b.inst("Select", "i32", value, b.const("i32", 1), b.const("i32", 0))
    return b.inst("FConvert" if type == "f16" else "UConvert", stored, value)


def narrowed(b: Assembler, type: str, found: Val) -> Val:
    """The inverse."""
    if type == GROUP_TYPE.get(type, type):
        return found
    if type == "bool":
        return b.inst("INotEqual", "bool", found, b.const("i32", 0))
    return b.inst("FConvert" if type == "f16" else "UConvert", type, found)


def emit_array_load(e: Emitter, op: KOp) -> Val:
    type = register_type(op.results[0].dtype)
    index = e.resize(e.get(op.operands[0]), "i32")
    found = e.own_arrays[op.attrs["array"]].get(index)
    return e.continuation.spilled(e, narrowed(e.b, type, found))


def emit_array_store(e: Emitter, op: KOp) -> None:
    index, x = (e.get(v) for v in op.operands)
    type = register_type(op.operands[1].dtype)
    e.own_arrays[op.attrs["array"]].set(e.resize(index, "i32"), widened(e.b, type, x))


def save_arrays(e: Emitter, column: Val, pitch: int) -> None:
    """All elements to memory, one `pitch` after the other."""
    for number, first in _firsts(e):

        def one(k: Val, number: int = number, first: int = first) -> None:
            e.b.store(_place(e, column, pitch, first, k), e.own_arrays[number].get(k))

        counted(e, e.b.const("i32", e.kernel.arrays[number].size), one)


def restore_arrays(e: Emitter, column: Val, pitch: int) -> None:
    for number, first in _firsts(e):

        def one(k: Val, number: int = number, first: int = first) -> None:
            e.own_arrays[number].set(k, e.b.load(_place(e, column, pitch, first, k), _kept(e, number)))

        counted(e, e.b.const("i32", e.kernel.arrays[number].size), one)


def _firsts(e: Emitter) -> list[tuple[int, int]]:
    """Each array, and how many elements are before it."""
    sizes = [a.size for a in e.kernel.arrays]
    return [(i, sum(sizes[:i])) for i in range(len(sizes))]


def _kept(e: Emitter, number: int) -> str:
    type = register_type(e.kernel.arrays[number].dtype)
    return GROUP_TYPE.get(type, type)


def _place(e: Emitter, column: Val, pitch: int, first: int, k: Val) -> Val:
    row = e.b.inst("IAdd", "i32", k, e.b.const("i32", first))
    return e.at(column, e.resize(row, "i64", signed=False), pitch)
