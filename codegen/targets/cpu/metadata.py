"""What the runtime must know of a compiled Program, as JSON-able data.

`describe` is the only writer and `runtime.cpu` the only reader; a second process reads this from the
disk cache instead of scheduling anything. Locations are [file, line, function] or None, types are
[dtype name, shape].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from loopgrad.codegen.arena import ALIGNMENT
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.program import HostCallStep, Program, ProgramStack, Residual
from loopgrad.codegen.targets.cpu.call_context import plan_layout
from loopgrad.codegen.targets.cpu.driver import host_calls, loop_locations, stack_stride
from loopgrad.codegen.targets.cpu.interface import KernelInterface
from loopgrad.graph.nodes import Location
from loopgrad.graph.types import TensorType

FORMAT: Final = 1


def describe(program: Program, interfaces: Sequence[KernelInterface]) -> tuple[dict[str, Any], bytes]:
    """The metadata, and the bytes of all constants (each aligned to 64)."""
    layout = plan_layout(program, interfaces)
    constants = bytearray()
    slots = []
    for slot in program.slots:
        offset = None
        if slot.constant is not None:
            offset = len(constants)
            constants += slot.constant
            constants += bytes(-len(constants) % ALIGNMENT)
        slots.append({"kind": slot.kind, "type": _type(slot.type), "constant": offset})
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
        "kernels": [_kernel(kernel, interface, control) for kernel, interface, control in kernels],
        "stacks": [_stack(stack, word) for stack, word in zip(program.stacks, layout.stacks, strict=True)],
        "loops": [_location(loc) for loc in loop_locations(program)],
        "host_calls": [_host_call(call) for call in host_calls(program)],
        "residuals": [_residual(residual) for residual in program.residuals],
        "notes": list(program.notes),
    }
    return metadata, bytes(constants)


def _kernel(kernel: Kernel, interface: KernelInterface, control: int) -> dict[str, Any]:
    stacks = [
        {
            "name": slot.name,
            "dtype": slot.dtype.name,
            "loc": _location(slot.loc),
            "row_bytes": stack.row_bytes,
            "known": slot.depth_param is not None,
        }
        for slot, stack in zip(kernel.stacks, interface.stacks, strict=True)
    ]
    errors = [{"kind": e.kind, "message": e.message, "loc": _location(e.loc)} for e in kernel.errors]
    return {
        "name": kernel.name,
        "domain": list(kernel.domain),
        "control": control,
        "chunks": interface.chunks,
        "chunk_lanes": interface.chunk_lanes,
        "width": interface.lanes_in_flight,
        "serial": interface.serial,
        "stacks": stacks,
        "errors": errors,
    }


def _stack(stack: ProgramStack, word: int) -> dict[str, Any]:
    return {
        "name": stack.name,
        "type": _type(stack.element),
        "loc": _location(stack.loc),
        "word": word,
        "stride": stack_stride(stack.element),
    }


def _residual(residual: Residual) -> dict[str, Any]:
    return {
        "name": residual.name,
        "type": _type(residual.element),
        "formula": residual.formula,
        "reason": residual.reason,
        "place": residual.place,
        "loc": _location(residual.loc),
    }


def _host_call(call: HostCallStep) -> dict[str, Any]:
    return {
        "name": call.name,
        "inputs": list(call.inputs),
        "outputs": list(call.outputs),
        "attrs": [[name, value] for name, value in call.attrs],
    }


def _type(type: TensorType) -> list[Any]:
    return [type.dtype.name, list(type.shape)]


def _location(loc: Location | None) -> list[Any] | None:
    return None if loc is None else list(loc)
