"""Convolutions against sums over windows in NumPy, their derivatives against the same of a direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pytest

import loopgrad as lg

# x, kernel, keywords of lg.conv
CASES: Final[Mapping[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]] = {
    "vectors": ((1, 1, 40), (1, 1, 5), {}),
    "of an axis": ((3, 2, 9), (4, 2, 3), {"padding": 2, "stride": 2}),
    "as a product": ((2, 3, 6, 5), (8, 3, 3, 2), {"padding": 1}),
    "of groups": ((2, 6, 7, 5), (12, 2, 3, 2), {"groups": 3, "padding": [1, 0]}),
    "of each channel": ((2, 5, 9, 9), (5, 1, 3, 3), {"groups": 5, "stride": (2, 3), "dilation": 2}),
    "transposed": ((2, 3, 4, 5), (6, 3, 3, 2), {"input_dilation": (2, 3), "padding": ((2, 1), (0, 3))}),
    "of a volume": ((1, 2, 5, 4, 6), (3, 2, 2, 3, 1), {"padding": "same", "stride": (1, 2, 2)}),
    "of many places": ((1, 1, 40, 40), (1, 1, 5, 5), {"padding": "same"}),
    "a long window": ((1, 2, 30, 50), (3, 2, 29, 40), {"padding": (1, 0)}),
    "no places": ((2, 3, 2), (4, 3, 5), {}),
    "nothing": ((0, 3, 6), (4, 3, 5), {}),
    "no channels": ((2, 0, 6), (4, 0, 3), {}),
    "of one element": ((1, 1, 1), (1, 1, 1), {}),
}


def per_dim(given: Any, dims: int) -> list[Any]:
    return [given] * dims if isinstance(given, int) else list(given)


def windows(x: np.ndarray, window: Sequence[int], **keywords: Any) -> np.ndarray:
    """(N, C, *places, *window), with zeros around and between."""
    dims = len(window)
    strides, dilation, spread = (per_dim(keywords.get(k, 1), dims) for k in ("stride", "dilation", "input_dilation"))
    for d in range(dims):
        if x.shape[2 + d]:
            x = np.insert(x, np.repeat(np.arange(1, x.shape[2 + d]), spread[d] - 1), 0, axis=2 + d)
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    padding = keywords.get("padding", 0)
    if padding == "same":
        missing = [max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
        padding = [(n // 2, n - n // 2) for n in missing]
    sides = [(p, p) if isinstance(p, int) else p for p in per_dim(padding, dims)]
    x = np.pad(x, [(0, 0), (0, 0), *sides])
    short = [max(r - n, 0) for n, r in zip(x.shape[2:], reach, strict=True)]
    found = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, [(0, 0), (0, 0), *[(0, n) for n in short]]), reach, tuple(range(2, 2 + dims))
    )
    places = [slice(None, 0 if n else None, s) for n, s in zip(short, strides, strict=True)]
    return found[(slice(None), slice(None), *places, *[slice(None, None, d) for d in dilation])]


def expected(x: np.ndarray, kernel: np.ndarray, groups: int = 1, **keywords: Any) -> np.ndarray:
    dims, rows = x.ndim - 2, windows(x, kernel.shape[2:], **keywords)
    letters = "uvw"[:dims], "xyz"[:dims]
    parts = zip(np.split(rows, groups, 1), np.split(kernel, groups), strict=True)
    return np.concatenate(
        [np.einsum(f"nc{letters[0]}{letters[1]},oc{letters[1]}->no{letters[0]}", *pair) for pair in parts], 1
    )


def arrays(name: str, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    x, kernel, keywords = CASES[name]
    rng = np.random.default_rng(len(name))
    return rng.normal(size=x).astype(dtype), rng.normal(size=kernel).astype(dtype), keywords


@pytest.mark.in_turns
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(device: str, name: str) -> None:
    x, kernel, keywords = arrays(name, "float32")
    want = expected(x, kernel, **keywords)
    weights = np.random.default_rng(0).normal(size=want.shape).astype("float32")

    def loss(x: Any, kernel: Any) -> Any:
        return lg.sum(lg.conv(x, kernel, **keywords) * weights)

    found = lg.conv(x, kernel, **keywords)
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    of_x, of_kernel = lg.grad(loss, argnums=(0, 1))(lg.asarray(x), lg.asarray(kernel))
    for gradient, array, k in ((of_x, x, 0), (of_kernel, kernel, 1)):
        along = np.random.default_rng(1).normal(size=array.shape)
        pair = [np.float64(x), np.float64(kernel)]
        pair[k] = along
        slope = np.sum(expected(*pair, **keywords) * weights)
        np.testing.assert_allclose(np.sum(np.asarray(gradient) * along), slope, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["of groups", "transposed"])
def test_second_derivatives_are_symmetric(name: str) -> None:
    x, kernel, keywords = arrays(name)
    tx, tk = np.ones_like(x), np.cos(kernel)

    def slope(x: Any, kernel: Any) -> Any:
        return lg.jvp(lambda x, k: lg.sum(lg.conv(x, k, **keywords) ** 3), (x, kernel), (tx, tk))[1]

    got = lg.grad(slope, argnums=(0, 1))(lg.asarray(x), lg.asarray(kernel))
    step = 1e-5

    def gradient(sign: int) -> Any:
        pair = lg.asarray(x + sign * step * tx), lg.asarray(kernel + sign * step * tk)
        return lg.grad(lambda x, k: lg.sum(lg.conv(x, k, **keywords) ** 3), argnums=(0, 1))(*pair)

    for found, above, below in zip(got, gradient(1), gradient(-1), strict=True):
        np.testing.assert_allclose(found, (np.asarray(above) - np.asarray(below)) / (2 * step), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int32", "uint16"])
def test_dtypes(device: str, dtype: str) -> None:
    """16-bit floats are added up in 32 bits; integers wrap."""
    x, kernel = (np.round(3 * a) for a in arrays("of an axis")[:2])
    if dtype.startswith("u"):
        x, kernel = abs(x), abs(kernel)
    own = getattr(lg, dtype)
    found = lg.conv(*(lg.asarray(a.astype(own.np)) for a in (x, kernel)), padding=2, stride=2)
    assert found.dtype == own
    np.testing.assert_array_equal(found.astype(lg.float64), expected(x, kernel, padding=2, stride=2))


@pytest.mark.in_turns
@pytest.mark.parametrize("mapped", [(0, 0), (0, None), (None, 0), (1, 2)])
@pytest.mark.parametrize("name", ["as a product", "of groups"])
def test_vmap(device: str, name: str, mapped: tuple[int | None, int | None]) -> None:
    x, kernel, keywords = arrays(name)
    pair = []
    for array, axis in zip((x, kernel), mapped, strict=True):
        pair.append(array if axis is None else np.stack([array, array * 2, array - 1], axis))
    got = lg.vmap(lambda x, k: lg.conv(x, k, **keywords), in_axes=mapped)(*map(lg.asarray, pair))
    rows = []
    for i in range(3):
        own = [a if axis is None else np.take(a, i, axis) for a, axis in zip(pair, mapped, strict=True)]
        rows.append(expected(*own, **keywords))
    np.testing.assert_allclose(got, np.stack(rows), rtol=1e-9, atol=1e-9)


def test_in_a_loop_that_is_differentiated(device: str) -> None:
    """Smoothing until it is smooth: a trip count that the values decide."""
    x = np.sin(np.arange(24.0) * 1.7)
    kernel = np.array([0.25, 0.5, 0.25])

    def smoothed(x: Any, kernel: Any) -> Any:
        def step(x: Any) -> Any:
            return lg.conv(x[None, None], kernel[None, None], padding=1)[0, 0]

        return lg.sum(lg.while_loop(lambda x: lg.max(lg.abs(lg.diff(x))) > 0.1, step, x) ** 2)

    def by_hand(x: np.ndarray, kernel: np.ndarray) -> float:
        while np.max(np.abs(np.diff(x))) > 0.1:
            x = np.convolve(x, kernel[::-1], "same")
        return float(np.sum(x**2))

    value, slopes = lg.value_and_grad(smoothed, argnums=(0, 1))(lg.asarray(x), lg.asarray(kernel))
    np.testing.assert_allclose(value, by_hand(x, kernel))
    for d in range(3):
        step = np.eye(3)[d] * 1e-6
        slope = (by_hand(x, kernel + step) - by_hand(x, kernel - step)) / 2e-6
        np.testing.assert_allclose(slopes[1][d], slope, rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "kernel", "keywords", "error", "words"),
    [
        ((4, 4), (4, 4), {}, lg.ShapeError, "as many dims"),
        ((1, 1, 4), (1, 1, 0), {}, lg.ShapeError, "none empty"),
        ((1, 3, 4), (2, 2, 3), {}, lg.ShapeError, "channels"),
        ((1, 4, 4), (3, 2, 3), {"groups": 2}, lg.ShapeError, "multiple of 2 groups"),
        ((1, 1, 4), (1, 1, 3), {"groups": 0}, ValueError, "at least one group"),
        ((1, 1, 4), (1, 1, 3), {"stride": 0}, ValueError, "stride from 1 to"),
        ((1, 1, 4), (1, 1, 3), {"dilation": (1, 2)}, ValueError, "dilation from 1 to"),
        ((1, 1, 4), (1, 1, 3), {"dilation": 2**62}, ValueError, "dilation from 1 to"),
        ((1, 1, 4), (1, 1, 3), {"stride": 1.5}, ValueError, "stride from 1 to"),
        ((1, 1, 4), (1, 1, 3), {"padding": [(1,)]}, ValueError, "pairs of them"),
        ((1, 1, 4), (1, 1, 1), {"padding": -2}, lg.ShapeError, "leaves an element"),
        ((1, 1, 4), (1, 1, 3), {"padding": "full"}, ValueError, "'same' or 'valid'"),
    ],
)
def test_refuses(x: Any, kernel: Any, keywords: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        lg.conv(lg.ones(x), lg.ones(kernel), **keywords)


def test_refuses_bools() -> None:
    with pytest.raises(lg.DTypeError, match="numbers"):
        lg.conv(lg.ones((1, 1, 4), dtype=bool), lg.ones((1, 1, 2), dtype=bool))


def test_beyond_the_ends_of_a_vector_there_is_nothing(device: str) -> None:
    x, kernel = np.array([1.0, 2.0, 3.0]), np.array([np.inf, 1.0])
    np.testing.assert_array_equal(lg.convolve(x, kernel), np.convolve(x, kernel))


@pytest.mark.in_turns
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("around", [((-1, 0), (0, -2)), ((-2, 1), (-1, -1)), ((-3, -1), (2, -4))])
@pytest.mark.parametrize("spread", [(1, 1), (2, 1), (3, 2)])
def test_padding_below_zero_takes_elements_and_zeros_between_them_away(device, spread, around, stride):
    rng = np.random.default_rng(4)
    x, kernel = rng.standard_normal((2, 2, 6, 8)), rng.standard_normal((3, 2, 1, 2))
    dense = np.zeros((2, 2, 5 * spread[0] + 1, 7 * spread[1] + 1))
    dense[:, :, :: spread[0], :: spread[1]] = x
    dense = np.pad(dense, ((0, 0), (0, 0), *[tuple(max(p, 0) for p in pair) for pair in around]))
    (top, bottom), (left, right) = [[max(-p, 0) for p in pair] for pair in around]
    dense = dense[:, :, top : dense.shape[2] - bottom, left : dense.shape[3] - right]
    convolved = partial(lg.conv, stride=stride, padding=around, input_dilation=spread)
    got = convolved(lg.asarray(x), lg.asarray(kernel))
    expected = lg.conv(lg.asarray(dense), lg.asarray(kernel), stride=stride)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    if device == "cpu" and stride == 2 and spread == (2, 1):
        lg.testing.check_grads(convolved, (x, kernel), order=2)


def test_a_large_one_on_a_cpu_is_a_product() -> None:
    """What is a routine where there are matrix units; the routine's reference adds up window by window."""
    with lg.default_device("cpu"):
        x, kernel = lg.zeros((1, 16, 1 << 15), dtype="float32"), lg.zeros((64, 16, 3), dtype="float32")
        assert not lg.compile(lg.conv).plan(x, kernel).routines
