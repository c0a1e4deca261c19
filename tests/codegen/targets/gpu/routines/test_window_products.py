"""Convolutions by matrix units, of the simulator and of CUDA, against sums over windows in NumPy, and what else large
ones become there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.schedule import convolutions
from loopgrad.codegen.targets.gpu.routines.window_products import WindowProducts
from loopgrad.graph.primitives.window_products import ROWS

# x, kernel, stride, padding, dilation, groups
CASES: list[Any] = [
    ((2, 8, 7, 9), (20, 8, 3, 3), 1, 1, 1, 1),
    ((3, 6, 20), (17, 6, 7), 2, 3, 1, 1),  # rows that are padded, and places that no four of which are side by side
    ((1, 6, 5, 6, 7), (48, 3, 2, 3, 2), 1, 0, 1, 2),
    ((2, 4, 12, 12), (70, 4, 3, 3), 3, 0, 2, 1),
]


def by_numpy(x: Any, kernel: Any, stride: int, padding: int, dilation: int, groups: int) -> Any:
    dims = x.ndim - 2
    x = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * dims)
    spans = [(n - 1) * dilation + 1 for n in kernel.shape[2:]]
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(2, 2 + dims)))
    windows = windows[
        (slice(None), slice(None), *[slice(None, None, stride)] * dims, *[slice(None, None, dilation)] * dims)
    ]
    axes = ([1, *range(2 + dims, 2 + 2 * dims)], [1, *range(2, 2 + dims)])
    pairs = zip(np.split(windows, groups, 1), np.split(kernel, groups), strict=True)
    return np.concatenate([np.moveaxis(np.tensordot(w, k, axes), -1, 1) for w, k in pairs], 1)


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only convolutions that are worth it."""
    monkeypatch.setattr(convolutions, "LARGE_RESULT", 1)
    monkeypatch.setattr(convolutions, "LARGE_WINDOW", 1)
    monkeypatch.setattr(convolutions, "LARGE_COPY", 1)


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(len(shapes))
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def near(got: Any, wanted: np.ndarray, limit: float) -> None:
    assert got.shape == wanted.shape
    assert np.linalg.norm(np.asarray(got) - wanted) <= limit * np.linalg.norm(wanted)


@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize("case", CASES)
def test_values(units: str, case: Any) -> None:
    x, kernel = arrays(*case[:2])
    wanted = by_numpy(x.astype(np.float64), kernel.astype(np.float64), *case[2:])
    names = dict(zip(("stride", "padding", "dilation", "groups"), case[2:], strict=True))
    for limit, options in ((2e-6, {}), (2e-3, {"matmul_precision": "tf32"})):
        with lg.default_device(units), lg.options(**options):
            function = lg.compile(lambda x, kernel: lg.conv(x, kernel, **names))
            given = [lg.asarray(v) for v in (x, kernel)]
            assert "matrix units" in function.plan(*given).routines[0].provider
            near(function(*given), wanted, limit)


@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize(
    ("dtype", "limit", "case"),
    [
        ("float32", 1e-6, CASES[2]),
        ("float32", 1e-6, ((3, 6, 70), (34, 6, 7), 2, 3, 1, 1)),
        ("bfloat16", 3e-3, CASES[0]),
        ("float16", 4e-4, CASES[3]),
    ],
)
def test_values_without_matrix_units(plain: str, dtype: str, limit: float, case: Any) -> None:
    """Elements that are infinite or no numbers reach the results whose windows have them, and no others."""
    names = dict(zip(("stride", "padding", "dilation", "groups"), case[2:], strict=True))
    x, kernel = arrays(*case[:2])
    x[(0, 0, *[0] * (x.ndim - 2))] = np.inf
    x[(-1, 1, *[3] * (x.ndim - 2))] = np.nan
    with lg.default_device(plain):
        given = [lg.asarray(v).astype(getattr(lg, dtype)) for v in (x, kernel)]
        function = lg.compile(lambda x, kernel: lg.conv(x, kernel, **names))
        assert "rectangles" in function.plan(*given).routines[0].provider
        got = function(*given)
        with np.errstate(invalid="ignore"):
            wanted = by_numpy(*[np.asarray(v.astype(lg.float64)) for v in given], *case[2:])
        assert got.dtype is given[0].dtype
        found, finite = np.asarray(got.astype(lg.float64)), np.isfinite(wanted)
        np.testing.assert_array_equal(found[~finite], wanted[~finite])
        near(found[finite], wanted[finite], limit)


@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize(("dtype", "limit", "case"), [("bfloat16", 3e-3, CASES[1]), ("float16", 4e-4, CASES[2])])
def test_values_of_16_bits(units: str, dtype: str, limit: float, case: Any) -> None:
    names = dict(zip(("stride", "padding", "dilation", "groups"), case[2:], strict=True))
    with lg.default_device(units):
        given = [lg.asarray(v).astype(getattr(lg, dtype)) for v in arrays(*case[:2])]
        function = lg.compile(lambda x, kernel: lg.conv(x, kernel, **names))
        assert "16 bits" in function.plan(*given).routines[0].provider
        got = function(*given)
        assert got.dtype is given[0].dtype
        near(got.astype(lg.float64), by_numpy(*[np.asarray(v.astype(lg.float64)) for v in given], *case[2:]), limit)


