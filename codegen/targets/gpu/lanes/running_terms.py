"""Scans by a function of elements whose terms are made where they are scanned.

    k0   a[i] = x[i + 1] if i < n - 1 else 0; b[i] = 1                  y = associative_scan(lanes that make both),
    y = associative_scan(a, b)                                   ->     a and b are never stored

`cumsum` is a kernel whose lanes make its terms from the start. A scan of several leaves is a step of its own, since not
all targets have it; here launches before it that store what it alone reads, element by element, become its lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, RunningTotal
from loopgrad.codegen.kernel.passes import optimise
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.program import LaunchStep, Program, RoutineStep, Step
from loopgrad.codegen.steps import all_steps, changed_by, with_blocks
from loopgrad.codegen.targets.gpu.lanes.analysis import weight
from loopgrad.codegen.targets.gpu.lanes.flat_lanes import flat
from loopgrad.codegen.targets.gpu.lanes.joined_pieces import StepsRewritten, own_store
from loopgrad.codegen.targets.gpu.lanes.row_layouts import with_rows
from loopgrad.codegen.targets.gpu.lanes.row_stages import suits
from loopgrad.graph.scalar_functions import ScalarFunction
from loopgrad.graph.types import TensorType, int64

NAME: Final = "associative_scan"
HEAVIEST: Final = 100  # a launch: its lanes run twice where a row is cut into spans
MOST_PASSED: Final = 32  # steps between it and the scan


def running_total(attrs: dict[str, object], leaves: Sequence[TensorType], param: int) -> RunningTotal:
    """What a step scans, into the parameters from `param` on."""
    shape, along, taken = leaves[0].shape, attrs["along"], attrs["taken"]
    assert isinstance(along, int)
    assert isinstance(taken, tuple)
    axis = len(shape) + along
    return RunningTotal(
        kind="function",
        dtype=leaves[0].dtype,
        param=param,
        shape=(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])),
        reverse=bool(attrs["reverse"]),
        function=ScalarFunction.of(attrs["function"]),
        leaves=tuple([leaf.dtype for leaf in leaves]),
        taken=taken,
    )


def with_running_terms(program: Program) -> Program:
    """See the module's text."""
    if not any(isinstance(step, RoutineStep) and step.name == NAME for step in all_steps(program.steps)):
        return program
    return _Terms(program).run()


