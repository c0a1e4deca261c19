"""Launches whose lanes loop over the same elements, as one whose loop does what both did.

    k0   s[j] = sum of g[i, j] over i                      s[j], t[j] = sums of g[i, j] and of g[i, j] * x[i, j],
    k1   t[j] = sum of g[i, j] * x[i, j] over i      ->    in one loop, which reads g once

Derivatives of what was added to all rows and of what multiplied all of them are such sums. The earlier launch is put
off, with what needs it, so nothing between the two may change what these read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.passes import cse, dce, optimise
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.program import LaunchStep, Program, RoutineStep, Step
from loopgrad.codegen.steps import changed_by, named
from loopgrad.codegen.targets.gpu.lanes.analysis import weight
from loopgrad.codegen.targets.gpu.lanes.joined_loops import in_one_loop, quiet
from loopgrad.codegen.targets.gpu.lanes.joined_pieces import LaunchesTogether, plain_lanes

LARGE: Final = 1 << 16  # elements of an array that two launches had better read once
HEAVIEST: Final = 400  # both together
MOST_PASSED: Final = 32  # steps between the two


def with_joined_sums(program: Program) -> Program:
    """See the module's text."""
    return _SumJoiner(program).run()


class _SumJoiner(LaunchesTogether):
    def any_may_join(self, steps: Sequence[Step]) -> bool:
        return any(isinstance(step, LaunchStep) and _sums(self.kernels[step.kernel]) for step in steps)

    def add(self, done: list[Step], step: LaunchStep) -> None:
        if _sums(self.kernels[step.kernel]) and not step.initials:
            for place in range(len(done) - 1, max(len(done) - MOST_PASSED, 0) - 1, -1):
                before = done[place]
                made = self.together(before, done[place + 1 :], step) if isinstance(before, LaunchStep) else None
                if made is not None:
                    done[place:] = made
                    return
        done.append(step)

    def together(self, first: LaunchStep, between: Sequence[Step], second: LaunchStep) -> list[Step] | None:
        """The steps from the first launch to the second, these as one; None where they can't be."""
        joined = self.joined(first, second)
        if joined is None or (parts := self.around(first, between, second)) is None:
            return None
        (kernel, slots), (early, late) = joined, parts
        return [*early, LaunchStep(self.added(kernel), slots), *late]

    def around(
        self, first: LaunchStep, between: Sequence[Step], second: LaunchStep
    ) -> tuple[list[Step], list[Step]] | None:
        """The steps between the two, or parts of them: those that come before both, and those that need what the first
        one makes; None where an order changes what is read."""
        read, written = self.accesses(first)
        early: list[Step] = []
        late: list[Step] = []
        for step in between:
            if not isinstance(step, LaunchStep | RoutineStep):
                return None
            needs = not written.isdisjoint(named(step))
            sooner, later = self.parts(step, written) if needs and isinstance(step, LaunchStep) else (step, step)
            if needs:
                late.append(later)
                own_read, changed = self.accesses(later)
                read, written = read | own_read, written | changed
            if not needs or sooner is not later:
                early.append(sooner)
                if not self.accesses(sooner)[1].isdisjoint(read | written):
                    return None
        apart = written.isdisjoint(named(second)) and read.isdisjoint(self.accesses(second)[1])
        return (early, late) if apart and not first.initials else None

    def parts(self, step: LaunchStep, written: set[int]) -> tuple[LaunchStep, LaunchStep]:
        """What a launch makes without these slots, and the rest; twice the launch, where it can't be divided."""
        kernel = self.kernels[step.kernel]
        stored = [p for p, param in enumerate(kernel.params) if param.access == "write"]
        if step.initials or not plain_lanes(kernel) or any(param.access == "accumulate" for param in kernel.params):
            return step, step
        alone = {p: _storing(kernel, {p}) for p in stored}
        free = {p for p, (_, used) in alone.items() if written.isdisjoint(step.slots[q] for q in used)}
        if not free or len(free) == len(stored):
            return step, step
        made = [_storing(kernel, chosen) for chosen in (free, set(stored) - free)]
        first, second = (LaunchStep(self.added(k), tuple([step.slots[q] for q in used])) for k, used in made)
        return first, second

    def added(self, kernel: Kernel) -> int:
        self.kernels.append(kernel)
        return len(self.kernels) - 1

    def joined(self, first: LaunchStep, second: LaunchStep) -> tuple[Kernel, tuple[int, ...]] | None:
        """The kernel of both, and the slots of its parameters."""
        a, b = self.kernels[first.kernel], self.kernels[second.kernel]
        if a.domain != b.domain or not _sums(a) or weight(a) + weight(b) > HEAVIEST:
            return None
        if any(len(set(step.slots)) < len(step.slots) for step in (first, second)):
            return None
        both = self.accesses(first)[0] & self.accesses(second)[0]
        if not any(a.params[first.slots.index(slot)].size >= LARGE for slot in both):
            return None
        slots = [*dict.fromkeys([*first.slots, *second.slots])]
        kernel = _in_one_loop(a, b, [[slots.index(s) for s in step.slots] for step in (first, second)])
        if kernel is None:
            return None
        return kernel, tuple(slots)

    def accesses(self, step: LaunchStep | RoutineStep) -> tuple[set[int], set[int]]:
        """The slots that a step only reads, and those that it changes."""
        changed = changed_by(step, self.kernels)
        return set(named(step)) - changed, changed


