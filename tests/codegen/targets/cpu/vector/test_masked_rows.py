"""Lanes under a mask that lie side by side in memory: whole vectors by one instruction, whatever the machine masks."""

from __future__ import annotations

import re

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.targets.cpu.features import host_machine, machine_from
from loopgrad.graph.types import bool_, float16, float32, float64, int8, int64, uint16
from tests.codegen.targets.cpu.cpu_harness import check, narrower
from tests.codegen.targets.cpu.kernel_build import Build

COLUMNS = 83
AVX2 = {"avx": True, "avx2": True, "fma": True}
AVX512 = AVX2 | dict.fromkeys(("avx512f", "avx512bw", "avx512dq", "avx512vl"), True)


def rolled(dtype, rows: int = 5) -> Kernel:
    """Rows by three columns to the right, stored where the sum of the two coordinates is large."""
    size = rows * COLUMNS
    k = Build(rows, COLUMNS)
    out, given = k.param(dtype, size, "write"), k.param(dtype, size)
    row, column = k.indices
    start = k.one("mul", [row, k.const(COLUMNS, int64)])
    inside = k.one("ge", [column, k.const(3, int64)], bool_)

    def moved(by):
        return k.load(given, k.one("add", [start, k.one("add", [column, k.const(by, int64)])]))

    (value,) = k.branch(inside, lambda: [moved(-3)], lambda: [moved(COLUMNS - 3)], [dtype])
    k.store(out, k.one("add", [start, column]), value)
    return k.kernel()


@pytest.mark.parametrize("dtype", [int8, uint16, float16, float32, float64, bool_])
@pytest.mark.parametrize("bits", [None, 256, 128])
def test_rows_that_are_moved(dtype, bits: int | None) -> None:
    if bits is not None and bits > host_machine().vector_bits:
        pytest.skip("this machine has shorter vectors")
    kernel = rolled(dtype)
    data = np.random.default_rng(0).integers(0, 100, 5 * COLUMNS)
    given = (data % 2 == 0) if dtype is bool_ else data.astype(dtype.name)
    check(kernel, [np.zeros_like(given), given], None, narrower(bits) if bits else None)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.float32, bool])
def test_edges_and_stores_of_some_lanes(dtype: type) -> None:
    x = np.random.default_rng(1).integers(0, 2, (19, 131)).astype(dtype)

    def f(m, x):
        return m.concatenate([m.roll(m.pad(x, 2, mode="edge"), 3, 1), m.pad(x, 2)])

    np.testing.assert_array_equal(np.asarray(lg.compile(lambda x: f(lg, x), device="cpu")(x)), f(np, x))
    limit = np.arange(131) % 7

    def counted(x):
        return lg.fori_loop(0, lg.asarray(limit), lambda i, t: t + i, lg.zeros(131, dtype=lg.int64)) + x[0]

    want = np.array([sum(range(n)) for n in limit]) + x[0]
    np.testing.assert_array_equal(np.asarray(lg.compile(counted, device="cpu")(x)), want)


def test_what_machines_mask() -> None:
    linux = "x86_64-unknown-linux-gnu"
    masked = {
        "avx512": [machine_from(linux, "", AVX512).masked(size) for size in (1, 2, 4, 8)],
        "avx2": [machine_from(linux, "", AVX2).masked(size) for size in (1, 2, 4, 8)],
        "sse": [machine_from(linux, "", {"sse2": True}).masked(size) for size in (1, 2, 4, 8)],
    }
    assert masked == {"avx512": [True] * 4, "avx2": [False, False, True, True], "sse": [False] * 4}


def test_whole_vectors_of_bytes_are_loaded_at_once() -> None:
    text = lg.compile(lambda x: lg.roll(x, 3, 1), device="cpu").text("llvm", np.zeros((40, 1000), np.uint8))
    assert ("whole" in text) is not host_machine().masked(1)
    assert re.search(r"load <\d+ x i8>, ptr", text) or host_machine().masked(1)
