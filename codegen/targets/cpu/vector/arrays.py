"""Arrays of lanes (`Kernel.arrays`): in the frame, the lanes in flight side by side: [element][vector][lane].

An index that all lanes share is one or a few whole vectors at one address; one that varies gathers and scatters within
the array. A store in lanes that aren't active leaves what they hold.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import KOp, OwnArray
from loopgrad.codegen.targets.cpu.vector import memory
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter, memory_type
from loopgrad.codegen.targets.cpu.vector.vectors import Vector


def declare_arrays(e: VectorEmitter) -> None:
    """Places in the frame."""
    for i, slot in enumerate(e.kernel.arrays):
        e.slot(f"[{slot.size * e.layout.flight} x {memory_type(slot.dtype)}]", f"array.{i}")


def emit_array_load(e: VectorEmitter, op: KOp) -> Vector:
    slot, pointer, index = _array(e, op)
    type = memory_type(slot.dtype)
    if not index.uniform:
        found = memory.gather(e, pointer, type, _places(e, index))
    elif e.layout.single:
        found = e.b.scalar(type, f"load {type}, ptr {_address(e, slot, pointer, index)}")
    else:
        found = _load(e, slot, _address(e, slot, pointer, index))
    return memory.from_memory(e, found, slot.dtype)


def emit_array_store(e: VectorEmitter, op: KOp) -> None:
    slot, pointer, index = _array(e, op)
    type, value = memory_type(slot.dtype), memory.to_memory(e, e.wide(op.operands[1]), slot.dtype)
    if not index.uniform:
        memory.scatter(e, pointer, type, _places(e, index), e.b.vector(value), e.mask)
        return
    address = _address(e, slot, pointer, index)
    if e.layout.single:
        e.b.line(f"store {type} {value.name}, ptr {address}")
        return
    kept = e.b.vector(value)
    if e.mask is not None:
        kept = e.b.choose(e.mask, kept, _load(e, slot, address))
    for u, name in enumerate(kept.names):
        e.b.line(f"store {e.b.vector_type(type)} {name}, ptr {_part(e, slot, address, u)}, align {_align(e, slot)}")


def _array(e: VectorEmitter, op: KOp) -> tuple[OwnArray, str, Vector]:
    number = op.attrs["array"]
    return e.kernel.arrays[number], f"%array.{number}", e.get(op.operands[0])


def _address(e: VectorEmitter, slot: OwnArray, pointer: str, index: Vector) -> str:
    first = e.integer("i64", "mul", e.b.resize(index, "i64"), e.b.const("i64", e.layout.flight))
    return memory.element(e, pointer, memory_type(slot.dtype), first)


def _part(e: VectorEmitter, slot: OwnArray, address: str, u: int) -> str:
    if not u:
        return address
    return memory.element(e, address, memory_type(slot.dtype), e.b.const("i64", u * e.layout.width))


def _load(e: VectorEmitter, slot: OwnArray, address: str) -> Vector:
    type = memory_type(slot.dtype)
    vt = e.b.vector_type(type)
    names = [
        e.b.scalar(vt, f"load {vt}, ptr {_part(e, slot, address, u)}, align {_align(e, slot)}").name
        for u in range(e.layout.groups)
    ]
    return Vector(type, tuple(names), False)


def _align(e: VectorEmitter, slot: OwnArray) -> int:
    return min(e.layout.width * slot.dtype.itemsize, 64)


def _places(e: VectorEmitter, index: Vector) -> Vector:
    """Where each lane's element is."""
    narrow = e.b.resize(index, "i32")
    first = e.integer("i32", "mul", narrow, e.b.const("i32", e.layout.flight))
    return e.integer("i32", "add", first, e.b.lanes("i32"))
