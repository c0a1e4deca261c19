"""A box of lanes by one workgroup (see boxes): loads in their own orders into its memory, a barrier, then the lanes.

    words of 4 bytes along d0, from memory          d0: a b c d | e f g h | ...      one for each place along d1
    what an invocation has: 4 words, 16 lanes       abcd, ijkl, qrst, yz01      ->   aiqy, bjrz, cks0, dlt1 along d1

A lane that lies outside of the domain reads what the last one inside does, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from loopgrad.codegen.kernel.footprint import Order, index_of
from loopgrad.codegen.kernel.linear_index import linear
from loopgrad.codegen.kernel.nodes import Block, KOp, KValue
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory
from loopgrad.codegen.targets.gpu.lanes.boxes import BANKS, Boxes, in_words
from loopgrad.codegen.targets.gpu.lanes.partials import GroupArray
from loopgrad.codegen.targets.gpu.lanes.plan import most_streamed
from loopgrad.codegen.targets.gpu.lanes.side_by_side import WORD
from loopgrad.codegen.targets.gpu.lanes.tiles import EmitOps, digits, emit_together
from loopgrad.graph.types import DType, bool_

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
        self.usual: Order = tuple(reversed(range(len(boxes.extents))))
        self.forms, self.each = linear(e.kernel), -(-boxes.lanes // e.b.group)
        self.dim = boxes.words
        self.arrays = {op: GroupArray(e, self._type(op) if self.dim is None else "i32", boxes.room) for op in made}
        body = e.kernel.body
        self.rest = Block(body.arguments, [op for op in ops if op not in self.arrays], ())
        self.inside = KValue(bool_)

    def emit_box(self, number: Val) -> None:
        """The box of that number. What the one before left in memory has been read by all who need it."""
        counts, extents = self.boxes.counts, self.boxes.extents
        own = digits(self.e, number, counts)
        self.origin = [
            self.b.inst("IMul", "i64", n, self.b.const("i64", extent)) for n, extent in zip(own, extents, strict=True)
        ]
        self.b.barrier()
        for order, ops in self.loads.items():
            side = self.boxes.side if all(self._side_by_side(op, order[0]) for op in ops) else 1
            self._in_batches(partial(self._exchange, order, ops), len(ops), side)
        self.b.barrier()
        if self.dim is None:
            self._in_batches(self._lanes, 1, self.boxes.side)
        else:
            self._squares(self.dim)

    # numbers

    def _i32(self, value: int) -> Val:
        return self.b.const("i32", value)

    def _type(self, op: KOp) -> str:
        type = memory_type(self.e.kernel.params[op.attrs["param"]].dtype)
        return BITS.get(type, type)

    def _in_batches(self, emit: Callable[[Sequence[Val], int], None], loads: int, side: int) -> None:
        """emit(positions, side) for all positions that this invocation has, some at a time, of which so many lie side
        by side."""
        once = -(-self.once(loads) // side) * side
        if once == self.each:
            emit(self._positions(side), side)
        else:
            counted(self.e, self._i32(-(-self.each // once)), lambda k: emit(self._positions(side, k, once), side))

    def once(self, loads: int) -> int:
        """How many lanes an invocation makes so many loads of at once."""
        return max(min(most_streamed(self.e.kernel) // loads, self.each), 1)

    def _positions(self, side: int, batch: Val | None = None, many: int = 0) -> list[Val]:
        """Those of this invocation in a batch of `many`, without a batch all, of which `side` at a time lie side by
        side: the first of these."""
        b, start = self.b, self.b.local_id()
        if side > 1:
            start = b.inst("IMul", "i32", start, self._i32(side))
        if batch is not None:
            start = b.inst("IAdd", "i32", start, b.inst("IMul", "i32", batch, self._i32(b.group * many)))
        steps = range(0, many or self.each, side)
        return [b.inst("IAdd", "i32", start, self._i32(b.group * n)) if n else start for n in steps]

    def _digits(self, position: Val, order: Order, extents: Sequence[int] = ()) -> list[Val]:
        """Where in the box, or what has these extents, the lane at this position of an order is, along every dim
        (i32)."""
        b, found, rest = self.b, [self._i32(0)] * len(order), position
        extents = extents or self.boxes.extents
        *lower, last = order
        for d in lower:
            extent = extents[d]
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
        for d, (digit, pitch) in enumerate(zip(found, self.boxes.pitches, strict=True)):
            rows = self.boxes.rows(d)
            if d == self.dim:
                digit = b.inst("UDiv", "i32", digit, self._i32(self.boxes.side))
            if rows > 1:
                place = b.inst("IAdd", "i32", place, b.inst("IMul", "i32", digit, self._i32(pitch)))
            if self.boxes.skipped(rows - 1):
                more = b.inst("ShiftRightLogical", "i32", digit, self._i32(BANKS))
                place = b.inst("IAdd", "i32", place, more)
        return b.opaque(place)  # AMD's addresses there don't wrap around

    def _beside(self, place: Val, dim: int, beside: int) -> Val:
        """The place of the lane that is so many further along a dim, of those side by side."""
        return self.b.inst("IAdd", "i32", place, self._i32(beside * self.boxes.pitches[dim])) if beside else place

    def _enter(self, found: Sequence[Val], beside: Mapping[int, int], side: int) -> None:
        """What follows is the lane there, or so many further along some dims, of `side` that lie side by side."""
        e, b, boxes = self.e, self.b, self.boxes
        inside, lane = b.const("bool", True), b.const("i64", 0)
        parts = zip(e.kernel.body.arguments, found, self.origin, boxes.domain, boxes.extents, strict=True)
        for d, (argument, digit, origin, extent, part) in enumerate(parts):
            index = b.inst("IAdd", "i64", origin, e.resize(digit, "i64", signed=False))
            if extent % part:
                inside = e.both(inside, b.inst("SLessThan", "bool", index, b.const("i64", extent)))
                index = e.bound_integer(index, extent - (side if d in beside else 1))
            if beside.get(d):
                index = b.inst("IAdd", "i64", index, b.const("i64", beside[d]))
            e.values[argument] = index
            lane = b.inst("IAdd", "i64", b.inst("IMul", "i64", lane, b.const("i64", extent)), index)
        e.lane, e.values[self.inside] = lane, inside

    # the two halves

    def _side_by_side(self, op: KOp, dim: int) -> bool:
        """Whether lanes that lie side by side along the dim load a word."""
        index, side = self.forms.get(op.operands[0]), self.boxes.side
        return SIZE[self._type(op)] * side >= WORD and in_words(index, dim, side)

    def _whole(self, positions: Sequence[Val], side: int) -> bool:
        """Whether there is a lane at all of an invocation's positions."""
        return self.boxes.lanes % (self.b.group * len(positions) * side) == 0

    def _bounded(self, position: Val, whole: bool, side: int) -> Val:
        return position if whole else self.e.bound_integer(position, self.boxes.lanes - side)

    def _exchange(self, order: Order, ops: Sequence[KOp], positions: Sequence[Val], side: int) -> None:
        """These loads of the lanes at some positions of an order, and of those beside them."""
        e, b, whole, dim = self.e, self.b, self._whole(positions, side), order[0]
        bounded = [self._bounded(position, whole, side) for position in positions]
        found = [self._digits(position, order) for position in bounded]
        needed = {need for op in ops for need in index_of(op, set(e.kernel.body.ops)) or ()}
        indices = tuple([op.operands[0] for op in ops])
        block = Block((), [op for op in e.kernel.body.ops if op in needed], indices)
        lanes = emit_together(e, [partial(self._enter, row, {dim: 0}, side) for row in found], block, self.emit_block)
        loaded = [[self._load(op, index, side) for op, index in zip(ops, row, strict=True)] for row in lanes]
        for position, row, values in zip(positions, found, loaded, strict=True):
            place = self._place(row)
            for op, neighbours in zip(ops, values, strict=True):
                if self.dim is not None:
                    self.arrays[op].set(place, neighbours[0])
                    continue
                for beside, value in enumerate(neighbours):
                    keep = partial(self.arrays[op].set, self._beside(place, dim, beside), value)
                    if whole:
                        keep()
                    else:
                        e.when(b.inst("ULessThan", "bool", position, self._i32(self.boxes.lanes)), keep)

    def _load(self, op: KOp, index: Val, side: int) -> list[Val]:
        place, type = self.e.element(op.attrs["param"], index), self._type(op)
        if self.dim is not None:
            return [self.b.load(place, "i32", invariant=True)]
        if side == 1:
            return [self.b.load(place, type, invariant=True)]
        return self.b.load_vector(place, type, side, invariant=True)

    def _lanes(self, positions: Sequence[Val], side: int) -> None:
        whole = self._whole(positions, side)
        enter = [partial(self._begin, p, whole, side, n) for p in positions for n in range(side)]
        emit_together(self.e, enter, self.rest, self._guarded, side, self.inside)

    def _squares(self, dim: int) -> None:
        """This invocation's lanes, some along `dim` and as many along the last one."""
        b, e, side, last = self.b, self.e, self.boxes.side, self.usual[0]
        extents = [n // side if d in (dim, last) else n for d, n in enumerate(self.boxes.extents)]
        count = self.boxes.lanes // side**2
        whole = count % b.group == 0

        def square(k: Val) -> None:
            position = b.inst("IAdd", "i32", b.local_id(), b.inst("IMul", "i32", k, self._i32(b.group)))
            present = None if whole else b.inst("ULessThan", "bool", position, self._i32(count))
            position = position if whole else e.bound_integer(position, count - 1)
            found = self._digits(position, self.usual, extents)
            found = [b.inst("IMul", "i32", x, self._i32(side)) if d in (dim, last) else x for d, x in enumerate(found)]
            place = self._place(found)
            words = {op: [a.get(self._beside(place, last, n)) for n in range(side)] for op, a in self.arrays.items()}
            each = [(along, beside) for along in range(side) for beside in range(side)]
            enter = [partial(self._begin_in_square, found, dim, lane, words, present) for lane in each]
            emit_together(e, enter, self.rest, self._guarded, side, self.inside)

        counted(e, self._i32(-(-count // b.group)), square)

    def _begin_in_square(
        self,
        found: Sequence[Val],
        dim: int,
        lane: tuple[int, int],
        words: Mapping[KOp, Sequence[Val]],
        present: Val | None,
    ) -> None:
        e, b, (along, beside) = self.e, self.b, lane
        self._enter(found, {dim: along, self.usual[0]: beside}, self.boxes.side)
        if present is not None:
            e.values[self.inside] = e.both(e.values[self.inside], present)
        for op, held in words.items():
            dtype, type = e.kernel.params[op.attrs["param"]].dtype, self._type(op)
            part = b.inst("ShiftRightLogical", "i32", held[beside], self._i32(8 * SIZE[type] * along))
            e.values[op.results[0]] = from_memory(e, self._as_loaded(b.inst("UConvert", type, part), dtype), dtype)

    def _begin(self, position: Val, whole: bool, side: int, beside: int) -> None:
        e, last = self.e, self.usual[0]
        found = self._digits(self._bounded(position, whole, side), self.usual)
        self._enter(found, {last: beside}, side)
        if not whole:
            present = self.b.inst("ULessThan", "bool", position, self._i32(self.boxes.lanes))
            e.values[self.inside] = e.both(e.values[self.inside], present)
        place = self._beside(self._place(found), last, beside)
        for op, array in self.arrays.items():
            dtype = e.kernel.params[op.attrs["param"]].dtype
            e.values[op.results[0]] = from_memory(e, self._as_loaded(array.get(place), dtype), dtype)

    def _as_loaded(self, value: Val, dtype: DType) -> Val:
        return value if memory_type(dtype) == value.type else self.e.bitcast(value, memory_type(dtype))

    def _guarded(self, e: Emitter, block: Block) -> tuple[Val, ...]:
        """One operation; with an effect only where the lane is in the domain."""
        (op,) = block.ops
        if op.results:
            return self.emit_block(e, block)

        def effect() -> None:
            self.emit_block(e, block)

        e.when(e.values[self.inside], effect)
        return ()
