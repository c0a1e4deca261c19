"""Launches that hand on whole rows, as one launch: a workgroup takes its rows through all of them.

Enters: a Program. Leaves: one in which runs of launches are single ones, of kernels with stages.

    k0   m[i] = max over j of x[i, j]                       k0+k1+k2, for each row i:
    k1   s[i] = sum over j of e[i, j] = exp(x[i, j] - m[i])   ->   m[i]; barrier; s[i] and e; barrier; y[i, :]
    k2   y[i, j] = e[i, j] / s[i]

What a later stage reads of what an earlier one wrote must lie in the same row, by the indices of both; then a barrier
of the workgroup orders them, and what is read again comes from its caches. An array of which each lane touches only its
own element or that of its row, and which nothing else of the program touches, stays in memory of the workgroup. A
reduction over all rows leaves a part of each tile, as it does elsewhere.

Launches in between that have nothing to do with the rows come after the stages, where no slot forbids it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Final

from loopgrad.codegen.kernel.linear_index import Linear, places
from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.program import LaunchStep, Program, Step
from loopgrad.codegen.steps import all_steps, changed_by, slot_uses, with_blocks
from loopgrad.codegen.targets.gpu.assembler import WARP
from loopgrad.codegen.targets.gpu.lanes.analysis import straight, weight
from loopgrad.codegen.targets.gpu.lanes.apart import straight_part
from loopgrad.codegen.targets.gpu.lanes.column_members import column_members
from loopgrad.codegen.targets.gpu.lanes.plan import SHORT_ROW, Geometry, reduced_rows
from loopgrad.codegen.targets.gpu.lanes.row_layouts import (
    RowLayout,
    beside,
    in_layout,
    indices,
    lane_element,
    row_dims,
    row_element,
    with_rows,
)
from loopgrad.codegen.targets.gpu.lanes.row_members import may_be_held, row_members
from loopgrad.codegen.targets.gpu.lanes.shard_plan import shards_of
from loopgrad.codegen.targets.gpu.lanes.slot_versions import with_versions
from loopgrad.codegen.targets.gpu.lanes.stage_tiles import reduces_rows, stage_tiles
from loopgrad.graph.types import int64

MOST_STAGES: Final = 16
MOST_WEIGHT: Final = 4000  # of all stages, which are one piece of code
MOST_PASSED: Final = 32  # launches that stages may be moved before
LONGEST_ALONE: Final = 1 << 10  # elements of rows that are reduced once
LONG_ACROSS: Final = 1 << 11  # of columns whose results are stored as rows


def with_row_stages(program: Program, geometry: Geometry) -> Program:
    """See the module's text."""
    return _Fusion(program, geometry).run()


@dataclass(frozen=True, slots=True)
class _Stage:
    """A launch, its kernel over the rows' lanes, and what it does to slots."""

    step: LaunchStep
    kernel: Kernel
    reads: frozenset[int]
    writes: frozenset[int]


@dataclass(slots=True)
class _Run:
    """Launches that will be one."""

    layout: RowLayout
    stages: list[_Stage] = field(default_factory=list)
    weight: int = 0

    @property
    def written(self) -> set[int]:
        return {slot for stage in self.stages for slot in stage.writes}

    @property
    def read(self) -> set[int]:
        return {slot for stage in self.stages for slot in stage.reads}


