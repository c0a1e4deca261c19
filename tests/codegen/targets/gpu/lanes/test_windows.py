"""Lanes that read windows: which loops are written out, which lanes lie side by side, and that results stay."""

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.pipeline import build_program
from loopgrad.codegen.targets.gpu.lanes import windows
from loopgrad.codegen.targets.gpu.lanes.boxes import boxed
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, streamed_tiles
from loopgrad.codegen.targets.gpu.lanes.side_by_side import lanes_side_by_side
from loopgrad.codegen.targets.gpu.lanes.windows import overlapping, written_out
from loopgrad.graph.build import emit, trace
from loopgrad.graph.types import TensorType, float32
from tests.codegen.targets.gpu.gpu_harness import run_kernel


def kernels_of(window, extent, padding=0, channels=1, results=1, groups=1):
    """Those of a convolution that read windows."""
    types = [TensorType((2, channels, *extent), float32), TensorType((results, channels // groups, *window), float32)]
    dims = len(window)

    def program(x, w):
        one, sides = (1,) * dims, (padding,) * dims
        attrs = {"strides": one, "low": sides, "high": sides, "spread": one, "dilation": one, "groups": groups}
        return list(emit("conv", (x, w), {**attrs, "absent": False}))

    graph, _ = trace(program, types)
    return [k for k in build_program(graph, DEFAULT_OPTIONS).kernels if "pad" not in k.name]


def has_loops(kernel):
    return any(op.blocks for op in kernel.body.ops)


def arrays_of(kernel):
    rng = np.random.default_rng(0)
    return [rng.normal(size=p.size).astype(p.dtype.np) for p in kernel.params]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(windows, "FEWEST", 1)


def test_a_loop_over_a_window_is_written_out_and_keeps_its_bits(few):
    (kernel,) = kernels_of((5, 5), (20, 24), padding=2)
    plain = written_out(kernel)
    assert has_loops(kernel)
    assert not has_loops(plain)
    verify_kernel(plain)
    wanted, got = arrays_of(kernel), arrays_of(kernel)
    interpret_kernel(kernel, wanted)
    interpret_kernel(plain, got)
    np.testing.assert_array_equal(got[0], wanted[0])
    run_kernel(plain, device := arrays_of(kernel))
    np.testing.assert_array_equal(device[0], wanted[0])


def test_few_lanes_and_long_windows_keep_their_loops(monkeypatch):
    (kernel,) = kernels_of((5, 5), (20, 24), padding=2)
    assert written_out(kernel) is kernel
    monkeypatch.setattr(windows, "FEWEST", 1)
    assert all(written_out(long) is long for long in kernels_of((29, 31), (60, 64)))


def test_windows_along_rows_lie_side_by_side(few):
    (kernel,) = kernels_of((3, 3), (20, 24), padding=1)
    assert overlapping(written_out(kernel), 4)
    assert lanes_side_by_side(written_out(kernel), 4) == 4
    (column,) = kernels_of((9, 1), (20, 24))
    assert not overlapping(written_out(column), 4)


def test_a_heavy_window_still_has_lanes_side_by_side():
    (kernel,) = kernels_of((5, 5), (516, 516))
    tiles = streamed_tiles(written_out(kernel), Geometry())
    assert (tiles.unrolled, tiles.side) == (4, 4)


def test_gathered_windows_are_read_in_order():
    """They overlap, so that fewer elements would be read in another order; but no fewer of each."""
    gather = next(k for k in kernels_of((3, 3), (30, 34), channels=4, results=8) if "gather" in k.name)
    assert boxed(gather, 48 << 10) is None
    assert lanes_side_by_side(gather, 4) == 4


@pytest.mark.parametrize("window", [(3, 3), (5, 5), (1, 7)])
def test_results_on_devices(device, window):
    """More lanes than those of kernels whose loops stay."""
    rng = np.random.default_rng(1)
    x, w = rng.integers(-3, 4, (2, 1, 300, 260)), rng.integers(-3, 4, (1, 1, *window))
    got = np.asarray(lg.conv(lg.asarray(x, dtype=lg.float32), lg.asarray(w, dtype=lg.float32)))
    wanted = np.lib.stride_tricks.sliding_window_view(x[:, 0], window, (1, 2))
    np.testing.assert_array_equal(got[:, 0], np.einsum("nyxab,ab->nyx", wanted, w[0, 0]))
