"""What a GPU runtime must know of a compiled Program, as JSON-able data.

`describe` is the only writer and `runtime.gpu.program` the only reader. Common parts are codegen.records'; a step
is a list that begins with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.program import (
    CopyStep,
    ForStep,
    HostCallStep,
    LaunchStep,
    MatmulStep,
    PopStep,
    Program,
    PushStep,
    ReserveStep,
    Step,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.records import (
    write_attributes,
    write_errors,
    write_location,
    write_residuals,
    write_slots,
    write_type,
)
from loopgrad.codegen.steps import launches
from loopgrad.codegen.targets.gpu.interface import FORMAT, Dispatch, KernelInterface
from loopgrad.codegen.targets.gpu.layout import Support
from loopgrad.codegen.targets.gpu.plan import UNTILED, Plan
from loopgrad.codegen.targets.gpu.product import squared
from loopgrad.codegen.targets.gpu.support import copy_kernel, fill_kernel, matmul_kernel


class _Steps:
    """Encodes steps; support kernels that they need become modules."""

    def __init__(self, program: Program, support: Support) -> None:
        self.program, self.support = program, support
        self.add = support.add
        self._rows: dict[type, Callable[[Any], list[Any]]] = {
            LaunchStep: self.launch,
            CopyStep: lambda s: ["copy", *self.copy(s.source, s.target)],
            MatmulStep: self.matmul,
            HostCallStep: lambda s: ["host", s.name, list(s.inputs), list(s.outputs), write_attributes(s)],
            ReserveStep: lambda s: ["reserve", s.stack, s.depth],
            PushStep: lambda s: ["push", s.stack, *self.copy(s.slot, s.slot)],
            PopStep: lambda s: ["pop", s.stack, s.slot],
            ForStep: self.for_loop,
            WhileStep: self.while_loop,
            SwitchStep: lambda s: ["switch", s.index, [self.steps(branch) for branch in s.branches]],
        }

    def steps(self, steps: Sequence[Step]) -> list[list[Any]]:
        return [self._rows[type(step)](step) for step in steps]

    def copy(self, source: int, target: int) -> list[int]:
        """[source, target, module, lanes] by the widest element that fits."""
        size = self.program.slots[target].type.nbytes
        width = next(w for w in (8, 4, 2, 1) if size % w == 0)
        return [source, target, self.add(copy_kernel(width)), size // width]

    def launch(self, step: LaunchStep) -> list[Any]:
        initials: list[list[int | None]] = []
        for position, initial in step.initials:
            slot = step.slots[position]
            if initial.source is not None:
                initials.append([*self.copy(initial.source, slot)])
            else:
                type = self.program.slots[slot].type
                initials.append([None, slot, self.add(fill_kernel(type.dtype, initial.value)), type.size])
        return ["launch", step.kernel, list(step.slots), initials]

    def matmul(self, step: MatmulStep) -> list[Any]:
        """["matmul", slots, module, lanes, tiles, shape]: the shape is for libraries."""
        dtype, geometry = self.program.slots[step.out].type.dtype, self.support.geometry
        product = squared(step, dtype, geometry.group, geometry.memory)
        plan = UNTILED if product is None else Plan(group=geometry.group, product=product)
        module = self.add(matmul_kernel(step, dtype), plan)
        tiles = 0 if product is None else product.tiles
        shape = [step.batch, step.m, step.k, step.n, step.transpose_left, step.transpose_right]
        return ["matmul", [step.left, step.right, step.out], module, step.batch * step.m * step.n, tiles, shape]

    def for_loop(self, step: ForStep) -> list[Any]:
        rotate = [list(pair) for pair in step.rotate]
        return ["for", step.count, step.index, self.steps(step.body), rotate, step.reverse, write_location(step.loc)]

    def while_loop(self, step: WhileStep) -> list[Any]:
        condition, body = self.steps(step.condition), self.steps(step.body)
        rotate = [list(pair) for pair in step.rotate]
        return ["while", condition, step.pred, body, rotate, step.max_steps, write_location(step.loc)]


def describe(program: Program, interfaces: Sequence[KernelInterface], support: Support) -> tuple[dict[str, Any], bytes]:
    """The metadata without its modules, and the bytes of all constants."""
    slots, constants = write_slots(program)
    counts = launches(program.steps)
    metadata = {
        "format": FORMAT,
        "slots": slots,
        "inputs": list(program.inputs),
        "outputs": list(program.outputs),
        "kernels": [
            {**_kernel(k, i), "launches": counts[number]}
            for number, (k, i) in enumerate(zip(program.kernels, interfaces, strict=True))
        ],
        "steps": _Steps(program, support).steps(program.steps),
        "stacks": [
            {"name": s.name, "type": write_type(s.element), "loc": write_location(s.loc), "residual": s.residual}
            for s in program.stacks
        ],
        "residuals": write_residuals(program.residuals),
        "notes": [*program.notes, *[note for i in interfaces for note in i.notes]],
    }
    return metadata, constants


def _kernel(kernel: Kernel, interface: KernelInterface) -> dict[str, Any]:
    stacks = [
        {
            "name": slot.name,
            "itemsize": size,
            "depth_param": slot.depth_param,
            "loc": write_location(slot.loc),
            "residual": slot.residual,
        }
        for slot, size in zip(kernel.stacks, interface.stacks, strict=True)
    ]
    return {
        "name": kernel.name,
        "domain": list(kernel.domain),
        "module": interface.module,
        "lanes": interface.lanes,
        "tiles": interface.tiles,
        "copies": interface.copies,
        "rows": interface.rows,
        "loops": interface.loops,
        "params": len(kernel.params),
        "scratch": list(interface.scratch),
        "own_scratch": interface.own_scratch,
        "before": [_dispatch(d) for d in interface.before],
        "after": [_dispatch(d) for d in interface.after],
        "stacks": stacks,
        "errors": write_errors(kernel),
    }


def _dispatch(dispatch: Dispatch) -> list[Any]:
    return [dispatch.module, dispatch.lanes, [list(a) for a in dispatch.arrays], dispatch.tiles]