class _Terms(StepsRewritten):
    def block(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        done: list[Step] = []
        for step in [with_blocks(step, self.block) for step in steps]:
            if isinstance(step, RoutineStep) and step.name == NAME:
                done[:], scan = self.scanned(step, done)
                done.append(scan)
            else:
                done.append(step)
        return tuple(done)

    def scanned(self, scan: RoutineStep, before: Sequence[Step]) -> tuple[Sequence[Step], Step]:
        """The steps before it that are left, and the scan."""
        makers: list[tuple[LaunchStep, Kernel]] = []
        between: list[Step] = []
        for step in reversed(before[-MOST_PASSED:]):
            kernel = self.maker(step, scan, between) if isinstance(step, LaunchStep) else None
            if (
                isinstance(step, LaunchStep)
                and kernel is not None
                and (not makers or kernel.domain == makers[0][1].domain)
            ):
                makers.append((step, kernel))
            else:
                between.append(step)
        if not makers:
            return before, scan
        kernel, slots = self.kernel(scan, makers)
        self.kernels.append(kernel)
        left = [step for step in before if not any(step is maker for maker, _ in makers)]
        return left, LaunchStep(len(self.kernels) - 1, slots)

    def maker(self, step: LaunchStep, scan: RoutineStep, between: Sequence[Step]) -> Kernel | None:
        """The launch's kernel over the scan's rows; None where it stores anything but leaves that the scan alone reads,
        or where steps between the two touch what it does."""
        kernel = self.kernels[step.kernel]
        written = [param for param, described in enumerate(kernel.params) if described.access != "read"]
        stored = [step.slots[param] for param in written]
        if any(self.uses[s] != 2 or self.slots[s].kind != "temp" or s not in scan.inputs for s in stored):
            return None
        if step.initials or len(set(step.slots)) < len(step.slots) or any(self.meets(step, other) for other in between):
            return None
        if not suits(kernel) or kernel.reductions or kernel.arrays or weight(kernel) > HEAVIEST:
            return None
        outer, extent, inner = self.total(scan, 0).shape
        over = with_rows(kernel, outer, extent * inner) if prod(kernel.domain) == outer * extent * inner else None
        return None if over is None or any(own_store(over, param) is None for param in written) else over

    def total(self, scan: RoutineStep, param: int) -> RunningTotal:
        return running_total(dict(scan.attrs), [self.slots[slot].type for slot in scan.inputs], param)

    def meets(self, step: LaunchStep, other: Step) -> bool:
        """Whether another step may not come before this one."""
        if not isinstance(other, LaunchStep | RoutineStep):
            return True
        return not changed_by(other, self.kernels).isdisjoint(step.slots)

    def kernel(self, scan: RoutineStep, makers: Sequence[tuple[LaunchStep, Kernel]]) -> tuple[Kernel, tuple[int, ...]]:
        """The scan's kernel, and the slots of its parameters."""
        stored = {slot for step, _ in makers for slot in changed_by(step, self.kernels)}
        named = [slot for step, _ in makers for slot in step.slots] + list(scan.inputs)
        slots = [*dict.fromkeys([slot for slot in named if slot not in stored]), *scan.outputs]
        lanes = _Lanes(makers[0][1].domain, slots)
        for step, kernel in makers:
            lanes.run(kernel, step.slots)
        terms = [lanes.term(slot, self.slots[slot].type) for slot in scan.inputs]
        lanes.ops.append(KOp("scan", tuple(terms), ()))
        first, types = len(slots) - len(scan.outputs), [self.slots[slot].type for slot in slots]
        params = [BufferParam(t.dtype, t.size, "read" if p < first else "write") for p, t in enumerate(types)]
        block, running = Block(lanes.arguments, lanes.ops), self.total(scan, first)
        return flat(optimise(Kernel(NAME, lanes.domain, tuple(params), block, running=running))), tuple(slots)


class _Lanes:
    """The operations of several launches over one domain, whose parameters are `slots`."""

    def __init__(self, domain: tuple[int, ...], slots: Sequence[int]) -> None:
        self.domain, self.places = domain, {slot: place for place, slot in enumerate(slots)}
        self.arguments = tuple([KValue(int64) for _ in domain])
        self.ops: list[KOp] = []
        self.stored: dict[int, KValue] = {}  # what a lane makes of a slot's element

    def run(self, kernel: Kernel, slots: Sequence[int]) -> None:
        copy = _Unstored(kernel, [self.places.get(slot, 0) for slot in slots])
        copy.env.update(zip(kernel.body.arguments, self.arguments, strict=True))
        copy.body(kernel.body)
        self.ops += copy.out
        self.stored |= {slots[param]: value for param, value in copy.stored.items()}

    def term(self, slot: int, leaf: TensorType) -> KValue:
        """The lane's own element of a slot, which is read where no launch makes it."""
        if slot in self.stored:
            return self.stored[slot]
        index = self._op("const", value=0)
        for argument, extent in zip(self.arguments, self.domain, strict=True):
            index = self._op("add", self._op("mul", index, self._op("const", value=extent)), argument)
        load = KOp("load", (index,), (leaf.dtype,), {"param": self.places[slot]})
        self.ops.append(load)
        return load.results[0]

    def _op(self, opcode: str, *operands: KValue, **attrs: int) -> KValue:
        self.ops.append(KOp(opcode, operands, (int64,), attrs))
        return self.ops[-1].results[0]


class _Unstored(Rebuilder):
    """Operations over parameters at other `places`; what is stored is only remembered."""

    def __init__(self, kernel: Kernel, places: Sequence[int]) -> None:
        super().__init__(kernel)
        self.places = places
        self.stored: dict[int, KValue] = {}

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        param = op.attrs.get("param")
        if op.opcode == "store":
            self.stored[op.attrs["param"]] = operands[1]
            return ()
        results = self.copy(op, operands)
        if param is not None:
            self.out[-1].attrs = {**op.attrs, "param": self.places[param]}
        return results
