"""Parts of a compiled Program's metadata that every device's writer has, as JSON-able data.

`runtime.records` reads them. Locations are [file, line, function] or None, types are [dtype name, shape].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopgrad.codegen.arena import ALIGNMENT
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.program import HostCallStep, Program, Residual
from loopgrad.graph.nodes import Location
from loopgrad.graph.types import TensorType


def write_slots(program: Program) -> tuple[list[dict[str, Any]], bytes]:
    """The rows of the slots, and the bytes of all constants, each aligned to 64."""
    constants = bytearray()
    rows = []
    for slot in program.slots:
        offset = None
        if slot.constant is not None:
            offset = len(constants)
            constants += slot.constant
            constants += bytes(-len(constants) % ALIGNMENT)
        rows.append({"kind": slot.kind, "type": write_type(slot.type), "constant": offset})
    return rows, bytes(constants)


def write_errors(kernel: Kernel) -> list[dict[str, Any]]:
    return [{"kind": e.kind, "message": e.message, "loc": write_location(e.loc)} for e in kernel.errors]


def write_residuals(residuals: Sequence[Residual]) -> list[dict[str, Any]]:
    return [
        {
            "name": residual.name,
            "type": write_type(residual.element),
            "formula": residual.formula,
            "reason": residual.reason,
            "place": residual.place,
            "loc": write_location(residual.loc),
        }
        for residual in residuals
    ]


def write_attributes(call: HostCallStep) -> list[list[Any]]:
    return [list(attribute) for attribute in call.attrs]


def write_type(type: TensorType) -> list[Any]:
    return [type.dtype.name, list(type.shape)]


def write_location(loc: Location | None) -> list[Any] | None:
    return None if loc is None else list(loc)
