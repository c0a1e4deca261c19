"""What the runtime must know of a compiled Program, as JSON-able data.

`describe` is the only writer and `runtime.cpu` the only reader; a second process reads this from the
disk cache instead of scheduling anything. Common parts are codegen.records'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.program import HostCallStep, Program, ProgramStack
from loopgrad.codegen.records import (
    write_attributes,
    write_errors,
    write_location,
    write_residuals,
    write_slots,
    write_type,
)
from loopgrad.codegen.steps import launches
from loopgrad.codegen.targets.cpu.call_context import plan_layout
from loopgrad.codegen.targets.cpu.driver import host_calls, loop_locations, stack_stride
from loopgrad.codegen.targets.cpu.interface import FORMAT, KernelInterface


def describe(program: Program, interfaces: Sequence[KernelInterface]) -> tuple[dict[str, Any], bytes]:
    """The metadata, and the bytes of all constants (each aligned to 64)."""
    layout = plan_layout(program, interfaces)
    slots, constants = write_slots(program)
    counts = launches(program.steps)
    kernels = zip(program.kernels, interfaces, layout.controls, strict=True)
    metadata = {
        "format": FORMAT,
        "slots": slots,
        "inputs": list(program.inputs),
        "outputs": list(program.outputs),
        "words": layout.words,
        "slot_word": layout.slots,
        "shadowed": [list(pair) for pair in sorted(layout.shadowed.items())],
        "arena": {"size": layout.arena.size, "offsets": [list(p) for p in sorted(layout.arena.slots.items())]},
        "kernels": [
            {**_kernel(kernel, interface, control), "launches": counts[number]}
            for number, (kernel, interface, control) in enumerate(kernels)
        ],
        "stacks": [_stack(stack, word) for stack, word in zip(program.stacks, layout.stacks, strict=True)],
        "loops": [write_location(loc) for loc in loop_locations(program)],
        "host_calls": [_host_call(call) for call in host_calls(program)],
        "residuals": write_residuals(program.residuals),
        "notes": list(program.notes),
    }
    return metadata, constants


def _kernel(kernel: Kernel, interface: KernelInterface, control: int) -> dict[str, Any]:
    stacks = [
        {
            "name": slot.name,
            "dtype": slot.dtype.name,
            "loc": write_location(slot.loc),
            "row_bytes": stack.row_bytes,
            "known": slot.depth_param is not None,
            "residual": slot.residual,
        }
        for slot, stack in zip(kernel.stacks, interface.stacks, strict=True)
    ]
    return {
        "name": kernel.name,
        "domain": list(kernel.domain),
        "control": control,
        "chunks": interface.chunks,
        "chunk_lanes": interface.chunk_lanes,
        "width": interface.lanes_in_flight,
        "serial": interface.serial,
        "stacks": stacks,
        "errors": write_errors(kernel),
    }


def _stack(stack: ProgramStack, word: int) -> dict[str, Any]:
    return {
        "name": stack.name,
        "type": write_type(stack.element),
        "loc": write_location(stack.loc),
        "word": word,
        "stride": stack_stride(stack.element),
        "residual": stack.residual,
    }


def _host_call(call: HostCallStep) -> dict[str, Any]:
    return {
        "name": call.name,
        "inputs": list(call.inputs),
        "outputs": list(call.outputs),
        "attrs": write_attributes(call),
    }