def _sums(kernel: Kernel) -> bool:
    """Whether lanes run one loop each, which only reads and computes, and store what it makes."""
    loops = [op for op in kernel.body.ops if op.blocks]
    if len(loops) != 1 or loops[0].opcode != "for" or not plain_lanes(kernel):
        return False
    inside = all(map(quiet, walk(loops[0].blocks[0])))
    return inside and not any(param.access == "accumulate" for param in kernel.params)


def _in_one_loop(a: Kernel, b: Kernel, places: Sequence[Sequence[int]]) -> Kernel | None:
    """Both kernels' operations; None where their loops can't be one."""
    arguments, ops = tuple([KValue(v.dtype) for v in a.body.arguments]), list[KOp]()
    params: dict[int, BufferParam] = {}
    for kernel, own in zip((a, b), places, strict=True):
        copy = _Placed(kernel, own)
        copy.env.update(zip(kernel.body.arguments, arguments, strict=True))
        copy.body(kernel.body)
        ops += copy.out
        params.update(zip(own, kernel.params, strict=True))
    name = f"{a.name}_{b.name.partition('_')[2]}"
    ordered = tuple([params[place] for place in range(len(params))])
    whole = cse.run(replace(a, name=name, params=ordered, body=Block(arguments, ops)))
    made = in_one_loop(whole, whole.body, [op for op in whole.body.ops if op.blocks])
    return None if made is None else optimise(made)


def _storing(kernel: Kernel, chosen: set[int]) -> tuple[Kernel, list[int]]:
    """The kernel without what it stores in other parameters, and which parameters it still has."""
    ops = [op for op in kernel.body.ops if op.opcode != "store" or op.attrs["param"] in chosen]
    less = dce.run(replace(kernel, body=replace(kernel.body, ops=ops)))
    used = sorted({op.attrs["param"] for op in walk(less.body) if "param" in op.attrs})
    places = [used.index(p) if p in used else 0 for p in range(len(kernel.params))]
    return replace(_Placed(less, places).run(), params=tuple([kernel.params[p] for p in used])), used


class _Placed(Rebuilder):
    """A kernel's operations over parameters at other places."""

    def __init__(self, kernel: Kernel, places: Sequence[int]) -> None:
        super().__init__(kernel)
        self.places = places

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        results = self.copy(op, operands)
        if "param" in op.attrs:
            self.out[-1].attrs = {**op.attrs, "param": self.places[op.attrs["param"]]}
        return results
