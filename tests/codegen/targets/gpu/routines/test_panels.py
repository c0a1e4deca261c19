"""Attention and convolutions by matrix units of warpgroups, of the simulator and of CUDA, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.schedule import convolutions
from loopgrad.codegen.targets.gpu.routines import attention as routine
from loopgrad.codegen.targets.gpu.routines import channel_windows
from loopgrad.codegen.targets.gpu.routines.attention_scores import Shapes
from loopgrad.codegen.targets.gpu.routines.window_panels import PanelWindows
from tests.codegen.targets.gpu.routines.test_attention import narrow, near, wide
from tests.codegen.targets.gpu.routines.test_window_products import arrays, by_numpy
from tests.lazy.networks import test_attention as attention


@pytest.mark.parametrize(
    ("dtype", "queries", "keys", "width", "value_width", "causal"),
    [
        ("bfloat16", 70, 100, 24, 40, True),
        ("float16", 70, 140, 80, 72, False),  # of several panels, two warpgroups and blocks; with mask and bias
    ],
)
def test_attention(
    warpgroups: str, dtype: str, queries: int, keys: int, width: int, value_width: int, causal: bool
) -> None:
    """Values and derivatives."""
    rng = np.random.default_rng(0)
    mask = None if causal else rng.random((queries, keys)) < 0.7
    bias = None if causal else rng.normal(size=(queries, keys)).astype(np.float32)
    scale = 0.4 if causal else -0.4
    shapes = ((queries, width), (keys, width), (keys, value_width), (queries, value_width))
    with lg.default_device(warpgroups):
        q, k, v, ct = narrow(dtype, *[(2, *shape) for shape in shapes])

        def function(q: Any, k: Any, v: Any, ct: Any) -> tuple[Any, ...]:
            found, back = lg.vjp(lambda *x: lg.attention(*x, bias, mask, scale=scale, is_causal=causal), q, k, v)
            return (found, *back(ct))

        compiled = lg.compile(function)
        assert all("matrix units" in row.provider for row in compiled.plan(q, k, v, ct).routines)
        added = np.zeros((1, 1)) if bias is None else bias
        weights, found = attention.by_numpy(*wide(q, k, v), added, True if mask is None else mask, scale, causal)
        wanted = attention.derivatives(*wide(q, k, v), *wide(ct), added, weights, found, scale)
        for got, right in zip(compiled(q, k, v, ct), (found, *wanted), strict=False):
            near(got, right, dtype)


@pytest.mark.parametrize("causal", [False, True])
def test_warpgroups_take_turns(warpgroups: str, monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    """More blocks than have memory, the last one not whole, and two tiles, in one of which rows are missing; of chunks
    of a row no whole number is as many as there are invocations."""
    tiling = routine.AttentionTiling(8, 1, 32, True, 1, True, True)
    monkeypatch.setattr(routine, "tiling", lambda *_: tiling)
    with lg.default_device(warpgroups):
        q, k, v = narrow("bfloat16", (2, 150, 24), (2, 180, 24), (2, 180, 40))
        function = lg.compile(lambda q, k, v: lg.attention(q, k, v, is_causal=causal))
        near(function(q, k, v), attention.by_numpy(*wide(q, k, v), is_causal=causal)[1], "bfloat16")


def test_half_a_block_may_lie_beyond_the_last_key(warpgroups: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each warpgroup copies half a block; what follows in memory, values of the next attention, has no weight."""
    monkeypatch.setattr(routine, "tiling", lambda *_: routine.AttentionTiling(8, 1, 32, True, 1, True, True))
    with lg.default_device(warpgroups):
        q, k, v = narrow("bfloat16", (2, 20, 8), (2, 48, 8), (2, 48, 8))
        follows = lg.asarray(np.where(np.arange(2) == 1, np.nan, 0.0)[:, None, None]).astype(lg.bfloat16)
        found = lg.compile(lambda q, k, v: lg.attention(q, k, v))(q, k, v + follows)
        near(found[0], attention.by_numpy(*[x[0] for x in wide(q, k, v)])[1], "bfloat16")


def test_few_tiles_share_out_keys_rather_than_take_turns() -> None:
    def chosen(count: int, queries: int, width: int, causal: bool = False) -> tuple[int, bool]:
        found = routine.tiling(Shapes("b16", count, queries, 4096, width, width, causal, 0.1, panels=True), 4)
        return found.warps, found.turns

    assert chosen(64, 2048, 128) == chosen(64, 2048, 256) == chosen(64, 2048, 128, True) == (8, True)
    assert chosen(16, 512, 128) == chosen(1024, 40, 128) == chosen(64, 2048, 64) == (4, False)


def test_queries_that_share_keys_are_one_matrix_while_32_bits_count_its_elements() -> None:
    def rows(queries: int) -> tuple[int, int]:
        found = routine.with_shared(Shapes("b16", 32, queries, 64, 64, 128, False, 0.1), ((4, 8), (4, 1)))
        return found.count, found.queries

    assert rows(1 << 20) == (4, 8 << 20)
    assert rows(1 << 21) == (32, 1 << 21)  # 2**31 elements of the result


# x, kernel, stride, padding, dilation, groups
CHANNELS: list[Any] = [
    ((2, 16, 9, 11), (20, 16, 3, 3), 1, 1, 1, 1),
    ((1, 24, 12, 12), (140, 12, 3, 3), 2, 1, 2, 2),  # chunks that are filled up, and results of two workgroups
]


