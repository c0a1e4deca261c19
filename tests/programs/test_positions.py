"""argmax and argmin of rows that are reduced by parts: first occurrences, NaN, every kind of dtype, any axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.passes import simplify_positions

DTYPES = ["bool", "int8", "uint64", "int32", "float16", "float32", "float64"]


def rows(extent: int, dtype: str) -> np.ndarray:
    x = np.random.default_rng(extent).integers(0, 2 if dtype == "bool" else 7, (6, extent)).astype(dtype)
    if x.dtype.kind == "f":
        x[1, [extent // 2, extent - 1]] = np.nan
        x[2], x[3] = -np.inf, np.nan
        x[4, 0], x[4, 1:] = -0.0, 0.0
    return x


@pytest.mark.in_turns
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extent", [63, 64, 300])
def test_first_occurrences(compiled_device: str, name: str, dtype: str, extent: int) -> None:
    if compiled_device.startswith("simulator") and dtype == "float16":
        pytest.skip("the host's conversions of float16 are in a library that the simulator doesn't link")
    x = rows(extent, dtype)
    for array, axis in (
        (x, 1),
        (x, None),
        (x.T.copy(), 0),
        (x.reshape(2, 3, extent), 2),
        (x.reshape(6, 1, extent), -1),
    ):
        got = np.asarray(lg.compile(lambda a, axis=axis: getattr(lg, name)(a, axis=axis))(lg.asarray(array)))
        np.testing.assert_array_equal(got, getattr(np, name)(array, axis=axis), strict=True)


def test_of_what_is_computed_and_inside_a_loop(compiled_device: str) -> None:
    x = np.random.default_rng(0).normal(size=(5, 90)).astype(np.float32)

    def program(x: Any, times: Any) -> Any:
        step = lambda k, v: v.at[lg.arange(5), lg.argmax(v, axis=1)].set(-lg.ones(5, dtype=v.dtype) * k)
        return lg.fori_loop(0, times, step, x), lg.argmin(x * x - 0.5, axis=1)

    want = x.copy()
    for k in range(4):
        want[np.arange(5), np.argmax(want, axis=1)] = -k
    got = lg.compile(program)(lg.asarray(x), 4)
    np.testing.assert_array_equal(np.asarray(got[0]), want)
    np.testing.assert_array_equal(np.asarray(got[1]), np.argmin(x * x - np.float32(0.5), axis=1))


def test_a_long_row_is_reduced_by_parts() -> None:
    with lg.default_device("cpu"):
        step, x = lg.compile(lambda x: lg.argmax(x, axis=1)), lg.zeros((3, 4000))
        assert (3, 4000) in {kernel.domain for kernel in step.plan(x).kernels}
        assert {kernel.domain for kernel in step.plan(lg.zeros((3, 40))).kernels} == {(3,)}


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint64", "float32"])
def test_of_blocks(compiled_device: str, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(simplify_positions, "VERY_LONG", 256)
    monkeypatch.setattr(simplify_positions, "BLOCK", 16)
    x = rows(261, dtype)
    program = lg.compile(lambda x: [place(x, axis=axis) for place in (lg.argmax, lg.argmin) for axis in (1, None)])
    wanted = [place(x, axis=axis) for place in (np.argmax, np.argmin) for axis in (1, None)]
    for found, want in zip(program(lg.asarray(x)), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(found), want, strict=True)


def test_a_very_long_row_is_read_once() -> None:
    with lg.default_device("cpu"):
        step, x = lg.compile(lambda x: lg.argmax(x)), lg.zeros((1 << 16) + 2)
        sizes = [int(np.prod(kernel.domain)) for kernel in step.plan(x).kernels]
        assert sum(size >= 1 << 16 for size in sizes) == 1
