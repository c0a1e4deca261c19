"""The steps of a Program as a GPU does them: copies, fills, products, pushes and library routines get
support kernels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from loopgrad.codegen.program import (
    CopyStep,
    ForStep,
    Initial,
    LaunchStep,
    MatmulStep,
    Program,
    PushStep,
    RoutineRow,
    RoutineStep,
    Step,
    WhileStep,
)
from loopgrad.codegen.steps import all_steps, with_blocks
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES
from loopgrad.codegen.targets.gpu.interface import SupportLaunch
from loopgrad.codegen.targets.gpu.lanes.matrix_plan import MOST_MEMORY, MatrixProduct, in_matrices
from loopgrad.codegen.targets.gpu.lanes.plan import UNTILED, LaneMapping, Support
from loopgrad.codegen.targets.gpu.lanes.product_plan import Epilogue, Product, in_rectangles
from loopgrad.codegen.targets.gpu.routines.routine import Constants, begun
from loopgrad.codegen.targets.gpu.routines.table import provided
from loopgrad.codegen.targets.gpu.support.product_kernels import epilogue_kernel, finished_kernel
from loopgrad.codegen.targets.gpu.support.support_kernels import copy_kernel, fill_kernel, matmul_kernel
from loopgrad.graph.types import sum_dtype


@dataclass(frozen=True, slots=True)
class Supported:
    """`program`: with steps that name support `launches`, and the slots and constants that library routines need
    besides.
    `routines`: who does each of these."""

    program: Program
    launches: tuple[SupportLaunch, ...]
    routines: tuple[RoutineRow, ...]


def supported(program: Program, support: Support) -> Supported:
    """The program as a GPU does it."""
    made = _Supported(program, support)
    steps = made.steps(program.steps)
    changed = replace(program, steps=steps, slots=tuple(made.slots), constants=made.constants.content)
    return Supported(changed, tuple(made.launches), tuple(made.routines))


class _Supported:
    def __init__(self, program: Program, support: Support) -> None:
        self.slots, self.kernels, self.support = list(program.slots), program.kernels, support
        self.constants = Constants(self.slots, program.constants)
        self.libraries = dict(program.libraries)
        self.loops = any(isinstance(step, ForStep | WhileStep) for step in all_steps(program.steps))
        self.routines: dict[RoutineRow, None] = {}
        self.launches: dict[SupportLaunch, int] = {}
        self.products: dict[tuple[Hashable, ...], tuple[int, bool]] = {}  # what its kernel is made of -> its launch,
        # and whether that is by matrix units

    def steps(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple([self.step(step) for step in steps])

    def step(self, step: Step) -> Step:
        match step:
            case LaunchStep():
                initials = [(i, self.started(start, step.slots[i])) for i, start in step.initials]
                return replace(step, initials=tuple(initials))
            case CopyStep():
                return replace(step, by=self.copy(step.target))
            case PushStep() if not step.in_place:
                return replace(step, by=self.copy(step.slot))
            case MatmulStep():
                return self.product(step)
            case RoutineStep():
                routine = begun(step, self.slots, self.support, self.launch, self.constants)
                done, row = provided(step, routine, self.libraries.get(step.name, ""), self.loops)
                self.routines[row] = None
                return done
            case _:
                return with_blocks(step, self.steps)

    def launch(self, module: int, lanes: int, tiles: int = 0, unlike: bool = False) -> int:
        """The number of a support launch."""
        return self.launches.setdefault(SupportLaunch(module, lanes, tiles, unlike), len(self.launches))

    def started(self, initial: Initial, slot: int) -> Initial:
        return initial if initial.included else replace(initial, by=self.start(initial, slot))

    def start(self, initial: Initial, slot: int) -> int:
        if initial.source is not None:
            return self.copy(slot)
        type = self.slots[slot].type
        return self.launch(self.support.add(fill_kernel(type.dtype, initial.value)), type.size)

    def copy(self, target: int) -> int:
        """By the widest element that fits."""
        size = self.slots[target].type.nbytes
        width = next(w for w in (8, 4, 2, 1) if size % w == 0)
        return self.launch(self.support.add(copy_kernel(width)), size // width)

    def product(self, step: MatmulStep) -> MatmulStep:
        """With the launch of its kernel, which is made once for products that differ in their arrays alone."""
        alike = replace(step, left=0, right=0, out=0, by=None, epilogue=None)
        types = [self.slots[slot].type for slot in (step.left, step.right, step.out)]
        after = None if step.epilogue is None else (step.epilogue.kernel, step.epilogue.slots.index(step.out))
        key = (alike, *types, after)
        if key not in self.products:
            self.products[key] = self.new_product(step)
        by, units = self.products[key]
        return replace(step, by=by, units=units)

    def new_product(self, step: MatmulStep) -> tuple[int, bool]:
        factors, result = (self.slots[slot].type.dtype for slot in (step.left, step.out))
        geometry, plain = self.support.geometry, matmul_kernel(step, factors, result)
        group, memory = geometry.group, geometry.memory
        asked = max(memory, min(geometry.asked_memory, MOST_MEMORY))
        by_units = in_matrices(step, factors, group, asked, geometry.matrices)
        product = by_units or in_rectangles(step, sum_dtype(factors), group, memory)
        units = by_units is not None
        asks = by_units is not None and by_units.chunks * VECTOR_BYTES > memory
        plan = UNTILED
        if product is not None:
            plan = LaneMapping(group=product.group, product=product, matrix_units=units, asks=asks)
        lanes, tiles = step.batch * step.m * step.n, 0 if product is None else product.tiles
        if step.epilogue is None:
            if units:
                self.routines[self.row(step, "", product)] = None
            return self.launch(self.support.add(plain, plan), lanes, tiles), units
        epilogue = self.kernels[step.epilogue.kernel]
        if product is None:
            kernel = finished_kernel(step, plain, epilogue)
        else:
            kernel, plan = epilogue_kernel(step, plain, epilogue), replace(plan, epilogue=Epilogue(step.stored))
        self.routines[self.row(step, epilogue.name, product)] = None
        return self.launch(self.support.own(kernel, self.support.options.fast_math, plan), lanes, tiles), units

    def row(self, step: MatmulStep, name: str, product: Product | MatrixProduct | None) -> RoutineRow:
        """What `plan` says of a product; `name`: of its epilogue."""
        operands = ", ".join([str(self.slots[slot].type) for slot in (step.left, step.right)])
        how = "a lane for each element" if product is None else f"rectangles of {product.tall}x{product.broad}"
        if isinstance(product, MatrixProduct):
            how += f" by matrix units of {product.shape.rows}x{product.shape.columns}x{product.shape.depth}"
        finished = f" with {name} as its epilogue; where a library does it, {name} follows" if name else ""
        return RoutineRow("matmul", operands, f"own kernel ({how}){finished}")
