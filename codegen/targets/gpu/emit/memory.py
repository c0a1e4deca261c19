"""Loads, stores, reductions' contributions and accumulations.

`accumulate` where no other lane writes the element, or into this invocation's own copy (or in lane order,
one invocation for all), is a load and a store; elsewhere see accumulate.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.kernel.nodes import KOp
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.gpu.emit.elementwise import operate
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory, to_memory
from loopgrad.codegen.targets.gpu.emit.window_sum import HeldWindow, by_pairs


def emit_load(e: Emitter, op: KOp) -> Val:
    param = op.attrs["param"]
    if param in e.arrays:
        return e.arrays[param].get(e.position)
    dtype = e.kernel.params[param].dtype
    type = memory_type(dtype)
    if op in e.near_loads:
        return emit_near_load(e, op, e.near_loads[op])
    address = e.element(param, e.get(op.operands[0]))
    constant = e.kernel.params[param].access == "read"
    value = e.b.load(address, type, invariant=constant)
    return from_memory(e, value if constant else e.continuation.spilled(e, value), dtype)


def emit_near_load(e: Emitter, op: KOp, group: Sequence[KOp]) -> Val:
    """Of one of these, by which the first loads for all."""
    if op is group[0]:
        param = op.attrs["param"]
        dtype = e.kernel.params[param].dtype
        address = e.element(param, e.get(op.operands[0]))
        found = e.b.load_vector(address, memory_type(dtype), len(group), invariant=True)
        e.values.update((one.results[0], from_memory(e, x, dtype)) for one, x in zip(group, found, strict=True))
    return e.get(op.results[0])


def emit_store(e: Emitter, op: KOp) -> None:
    param = op.attrs["param"]
    index, x = (e.get(v) for v in op.operands)
    if param in e.arrays:
        e.arrays[param].set(e.position, x)
        return
    value = to_memory(e, x, e.kernel.params[param].dtype)
    e.continuation.effect(e, lambda: e.b.store(e.element(param, index), value))


def emit_reduce(e: Emitter, op: KOp) -> None:
    values = tuple([e.get(v) for v in op.operands])
    if len(values) > 1:
        e.contribution.join(e, op.attrs["slot"], values)
    else:
        e.contribution.add(e, op.attrs["slot"], *values)


def emit_scan(e: Emitter, op: KOp) -> None:
    e.contribution.add(e, 0, *[e.get(v) for v in op.operands])


class LeftInScratch:
    """Implements Contribution: every lane's term goes to scratch; folds of fixed shape add them up afterwards."""

    meets = False

    def add(self, e: Emitter, slot: int, *terms: Val) -> None:
        (value,) = terms
        stored = to_memory(e, value, e.kernel.reductions[slot].dtype)
        e.b.store(e.at(*contribution_place(e, slot, e.lane), SIZE[stored.type]), stored)

    def join(self, e: Emitter, slot: int, partial: tuple[Val, ...]) -> None:
        raise AssertionError("what was folded is joined where workgroups fold")


def contribution_place(e: Emitter, slot: int, number: Val, part: int = 0) -> tuple[Val, Val]:
    """The scratch block of a reduction, and which of its elements a part of the contribution of that number is."""
    block, first, apart = e.table.partials[slot]
    first += part * apart
    return e.table.scratch[block], e.b.inst("IAdd", "i64", number, e.b.const("i64", first)) if first else number


def emit_accumulate(e: Emitter, op: KOp) -> None:
    param, kind = op.attrs["param"], op.attrs["kind"]
    dtype = e.kernel.params[param].dtype
    index, x, pred = (e.get(v) for v in op.operands)
    base = e.shared.copies.get(param, e.table.params[param])
    type = memory_type(dtype)
    shared = not op.attrs["exclusive"] and not e.shared.ordered
    if shared and e.convergent:
        accumulation, block = e.shared.accumulations[param]
        if isinstance(accumulation, HeldWindow) and by_pairs(accumulation.sums):
            accumulation.add_with_neighbour(e, block, op, index, x, pred)
            return

    def combine() -> None:
        if shared:
            accumulation, block = e.shared.accumulations[param]
            accumulation.add(e, block, op, index, x)
            return
        place, new = e.element(param, index, base), x
        if kind != "set":
            new = operate(e, kind, dtype, [from_memory(e, e.b.load(place, type), dtype), x])
        e.b.store(place, to_memory(e, new, dtype))

    e.continuation.effect(e, lambda: e.when(pred, combine))
