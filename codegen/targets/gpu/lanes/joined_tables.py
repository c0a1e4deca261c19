"""Launches whose lanes add to the same table, one after the other, as one launch that adds both.

    k0   t[i[n]] += f(n)                   t[i[n]] += f(n)
    k1   t[j[n]] += g(n)            ->     t[j[n]] += g(n)

The sums of a table are cleared, begun and rounded once then, and what the first launch makes for the second stays in
registers. Such are derivatives of interpolation, whose lanes read the corners of a cell, and of what is read at both
ends of an edge or at all corners of an element. Lanes of a table so large that a part of it at a time is at work do
nothing else (table_parts): what they do besides is a launch by itself (tables_apart).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, walk
from loopgrad.codegen.program import LaunchStep, Program, RoutineStep, Step
from loopgrad.codegen.steps import changed_by, named
from loopgrad.codegen.targets.gpu.lanes.analysis import at_random, straight, weight
from loopgrad.codegen.targets.gpu.lanes.joined_pieces import MOST_WEIGHT, PieceCut, PieceJoiner, plain_lanes
from loopgrad.codegen.targets.gpu.lanes.table_parts import PART
from loopgrad.codegen.targets.gpu.lanes.tables_apart import launches_apart, terms_apart

LIMB: Final = 8  # bytes of a first one
MOST_PASSED: Final = 16  # steps between the two


def with_joined_tables(program: Program) -> Program:
    """See the module's text."""
    return _TableJoiner(program).run()


class _TableJoiner(PieceJoiner):
    def add(self, done: list[Step], step: LaunchStep) -> None:
        """An earlier one that adds to its table is put off."""
        adds = self.accesses(step)[2]
        for place in range(len(done) - 1, max(len(done) - MOST_PASSED, 0) - 1, -1) if adds else ():
            before, between = done[place], done[place + 1 :]
            if isinstance(before, LaunchStep) and self.may_follow(before, between):
                joined = self.together(before, step)
                if joined is not None:
                    rest, later_rest, launch = joined
                    done[place:] = [*rest, *between, *later_rest, launch]
                    return
        done.append(step)

    def may_follow(self, step: LaunchStep, others: Sequence[Step]) -> bool:
        """Whether it does the same after these, and they before it."""
        changed = changed_by(step, self.kernels)
        return all(
            isinstance(other, LaunchStep | RoutineStep)
            and changed.isdisjoint(named(other))
            and changed_by(other, self.kernels).isdisjoint(named(step))
            for other in others
        )

    def together(
        self, first: LaunchStep, second: LaunchStep
    ) -> tuple[list[LaunchStep], list[LaunchStep], LaunchStep] | None:
        """What either does besides, where that is by itself, and the launch that adds both."""
        table = self.table(first, second)
        if table is None:
            return None
        if not self.in_parts(first, second, table):
            launch = self.added_together(first, second, table)
            return None if launch is None else ([], [], launch)
        found, later = (self.terms_apart(step, table) for step in (first, second))
        if found is None or later is None:
            return None
        (*rest, terms), (*later_rest, later_terms) = found, later
        if not self.may_follow(terms, later_rest):
            return None
        self.replaced([first, second], [*found, *later])
        launch = self.added_together(terms, later_terms, table)
        if launch is None:
            self.replaced([*found, *later], [first, second])
        return None if launch is None else (rest, later_rest, launch)

    def added_together(self, first: LaunchStep, second: LaunchStep, table: int) -> LaunchStep | None:
        a, b = (self.kernels[step.kernel] for step in (first, second))
        if a.domain != b.domain or not a.domain or weight(a) + weight(b) > MOST_WEIGHT:
            return None
        if not all(plain_lanes(kernel) and straight(kernel) for kernel in (a, b)):
            return None
        made = self.handed_on_beside(first, second, table)
        return None if made is None else self.one_launch(first, second, (a, b), PieceCut(0, a.domain[0], 1), made)

    def terms_apart(self, step: LaunchStep, table: int) -> Sequence[LaunchStep] | None:
        """What the launch does besides, if that is something, and what only adds to the slot `table`; None where that
        can't be."""
        kernel = self.kernels[step.kernel]
        if self.accesses(step)[1:] == (set(), {table}):
            return [step]
        parts = terms_apart(kernel, step.slots.index(table))
        return None if parts is None else launches_apart(step, parts, self.kernels)

    def table(self, first: LaunchStep, second: LaunchStep) -> int | None:
        """The slot to which both add, where the second goes on with what the first one leaves there."""
        shared = self.accesses(first)[2] & self.accesses(second)[2]
        if len(shared) != 1:
            return None
        (table,) = shared
        goes_on = any(second.slots[i] == table == start.source for i, start in second.initials)
        kind, other = (_accumulations(self.kernels[step.kernel], step.slots, table)[0] for step in (first, second))
        if not goes_on or kind != other or kind in ("", "set"):  # of what is set, the last one counts
            return None
        return table

    def in_parts(self, first: LaunchStep, second: LaunchStep, table: int) -> bool:
        """Whether what both add to the slot is added part by part."""
        both = (_accumulations(self.kernels[step.kernel], step.slots, table)[1] for step in (first, second))
        return all(both) and self.slots[table].type.size * LIMB > PART

    def handed_on_beside(self, first: LaunchStep, second: LaunchStep, table: int) -> set[int] | None:
        """Slots that the first launch writes and the second reads; None where what they do besides adding to the table
        mustn't be one launch."""
        (_, made, added), (read, written, more) = self.accesses(first), self.accesses(second)
        changed, beside = written | (more - {table}), added - {table}
        seen = {*first.slots, *[start.source for _, start in first.initials]}
        started = {start.source for i, start in second.initials if second.slots[i] != table}
        apart = changed.isdisjoint(seen) and beside.isdisjoint(second.slots) and started.isdisjoint(made | added)
        each = all(len(set(step.slots)) == len(step.slots) for step in (first, second))
        return made & read if apart and each else None


def _accumulations(kernel: Kernel, slots: Sequence[int], table: int) -> tuple[str, bool]:
    """How its lanes combine with elements of the table, where they do nothing else there and others may do so too; and
    whether these are elements at random."""
    touching = [op for op in walk(kernel.body) if "param" in op.attrs and slots[op.attrs["param"]] == table]
    plain = all(op.opcode == "accumulate" and not op.attrs["exclusive"] for op in touching)
    kinds = {op.attrs["kind"] for op in touching} if plain else set()
    return kinds.pop() if len(kinds) == 1 else "", all(at_random(op.operands[0]) for op in touching)
