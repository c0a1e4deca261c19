"""Transforms on the host: with and without SciPy, in parts, and with any number of threads the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.fft  # type: ignore[import-untyped]

from loopgrad.graph.primitives import REFERENCE
from loopgrad.runtime import host_fourier, pocketfft
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.cpu.native_pool import NativePool

RNG = np.random.default_rng(3)


def the_pool() -> NativePool:
    return CpuDevice().pool()


def alone_each(count: int, one: Callable[[int], None]) -> None:
    for number in range(count):
        one(number)


def done(name: str, attrs: dict[str, Any], x: Any, each: Any) -> Any:
    (like,) = REFERENCE[name](attrs, x)
    target = np.full_like(like, np.nan)
    host_fourier.transform(name, tuple(sorted(attrs.items())), x, target, each)
    return like, target


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Parts of few numbers; plans that others made of such are forgotten."""
    monkeypatch.setattr(host_fourier, "WORTH_A_PART", 1000)
    host_fourier.planned.cache_clear()
    yield
    host_fourier.planned.cache_clear()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("library", ["SciPy's", "SciPy's public functions", "NumPy's"])
def test_parts_on_threads(monkeypatch: pytest.MonkeyPatch, library: str, dtype: str) -> None:
    """In any number of parts, along any axes, one after the other and side by side, to the same bits."""
    scipys = {"SciPy's": pocketfft.scipys(), "NumPy's": None}.get(library, pocketfft.OfScipy(scipy.fft))
    monkeypatch.setattr(pocketfft, "scipys", lambda: scipys)
    pairs, reals = RNG.standard_normal((21, 10, 126, 2)).astype(dtype), RNG.standard_normal((63, 251)).astype(dtype)
    images = RNG.standard_normal((40, 3, 44)).astype(dtype)
    before = pairs.copy()
    pool = the_pool()
    usual = pool.threads
    cases: list[tuple[str, dict[str, Any], Any]] = [
        ("dft", {"inverse": True, "norm": "full"}, pairs),
        ("dft", {"inverse": False, "norm": "ortho"}, pairs[:2, :1]),
        ("dft_along", {"inverse": False, "norm": "full", "axes": (0, 1, 2)}, pairs),
        ("dft_along", {"inverse": True, "norm": "none", "axes": (0, 2)}, pairs),
        ("dft_along", {"inverse": True, "norm": "none", "axes": (1,)}, pairs),
        ("real_dft", {"norm": "none"}, reals),
        ("real_dft_along", {"norm": "ortho", "axes": (1, 0)}, reals),
        ("real_dft_along", {"norm": "full", "axes": (0, 2)}, images),
        ("hermitian_dft", {"length": 250, "norm": "full"}, pairs),
        ("hermitian_dft", {"length": 251, "norm": "none"}, pairs),
        ("hermitian_dft_along", {"length": 250, "norm": "full", "axes": (0, 1, 2)}, pairs),
        ("hermitian_dft_along", {"length": 19, "norm": "ortho", "axes": (2, 1)}, pairs),
    ]
    for name, attrs, x in cases:
        like, alone = done(name, attrs, x, alone_each)
        np.testing.assert_allclose(alone, like, rtol=1e-5, atol=1e-4 if dtype == "float32" else 1e-12)
        try:
            for threads in (1, 2, 5):
                pool.set_threads(threads)
                np.testing.assert_array_equal(done(name, attrs, x, pool.each)[1], alone)
        finally:
            pool.set_threads(usual)
    np.testing.assert_array_equal(pairs, before)


def test_what_a_part_raises_reaches_the_caller() -> None:

    def one(number: int) -> None:
        if number == 3:
            raise KeyError(number)

    with pytest.raises(KeyError, match="3"):
        the_pool().each(8, one)


def test_parts_are_whole_vectors_and_lines() -> None:
    """Rows and columns that are transformed together are in one part."""
    attrs = (("axes", (0,)), ("inverse", False), ("norm", "none"))
    (columns,) = host_fourier.planned("dft", attrs, (1 << 16, 20), (1 << 16, 20), 4).passes
    assert [part[1] for part in columns.parts] == [slice(0, 16), slice(16, 20)]
    (rows,) = host_fourier.planned("dft", attrs[1:], (64, 10007), (64, 10007), 4).passes
    assert {(part[0].stop - part[0].start) % 16 for part in rows.parts} == {0}
    assert len(rows.parts) == 4


def test_arrays_are_parted_before_their_rows() -> None:
    """One after the other where they are enough, else each in parts of its own; innermost ones aren't torn apart."""
    attrs = (("axes", (1, 2)), ("norm", "none"))
    (whole,) = host_fourier.planned("real_dft_along", attrs, (16, 480, 640), (16, 480, 321), 4).passes
    assert [(part[0].start, part[0].stop) for part in whole.parts] == [(k, k + 1) for k in range(16)]
    shape = (3, 500, 700)
    rows, columns = host_fourier.planned("dft_along", attrs, shape, shape, 4).passes
    for step in (rows, columns):
        assert {(part[0].start, part[0].stop) for part in step.parts} == {(k, k + 1) for k in range(3)}
    attrs = (("axes", (0, 1)), ("norm", "none"))
    behind = host_fourier.planned("dft_along", attrs, (64, 64, 64), (64, 64, 64), 4).passes
    assert [step.axes for step in behind] == [(1,), (0,)]


def test_rows_that_no_core_has_near_are_transformed_one_at_a_time() -> None:
    attrs = (("norm", "none"),)
    for extent, size, rows in ((1 << 18, 8, 2), (1 << 19, 8, 1), (1 << 19, 4, 1)):
        (step,) = host_fourier.planned("dft", attrs, (8, extent), (8, extent), size).passes
        assert {part[0].stop - part[0].start for part in step.parts} == {rows}