class _Fusion:
    def __init__(self, program: Program, geometry: Geometry) -> None:
        self.program, self.geometry = program, geometry
        self.kernels, self.slots = list(program.kernels), list(program.slots)
        self.uses = slot_uses(program)

    def run(self) -> Program:
        steps = self.block(self.program.steps)
        if len(self.kernels) == len(self.program.kernels):
            return self.program
        return with_launched_kernels(replace(self.program, slots=tuple(self.slots)), self.kernels, steps)

    def block(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        done: list[Step] = []
        rest = with_versions([with_blocks(step, self.block) for step in steps], self.kernels, self.slots, self.uses)
        while rest:
            run, left = self.run_from(rest)
            if run is None:
                done.append(rest.pop(0))
            else:
                done.append(self.fused(run))
                rest = [kept for i, step in enumerate(rest) if (kept := left.get(i, step)) is not None]
        return tuple(done)

    # ---- which launches

    def run_from(self, steps: Sequence[Step]) -> tuple[_Run | None, dict[int, LaunchStep | None]]:
        """The stages that begin with the first step, and what is left of each step that is one, or has one apart."""
        layout = self.rows_from(steps)
        if layout is None:
            return None, {}
        run, left = _Run(layout), dict[int, LaunchStep | None]()
        passed: list[LaunchStep] = []
        for i, step in enumerate(steps):
            if not isinstance(step, LaunchStep) or len(passed) > MOST_PASSED or len(run.stages) == MOST_STAGES:
                break
            now, other = self.apart(step)
            stage = self.stage(now, run)
            if stage is not None and self.may_precede(stage, passed) and self.joins(stage, run):
                run.stages.append(stage)
                run.weight += weight(stage.kernel)
                left[i] = other
                passed += [other] if other is not None else []
            elif not i:
                return None, {}
            else:
                passed.append(step)
        while run.stages and self.only_held(layout) and not self.holds(run):
            run.stages.pop()
            left.popitem()
        reduces = any(stage.kernel.reductions and reduces_rows(stage.kernel, layout.rows) for stage in run.stages)
        if not reduces or (len(run.stages) < 2 and not self.alone(run)):
            return None, {}
        for stage, other in zip(run.stages, left.values(), strict=True):
            if other is not None:
                self.uses.update(set(stage.step.slots) & set(other.slots))
        return run, left

    def apart(self, step: LaunchStep) -> tuple[LaunchStep, LaunchStep | None]:
        """The launch, or what of it may be a stage by itself, and the rest."""
        parts = straight_part(self.kernels[step.kernel]) if not step.initials else None
        if parts is None:
            return step, None
        launches = []
        for kernel, touched in parts:
            places = [touched.index(i) if i in touched else 0 for i in range(len(kernel.params))]
            self.kernels.append(WithParams(kernel, tuple([kernel.params[i] for i in touched]), places).run())
            launches.append(LaunchStep(len(self.kernels) - 1, tuple([step.slots[i] for i in touched])))
        return launches[0], launches[1]

    def rows_from(self, steps: Sequence[Step]) -> RowLayout | None:
        """The rows of the first launch that reduces some, where the first of all can have part in these."""
        first = steps[0]
        if not isinstance(first, LaunchStep):
            return None
        lanes = prod(self.kernels[first.kernel].domain)
        for step in steps[:MOST_PASSED]:
            if not isinstance(step, LaunchStep):
                return None
            kernel = self.kernels[step.kernel]
            found = reduced_rows(kernel) if kernel.reductions and suits(kernel) else None
            if found is not None and found[1] > 1 and lanes in (prod(found), found[0]):
                layout = RowLayout(*found, beside(kernel, *found))
                near = [] if layout.length >= LONG_ACROSS else steps[:MOST_PASSED]
                if any(self.stores_rows(later, layout) for later in near):
                    layout = RowLayout(*found)
                fits = not self.only_held(layout) or may_be_held(layout, self.geometry)
                return layout if fits else None
        return None

    def stores_rows(self, step: Step, layout: RowLayout) -> bool:
        """Whether a launch reads columns and numbers its lanes row by row. On an H200 a layer norm of the transposed of
        1,024 x 16,384 takes 1.5 times as long in columns, a softmax of 2,048 x 16,384 1.3 times in rows."""
        if layout.beside == 1 or not isinstance(step, LaunchStep):
            return False
        kernel = self.kernels[step.kernel]
        if kernel.reductions or kernel.stages or prod(kernel.domain) != layout.lanes:
            return False
        in_rows = with_rows(kernel, layout.rows, layout.length)
        return in_rows is not None and beside(in_rows, layout.rows, layout.length) == layout.beside

    def stage(self, step: LaunchStep, run: _Run) -> _Stage | None:
        """The launch as a stage over these rows."""
        kernel = self.kernels[step.kernel]
        if step.initials or not suits(kernel) or run.weight + weight(kernel) > MOST_WEIGHT:
            return None
        layout, lanes = run.layout, prod(kernel.domain)
        if kernel.reductions and reduced_rows(kernel) not in ((layout.rows, layout.length), (1, layout.lanes)):
            return None
        of_rows = kernel if lanes == layout.rows else None
        split = in_layout(kernel, layout) if lanes == layout.lanes else of_rows
        if split is None:
            return None
        pairs = list(zip(step.slots, split.params, strict=True))
        reads = frozenset([slot for slot, param in pairs if param.access == "read"])
        writes = frozenset([slot for slot, param in pairs if param.access == "write"])
        return None if reads & writes else _Stage(step, split, reads, writes)

    def may_precede(self, stage: _Stage, passed: Iterable[LaunchStep]) -> bool:
        """Whether it doesn't matter that it comes before these."""
        for step in passed:
            sources = {start.source for _, start in step.initials}
            seen = sources.union(step.slots)
            if not changed_by(step, self.kernels).isdisjoint(stage.reads | stage.writes) or not stage.writes.isdisjoint(
                seen
            ):
                return False
        return True

    def joins(self, stage: _Stage, run: _Run) -> bool:
        """Whether what it shares with the stages before lies in the same rows, and there is room for it."""
        written = run.written
        if stage.writes & (written | run.read):
            return False  # a slot that serves again: its next elements may meet those of another row
        shared, layout = stage.reads & written, run.layout
        if not all(keeps_rows(stage, slot, layout) for slot in shared):
            return False
        makers = [(maker, slot) for maker in run.stages for slot in shared & maker.writes]
        if not all(keeps_rows(maker, slot, layout) for maker, slot in makers):
            return False
        kernels = [*(s.kernel for s in run.stages), stage.kernel]
        return self.only_held(layout) or stage_tiles(layout.rows, layout.length, kernels, self.geometry) is not None

    def alone(self, run: _Run) -> bool:
        """Whether rows that are only reduced, once, had better be held: columns, and rows that no more than a warp has,
        which waits for no other. On an H200 sums of rows of 700 take 1.5 times as long by workgroups, of 130 1.9."""
        if run.layout.beside > 1:
            return True
        if not (self.geometry.exchanges and SHORT_ROW < run.layout.length <= LONGEST_ALONE):
            return False
        held = row_members(self.together(run)[0], self.geometry)
        return held is not None and held[0].members <= WARP

    def only_held(self, layout: RowLayout) -> bool:
        """Whether rows can only be taken through stages in registers: columns, and those that are too long else."""
        return layout.beside > 1 or stage_tiles(layout.rows, layout.length, (), self.geometry) is None

    def holds(self, run: _Run) -> bool:
        """Whether invocations have registers for what these stages make of rows."""
        kernel = self.together(run)[0]
        return (column_members if kernel.columns else row_members)(kernel, self.geometry) is not None

    # ---- one launch of them

    def fused(self, run: _Run) -> LaunchStep:
        kernel, slots = self.together(run)
        self.kernels.append(kernel)
        return LaunchStep(len(self.kernels) - 1, slots)

    def together(self, run: _Run) -> tuple[Kernel, tuple[int, ...]]:
        """The kernel of all stages, and its slots."""
        held = self.placed(run, held=True)
        if self.only_held(run.layout) or row_members(held[0], self.geometry) is not None:
            return held
        return self.placed(run, held=False)

    def placed(self, run: _Run, held: bool) -> tuple[Kernel, tuple[int, ...]]:
        """The same with the copies that stages need where rows are held, or where they aren't."""
        between = self.between(run)
        copied = self.copied(run, between, held)
        params: dict[int, BufferParam] = {}
        for stage in run.stages:
            for slot, param in zip(stage.step.slots, stage.kernel.params, strict=True):
                if slot not in params or param.access == "write":
                    params[slot] = param
        slots = [slot for slot in params if slot not in between]
        numbers = {slot: i for i, slot in enumerate([*slots, *between])}
        whole = tuple([params[slot] for slot in [*numbers, *copied]])
        copies = {numbers[slot]: len(numbers) + i for i, slot in enumerate(copied)}
        own = [[numbers[slot] for slot in stage.step.slots] for stage in run.stages]
        placed = [WithParams(s.kernel, whole, o, copies).run() for s, o in zip(run.stages, own, strict=True)]
        kernels = [stage for kernel in placed for stage in with_saved(kernel, run.layout, copies)]
        name = "_".join([kernels[0].name, *[k.name.partition("_")[2] for k in kernels[1:]]])
        rows = run.layout.rows
        body = Block((KValue(int64), KValue(int64)))
        left = [replace(r, rank=2) for k in kernels if not reduces_rows(k, rows) for r in k.reductions]
        domain, shared = (rows, run.layout.length), whole[: len(slots)]
        kernel = Kernel(
            name, domain, shared, body,
            reductions=tuple(left), stages=tuple(kernels), columns=run.layout.beside > 1,
        )  # fmt: skip
        return kernel, tuple(slots)

    def between(self, run: _Run) -> list[int]:
        """Slots that only these stages touch, each lane its own element or that of its row, as many as memory of the
        workgroup holds."""
        kernels, layout = [stage.kernel for stage in run.stages], run.layout
        found: list[int] = []
        arrays: list[BufferParam] = []
        for slot in sorted(run.written & run.read):
            touching = [stage for stage in run.stages if slot in stage.reads | stage.writes]
            own = self.slots[slot].kind == "temp" and len(touching) == self.uses[slot]
            keeps = keeps_row_elements if _elements(touching[0], slot) == layout.rows else keeps_lanes
            if not own or not all(keeps(stage, slot, layout) for stage in touching):
                continue
            param = touching[0].kernel.params[touching[0].step.slots.index(slot)]
            if self.have_room(layout, kernels, [*arrays, param]):
                found.append(slot)
                arrays.append(param)
        return found

    def copied(self, run: _Run, between: Sequence[int], held: bool) -> list[int]:
        """Slots for rows' own elements that others need as well, and those for elements of lanes where rows are held.
        Later stages read a copy, for which they needn't wait as for memory."""
        kernels, layout, found = [stage.kernel for stage in run.stages], run.layout, list[int]()
        arrays = [self.param(run, slot) for slot in between]
        for slot in sorted((run.written & run.read).difference(between)):
            touching = [stage for stage in run.stages if slot in stage.reads | stage.writes]
            of_rows = _elements(touching[0], slot) == layout.rows
            keeps = keeps_row_elements if of_rows else keeps_lanes
            if not (of_rows or held) or not all(keeps(s, slot, layout) for s in touching):
                continue
            folded = any(stage.step.slots[r.param] == slot for stage in touching for r in stage.kernel.reductions)
            arrays.append(self.param(run, slot))
            if held or (not folded and self.have_room(layout, kernels, arrays)):
                found.append(slot)
            else:
                arrays.pop()
        return found

    def have_room(self, layout: RowLayout, kernels: Sequence[Kernel], arrays: Sequence[BufferParam]) -> bool:
        """Whether a workgroup has memory for arrays of its rows, if they aren't in registers."""
        shape = (layout.rows, layout.length)
        return self.only_held(layout) or stage_tiles(*shape, kernels, self.geometry, arrays) is not None

    def param(self, run: _Run, slot: int) -> BufferParam:
        stage = next(stage for stage in run.stages if slot in stage.writes)
        return stage.kernel.params[stage.step.slots.index(slot)]


def with_saved(kernel: Kernel, layout: RowLayout, copies: Mapping[int, int]) -> list[Kernel]:
    """The stage, and one that writes to memory what it reduces into a copy."""
    saved = {r.param: copies[r.param] for r in kernel.reductions if r.param in copies}
    if not saved:
        return [kernel]
    row, ops = KValue(int64), list[KOp]()
    for param, copy in saved.items():
        load = KOp("load", (row,), (kernel.params[param].dtype,), {"param": copy})
        ops += [load, KOp("store", (row, *load.results), (), {"param": param})]
    into = tuple([replace(r, param=saved.get(r.param, r.param)) for r in kernel.reductions])
    whole = Kernel(f"{kernel.name}_saved", (layout.rows,), kernel.params, Block((row,), ops))
    return [replace(kernel, reductions=into), whole]


def with_launched_kernels(program: Program, kernels: Sequence[Kernel], steps: Sequence[Step]) -> Program:
    """The program with these steps, and with those of the kernels that they launch."""
    used = dict.fromkeys([step.kernel for step in all_steps(steps) if isinstance(step, LaunchStep)])
    numbers = {old: new for new, old in enumerate(used)}
    return replace(program, kernels=tuple([kernels[old] for old in used]), steps=_launching(steps, numbers))


def _launching(steps: Sequence[Step], numbers: dict[int, int]) -> tuple[Step, ...]:
    def one(step: Step) -> Step:
        if isinstance(step, LaunchStep):
            return replace(step, kernel=numbers[step.kernel])
        return with_blocks(step, lambda block: _launching(block, numbers))

    return tuple([one(step) for step in steps])


def suits(kernel: Kernel) -> bool:
    """Whether a kernel may be a stage: lanes in any order, which report nothing."""
    plain = straight(kernel) and not (kernel.stacks or kernel.errors or kernel.stages)
    plain = plain and kernel.running is None and shards_of(kernel) is None
    return plain and prod(kernel.domain) > 0 and all(param.access != "accumulate" for param in kernel.params)


class WithParams(Rebuilder):
    """The kernel with other parameters: those at `places`. What is stored in some is stored in their `copies` too, from
    which it is loaded."""

    def __init__(
        self,
        kernel: Kernel,
        params: tuple[BufferParam, ...],
        places: Sequence[int],
        copies: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(kernel)
        self.params, self.places, self.copies = params, places, copies

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        results = self.copy(op, operands)
        if "param" not in op.attrs:
            return results
        place = self.places[op.attrs["param"]]
        copy = self.copies.get(place)
        self.out[-1].attrs = {**op.attrs, "param": copy if copy is not None and op.opcode == "load" else place}
        if copy is not None and op.opcode == "store":
            self.out.append(KOp("store", operands, (), {**op.attrs, "param": copy}))
        return results

    def run(self) -> Kernel:
        body = self.block(self.kernel.body)
        reductions = tuple([replace(r, param=self.places[r.param]) for r in self.kernel.reductions])
        return replace(self.kernel, params=self.params, body=body, reductions=reductions, order_key=None)


# ---- where lanes read and write


def keeps_rows(stage: _Stage, slot: int, layout: RowLayout) -> bool:
    """Whether lanes touch no elements of the slot but those of their own row."""
    if layout.beside > 1:
        keeps = keeps_row_elements if _elements(stage, slot) == layout.rows else keeps_lanes
        return keeps(stage, slot, layout)
    return all(found is not None and _in_row(found, stage, slot, layout) for found in _indices(stage, slot))


def keeps_lanes(stage: _Stage, slot: int, layout: RowLayout) -> bool:
    """Whether every lane touches its own element of the slot and no other, in a kernel of all lanes."""
    domain = stage.kernel.domain
    if prod(domain) != layout.lanes or any(stage.step.slots[r.param] == slot for r in stage.kernel.reductions):
        return False
    own = lane_element(domain, layout)
    return own is not None and all(found == own for found in _indices(stage, slot))


def keeps_row_elements(stage: _Stage, slot: int, layout: RowLayout) -> bool:
    """Whether every lane touches the element of its row and no other."""
    wanted = row_element(stage.kernel.domain, layout.rows)
    reduced = any(stage.step.slots[r.param] == slot for r in stage.kernel.reductions)
    own = not reduced or reduces_rows(stage.kernel, layout.rows)
    return own and all(found == wanted for found in _indices(stage, slot))


def _elements(stage: _Stage, slot: int) -> int:
    return stage.kernel.params[stage.step.slots.index(slot)].size


def _indices(stage: _Stage, slot: int) -> list[Linear | None]:
    """Of every load and store of the slot."""
    return indices(stage.kernel, {i for i, s in enumerate(stage.step.slots) if s == slot})


def _in_row(index: Linear, stage: _Stage, slot: int, layout: RowLayout) -> bool:
    domain = stage.kernel.domain
    param = stage.kernel.params[stage.step.slots.index(slot)]
    each, left = divmod(param.size, layout.rows)
    if left or not each:
        return False
    cut = row_dims(domain, layout.rows)
    strides = [each * prod(domain[d + 1 : cut]) if domain[d] > 1 else 0 for d in range(cut)]
    low, high = places(replace(index, factors=(0,) * cut + index.factors[cut:]), domain)
    return list(index.factors[:cut]) == strides and low >= 0 and high < each
