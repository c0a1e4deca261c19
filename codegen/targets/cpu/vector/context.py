"""The state of one kernel's emission, shared by the files that emit one family of operations each.

`env` maps Kernel IR values to what stands for them: a `Vector`, or an `Affine` (a scalar base, plus the
form's coefficients times the lane's indices) whose vector is made only where it is needed.
`mask` is the execution mask: the lanes whose program is at this point; None means all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from loopgrad.codegen.extents.extent import integer_of
from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.vector.analysis import Analysis
from loopgrad.codegen.targets.cpu.vector.lanes import LaneLayout
from loopgrad.codegen.targets.cpu.vector.paired_stores import PairedStores
from loopgrad.codegen.targets.cpu.vector.vectors import FunctionText, Vector, llvm_type
from loopgrad.graph.types import DType

FEW_LOADS = 8  # of a kernel, each of which may be written twice


def memory_type(dtype: DType) -> str:
    return "i8" if dtype.kind == "b" else llvm_type(dtype)


@dataclass(frozen=True, slots=True)
class Affine:
    """base + sum(coefficient * index of lane dim), the coefficients being the value's form."""

    base: Vector


@dataclass(frozen=True, slots=True)
class Strided:
    """Element indices start + step * lane, start a scalar."""

    start: Vector
    step: int


