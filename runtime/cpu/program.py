"""The metadata of a compiled Program as the CPU runtime reads it (see codegen.targets.cpu.metadata)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopgrad.codegen.targets.cpu.interface import FORMAT
from loopgrad.graph.nodes import Location
from loopgrad.runtime.records import (
    ErrorRecord,
    ResidualRecord,
    SlotRecord,
    StackRecord,
    check_format,
    read_errors,
    read_location,
    read_residuals,
    read_slots,
    read_type,
)


@dataclass(frozen=True, slots=True)
class KernelStackRecord:
    name: str
    dtype: str
    loc: Location | None
    row_bytes: int
    known: bool
    residual: int


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """`control` is the word of the context where the kernel's control block starts."""

    name: str
    domain: tuple[int, ...]
    control: int
    chunks: int
    width: int
    stacks: tuple[KernelStackRecord, ...]
    errors: tuple[ErrorRecord, ...]
    launches: int


@dataclass(frozen=True, slots=True)
class PlacedStackRecord(StackRecord):
    """Where the context holds the stack, and bytes from row to row."""

    word: int
    stride: int


@dataclass(frozen=True, slots=True)
class HostCallRecord:
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """Everything but the code."""

    slots: tuple[SlotRecord, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    words: int
    slot_word: int
    shadowed: Mapping[int, int]
    arena_size: int
    offsets: Mapping[int, int]
    kernels: tuple[KernelRecord, ...]
    stacks: tuple[PlacedStackRecord, ...]
    loops: tuple[Location | None, ...]
    host_calls: tuple[HostCallRecord, ...]
    residuals: tuple[ResidualRecord, ...]
    notes: tuple[str, ...]

    def word(self, slot: int) -> int:
        """Where the caller's pointer to a slot belongs."""
        return self.shadowed.get(slot, self.slot_word + slot)


def read_program(data: Mapping[str, Any]) -> ProgramRecord:
    """The record; ValueError or KeyError where the data was written by another version."""
    check_format(data, FORMAT)
    return ProgramRecord(
        slots=read_slots(data["slots"]),
        inputs=tuple(data["inputs"]),
        outputs=tuple(data["outputs"]),
        words=data["words"],
        slot_word=data["slot_word"],
        shadowed=dict(data["shadowed"]),
        arena_size=data["arena"]["size"],
        offsets=dict(data["arena"]["offsets"]),
        kernels=tuple(_kernel(k) for k in data["kernels"]),
        stacks=tuple(
            PlacedStackRecord(
                s["name"], read_type(s["type"]), read_location(s["loc"]), s["residual"], s["word"], s["stride"]
            )
            for s in data["stacks"]
        ),
        loops=tuple(read_location(loc) for loc in data["loops"]),
        host_calls=tuple(
            HostCallRecord(c["name"], tuple(c["inputs"]), tuple(c["outputs"]), _attrs(c["attrs"]))
            for c in data["host_calls"]
        ),
        residuals=read_residuals(data["residuals"]),
        notes=tuple(data["notes"]),
    )


def _kernel(data: Mapping[str, Any]) -> KernelRecord:
    return KernelRecord(
        name=data["name"],
        domain=tuple(data["domain"]),
        control=data["control"],
        chunks=data["chunks"],
        width=data["width"],
        stacks=tuple(
            KernelStackRecord(s["name"], s["dtype"], read_location(s["loc"]), s["row_bytes"], s["known"], s["residual"])
            for s in data["stacks"]
        ),
        errors=read_errors(data["errors"]),
        launches=data["launches"],
    )


def _attrs(pairs: Sequence[Sequence[Any]]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in pairs}
