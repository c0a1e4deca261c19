"""Who has which element of a matrix, where that is as `gpu.assembler.MatrixUnits` says: a probe's answer, read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from loopgrad.codegen.targets.spirv.features import UNIT, UNIT_LANES, FragmentOrder

Numbers = np.ndarray[Any, np.dtype[np.int64]]

MATRICES: Final = 3  # the left factor, the right one, the sums
WORDS: Final = 256  # that each of these takes in the probe's array
COUNT: Final = 8  # numbers of an invocation


def given(type: str) -> np.ndarray[Any, Any]:
    """The probe's array: the matrices, whose elements are their numbers (all types have those exactly), and room."""
    parts = [_bits(np.arange(UNIT * UNIT), kind) for kind in (type, type, "f32")]
    padded = [np.concatenate([part, np.zeros(4 * WORDS - part.size, np.uint8)]) for part in parts]
    return np.concatenate([*padded, np.zeros(4 * UNIT_LANES * MATRICES * COUNT * 2, np.uint8)]).view(np.int32)


def _bits(numbers: Numbers, type: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    floats = numbers.astype(np.float32)
    if type == "b16":
        return (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return (floats.astype(np.float16) if type == "f16" else floats).view(np.uint8)


def order_of(type: str, array: np.ndarray[Any, Any]) -> FragmentOrder | None:
    """From what the probe left; None where matrices lie otherwise."""
    found = array[MATRICES * WORDS :][: UNIT_LANES * MATRICES * COUNT].reshape(UNIT_LANES, MATRICES, COUNT)
    left, right, sums = [_places(found[:, n], n, kind) for n, kind in enumerate((type, type, "f32"))]
    return None if left is None or right is None or sums is None else FragmentOrder(type, left, right, sums)


def _places(part: np.ndarray[Any, Any], number: int, type: str) -> tuple[int, ...] | None:
    """Of each number that an invocation should have the component that it is, of all invocations the same."""
    wanted = _wanted(number)
    bits = _bits(wanted.reshape(-1), type).view(np.uint16 if type != "f32" else np.uint32).reshape(wanted.shape)
    words = part.astype(np.uint32)
    same = words[:, :, None] == bits.astype(np.uint32)[:, None, :]  # invocation, component, number
    everywhere: Sequence[Any] = same.all(axis=0).T
    places = [np.flatnonzero(row) for row in everywhere]
    return tuple([int(place[0]) for place in places]) if all(place.size == 1 for place in places) else None


def _wanted(number: int) -> Numbers:
    """Of each invocation the elements' numbers, as `MatrixUnits` has them: of the left factor, the right one, sums."""
    lane = np.arange(UNIT_LANES)[:, None]
    quarter, row = lane % 4, lane // 4
    n = np.arange(COUNT)
    if number == 0:
        return (row + 8 * (n // 2 % 2)) * UNIT + 2 * quarter + 8 * (n // 4) + n % 2
    if number == 1:
        return (2 * quarter + 8 * (n // 2 % 2) + n % 2) * UNIT + row + 8 * (n // 4)
    return (row + 8 * (n // 2 % 2)) * UNIT + 2 * quarter + 8 * (n // 4) + n % 2
