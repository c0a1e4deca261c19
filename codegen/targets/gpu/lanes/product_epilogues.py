"""Launches that go on with a matrix product element by element, as the product's epilogue.

    z = x @ w                                          y = tanh(x @ w + b), whose elements are finished in registers,
    k0   y[i] = tanh(z[i] + b[i % n])           ->     or z = x @ w and k0, where a library multiplies

An epilogue's lanes are the elements of the product, each of which reads its own and no other. It may read other arrays
as it likes, even the factors, since it writes none that the product reads. It moves up to the product when nothing in
between touches what it does. The product itself is only stored where something else reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from loopgrad.codegen.kernel.footprint import scattered_reads
from loopgrad.codegen.program import LaunchStep, MatmulStep, Program, Step
from loopgrad.codegen.steps import all_steps, changed_by, named, slot_uses, with_blocks
from loopgrad.codegen.targets.gpu.lanes.analysis import weight
from loopgrad.codegen.targets.gpu.lanes.row_layouts import indices, own_element
from loopgrad.codegen.targets.gpu.lanes.row_stages import suits
from loopgrad.codegen.targets.gpu.lanes.slot_versions import begun, with_versions

HEAVIEST: Final = 1000  # an epilogue: it is code of every product's kernel that has it
MOST_PASSED: Final = 32  # steps that it may be moved before


def with_epilogues(program: Program) -> Program:
    """See the module's text."""
    if not any(isinstance(step, MatmulStep) for step in all_steps(program.steps)):
        return program
    return _Epilogues(program).run()


class _Epilogues:
    def __init__(self, program: Program) -> None:
        self.program, self.kernels, self.slots = program, program.kernels, list(program.slots)
        self.uses = slot_uses(program)

    def run(self) -> Program:
        steps = self.block(self.program.steps)
        found = any(isinstance(step, MatmulStep) and step.epilogue is not None for step in all_steps(steps))
        return replace(self.program, steps=steps, slots=tuple(self.slots)) if found else self.program

    def block(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        done: list[Step] = []
        inner = [with_blocks(step, self.block) for step in steps]
        for step in with_versions(inner, self.kernels, self.slots, self.uses):
            place = self.product(step, done) if isinstance(step, LaunchStep) and self.goes_on(step) else None
            product = None if place is None else done[place]
            if place is not None and isinstance(step, LaunchStep) and isinstance(product, MatmulStep):
                done[place] = replace(product, epilogue=step, stored=self.uses[product.out] > 2)
            else:
                done.append(step)
        return tuple(done)

    def goes_on(self, step: LaunchStep) -> bool:
        """Whether it may be an epilogue by its kernel alone."""
        kernel = self.kernels[step.kernel]
        if step.initials or kernel.reductions or not suits(kernel) or weight(kernel) > HEAVIEST:
            return False
        return not self.reads(step) & self.writes(step) and not scattered_reads(kernel)

    def product(self, step: LaunchStep, done: Sequence[Step]) -> int | None:
        """Which of the steps before it is the product that it goes on with."""
        reads, writes = self.reads(step), self.writes(step)
        for place in range(len(done) - 1, max(len(done) - MOST_PASSED, 0) - 1, -1):
            before = done[place]
            if isinstance(before, MatmulStep) and before.out in reads:
                return place if before.epilogue is None and self.finishes(step, before) else None
            if not isinstance(before, LaunchStep | MatmulStep):
                return None
            if self.changed(before) & (reads | writes) or not writes.isdisjoint(named(before)):
                return None
        return None

    def finishes(self, step: LaunchStep, product: MatmulStep) -> bool:
        kernel = self.kernels[step.kernel]
        if prod(kernel.domain) != product.batch * product.m * product.n or step.slots.count(product.out) != 1:
            return False
        if not self.writes(step).isdisjoint((product.left, product.right, product.out)):
            return False
        own = own_element(kernel.domain)
        return all(found == own for found in indices(kernel, {step.slots.index(product.out)}))

    # ---- what steps do to slots

    def reads(self, step: LaunchStep) -> set[int]:
        return set(step.slots) - self.writes(step)

    def writes(self, step: LaunchStep) -> set[int]:
        return changed_by(step, self.kernels)

    def changed(self, step: LaunchStep | MatmulStep) -> set[int]:
        if isinstance(step, LaunchStep):
            return self.writes(step)
        return begun(step, self.kernels).union(set() if step.epilogue is None else self.writes(step.epilogue))
