"""The code and constants of one executable on one device.

Owns what was loaded and placed: everything is made when first needed and goes with the executable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from loopgrad.codegen.options import DEFAULT_OPTIONS, FULL_PRECISION, Options
from loopgrad.codegen.program import ArraySlot, MatmulStep, RoutineStep
from loopgrad.codegen.steps import all_steps
from loopgrad.codegen.targets.gpu.interface import KernelInterface
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.graph.cached_property import cached_property
from loopgrad.graph.nodes import Location
from loopgrad.graph.types import DType, float32
from loopgrad.runtime.gpu.driver import Driver, Image, LibraryCall, Pipeline, RoutineTask, product_task, put
from loopgrad.runtime.gpu.memory import Allocation

LARGE_PRODUCT: Final = 1 << 31  # multiplications
LARGE_BY_UNITS: Final = 1 << 33  # of matrix units in a kernel of our own
LARGE_BESIDE_LOOPS: Final = 1 << 36
RECORD_BYTES: Final = 1 << 15  # of a program beside its code and constants


class LoadedProgram:
    """A program's kernels, ready to be launched, and its constants in memory. The options say whether libraries may do
    what they do."""

    def __init__(
        self, driver: Driver, program: ProgramRecord, code: bytes, constants: bytes, options: Options = DEFAULT_OPTIONS
    ) -> None:
        self.driver = driver
        self._libraries = options.libraries
        self._precision = options.matmul_precision
        self.program, self._code = program, code
        self._constants = constants
        self._pipelines: dict[int, Pipeline] = {}
        self._placed: dict[tuple[int, int], Allocation] = {}
        self._lines = {k.module: loc for k in program.kernels for loc in lines(k)[:1]}

    @cached_property
    def recordable(self) -> bool:
        """Whether the program is recorded with its loops and branches. Products of matrices in a recording are our
        own kernels; where a library makes them so fast that it doesn't matter who decides, the host does: that is soon
        so of those in loops, each of which saves time in each trip, and late of those beside them."""
        return self.program.recordable and (self.program.straight or not self.prefers_library())

    def prefers_library(self) -> bool:
        if not self._libraries:
            return False
        beside = {step for step in self.program.steps if isinstance(step, MatmulStep)}
        return any(
            step.batch * step.m * step.k * step.n >= (LARGE_BESIDE_LOOPS if step in beside else _large(step))
            and self._product(step) is not None
            for step in self._products()
        )

    @cached_property
    def _calls(self) -> bool:
        """Whether a library does what kernels could: where recordings hold a program with its loops, kernels do, so
        that it has the same bits when it is driven."""
        return self._libraries and (self.program.straight or not self.recordable)

    def _product(self, step: MatmulStep) -> LibraryCall | None:
        return self.driver.product(product_task(step, self.program.slots, self._precision))

    def _products(self) -> list[MatmulStep]:
        return [step for step in all_steps(self.program.steps) if isinstance(step, MatmulStep)]

    def precision_notes(self) -> tuple[str, ...]:
        """What becomes of an option for products."""
        if self._precision == FULL_PRECISION:
            return ()
        return (*self._product_notes(), *self._routine_notes())

    def _routine_notes(self) -> tuple[str, ...]:
        """Some of float32 are given the option; they have more digits than bfloat16."""
        steps = [step for step in all_steps(self.program.steps) if isinstance(step, RoutineStep)]
        found = [step for step in steps if "precision" in dict(step.attrs) and self._dtype(step.inputs[0]) is float32]
        which = ", ".join(sorted({step.name for step in found}))
        return (f"matmul_precision={self._precision!r}: {which} of float32 read 11 bits of factors",) if found else ()

    def _dtype(self, slot: int) -> DType:
        return self.program.slots[slot].type.dtype

    def _product_notes(self) -> tuple[str, ...]:
        found = [step for step in self._products() if self._dtype(step.left) is float32]
        if not found:
            return ()
        called = sum(self.product(step) is not None for step in found)
        option, kept = f"matmul_precision={self._precision!r}", len(found) - called
        notes = [f"{option}: {called} of {len(found)} products of float32 round their factors so, in a library"]
        return (*notes, f"{option}: {kept} products keep all digits, in own kernels") if kept else tuple(notes)

    def product(self, step: MatmulStep) -> LibraryCall | None:
        """The library that multiplies, if one does."""
        return self._product(step) if self._calls else None

    def routine(self, step: RoutineStep) -> LibraryCall | None:
        """The library that does a routine, if one does."""
        if step.call is None or not self._calls:
            return None
        operands, results = (
            tuple([self.program.slots[slot].type for slot in slots]) for slots in (step.call.inputs, step.call.outputs)
        )
        call = self.driver.routine(RoutineTask(step.name, step.attrs, operands, results))
        if call is None and step.launches is None:
            raise RuntimeError(f"{self.driver.name}: the library for {step.name} was there and isn't any more")
        return call

    @property
    def host_bytes(self) -> int:
        """About how much memory of the host it takes, with what the driver made of its code."""
        code = len(self._code) * (1 + self.driver.code_growth)
        return RECORD_BYTES + code + len(self._constants)

    def pipeline(self, module: int) -> Pipeline:
        """The module's kernel, ready to be launched."""
        known = self._pipelines.get(module)
        if known is None:
            record = self.program.modules[module]
            image = self._images[record.offset, record.size]
            line = self._lines.get(module)
            label = record.name if line is None else f"{record.name} ({line})"
            known = image.pipeline(label, record.entry, record.group, record.asked)
            self._pipelines[module] = known
        return known

    @cached_property
    def _images(self) -> Mapping[tuple[int, int], Image]:
        places = list(dict.fromkeys((module.offset, module.size) for module in self.program.modules))
        images = self.driver.images([self._code[offset : offset + size] for offset, size in places])
        return dict(zip(places, images, strict=True))

    def integer(self, slot: int) -> int | None:
        """What one integer is in each run, where it is a constant."""
        record = self.program.slots[slot]
        if record.constant is None or record.type.size != 1 or record.type.dtype.kind not in "iu":
            return None
        return int(np.frombuffer(self._constants, record.type.dtype.np, 1, record.constant)[0])

    def constant(self, slot: ArraySlot) -> Allocation:
        assert slot.constant is not None
        key = slot.constant, slot.type.nbytes  # an empty one lies where the next one begins
        placed = self._placed.get(key)
        if placed is None:
            content = np.frombuffer(self._constants, np.uint8, slot.type.nbytes, slot.constant)
            placed = self._placed[key] = put(self.driver, content)
        return placed


def lines(kernel: KernelInterface) -> list[Location]:
    """The user's lines that are known of a kernel."""
    found = [*[stack.loc for stack in kernel.stacks], *[error.loc for error in kernel.errors]]
    return [loc for loc in found if loc is not None]


def _large(step: MatmulStep) -> int:
    """From how many multiplications on a library is worth it that the host decides."""
    return LARGE_BY_UNITS if step.units else LARGE_PRODUCT
