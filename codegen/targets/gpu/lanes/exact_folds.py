"""Folds whose every total is shown: a term may be larger than what is before it, and a sum must not hide the rest."""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.kernel.nodes import Reduction
from loopgrad.codegen.math.compensated import with_any
from loopgrad.codegen.math.sums_of_exponentials import EXPONENTIALS
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.lanes.function_folds import FunctionFold
from loopgrad.codegen.targets.gpu.lanes.partials import Folding, Partial, combined, number, with_term, with_terms
from loopgrad.codegen.targets.gpu.lanes.plan import parts
from loopgrad.codegen.targets.gpu.lanes.tiles import RegisterFold

Term = tuple[Val, ...]  # what a lane gives; of a combination also whether it is there


class ExactFold(RegisterFold):
    """One term after the other: a running total shows what a single sum would hide."""

    def add(self, *terms: Val) -> None:
        self.set(with_all_exactly(self.e, self.reduction, self.get(), [(x,) for x in terms]))


def with_exactly(e: Emitter, r: Folding, total: Partial, term: Term) -> Partial:
    """One more term, which may be larger than the total."""
    if isinstance(r, FunctionFold):
        return combined(e, r, total, term)
    return with_any(ScalarOps(e), *total, *term) if parts(r) == 2 else with_term(e, r, total, *term)


def with_all_exactly(e: Emitter, r: Folding, total: Partial, terms: Sequence[Term]) -> Partial:
    """Some more, of which only the sum is shown."""
    if isinstance(r, Reduction) and r.kind == EXPONENTIALS:
        return with_terms(e, r, total, [x for (x,) in terms])
    for term in terms:
        total = with_exactly(e, r, total, term)
    return total


def shown(e: Emitter, r: Folding, total: Partial) -> tuple[Val, ...]:
    """The numbers that it is."""
    return total[:-1] if isinstance(r, FunctionFold) else (number(e, r, total),)
