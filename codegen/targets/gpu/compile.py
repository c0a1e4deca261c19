"""Program -> Artifact, for any GPU target: its kernels, the support kernels that they need, the record.

A target gives an `ImageBuilder`: it takes kernels one after the other and answers with the code of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

from loopgrad.codegen.artifact import Artifact, StageTexts
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.kernel.text import print_kernel
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program, RoutineRow
from loopgrad.codegen.targets.gpu.arena import arena
from loopgrad.codegen.targets.gpu.lanes.choices import chosen
from loopgrad.codegen.targets.gpu.lanes.flat_lanes import flat
from loopgrad.codegen.targets.gpu.lanes.joined_loops import with_joined_loops
from loopgrad.codegen.targets.gpu.lanes.joined_pieces import with_pieces
from loopgrad.codegen.targets.gpu.lanes.joined_sums import with_joined_sums
from loopgrad.codegen.targets.gpu.lanes.joined_tables import with_joined_tables
from loopgrad.codegen.targets.gpu.lanes.layout import interface, notes, plan, ways
from loopgrad.codegen.targets.gpu.lanes.narrow_totals import with_narrow_totals
from loopgrad.codegen.targets.gpu.lanes.plan import UNTILED, Geometry, LaneMapping
from loopgrad.codegen.targets.gpu.lanes.product_epilogues import with_epilogues
from loopgrad.codegen.targets.gpu.lanes.row_stages import with_row_stages
from loopgrad.codegen.targets.gpu.lanes.running_terms import with_running_terms
from loopgrad.codegen.targets.gpu.lanes.stack_rows import with_stack_rows
from loopgrad.codegen.targets.gpu.lanes.started import starts, with_starts
from loopgrad.codegen.targets.gpu.lanes.table_parts import in_parts
from loopgrad.codegen.targets.gpu.lanes.tables_apart import with_tables_apart
from loopgrad.codegen.targets.gpu.lanes.windows import written_out
from loopgrad.codegen.targets.gpu.record import Module, ProgramRecord
from loopgrad.codegen.targets.gpu.support.steps import supported


class ImageBuilder(Protocol):
    """Code in the making, for a target with workgroups of that geometry."""

    @property
    def geometry(self) -> Geometry: ...

    def add(self, kernel: Kernel, fast: bool, plan: LaneMapping) -> None:
        """One more kernel, under the next number."""
        ...

    def finish(self) -> tuple[list[Module], bytes, Mapping[str, str]]:
        """A row per kernel in the order of `add`, the code, and its texts by stage, written when they are read."""
        ...


class _Kernels:
    """Numbers kernels. One that says the same as another shares its code and number, but where messages need
    the kernel's own line."""

    def __init__(self, image: ImageBuilder, options: Options) -> None:
        self.image, self.options, self.geometry = image, options, image.geometry
        self.written: list[tuple[int, ...]] = []  # of each number
        self._known: dict[tuple[str, bool, LaneMapping], int] = {}

    def own(self, kernel: Kernel, fast: bool, shape: LaneMapping) -> int:
        verify_kernel(kernel)
        key = (print_kernel(replace(kernel, name="")), fast, shape)
        if key in self._known and not (kernel.stacks or kernel.errors):
            return self._known[key]
        self.image.add(kernel, fast, shape)
        self._known[key] = number = len(self.written)
        self.written.append(tuple([i for i, param in enumerate(kernel.params) if param.access != "read"]))
        return number

    def add(self, kernel: Kernel, plan: LaneMapping = UNTILED) -> int:
        """A support kernel's number."""
        return self.own(kernel, False, plan)


def compile_for(program: Program, options: Options, image: ImageBuilder) -> Artifact[ProgramRecord]:
    """Everything a device needs to run `program`."""
    straightened = replace(program, kernels=tuple([_straightened(kernel) for kernel in program.kernels]))
    totalled = with_narrow_totals(with_running_terms(straightened))
    launched = with_stack_rows(with_joined_sums(totalled))
    launched = with_joined_tables(with_tables_apart(with_pieces(launched), options, image.geometry.wide))
    program = with_epilogues(with_row_stages(launched, image.geometry))
    parted = [in_parts(kernel, options, image.geometry.wide) for kernel in program.kernels]
    program = replace(program, kernels=tuple(parted))
    kernels = _Kernels(image, options)
    interfaces, found = [], list(program.notes)
    met: list[RoutineRow] = []
    shapes = [plan(kernel, options, image.geometry) for kernel in program.kernels]
    started = starts(program, shapes)
    for kernel, shape, start in zip(program.kernels, shapes, started, strict=True):
        number = kernels.own(kernel, options.fast_math, shape)
        interfaces.append(interface(kernel, number, shape, kernels, start))
        found += notes(kernel, shape)
        met += ways(kernel, shape)
    done = supported(with_starts(program, started), kernels)
    modules, code, texts = image.finish()
    record = ProgramRecord(
        slots=done.program.slots,
        inputs=program.inputs,
        outputs=program.outputs,
        kernels=tuple(interfaces),
        modules=tuple(modules),
        steps=done.program.steps,
        support=done.launches,
        stacks=program.stacks,
        residuals=program.residuals,
        notes=tuple(found),
        arena=arena(done.program, interfaces),
        written=tuple(kernels.written),
        routines=(*dict.fromkeys(met), *done.routines),
    )
    stages = {stage: partial(texts.__getitem__, stage) for stage in texts}
    written = StageTexts({"kernel": lambda: "\n\n".join(map(print_kernel, program.kernels)), **stages})
    return Artifact(record, done.program.constants, code, written)


def _straightened(kernel: Kernel) -> Kernel:
    plain = written_out(with_joined_loops(chosen(kernel)))
    return plain if plain.running is None else flat(plain)
