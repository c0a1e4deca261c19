"""Elements that arrays are made of, found by quotients and remainders of indices; small arrays and large ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

MOVED: dict[str, Callable[[Any, Any], Any]] = {
    "transposed": lambda xp, z: xp.concatenate([z.T, z.T[::-1]], axis=0),
    "transposed, side by side": lambda xp, z: xp.concatenate([z.T[:, ::-1], z.T], axis=1),
    "rows of another length": lambda xp, z: xp.concatenate([z.reshape(-1, 2), z.T.reshape(-1, 2)], axis=0),
    "rolled": lambda xp, z: xp.roll(xp.roll(z, 5), -1, axis=0),
    "padded": lambda xp, z: xp.pad(z.T, ((2, 1), (0, 3)))[::-1],
    "tiled": lambda xp, z: xp.tile(z.T, (2, 3))[1:, ::-1],
    "repeated": lambda xp, z: xp.repeat(xp.flip(z, axis=1), 3, axis=0),
    "turned and cut": lambda xp, z: xp.concatenate([z.T[1:].reshape(-1), xp.roll(z, 3).reshape(-1)[::2]]),
}


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64", "bool"])
@pytest.mark.parametrize("shape", [(2, 3), (4, 4), (3, 10)])
@pytest.mark.parametrize("name", MOVED)
def test_elements_are_moved(device: str, name: str, shape: tuple[int, int], dtype: str) -> None:
    z = (np.arange(shape[0] * shape[1]).reshape(shape) % 251).astype(dtype)
    np.testing.assert_array_equal(np.asarray(MOVED[name](lg, lg.asarray(z))), MOVED[name](np, z))


def test_complex_constants(device: str) -> None:
    z = np.array([1 + 2j, -3.5j], np.complex64)
    got = lg.pad(lg.asarray(z), (1, 2), constant_values=2.0 - 0.0j)
    np.testing.assert_array_equal(np.asarray(got), np.pad(z, (1, 2), constant_values=2.0))
    np.testing.assert_array_equal(np.asarray(lg.full((3,), 1.5 - 2j, dtype=lg.complex64)), np.full(3, 1.5 - 2j))


@pytest.mark.in_turns
@pytest.mark.parametrize("name", MOVED)
def test_many_elements_are_moved(compiled_device: str, name: str) -> None:
    if compiled_device.startswith("emulator"):
        pytest.skip("too many elements for an emulator")
    z = np.arange(700 * 1026, dtype=np.float32).reshape(700, 1026)
    np.testing.assert_array_equal(np.asarray(MOVED[name](lg, lg.asarray(z))), MOVED[name](np, z))


@pytest.mark.in_turns
@pytest.mark.parametrize("parts", [2, 3, 7, 64])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_lanes_add_where_their_remainder_says(compiled_device: str, parts: int, dtype: str) -> None:
    if compiled_device.startswith("emulator"):
        pytest.skip("too many elements for an emulator")
    size = 1 << 20
    x = np.random.default_rng(0).integers(-1000, 1000, size).astype(np.int32)
    got = lg.zeros(parts, dtype=getattr(lg, dtype)).at[lg.asarray(x) % parts].add(1)
    np.testing.assert_array_equal(np.asarray(got), np.bincount(x % parts, minlength=parts))
    by_lane = lg.zeros(parts, dtype=getattr(lg, dtype)).at[lg.arange(size, dtype=lg.int32) % parts].add(1)
    np.testing.assert_array_equal(np.asarray(by_lane), np.bincount(np.arange(size) % parts, minlength=parts))
    quotients = lg.asarray(x) // parts * 10 + lg.asarray(x) % parts
    np.testing.assert_array_equal(np.asarray(quotients), x // parts * 10 + x % parts)


DIAGONALS = {
    "set": lambda v, i: v.at[i, i].set(v[i, i] + 1.0),
    "add": lambda v, i: v.at[i, i].add(1.0),
    "rows": lambda v, i: v.at[i, i].set(v[i, i] * 0.0),
}


@pytest.mark.parametrize("name", DIAGONALS)
def test_updates_along_a_diagonal_in_a_loop(device: str, name: str) -> None:
    """Two indices that count along one axis: an element is met where both do, not where one does."""
    extra = (2,) if name == "rows" else ()
    x = np.arange(np.prod((3, 3, *extra)), dtype=np.float64).reshape(3, 3, *extra)
    expected, diagonal = x, np.eye(3).reshape(3, 3, *(1,) * len(extra))
    for _ in range(2):
        expected = expected * (1.0 - diagonal) if name == "rows" else expected + diagonal
        expected = expected.swapaxes(0, 1)
    body = lambda _, v: lg.swapaxes(DIAGONALS[name](v, lg.arange(3)), 0, 1)
    np.testing.assert_array_equal(np.asarray(lg.fori_loop(0, 2, body, lg.asarray(x))), expected)
