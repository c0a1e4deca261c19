"""What a reduction is while it is made: one number, or for a sum of floats a total and its rest, which becomes one
number when it is stored (see codegen.math.compensated).
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.kernel.nodes import Reduction
from loopgrad.codegen.math.compensated import added, balanced, merged, rounded
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.arrays import narrowed, widened
from loopgrad.codegen.targets.gpu.emit.context import GROUP_TYPE, Emitter, register_type
from loopgrad.codegen.targets.gpu.emit.elementwise import operate
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.lanes.plan import parts
from loopgrad.graph.identities import identity

Partial = tuple[Val, ...]


def nothing(e: Emitter, r: Reduction) -> Partial:
    return (ScalarOps(e).element(r.dtype, identity(r.kind, r.dtype)),) * parts(r)


def of_term(e: Emitter, r: Reduction, x: Val) -> Partial:
    """What one term alone makes."""
    return (x, *nothing(e, r)[1:])


def with_term(e: Emitter, r: Reduction, partial: Partial, x: Val) -> Partial:
    if parts(r) == 2:
        total, rest = partial
        return added(ScalarOps(e), total, rest, x)
    return (operate(e, r.kind, r.dtype, [*partial, x]),)


def with_terms(e: Emitter, r: Reduction, partial: Partial, terms: Sequence[Val]) -> Partial:
    """Terms of a float sum are added up first, which makes the compensation cheap."""
    if parts(r) == 2:
        return with_term(e, r, partial, balanced(ScalarOps(e).add, terms))
    for x in terms:
        partial = with_term(e, r, partial, x)
    return partial


def combined(e: Emitter, r: Reduction, x: Partial, y: Partial) -> Partial:
    return merged(ScalarOps(e), *x, *y) if parts(r) == 2 else with_term(e, r, x, *y)


def number(e: Emitter, r: Reduction, partial: Partial) -> Val:
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


class GroupPartials:
    """An array of partial reductions in memory of the workgroup."""

    def __init__(self, e: Emitter, r: Reduction, count: int) -> None:
        self.arrays = [GroupArray(e, register_type(r.dtype), count) for _ in range(parts(r))]

    def set(self, index: Val, partial: Partial) -> None:
        for array, value in zip(self.arrays, partial, strict=True):
            array.set(index, value)

    def get(self, index: Val) -> Partial:
        return tuple([array.get(index) for array in self.arrays])
