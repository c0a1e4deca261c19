"""A box of lanes by one workgroup (see boxes): loads in their own orders into its memory, a barrier, then the lanes.

A lane that lies outside of the domain reads what the last one inside does, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from loopgrad.codegen.kernel.footprint import Order, index_of
from loopgrad.codegen.kernel.nodes import Block, KOp, KValue
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter, memory_type
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory
from loopgrad.codegen.targets.gpu.lanes.boxes import Boxes
from loopgrad.codegen.targets.gpu.lanes.partials import GroupArray
from loopgrad.codegen.targets.gpu.lanes.plan import most_streamed
from loopgrad.codegen.targets.gpu.lanes.tiles import EmitOps, digits, emit_together
from loopgrad.graph.types import bool_

BITS = {"f16": "i16"}  # as which an element waits, where that keeps all of it


class BoxTiles:
    """`loads`: those of each order."""

    def __init__(self, e: Emitter, boxes: Boxes, emit_block: EmitOps) -> None:
        self.e, self.b, self.boxes, self.emit_block = e, e.b, boxes, emit_block
        ops = e.kernel.body.ops
        self.loads: dict[Order, list[KOp]] = {}
        for exchange in boxes.exchanges:
            self.loads.setdefault(exchange.order, []).append(ops[exchange.place])
        made = [op for row in self.loads.values() for op in row]
        self.arrays = {op: GroupArray(e, self._type(op), boxes.room) for op in made}
        body = e.kernel.body
        self.rest = Block(body.arguments, [op for op in ops if op not in self.arrays], ())
        self.inside = KValue(bool_)
        self.each = -(-boxes.lanes // e.b.group)
        self.usual: Order = tuple(reversed(range(len(boxes.extents))))

    def emit_box(self, number: Val) -> None:
        """The box of that number. What the one before left in memory has been read by all who need it."""
        counts, extents = self.boxes.counts, self.boxes.extents
        own = digits(self.e, number, counts)
        self.origin = [
            self.b.inst("IMul", "i64", n, self.b.const("i64", extent)) for n, extent in zip(own, extents, strict=True)
        ]
        self.b.barrier()
        for order, ops in self.loads.items():
            self._in_batches(partial(self._exchange, order, ops), len(ops))
        self.b.barrier()
        self._in_batches(self._lanes, 1)

    # numbers

    def _i32(self, value: int) -> Val:
        return self.b.const("i32", value)

    def _type(self, op: KOp) -> str:
        type = memory_type(self.e.kernel.params[op.attrs["param"]].dtype)
        return BITS.get(type, type)

    def _in_batches(self, emit: Callable[[Sequence[Val]], None], loads: int) -> None:
        """emit(positions) for all positions that this invocation has, some at a time."""
        once = self.once(loads)
        if once == self.each:
            emit(self._positions())
        else:
            counted(self.e, self._i32(-(-self.each // once)), lambda k: emit(self._positions(k, once)))

    def once(self, loads: int) -> int:
        """How many lanes an invocation makes so many loads of at once."""
        return max(min(most_streamed(self.e.kernel) // loads, self.each), 1)

    def _positions(self, batch: Val | None = None, many: int = 0) -> list[Val]:
        """Those of this invocation in a batch of `many`; without a batch all."""
        b, start = self.b, self.b.local_id()
        if batch is not None:
            start = b.inst("IAdd", "i32", start, b.inst("IMul", "i32", batch, self._i32(b.group * many)))
        return [b.inst("IAdd", "i32", start, self._i32(b.group * n)) if n else start for n in range(many or self.each)]

    def _digits(self, position: Val, order: Order) -> list[Val]:
        """Where in the box the lane at this position of an order is, along every dim (i32)."""
        b, found, rest = self.b, [self._i32(0)] * len(order), position
        *lower, last = order
        for d in lower:
            extent = self.boxes.extents[d]
            if extent > 1:
                above = b.inst("UDiv", "i32", rest, self._i32(extent))
                found[d] = b.inst("ISub", "i32", rest, b.inst("IMul", "i32", above, self._i32(extent)))
                rest = above
        found[last] = rest
        return found

    def _place(self, found: Sequence[Val]) -> Val:
        """Of that lane's elements in memory of the workgroup."""
        b = self.b
        place = self._i32(0)
        for digit, pitch, extent in zip(found, self.boxes.pitches, self.boxes.extents, strict=True):
            if extent > 1:
                place = b.inst("IAdd", "i32", place, b.inst("IMul", "i32", digit, self._i32(pitch)))
        return b.opaque(place)  # AMD's addresses there don't wrap around

    def _enter(self, found: Sequence[Val]) -> None:
        """What follows is the lane there."""
        e, b, boxes = self.e, self.b, self.boxes
        inside, lane = b.const("bool", True), b.const("i64", 0)
        parts = zip(e.kernel.body.arguments, found, self.origin, boxes.domain, boxes.extents, strict=True)
        for argument, digit, origin, extent, part in parts:
            index = b.inst("IAdd", "i64", origin, e.resize(digit, "i64", signed=False))
            if extent % part:
                inside = e.both(inside, b.inst("SLessThan", "bool", index, b.const("i64", extent)))
                index = e.bound_integer(index, extent - 1)
            e.values[argument] = index
            lane = b.inst("IAdd", "i64", b.inst("IMul", "i64", lane, b.const("i64", extent)), index)
        e.lane, e.values[self.inside] = lane, inside

    # the two halves

    def _whole(self, positions: Sequence[Val]) -> bool:
        """Whether there is a lane at all of an invocation's positions."""
        return self.boxes.lanes % (self.b.group * len(positions)) == 0

    def _bounded(self, position: Val, whole: bool) -> Val:
        return position if whole else self.e.bound_integer(position, self.boxes.lanes - 1)

    def _exchange(self, order: Order, ops: Sequence[KOp], positions: Sequence[Val]) -> None:
        """These loads of the lanes at some positions of an order."""
        e, b, whole = self.e, self.b, self._whole(positions)
        bounded = [self._bounded(position, whole) for position in positions]
        found = [self._digits(position, order) for position in bounded]
        needed = {need for op in ops for need in index_of(op, set(e.kernel.body.ops)) or ()}
        indices = tuple([op.operands[0] for op in ops])
        block = Block((), [op for op in e.kernel.body.ops if op in needed], indices)
        lanes = emit_together(e, [partial(self._enter, row) for row in found], block, self.emit_block)
        loaded = [[self._load(op, index) for op, index in zip(ops, row, strict=True)] for row in lanes]
        for position, row, values in zip(positions, found, loaded, strict=True):
            place = self._place(row)
            for op, value in zip(ops, values, strict=True):
                keep = partial(self.arrays[op].set, place, value)
                if whole:
                    keep()
                else:
                    e.when(b.inst("ULessThan", "bool", position, self._i32(self.boxes.lanes)), keep)

    def _load(self, op: KOp, index: Val) -> Val:
        return self.b.load(self.e.element(op.attrs["param"], index), self._type(op), invariant=True)

    def _lanes(self, positions: Sequence[Val]) -> None:
        whole = self._whole(positions)
        enter = [partial(self._begin, position, whole) for position in positions]
        emit_together(self.e, enter, self.rest, self._guarded)

    def _begin(self, position: Val, whole: bool) -> None:
        e = self.e
        found = self._digits(self._bounded(position, whole), self.usual)
        self._enter(found)
        if not whole:
            present = self.b.inst("ULessThan", "bool", position, self._i32(self.boxes.lanes))
            e.values[self.inside] = e.both(e.values[self.inside], present)
        place = self._place(found)
        for op, array in self.arrays.items():
            dtype, value = e.kernel.params[op.attrs["param"]].dtype, array.get(place)
            if memory_type(dtype) != value.type:
                value = e.bitcast(value, memory_type(dtype))
            e.values[op.results[0]] = from_memory(e, value, dtype)

    def _guarded(self, e: Emitter, block: Block) -> tuple[Val, ...]:
        """One operation; with an effect only where the lane is in the domain."""
        (op,) = block.ops
        if op.results:
            return self.emit_block(e, block)

        def effect() -> None:
            self.emit_block(e, block)

        e.when(e.values[self.inside], effect)
        return ()
