"""Kernel -> LLVM IR text of its chunk function (and of its finish function): the skeleton.

    rows of this chunk { [tile: sort lanes] { groups of lanes { body } } row reductions } chunk reductions

The last group of a row that isn't a multiple of groups takes lanes of the one before it once more, where that does
no harm; else it is partly filled and runs under a mask, and where the body is straight-line code the full groups get
their own copy without masks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from loopgrad.codegen.kernel.nodes import Kernel, KOp, walk
from loopgrad.codegen.options import Options
from loopgrad.codegen.scalar.elementwise import FLOAT_ORDER, PREDICATES
from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface, StackInterface
from loopgrad.codegen.targets.cpu.vector import (
    arrays,
    control,
    copies,
    elementwise,
    memory,
    order,
    reduce,
    running,
    shards,
    stacks,
)
from loopgrad.codegen.targets.cpu.vector.context import Affine, VectorEmitter
from loopgrad.codegen.targets.cpu.vector.far_rows import far_loads
from loopgrad.codegen.targets.cpu.vector.lanes import copy_bytes, plan_lanes
from loopgrad.codegen.targets.cpu.vector.math_calls import crowded
from loopgrad.codegen.targets.cpu.vector.parts import in_parts
from loopgrad.codegen.targets.cpu.vector.vectors import Vector

VALUES = {
    "const": elementwise.emit_const,
    "cast": elementwise.emit_cast,
    "bitcast": elementwise.emit_bitcast,
    "select": elementwise.emit_select,
    "alias": elementwise.emit_alias,
    "stop_gradient": elementwise.emit_alias,
    **dict.fromkeys(FLOAT_ORDER, elementwise.emit_compare),
    **dict.fromkeys(PREDICATES, elementwise.emit_predicate),
    "whole_power": elementwise.emit_whole_power,
    "load": memory.emit_load,
    "pop": stacks.emit_pop,
    "array_load": arrays.emit_array_load,
}
EFFECTS = {
    "store": memory.emit_store,
    "accumulate": memory.emit_accumulate,
    "for": control.emit_for,
    "while": control.emit_while,
    "if": control.emit_if,
    "push": stacks.emit_push,
    "array_store": arrays.emit_array_store,
    "reduce": reduce.emit_reduce,
    "scan": running.emit_scan,
    "check": control.emit_check,
}
TWO_COPIES_OPS = 80
PARAMETERS = {"%params": "ptr", "%chunk": "i64", "%worker": "ptr", "%control": "ptr"}


def dispatch(e: VectorEmitter, op: KOp) -> None:
    """Emit one operation and enter its results into `env`."""
    effect = EFFECTS.get(op.opcode)
    if effect is not None:
        effect(e, op)
        return
    result = op.results[0]
    form = e.analysis.forms[result]
    if form is not None and op.opcode in ("min", "max") and result.dtype.is_integer:
        picked = e.analysis.settled(op)
        if picked is not None:  # a clamp that can't bind
            e.env[result] = e.env[picked]
            return
    if form is not None and any(form):
        e.env[result] = affine(e, op)
        return
    if form is not None and any(any(e.analysis.forms[v] or ()) for v in op.operands):  # the lanes cancel
        e.env[result] = affine(e, op).base
        return
    value = VALUES.get(op.opcode, elementwise.emit_elementwise)(e, op)
    uniform = e.analysis.uniform(result)
    e.env[result] = value if value.uniform == uniform else e.b.vector(value)


def affine(e: VectorEmitter, op: KOp) -> Affine:
    """The scalar base of a value of known, lane-dependent form."""
    type = f"i{op.results[0].dtype.bits}"
    bases = [e.b.resize(e.base(v), type) for v in op.operands]
    if len(bases) == 2:  # add, sub, mul
        return Affine(e.integer(type, op.opcode, bases[0], bases[1]))
    if op.opcode == "neg":
        return Affine(e.integer(type, "sub", e.b.const(type, 0), bases[0]))
    return Affine(bases[0])


def repeatable(kernel: Kernel, ops: list[KOp]) -> bool:
    """Whether a lane may run twice: it only reads arrays, and writes others."""
    ordered = kernel.reductions or kernel.stacks or kernel.running is not None
    return not ordered and not any(op.opcode == "accumulate" for op in ops)


class KernelEmission:
    """The text of one kernel and its interface."""

    def __init__(self, kernel: Kernel, symbol: str, machine: Machine, options: Options) -> None:
        self.layout = plan_lanes(kernel, machine, options)
        self.kernel = kernel
        self.symbol = symbol
        self.e = VectorEmitter(kernel, self.layout, machine, options.fast_math, dispatch)
        self.e.far_loads = far_loads(kernel)
        self.e.crowded = crowded(kernel)
        self.outlined: dict[str, str] = {}

    def text(self) -> str:
        e = self.e
        self.prologue()
        if self.layout.across is not None:
            self.rows_across(*self.layout.across)
        elif self.layout.rows == 1 and self.layout.pieces == 1 and self.layout.shards is None:
            self.row(e.b.const("i64", 0), e.b.const("i64", 0), e.b.const("i64", self.layout.lanes))
        else:
            self.rows()
        reduce.close(e, (reduce.WHOLE,), e.b.named("i64", "%chunk"))
        entry = [*e.entry, "  br label %start"]
        body, parts = in_parts(self.symbol, PARAMETERS, entry, ["start:", *e.b.lines], "#0")
        head = f"define void @{self.symbol}(ptr noalias %params, i64 %chunk, ptr noalias %worker, ptr %control) #0 {{"
        finish = reduce.finish_text(self.kernel, self.layout, self.symbol)
        self.outlined.update({name: make() for name, make in e.b.outlined.items()})
        if finish:
            self.outlined.update(reduce.trees(self.kernel, self.layout))
        self.finish = f"{self.symbol}_finish" if finish else None
        return f"{head}\nentry:\n{body}\n  ret void\n}}\n\n{parts}{finish}"

    def interface(self) -> CpuKernelInterface:
        """Valid after `text`."""
        kernel, layout = self.kernel, self.layout
        copies = tuple([
            layout.chunks * copy_bytes(kernel, p) for p in layout.copies
        ])  # fmt: skip
        return CpuKernelInterface(
            symbol=self.symbol,
            finish=self.finish,
            chunks=layout.chunks,
            chunk_lanes=layout.piece_lanes * layout.rows_per_chunk,
            lanes_in_flight=layout.flight,
            serial=layout.serial,
            scratch=reduce.partial_bytes(kernel, layout) + copies + running.scratch_bytes(kernel, layout),
            stacks=tuple([StackInterface(stacks.depth_bytes(s, layout), s.depth_param) for s in kernel.stacks]),
            errors=len(kernel.errors),
            interruptible=self.e.interruptible,
            cleared=running.cleared_bytes(kernel, layout),
        )

    # -- parts

    def prologue(self) -> None:
        """Pointers, stacks, accumulators, private copies."""
        e, kernel = self.e, self.kernel
        e.b.label = "start"
        pointers = len(kernel.params) + len(kernel.reductions) + len(self.layout.copies)
        pointers += len(running.scratch_bytes(kernel, self.layout))
        for i in range(pointers):
            e.entry.append(f"  %param.at.{i} = getelementptr ptr, ptr %params, i64 {i}")
            e.entry.append(f"  %p{i} = load ptr, ptr %param.at.{i}, !invariant.load !1")
        e.param_names = [f"%p{i}" for i in range(len(kernel.params))]
        for i in range(len(kernel.reductions)):
            e.entry.append(f"  %partials.{i} = getelementptr i8, ptr %p{len(kernel.params) + i}, i64 0")
        stacks.declare_stacks(e)
        arrays.declare_arrays(e)
        reduce.declare_accumulators(e)
        running.declare_carry(e)
        if self.layout.sort_tile is not None:
            order.declare_order(e)
        reduce.begin(e, (reduce.WHOLE,))
        first_copy = len(kernel.params) + len(kernel.reductions)
        for i, param in enumerate(self.layout.copies):
            copies.begin(e, param, f"%p{first_copy + i}")

    def rows(self) -> None:
        e, layout = self.e, self.layout
        b = e.b
        chunk = b.named("i64", "%chunk")
        if layout.shards is not None:
            low, high = shards.chunk_bounds(b, layout, chunk)
            self.row(b.const("i64", 0), low, high)
            shards.close_chunk(e, low, high)
            return
        if layout.pieces > 1:
            row = b.scalar("i64", f"udiv i64 %chunk, {layout.pieces}") if layout.rows > 1 else b.const("i64", 0)
            piece = b.scalar("i64", f"urem i64 %chunk, {layout.pieces}") if layout.rows > 1 else chunk
            if self.kernel.running is not None and self.kernel.running.reverse:
                piece = b.scalar("i64", f"sub nuw nsw i64 {layout.pieces - 1}, {piece.name}")
            low = b.scalar("i64", f"mul nuw nsw i64 {piece.name}, {layout.piece_lanes}")
            high = b.scalar("i64", f"add nuw nsw i64 {low.name}, {layout.piece_lanes}")
            high = b.scalar("i64", f"call i64 @llvm.smin.i64(i64 {high.name}, i64 {layout.lanes})")
            if self.kernel.running is not None:
                self.stretch(row, piece, low, high)
            else:
                self.row(row, low, high)
            return
        first = b.scalar("i64", f"mul nuw nsw i64 %chunk, {layout.rows_per_chunk}")
        last = b.scalar("i64", f"add nuw nsw i64 {first.name}, {layout.rows_per_chunk}")
        last = b.scalar("i64", f"call i64 @llvm.smin.i64(i64 {last.name}, i64 {layout.rows})")
        whole = b.const("i64", layout.lanes)
        e.counted(first, last, 1, lambda row: self.row(row, b.const("i64", 0), whole))

    def stretch(self, row: Vector, piece: Vector, low: Vector, high: Vector) -> None:
        """Lanes [low, high) of a row that several chunks share: totalled, then scanned after what is before them."""
        e = self.e
        e.row, self.outer_indices = row, self.split_index(row, self.layout.outer)
        running.begin(e)
        e.folding = True
        self.plain_groups(low, high)
        e.folding = False
        running.meet(e, e.b.named("i64", "%chunk"), self.layout.pieces)
        self.running_groups(low, high)

    def running_groups(self, low: Vector, high: Vector) -> None:
        """In the order in which the total runs."""
        assert self.kernel.running is not None
        (self.falling_groups if self.kernel.running.reverse else self.plain_groups)(low, high)

    def rows_across(self, dim: int, size: int) -> None:
        """A piece of each of some rows, which are neighbours along an outer dim: each group of lanes of all rows before
        the next."""
        e, b, layout = self.e, self.e.b, self.layout
        extent, pitch = layout.outer[dim], prod(layout.outer[dim + 1 :])
        sizes = (layout.rows // (extent * pitch), pitch, -(-extent // size), layout.pieces)
        above, below, block, piece = self.split_index(b.named("i64", "%chunk"), sizes)

        def bounds(number: Vector, each: int, end: int) -> tuple[Vector, Vector]:
            low = b.scalar("i64", f"mul nuw nsw i64 {number.name}, {each}")
            high = b.scalar("i64", f"add nuw nsw i64 {low.name}, {each}")
            return low, b.scalar("i64", f"call i64 @llvm.smin.i64(i64 {high.name}, i64 {end})")

        first, last = bounds(block, size, extent)
        start = b.scalar("i64", f"mul nuw nsw i64 {above.name}, {extent * pitch}")
        start = b.scalar("i64", f"add nuw nsw i64 {start.name}, {below.name}")

        def row(k: Vector, mask: Vector | None) -> None:
            moved = b.scalar("i64", f"mul nuw nsw i64 {k.name}, {pitch}")
            e.row = b.scalar("i64", f"add nuw nsw i64 {start.name}, {moved.name}")
            self.outer_indices = self.split_index(e.row, layout.outer)
            self.group(mask)

        self.plain_groups(
            *bounds(piece, layout.piece_lanes, layout.lanes),
            lambda mask: e.counted(first, last, 1, partial(row, mask=mask)),
        )

    def row(self, row: Vector, low: Vector, high: Vector) -> None:
        """Lanes [low, high) of one row."""
        e, layout = self.e, self.layout
        e.row = row
        reduce.begin(e, (reduce.ROW, reduce.DIRECT))
        running.begin(e)
        self.outer_indices = self.split_index(row, layout.outer)
        if layout.shards is not None:
            if layout.shards.block > layout.shards.part:
                e.counted(low, high, layout.shards.block, lambda start: self.block(start, high))
            else:
                e.counted(low, high, layout.shards.part, lambda start: self.part(start, high))
        elif layout.sort_tile is not None:
            e.counted(low, high, layout.sort_tile, lambda tile: self.tile(tile, high))
        elif layout.single:
            self.group(None)
        elif self.kernel.running is not None:
            self.running_groups(low, high)
        else:
            self.plain_groups(low, high)
        reduce.close(e, (reduce.DIRECT,), row)
        piece = e.b.named("i64", "%chunk") if layout.pieces > 1 else row
        reduce.close(e, (reduce.ROW,), piece)

    def part(self, start: Vector, high: Vector) -> None:
        """The part of a shard from a lane on."""
        e, layout = self.e, shards.shards_of(self.layout)
        stop = shards.smaller(e.b, e.b.scalar("i64", f"add nuw nsw i64 {start.name}, {layout.part}"), high.name)
        shards.begin_part(e)
        if layout.block == layout.part:
            self.block(start, stop)
        else:
            e.counted(start, stop, layout.block, lambda first: self.block(first, stop))
        shards.close_part(e, start)

    def block(self, start: Vector, high: Vector) -> None:
        """Lanes from start on whose contributions to parts of shards wait for each other."""
        e = self.e
        size = shards.shards_of(self.layout).block
        stop = shards.smaller(e.b, e.b.scalar("i64", f"add nuw nsw i64 {start.name}, {size}"), high.name)
        e.block_start = start
        if self.layout.sort_tile is not None:
            self.tile(start, stop)
        elif self.layout.single:
            self.group(None)
        else:
            self.plain_groups(start, stop)
        shards.close_block(e, start, stop)

    def split_index(self, linear: Vector, dims: tuple[int, ...]) -> list[Vector]:
        """Scalar indices of a linear index."""
        b, out = self.e.b, []
        for i, size in enumerate(dims):
            stride = prod(dims[i + 1 :])
            part = linear
            if stride > 1:
                part = b.scalar("i64", f"udiv i64 {part.name}, {stride}")
            if i > 0:
                part = b.scalar("i64", f"urem i64 {part.name}, {size}")
            out.append(part)
        return out

    def plain_groups(self, low: Vector, high: Vector, run: Callable[[Vector | None], None] | None = None) -> None:
        """Groups of neighbouring lanes; a mask only for the last one where the code is short. `run(mask)` runs one."""
        e, layout = self.e, self.layout
        b, flight = e.b, layout.flight

        def group(j: Vector, mask: Vector | None) -> None:
            e.lane_start = j
            with e.under(mask):
                (run or self.group)(mask)

        shard = layout.shards
        bounds = (layout.lanes,) if shard is None else (layout.lanes, shard.extent, shard.block)
        ragged_end = any(bound % flight for bound in bounds)
        ops = [*walk(self.kernel.body)]
        simple = len(ops) <= TWO_COPIES_OPS and not any(op.blocks for op in ops)
        if not ragged_end:
            e.counted(low, high, flight, lambda j: group(j, None))
        elif layout.lanes < flight or (shard is not None and shard.block < flight):
            group(low, order.lanes_below(e, low, high))
        elif repeatable(self.kernel, ops):
            last = b.scalar("i64", f"sub nsw i64 {high.name}, {flight}")

            def moved_back(j: Vector) -> None:
                group(b.scalar("i64", f"call i64 @llvm.smin.i64(i64 {j.name}, i64 {last.name})"), None)

            if simple:
                e.counted(low, last, flight, lambda j: group(j, None))
                group(last, None)
            else:
                e.counted(low, high, flight, moved_back)
        elif simple:
            size = b.scalar("i64", f"sub nsw i64 {high.name}, {low.name}")
            rest = b.scalar("i64", f"urem i64 {size.name}, {flight}")
            middle = b.scalar("i64", f"sub nsw i64 {high.name}, {rest.name}")
            e.counted(low, middle, flight, lambda j: group(j, None))
            e.counted(middle, high, flight, lambda j: group(j, order.lanes_below(e, j, high)))
        else:
            e.counted(low, high, flight, lambda j: group(j, order.lanes_below(e, j, high)))

    def falling_groups(self, low: Vector, high: Vector) -> None:
        """The last, partly filled group first."""
        e, flight, b = self.e, self.layout.flight, self.e.b
        size = b.scalar("i64", f"sub nsw i64 {high.name}, {low.name}")
        whole = b.scalar("i64", f"and i64 {size.name}, {-flight}")
        middle = b.scalar("i64", f"add nsw i64 {low.name}, {whole.name}")

        def group(j: Vector, mask: Vector | None) -> None:
            e.lane_start = j
            with e.under(mask):
                self.group(mask)

        def falling(i: Vector) -> None:
            done = b.scalar("i64", f"add nsw i64 {i.name}, {flight}")
            group(b.scalar("i64", f"sub nsw i64 {middle.name}, {done.name}"), None)

        e.counted(middle, high, flight, lambda j: group(j, order.lanes_below(e, j, high)))
        e.counted(b.const("i64", 0), whole, flight, falling)

    def tile(self, tile: Vector, high: Vector) -> None:
        """A sorted tile."""
        e, layout = self.e, self.layout
        b = e.b
        left = b.scalar("i64", f"sub nsw i64 {high.name}, {tile.name}")
        count = b.scalar("i64", f"call i64 @llvm.smin.i64(i64 {left.name}, i64 {layout.sort_tile})")
        self.bind_arguments([])
        order.emit_order(e, tile, count)

        def group(g: Vector) -> None:
            e.lane_start = None
            e.lane_vector = order.ordered_lanes(e, tile, g)
            full = layout.lanes % layout.flight == 0 and layout.shards is None
            mask = None if full else order.lanes_below(e, g, count)
            with e.under(mask):
                self.group(mask)
            e.lane_vector = None

        e.counted(b.const("i64", 0), count, layout.flight, group)

    def bind_arguments(self, inner: list[Vector]) -> None:
        """Domain indices: outer and inner dims scalars, lane dims affine with base 0."""
        e, layout = self.e, self.layout
        zero = e.b.const("i64", 0)
        lanes = [zero if layout.single else Affine(zero) for _ in layout.lane]
        e.arguments = [*self.outer_indices, *lanes, *inner]
        e.env.update(zip(self.kernel.body.arguments, e.arguments, strict=False))

    def group(self, mask: Vector | None) -> None:
        """The body once for the lanes in flight (for every inner index)."""
        e, layout = self.e, self.layout
        stacks.reset_stacks(e)
        if not layout.inner:
            self.bind_arguments([])
            control.emit_block(e, self.kernel.body)
            return
        reduce.begin(e, (reduce.INNER,))
        self.inner_loops([], layout.inner)
        start = e.lane_start
        assert start is not None
        reduce.close(e, (reduce.INNER,), start)

    def inner_loops(self, indices: list[Vector], dims: tuple[int, ...]) -> None:
        e = self.e
        if not dims:
            self.bind_arguments(indices)
            control.emit_block(e, self.kernel.body)
            return
        b = e.b
        stop = b.const("i64", dims[0])
        e.counted(b.const("i64", 0), stop, 1, lambda i: self.inner_loops([*indices, i], dims[1:]))
