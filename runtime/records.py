"""Parts of a compiled Program's metadata that every device's reader meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopgrad.graph.nodes import Location
from loopgrad.graph.types import TensorType, dtype_named


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """kind: input, output, temp or constant; `constant` is an offset into the constants."""

    type: TensorType
    kind: str
    constant: int | None


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """A place in a kernel that can fail."""

    kind: str
    message: str
    loc: Location | None


@dataclass(frozen=True, slots=True)
class StackRecord:
    """A stack of whole tensors, and the row of the saved values that it belongs to."""

    name: str
    type: TensorType
    loc: Location | None
    residual: int


@dataclass(frozen=True, slots=True)
class ResidualRecord:
    """One saved value of `plan`."""

    name: str
    type: TensorType
    formula: str
    reason: str
    place: str
    loc: Location | None


def check_format(data: Mapping[str, Any], expected: int) -> None:
    """ValueError where the metadata was written by another version."""
    if data["format"] != expected:
        raise ValueError(f"expected metadata of format {expected}, got {data['format']!r}")


def read_slots(rows: Sequence[Mapping[str, Any]]) -> tuple[SlotRecord, ...]:
    return tuple([SlotRecord(read_type(row["type"]), row["kind"], row["constant"]) for row in rows])


def read_errors(rows: Sequence[Mapping[str, Any]]) -> tuple[ErrorRecord, ...]:
    return tuple([ErrorRecord(row["kind"], row["message"], read_location(row["loc"])) for row in rows])


def read_residuals(rows: Sequence[Mapping[str, Any]]) -> tuple[ResidualRecord, ...]:
    return tuple(
        [
            ResidualRecord(
                row["name"],
                read_type(row["type"]),
                row["formula"],
                row["reason"],
                row["place"],
                read_location(row["loc"]),
            )
            for row in rows
        ]
    )


def read_type(data: Sequence[Any]) -> TensorType:
    name, shape = data
    return TensorType(tuple(shape), dtype_named(name))


def read_location(data: Sequence[Any] | None) -> Location | None:
    return None if data is None else Location(*data)