class VectorEmitter:
    """See the module docstring."""

    def __init__(
        self,
        kernel: Kernel,
        layout: LaneLayout,
        machine: Machine,
        fast: bool,
        dispatch: Callable[[VectorEmitter, KOp], None],
    ) -> None:
        self.kernel = kernel
        self.layout = layout
        self.analysis = Analysis(kernel, layout)
        self.paired_stores = PairedStores(kernel, self.analysis.ranges)
        self.machine = machine
        self.fast = fast
        self.b = FunctionText(layout.width, layout.groups)
        self.env: dict[KValue, Vector | Affine] = {}
        self.mask: Vector | None = None
        self.row = self.b.const("i64", 0)
        self.lane_start: Vector | None = self.b.const("i64", 0)  # scalar: lane index of the first lane
        self.block_start: Vector | None = None  # of lanes that are reduced together (shards)
        self.lane_vector: Vector | None = None  # or, under a sorted order, every lane's index
        self.param_names: list[str] = []
        self.copy_names: dict[int, str] = {}
        self.entry: list[str] = []  # allocas and other text of the entry block
        self.arguments: list[Vector | Affine] = []  # what stands for the domain's indices
        self.dispatch = dispatch
        self.crowded: frozenset[tuple[str, str]] = frozenset()  # math recipes that are functions
        self.math_functions: dict[str, list[Vector]] = {}  # symbol -> its results
        self.interruptible = False  # once a loop asks now and then whether to go on
        self.row_sums: dict[int, int] | None = None  # of stacks, once they were asked for
        self.folding = False  # a stretch of a row is only totalled, before it is scanned
        loads = sum([op.opcode == "load" for op in kernel.body.ops])
        self.looks_for_neighbours = loads <= FEW_LOADS and not any(op.blocks for op in kernel.body.ops)
        self.far_loads: frozenset[KOp] = frozenset()  # that ask for what is read next (far_rows)
        self.loops = 0  # that surround what is being written
        self.nesting: int | None = None  # how many of the kernel's loops contain each other, once that was asked

    # -- reading values

    def get(self, v: KValue) -> Vector:
        """A scalar where v is uniform, else a vector (32-bit lanes where v is narrow)."""
        entry = self.env[v]
        if isinstance(entry, Vector):
            return entry
        return self.b.once(("vector", v), lambda: self.materialise(v, entry.base))

    def vec(self, v: KValue) -> Vector:
        return self.b.vector(self.get(v))

    def base(self, v: KValue) -> Vector:
        """The uniform part of a value of known form."""
        entry = self.env[v]
        return entry if isinstance(entry, Vector) else entry.base

    def wide(self, v: KValue) -> Vector:
        """v in its own dtype's width, as its consumers outside index arithmetic want it."""
        return self.b.resize(self.get(v), llvm_type(v.dtype)) if v.dtype.kind == "i" else self.get(v)

    # -- lanes

    def integer(self, type: str, op: str, a: Vector, b: Vector) -> Vector:
        """Integer add, mul or sub with the trivial cases folded (keeps the text small)."""
        if a.uniform and b.uniform and a.name[0] != "%" and b.name[0] != "%":
            x, y = integer_of(a.name), integer_of(b.name)
            value = x + y if op == "add" else x * y if op == "mul" else x - y
            return self.b.const(type, (value + (1 << 63)) % (1 << 64) - (1 << 63) if type == "i64" else value)
        if b.uniform and b.name == ("1" if op == "mul" else "0"):
            return b if op == "mul" and b.name == "0" else a
        if op == "add" and a.uniform and a.name == "0":
            return b
        if op == "mul" and ((a.uniform and a.name == "0") or (b.uniform and b.name == "0")):
            return self.b.const(type, 0)
        if op == "mul" and a.uniform and a.name == "1":
            return b
        return self.b.inst(type, op + " {t0} {a}, {b}", a, b)

    def lane_indices(self) -> Vector:
        """The linear lane index of every lane within its row."""
        if self.lane_vector is not None:
            return self.lane_vector
        assert self.lane_start is not None
        start, type = self.lane_start, "i32" if self.layout.lanes < 1 << 31 else "i64"
        first = self.b.resize(start, type)
        return self.b.once(
            ("lanes", start), lambda: self.integer(type, "add", self.b.lanes(type), self.b.vector(first))
        )

    def dim_index(self, position: int) -> Vector:
        """Every lane's index along one of several lane dims."""
        return self.b.once(("dim", position, self.lane_start, self.lane_vector), lambda: self._dim_index(position))

    def _dim_index(self, position: int) -> Vector:
        dims = self.layout.lane
        linear = self.lane_indices()
        stride, size = prod(dims[position + 1 :]), dims[position]
        if stride > 1:
            linear = self.b.inst(linear.type, "udiv {t0} {a}, {b}", linear, self.b.const(linear.type, stride))
        if position > 0:
            linear = self.b.inst(linear.type, "urem {t0} {a}, {b}", linear, self.b.const(linear.type, size))
        return linear

    def strided(self, v: KValue) -> Strided | None:
        """v as start + step * lane with a scalar start, where it has that form."""
        step = self.analysis.lane_stride(self.analysis.forms[v])
        if step is None or (step and self.lane_start is None):
            return None
        base = self.base(v)
        if not step:
            return Strided(base, 0)
        assert self.lane_start is not None
        offset = self.integer("i64", "mul", self.lane_start, self.b.const("i64", step))
        return Strided(self.integer("i64", "add", self.b.resize(base, "i64"), offset), step)

    def materialise(self, v: KValue, base: Vector) -> Vector:
        """The vector of a value of known form."""
        form = self.analysis.forms[v]
        assert form is not None
        type = "i32" if self.analysis.ranges.fits_int32(v) else llvm_type(v.dtype)
        known = self.strided(v)
        if known is not None:
            start = self.b.resize(known.start, type)
            return self.integer(type, "add", self.b.lanes(type, 0, known.step), self.b.vector(start))
        total = self.b.resize(base, type)
        step = self.analysis.lane_stride(form)
        if step is not None:
            parts = [(step, self.lane_indices())]
        else:
            parts = [(c, self.dim_index(i)) for i, c in enumerate(form) if c]
        for factor, index in parts:
            scaled = self.integer(type, "mul", self.b.resize(index, type), self.b.const(type, factor))
            total = self.integer(type, "add", scaled, total)
        return self.b.vector(total)

    def row_lane(self) -> Vector:
        """The linear lane index, over the whole domain, of each lane in flight (i64)."""
        index = self.b.resize(self.lane_indices(), "i64")
        offset = self.integer("i64", "mul", self.row, self.b.const("i64", self.layout.lanes))
        return self.integer("i64", "add", index, offset)

    # -- structure

    @contextmanager
    def under(self, mask: Vector | None) -> Iterator[None]:
        """Emit with another execution mask; what is remembered inside is forgotten afterwards."""
        saved = self.mask
        self.mask = mask
        try:
            with self.b.scope():
                yield
        finally:
            self.mask = saved

    @contextmanager
    def inside_loop(self) -> Iterator[None]:
        """Emit the body of a loop."""
        self.loops += 1
        yield
        self.loops -= 1

    def any_active(self, mask: Vector | None) -> str:
        return "true" if mask is None else self.b.any(mask)

    def counted(self, start: Vector, stop: Vector, step: int, body: Callable[[Vector], None]) -> None:
        """A scalar loop over i64: for (i = start; i < stop; i += step)."""
        b = self.b
        enter, head, leave = b.label, b.fresh_label("loop"), b.fresh_label("done")
        go = b.scalar("i1", f"icmp slt i64 {start.name}, {stop.name}")
        enter = b.label
        b.branch(go.name, head, leave)
        b.start(head)
        phi = b.reserve()
        index = Vector("i64", (b.fresh(),), True)
        with b.scope():
            body(index)
        following = b.scalar("i64", f"add nsw i64 {index.name}, {step}")
        again = b.scalar("i1", f"icmp slt i64 {following.name}, {stop.name}")
        b.lines[phi] = f"  {index.name} = phi i64 [ {start.name}, %{enter} ], [ {following.name}, %{b.label} ]"
        b.branch(again.name, head, leave)
        b.start(leave)

    def slot(self, type: str, name: str, align: int = 64) -> str:
        """A place in the frame (promoted to a register by the optimiser where it is simple)."""
        self.entry.append(f"  %{name} = alloca {type}, align {align}")
        return f"%{name}"