@pytest.mark.parametrize(("stride", "dilation", "padding"), [((1, 1), (1, 1), 1), ((2, 1), (1, 2), ((0, 1), (2, 0)))])
def test_few_results_of_long_windows(
    units: str, monkeypatch: pytest.MonkeyPatch, stride: Any, dilation: Any, padding: Any
) -> None:
    """Derivatives of depthwise convolutions by the kernel are sums by places."""
    monkeypatch.setattr(convolutions, "LARGE_SUM", 1)
    x, kernel = arrays((2, 3, 9, 12), (6, 1, 3, 2))

    def loss(kernel: Any, x: Any) -> Any:
        found = lg.conv(x, kernel, stride=stride, dilation=dilation, padding=padding, groups=3)
        return lg.sum(lg.sin(lg.arange(found.size).astype(x.dtype)).reshape(found.shape) * found)

    wanted = lg.grad(loss)(*[lg.asarray(v.astype(np.float64)) for v in (kernel, x)])
    with lg.default_device(units):
        function, given = lg.compile(lg.grad(loss)), [lg.asarray(v) for v in (kernel, x)]
        assert "window" not in " ".join(row.name for row in function.plan(*given).routines)
        near(function(*given), np.asarray(wanted), 2e-6)


@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_elements_that_are_infinite_or_no_numbers(units: str, precision: str) -> None:
    x, kernel = arrays((2, 8, 9, 9), (20, 8, 3, 3))
    x[0, 1, 3, 3], x[0, 5, 6, 6], x[1, 2, 4, 4] = np.inf, -np.inf, np.nan
    x[1, 3, 0, 0] = x[0, 2, 3, 4] = np.array(0x7FFFFFFF, np.uint32).view(np.float32)  # GPUs' own NaN, also beside inf
    with np.errstate(invalid="ignore"):
        wanted = by_numpy(x.astype(np.float64), kernel.astype(np.float64), 1, 0, 1, 1)
    with lg.default_device(units), lg.options(matmul_precision=precision):
        got = np.asarray(lg.conv(lg.asarray(x), lg.asarray(kernel)))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5 if precision == "float32" else 2e-2)


@pytest.mark.usefixtures("every_size")
def test_derivatives(units: str) -> None:
    x, kernel, ct = arrays((2, 16, 6, 8), (16, 16, 3, 3), (2, 16, 6, 8))

    def loss(x: Any, kernel: Any) -> Any:
        return lg.sum(lg.conv(x, kernel, padding=1) * lg.asarray(ct))

    with lg.default_device(units):
        slopes = lg.compile(lg.grad(loss, argnums=(0, 1)))(lg.asarray(x), lg.asarray(kernel))
    with lg.default_device("interpreter"):
        wanted = lg.grad(loss, argnums=(0, 1))(*[lg.asarray(v.astype(np.float64)) for v in (x, kernel)])
    for got, right in zip(slopes, wanted, strict=True):
        near(got, np.asarray(right), 2e-6)


def test_which_these_are(units: str) -> None:
    """Many results of large windows, in float32, outside of lanes."""

    def routines(dtype: str, window: int, results: int, extent: int) -> int:
        with lg.default_device(units):
            x, kernel = lg.zeros((1, 16, extent), dtype=dtype), lg.zeros((results, 16, window), dtype=dtype)
            rows = lg.compile(lambda x, kernel: lg.conv(x, kernel)).plan(x, kernel).routines
            return [row.name for row in rows].count("window_products")

    assert routines("float32", 3, 64, 1 << 15) == 1
    for case in (
        ("float64", 3, 64, 1 << 15),
        ("float32", 1, 64, 1 << 15),
        ("float32", 3, 8, 1 << 15),
        ("float32", 3, 64, 99),
    ):
        assert not routines(*case)


def test_tiles_cover_everything() -> None:
    for results, batch, places in ((64, 3, (5, 7)), (65, 1, (128,)), (16, 2, (1,))):
        tiles = 4 if results > 16 else 1
        p = WindowProducts(batch, 2, results, places, places, (1,) * len(places), 4, 40, 40, True, 4, tiles)
        rows, columns = p.row_blocks * p.rows, p.count // p.row_blocks // 2 * p.columns
        assert rows - p.rows < results <= rows
        assert columns - p.columns < p.all_places <= columns
        assert p.memory < 99 << 10


def test_the_reference_takes_several() -> None:
    """As primitives of libraries do."""
    x, kernel = arrays((3, 2, 4, 9), (3, 2, 5, 8))
    attrs = {"strides": (2,), "dilation": (1,), "window": (3,), "places": (4,), "precision": "float32"}
    attrs["channels_last"] = False
    (got,) = ROWS["window_products"].reference(attrs, x, kernel)
    for n in range(3):
        weights = kernel[n, ..., :6].reshape(10, 2, 3)
        near(got[n], by_numpy(x[n].astype(np.float64), weights.astype(np.float64), 2, 0, 1, 2), 1e-6)
