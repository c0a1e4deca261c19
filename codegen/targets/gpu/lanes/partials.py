"""What a reduction is while it is made: one number, or for a sum of floats a total and its rest, which becomes one
number when it is stored (see codegen.math.compensated); for one of exponentials three (sums_of_exponentials there).
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.kernel.nodes import Reduction, RunningTotal
from loopgrad.codegen.math import sums_of_exponentials
from loopgrad.codegen.math.compensated import added, balanced, merged, rounded
from loopgrad.codegen.math.sums_of_exponentials import EXPONENTIALS, ByOps
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, Val, Variable
from loopgrad.codegen.targets.gpu.emit.arrays import narrowed, widened
from loopgrad.codegen.targets.gpu.emit.context import GROUP_TYPE, SIZE, Emitter, memory_type, register_type
from loopgrad.codegen.targets.gpu.emit.elementwise import operate
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.lanes.function_folds import FunctionFold
from loopgrad.codegen.targets.gpu.lanes.plan import group_size, group_type, partial_size, parts
from loopgrad.graph.identities import identity
from loopgrad.graph.types import DType

Partial = tuple[Val, ...]
Folding = Reduction | FunctionFold


def folding(running: RunningTotal) -> Folding:
    """What combines its terms."""
    if running.function is not None:
        return FunctionFold(running.leaves, running.function)
    return Reduction(running.kind, running.dtype, running.param, 0)


def kept(r: Folding) -> tuple[DType, ...]:
    """The numbers that are left in memory of what some terms make."""
    return r.leaves if isinstance(r, FunctionFold) else (r.dtype,) * parts(r)


def kept_size(dtypes: Sequence[DType]) -> int:
    """Bytes of each of these in memory, where they are kept in places of one size."""
    return max(SIZE[memory_type(dtype)] for dtype in dtypes)


def group_sizes(r: Folding) -> tuple[int, int]:
    """Bytes in memory of the workgroup of a term, and of what is combined so far."""
    if isinstance(r, FunctionFold):
        term, partial = (sum([SIZE[group_type(dtype)] for dtype in dtypes]) for dtypes in (r.leaves, r.parts))
        return term, partial
    return group_size(r), partial_size(r)


def nothing(e: Emitter, r: Folding) -> Partial:
    if isinstance(r, FunctionFold):
        return r.nothing(e)
    if r.kind == EXPONENTIALS:
        m = ScalarOps(e)
        return sums_of_exponentials.nothing(ByOps(m), m.element(r.dtype, 0.0))
    return (ScalarOps(e).element(r.dtype, identity(r.kind, r.dtype)),) * parts(r)


def of_term(e: Emitter, r: Reduction, x: Val) -> Partial:
    """What one term alone makes."""
    if r.kind == EXPONENTIALS:
        return sums_of_exponentials.of_term(ByOps(ScalarOps(e)), x)
    return (x, *nothing(e, r)[1:])


def with_term(e: Emitter, r: Reduction, partial: Partial, x: Val) -> Partial:
    if parts(r) == 2:
        total, rest = partial
        return added(ScalarOps(e), total, rest, x)
    if r.kind == EXPONENTIALS:
        anchor, total, rest = partial
        return sums_of_exponentials.with_term(ByOps(ScalarOps(e)), (anchor, total, rest), x)
    if r.kind in ("min", "max") and r.dtype.is_float:  # which zero is found is up to the order of the fold anyhow
        found = e.b.extreme(r.kind, partial[0], x)
        if found is not None:
            return (found,)
    return (operate(e, r.kind, r.dtype, [*partial, x]),)


def with_terms(e: Emitter, r: Reduction, partial: Partial, terms: Sequence[Val]) -> Partial:
    """Terms of a float sum are added up first, which makes the compensation cheap."""
    if r.kind == EXPONENTIALS:
        return combined(e, r, partial, sums_of_exponentials.of_terms(ByOps(ScalarOps(e)), terms))
    if parts(r) == 2:
        return with_term(e, r, partial, balanced(ScalarOps(e).add, terms))
    for x in terms:
        partial = with_term(e, r, partial, x)
    return partial


def combined(e: Emitter, r: Folding, x: Partial, y: Partial) -> Partial:
    if isinstance(r, FunctionFold):
        return r.combined(e, x, y)
    if r.kind == EXPONENTIALS:
        (a, b, c), (d, f, g) = x, y
        return sums_of_exponentials.combined(ByOps(ScalarOps(e)), (a, b, c), (d, f, g))
    return merged(ScalarOps(e), *x, *y) if parts(r) == 2 else with_term(e, r, x, *y)


def number(e: Emitter, r: Reduction, partial: Partial) -> Val:
    if r.kind == EXPONENTIALS:
        anchor, total, rest = partial
        return sums_of_exponentials.logarithm(ByOps(ScalarOps(e)), (anchor, total, rest))
    return rounded(ScalarOps(e), *partial) if parts(r) == 2 else partial[0]


class GroupArray:
    """An array in memory of the workgroup."""

    def __init__(self, e: Emitter, type: str, count: int) -> None:
        self.b, self.type = e.b, type
        self.stored = GROUP_TYPE.get(type, type)
        self.array: Variable = e.b.shared(self.stored, count)

    def set(self, index: Val, value: Val) -> None:
        self.b.shared_set(self.array, index, widened(self.b, self.type, value))

    def get(self, index: Val) -> Val:
        return narrowed(self.b, self.type, self.b.shared_get(self.array, index, self.stored))

    @property
    def wide(self) -> int:
        """Elements of the widest vector."""
        return VECTOR_BYTES // SIZE[self.stored]

    def set_side(self, index: Val, values: Sequence[Val]) -> None:
        """Some side by side: as many vectors, each aligned, as they are."""
        for first in range(0, len(values), self.wide):
            some = [widened(self.b, self.type, x) for x in values[first : first + self.wide]]
            self.b.shared_set_vector(self.array, self._further(index, first), some)

    def get_side(self, index: Val, count: int) -> list[Val]:
        found = list[Val]()
        for first in range(0, count, self.wide):
            many = min(self.wide, count - first)
            found += self.b.shared_get_vector(self.array, self._further(index, first), self.stored, many)
        return [narrowed(self.b, self.type, x) for x in found]

    def _further(self, index: Val, by: int) -> Val:
        return self.b.inst("IAdd", "i32", index, self.b.const("i32", by)) if by else index


class RowArray:
    """An array in memory of the workgroup with an element for each row of a tile, as lanes see it. Implements
    LaneArray."""

    def __init__(self, array: GroupArray, rows: int, length: int) -> None:
        """`rows` of the tile, with `length` lanes each."""
        self.array, self.b, self.rows, self.length = array, array.b, rows, length
        self.one = rows == 1

    def set(self, position: Val, value: Val) -> None:
        self.array.set(self._row(position), value)

    def get(self, position: Val) -> Val:
        return self.array.get(self._row(position))

    def _row(self, position: Val) -> Val:
        if self.rows == 1:
            return self.b.const("i32", 0)
        if self.length == 1:
            return position
        return self.b.inst("UDiv", "i32", position, self.b.const("i32", self.length))


class SideArray:
    """One with an element for each lane. Where `side` lanes of an invocation lie side by side, invocations' elements
    do, so that they lie in different banks. Implements LaneArray."""

    one = False

    def __init__(self, array: GroupArray, size: int, side: int) -> None:
        self.array, self.b, self.side, self.apart = array, array.b, side, -(-size // side)

    def set(self, position: Val, value: Val) -> None:
        self.array.set(self._place(position), value)

    def get(self, position: Val) -> Val:
        return self.array.get(self._place(position))

    def _place(self, position: Val) -> Val:
        if self.side == 1:
            return position
        b, side = self.b, self.b.const("i32", self.side)
        first = b.inst("UDiv", "i32", position, side)
        nth = b.inst("ISub", "i32", position, b.inst("IMul", "i32", first, side))
        return b.inst("IAdd", "i32", first, b.inst("IMul", "i32", nth, b.const("i32", self.apart)))


class GroupPartials:
    """An array of partial reductions in memory of the workgroup."""

    def __init__(self, e: Emitter, r: Folding, count: int) -> None:
        dtypes = r.parts if isinstance(r, FunctionFold) else (r.dtype,) * parts(r)
        self.arrays = [GroupArray(e, register_type(dtype), count) for dtype in dtypes]

    def set(self, index: Val, partial: Partial) -> None:
        for array, value in zip(self.arrays, partial, strict=True):
            array.set(index, value)

    def get(self, index: Val) -> Partial:
        return tuple([array.get(index) for array in self.arrays])


class CarriedPartial:
    """What an invocation keeps from tile to tile: nothing at first."""

    def __init__(self, e: Emitter, r: Folding) -> None:
        self.b, start = e.b, nothing(e, r)
        self.variables: list[tuple[Variable, str]] = [(e.b.local(v.type), v.type) for v in start]
        self.set(start)

    def get(self) -> Partial:
        return tuple([self.b.get(*v) for v in self.variables])

    def set(self, partial: Partial) -> None:
        for (variable, _), value in zip(self.variables, partial, strict=True):
            self.b.set(variable, value)
