"""What lanes of one invocation touch in turns is read and written as vectors: coordinates of points, small matrices.

    lanes 4i .. 4i + 3 load x[3 l], x[3 l + 1], x[3 l + 2]      twelve elements, three accesses of 16 bytes

One lane alone has vectors where its elements fill them, as those of a 4 x 4 matrix do. A vector is as aligned as it is
wide: see `side_by_side`, which is for lanes with one element each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from loopgrad.codegen.kernel.linear_index import linear
from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory, to_memory

WORD: Final = 4  # bytes of the narrowest elements
MOST: Final = 64  # elements of a group

Cell = tuple[int, KOp]


@dataclass(frozen=True, slots=True, eq=False)
class InterleavedAccesses:
    """Loads or stores of a parameter. `size`: bytes of an element, `row_bytes` from lane to lane; `cells`: the distance
    from the first lane's element 0 -> which lane, and by which operation; `vectors`: where those of `width` elements
    begin."""

    param: int
    size: int
    row_bytes: int
    ops: dict[KOp, int]
    cells: dict[int, Cell]
    vectors: tuple[int, ...]
    width: int

    @property
    def fills(self) -> bool:
        """Whether a lane by itself touches a vector, all of it, or equal parts of one."""
        return len(self.ops) * self.size == self.row_bytes and VECTOR_BYTES % self.row_bytes == 0

    @property
    def stores(self) -> bool:
        return any(op.opcode == "store" for op in self.ops)


def interleaved(kernel: Kernel, side: int) -> list[InterleavedAccesses]:
    """Of `side` lanes that lie side by side, the first at a multiple of it."""
    extents = [n for n in kernel.domain if n > 1]
    if not extents or kernel.domain[-1] == 1 or (len(extents) > 1 and extents[-1] % side):
        return []
    forms, touched = linear(kernel), dict[int, int]()
    groups: dict[tuple[str, int, tuple[int, ...]], dict[int, KOp]] = {}
    for op in kernel.body.ops:
        if "param" not in op.attrs:
            continue
        touched[op.attrs["param"]] = touched.get(op.attrs["param"], 0) + 1
        form = forms.get(op.operands[0]) if op.opcode in ("load", "store") else None
        if form is not None:
            groups.setdefault((op.opcode, op.attrs["param"], form.factors), {}).setdefault(form.constant, op)
    found = []
    for (opcode, param, factors), ops in groups.items():
        known = opcode == "load" or (len(ops) == touched[param] and kernel.params[param].access == "write")
        if known and (opcode == "store" or kernel.params[param].access == "read"):
            group = _group(kernel, param, factors, ops, side)
            found += [group] if group is not None else []
    return found


def _group(
    kernel: Kernel, param: int, factors: Sequence[int], ops: dict[int, KOp], side: int
) -> InterleavedAccesses | None:
    stride, size = factors[-1], SIZE[memory_type(kernel.params[param].dtype)]
    if stride < 2 or len(ops) < 2 or size < WORD or not 1 < len(ops) * side <= MOST:
        return None
    width = VECTOR_BYTES // size
    while width > 1 and (stride * side % width or any(factor % width for factor in factors[:-1])):
        width //= 2
    cells = {stride * lane + constant: (lane, op) for lane in range(side) for constant, op in ops.items()}
    if width < 2 or len(cells) < side * len(ops):
        return None
    starts = range(min(cells) // width * width, max(cells) + 1, width)
    whole = [start for start in starts if all(start + i in cells for i in range(width))]
    places = {op: c for c, op in ops.items()}
    return InterleavedAccesses(param, size, stride * size, places, cells, tuple(whole), width) if whole else None


Places = Sequence[dict[KValue, Val]]


class InterleavedLanes:
    """Emits such groups for `lanes`, `side` of which at a time lie side by side."""

    def __init__(self, e: Emitter, side: int, lanes: int) -> None:
        self.e, self.side, self.lanes = e, side, lanes
        self.group: dict[KOp, InterleavedAccesses] = {}
        for group in interleaved(e.kernel, side):
            if group.param not in e.arrays:
                self.group.update(dict.fromkeys(group.ops, group))
        self.left: dict[InterleavedAccesses, int] = {}

    def emit(self, op: KOp, values: Places) -> bool:
        """Whether the operation is one of a group: its first loads, its last stores."""
        group = self.group.get(op)
        if group is None:
            return False
        left = self.left.get(group, len(group.ops)) - 1
        self.left[group] = left
        if op.opcode == "load" and left == len(group.ops) - 1:
            self._each(group, op, values, self._load)
        elif op.opcode == "store" and not left:
            self._each(group, op, values, self._store)
        return True

    def _each(
        self,
        group: InterleavedAccesses,
        op: KOp,
        values: Places,
        access: Callable[[InterleavedAccesses, Val, Sequence[Cell], Places], None],
    ) -> None:
        b = self.e.b
        covered = {start + i for start in group.vectors for i in range(group.width)}
        pieces = [(start, group.width) for start in group.vectors] + [(p, 1) for p in group.cells if p not in covered]
        for first in range(0, self.lanes, self.side):
            some = values[first : first + self.side]
            start = b.inst("ISub", "i64", some[0][op.operands[0]], b.const("i64", group.ops[op]))
            for place, count in pieces:
                index = b.inst("IAdd", "i64", start, b.const("i64", place))
                cells = [group.cells[place + i] for i in range(count)]
                access(group, self.e.element(group.param, index), cells, some)

    def _load(self, group: InterleavedAccesses, place: Val, cells: Sequence[Cell], values: Places) -> None:
        dtype = self.e.kernel.params[group.param].dtype
        type, count = memory_type(dtype), len(cells)
        if count > 1:
            found = self.e.b.load_vector(place, type, count, invariant=True)
        else:
            found = [self.e.b.load(place, type, invariant=True)]
        for (lane, op), x in zip(cells, found, strict=True):
            values[lane][op.results[0]] = from_memory(self.e, x, dtype)

    def _store(self, group: InterleavedAccesses, place: Val, cells: Sequence[Cell], values: Places) -> None:
        dtype = self.e.kernel.params[group.param].dtype
        stored = [to_memory(self.e, values[lane][op.operands[1]], dtype) for lane, op in cells]
        if len(stored) > 1:
            self.e.b.store_vector(place, stored)
        else:
            self.e.b.store(place, stored[0])


def writes_ragged_rows(kernel: Kernel, side: int) -> bool:
    """Whether lanes write rows that are vectors only where so many lie side by side. On an H200 the rotations of a
    million points by three angles each take 1.8 times as long one element after the other."""
    return any(group.stores and VECTOR_BYTES % group.row_bytes for group in interleaved(kernel, side))


def touches_in_turns(kernel: Kernel) -> bool:
    """Whether a lane by itself has such vectors."""
    return prod(kernel.domain) > 1 and bool(interleaved(kernel, 1))
