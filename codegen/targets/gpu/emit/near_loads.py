"""Loads of one trip of a loop that lie side by side in memory, as one: of rows that a lane goes along.

    for k in range(8):  y += x[32 * i + 4 * k] * ... + x[32 * i + 4 * k + 3]      one load of 16 bytes a trip

A reduction in a lane takes several terms a trip, of which nobody else's loads are neighbours: each of them would touch
the line of every lane of a warp once more. Where what they are at is a multiple of a vector's elements, they are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES

WORD: Final = 4  # bytes: narrower accesses aren't faster together


@dataclass(frozen=True, slots=True)
class _Place:
    """An index: the sum of these values, each a multiple of `divisor`, a power of two, and a constant."""

    values: tuple[KValue, ...]
    divisor: int
    constant: int


def near_loads(kernel: Kernel) -> dict[KOp, tuple[KOp, ...]]:
    """The loads of loops that are one with others -> all of these, in the order of memory; the first comes first."""
    found: dict[KOp, tuple[KOp, ...]] = {}
    places: dict[KValue, _Place] = {}
    _look(kernel, kernel.body, places, found, inside=False)
    return found


def _look(
    kernel: Kernel, block: Block, places: dict[KValue, _Place], found: dict[KOp, tuple[KOp, ...]], inside: bool
) -> None:
    for op in block.ops:
        for inner in op.blocks:
            _look(kernel, inner, places, found, inside or op.opcode in ("for", "while"))
        if len(op.results) == 1 and op.results[0].dtype.is_integer and not op.blocks:
            places[op.results[0]] = _place_of(op, places)
    if inside:
        for group in _groups(kernel, block.ops, places):
            found.update(dict.fromkeys(group, group))


def _groups(kernel: Kernel, ops: Sequence[KOp], places: dict[KValue, _Place]) -> Iterator[tuple[KOp, ...]]:
    rows: dict[tuple[int, tuple[KValue, ...], int], dict[int, KOp]] = {}
    for op in ops:
        if op.opcode == "load" and kernel.params[op.attrs["param"]].access == "read":
            place = _known(op.operands[0], places)
            row = rows.setdefault((op.attrs["param"], place.values, place.divisor), {})
            row.setdefault(place.constant, op)
    numbers = {op: number for number, op in enumerate(ops)}
    for (param, _, divisor), row in rows.items():
        size = kernel.params[param].dtype.itemsize
        for first in sorted(row):
            width = VECTOR_BYTES // size
            while width * size > WORD and not _aligned(row, first, width, divisor):
                width //= 2
            if width > 1 and width * size >= WORD and _aligned(row, first, width, divisor):
                group = tuple([row.pop(first + k) for k in range(width)])
                if numbers[group[0]] == min(numbers[op] for op in group):
                    yield group


def _aligned(row: dict[int, KOp], first: int, width: int, divisor: int) -> bool:
    return divisor % width == 0 and first % width == 0 and all(first + k in row for k in range(width))


def _known(value: KValue, places: dict[KValue, _Place]) -> _Place:
    return places.get(value, _Place((value,), 1, 0))


def _place_of(op: KOp, places: dict[KValue, _Place]) -> _Place:
    (result,) = op.results
    if op.opcode == "const":
        return _Place((), _power(0), int(op.attrs["value"]))
    if op.opcode == "add":
        x, y = (_known(v, places) for v in op.operands)
        values = tuple(sorted((*x.values, *y.values), key=id))
        return _Place(values, min(x.divisor, y.divisor), x.constant + y.constant)
    if op.opcode == "mul":
        x, y = (_known(v, places) for v in op.operands)
        factor = next((p.constant for p in (x, y) if not p.values), None)
        return _Place((result,), 1 if factor is None else _power(factor), 0)
    return _Place((result,), 1, 0)


def _power(value: int) -> int:
    """The largest power of two that divides it, up to a vector's bytes."""
    return next(p for p in (VECTOR_BYTES, 8, 4, 2, 1) if value % p == 0)
