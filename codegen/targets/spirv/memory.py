"""Loads, stores, reductions' contributions and accumulations.

`accumulate` where no other lane writes the element, or into this invocation's own copy (or in lane order,
one invocation for all), is a load and a store; elsewhere it is an atomic, used only where every order of
the operations gives the same bits.
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.kernel.nodes import KOp
from loopgrad.codegen.targets.spirv.assembly import Val
from loopgrad.codegen.targets.spirv.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.spirv.elementwise import operate
from loopgrad.codegen.targets.spirv.memory_form import from_memory, to_memory
from loopgrad.graph.types import DType

ATOMIC: Final = {"add": "AtomicIAdd", "and": "AtomicAnd", "or": "AtomicOr"}


def atomic_name(kind: str, dtype: DType) -> str | None:
    """The atomic whose result doesn't depend on the order of lanes, where there is one."""
    if not dtype.is_integer or dtype.bits < 32:
        return None
    if kind in ("min", "max"):
        return f"Atomic{'S' if dtype.kind == 'i' else 'U'}{kind.capitalize()}"
    return ATOMIC.get(kind)


def emit_load(e: Emitter, op: KOp) -> Val:
    param = op.attrs["param"]
    dtype = e.kernel.params[param].dtype
    type = memory_type(dtype)
    return from_memory(e, e.peek(e.at(e.params[param], e.get(op.operands[0]), SIZE[type]), type), dtype)


def emit_store(e: Emitter, op: KOp) -> None:
    param = op.attrs["param"]
    index, x = (e.get(v) for v in op.operands)
    value = to_memory(e, x, e.kernel.params[param].dtype)
    e.poke(e.at(e.params[param], index, SIZE[value.type]), value)


def emit_reduce(e: Emitter, op: KOp) -> None:
    """Every lane's contribution goes to scratch; trees of fixed shape add them up afterwards."""
    slot = op.attrs["slot"]
    value = to_memory(e, e.get(op.operands[0]), e.kernel.reductions[slot].dtype)
    e.poke(e.at(e.scratch[slot], e.lane, SIZE[value.type]), value)


def emit_accumulate(e: Emitter, op: KOp) -> None:
    param, kind = op.attrs["param"], op.attrs["kind"]
    dtype = e.kernel.params[param].dtype
    index, x, pred = (e.get(v) for v in op.operands)
    base = e.copies.get(param, e.params[param])
    type = memory_type(dtype)
    shared = not op.attrs["exclusive"] and not e.ordered

    def combine() -> None:
        place = e.at(base, index, SIZE[type])
        name = atomic_name(kind, dtype) if shared else None
        if name is not None:
            e.atomic(name, place, to_memory(e, x, dtype))
            return
        new = x
        if kind != "set":
            new = operate(e, kind, dtype, [from_memory(e, e.peek(place, type), dtype), x])
        e.poke(place, to_memory(e, new, dtype))

    e.when(pred, combine)