@pytest.mark.parametrize("case", CHANNELS)
def test_convolutions_of_many_channels(warpgroups: str, monkeypatch: pytest.MonkeyPatch, case: Any) -> None:
    for name in ("LARGE_RESULT", "LARGE_WINDOW", "LARGE_COPY"):
        monkeypatch.setattr(convolutions, name, 1)
    monkeypatch.setattr(channel_windows, "MANY", 8)
    names = dict(zip(("stride", "padding", "dilation", "groups"), case[2:], strict=True))
    with lg.default_device(warpgroups):
        x, kernel = (lg.asarray(v).astype(lg.bfloat16) for v in arrays(*case[:2]))
        function = lg.compile(lambda x, kernel: lg.conv(x, kernel, **names))
        assert "many channels" in function.plan(x, kernel).routines[0].provider
        near(function(x, kernel), by_numpy(*wide(x, kernel), *case[2:]), "bfloat16")


@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "dilation"),
    [
        ((6, 16, 9, 11), (20, 3, 3), 2, 1, 1),  # terms that aren't whole blocks, of two slices
        ((3, 144, 30), (136, 3), 1, 2, 2),  # results and a batch of two workgroups each
    ],
)
def test_derivatives_by_kernels(
    warpgroups: str, monkeypatch: pytest.MonkeyPatch, shape: Any, kernel: Any, stride: int, padding: int, dilation: int
) -> None:
    """Against sums over windows in NumPy, one for each element of the kernel."""
    for name in ("LARGE_COPY", "LARGE_SUM", "MANY", "FEWEST_BLOCKS"):
        monkeypatch.setattr(convolutions, name, 1)
    names = {"stride": stride, "padding": padding, "dilation": dilation}
    x, w = arrays(shape, (kernel[0], shape[1], *kernel[1:]))
    with lg.default_device(warpgroups):
        x, w = (lg.asarray(v).astype(lg.bfloat16) for v in (x, w))
        out = lg.conv(x, w, **names)
        ct = lg.asarray(np.random.default_rng(1).normal(size=out.shape)).astype(lg.bfloat16)
        function = lg.compile(lambda x, w, ct: lg.vjp(lambda w: lg.conv(x, w, **names), w)[1](ct))
        assert any("few places" in row.provider for row in function.plan(x, w, ct).routines)
        (got,) = function(x, w, ct)
        turned = [np.swapaxes(v, 0, 1) for v in wide(x, ct)]
        whole = by_numpy(*turned, dilation, padding, stride, 1)
        near(got, np.swapaxes(whole, 0, 1)[(..., *[slice(n) for n in kernel[1:]])], "bfloat16")


def test_which_are_of_many_channels(warpgroups: str) -> None:
    """Fewer windows of these are large."""
    with lg.default_device(warpgroups):
        for channels, window, results, count in ((64, 3, 320, 1), (48, 4, 320, 0), (64, 3, 64, 0)):
            shapes = (1, channels, 1 << 16), (results, channels, window)
            x, kernel = (lg.zeros(shape, dtype="bfloat16") for shape in shapes)
            rows = lg.compile(lambda x, kernel: lg.conv(x, kernel)).plan(x, kernel).routines
            assert ["many channels" in row.provider for row in rows if row.name == "window_products"] == [True] * count


# x, kernel, stride, padding, dilation, groups
CONVOLUTIONS: list[Any] = [
    ((3, 6, 20), (17, 6, 7), 2, 3, 1, 1),  # rows that are padded, and places of which no two are stored together
    ((1, 6, 5, 6, 7), (48, 3, 2, 3, 2), 1, 0, 1, 2),
    ((1, 4, 12, 12), (140, 4, 3, 3), 1, 0, 2, 1),  # results of two workgroups
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(warpgroups: str, monkeypatch: pytest.MonkeyPatch, case: Any) -> None:
    """Where a number isn't finite, those results are what they should be, and no others."""
    monkeypatch.setattr(convolutions, "LARGE_RESULT", 1)
    monkeypatch.setattr(convolutions, "LARGE_WINDOW", 1)
    x, kernel = arrays(*case[:2])
    flat, weights = x.reshape(-1), kernel.reshape(-1)
    flat[5], flat[50], weights[7] = np.inf, np.nan, -np.inf
    flat[60] = np.array(0x7FFFFFFF, np.uint32).view(np.float32)  # GPUs' own NaN
    with np.errstate(invalid="ignore"):
        wanted = by_numpy(x.astype(np.float64), kernel.astype(np.float64), *case[2:])
    names = dict(zip(("stride", "padding", "dilation", "groups"), case[2:], strict=True))
    for limit, options in ((2e-6, {}), (2e-3, {"matmul_precision": "tf32"})):
        with lg.default_device(warpgroups), lg.options(**options):
            function = lg.compile(lambda x, kernel: lg.conv(x, kernel, **names))
            given = [lg.asarray(v) for v in (x, kernel)]
            assert "of warpgroups" in function.plan(*given).routines[0].provider
            got = np.asarray(function(*given))
        size = np.sqrt(np.prod(kernel.shape[1:]))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=limit * size)


def test_tiles_cover_everything() -> None:
    for results, across, batch, places in ((64, 64, 3, (5, 7)), (130, 72, 1, (128,)), (16, 16, 2, (1,))):
        p = PanelWindows(batch, 2, results, places, places, (1,) * len(places), 4, 40, 40, True, 4, 1, across)
        rows, columns = p.row_blocks * p.rows, p.count // p.row_blocks // 2 * p.columns
        assert rows - p.rows < results <= rows
        assert columns - p.columns < p.all_places <= columns
        assert p.memory < 99 << 10
