"""Counts, axes and bounds that are NumPy's numbers, or arrays without axes, mean what Python's mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg

ONE, TWO, ZERO = np.int64(1), np.int32(2), np.int8(0)
M = np.arange(6.0).reshape(2, 3)
SYSTEM = np.array([[0.0, 2.0], [4.0, 1.0]])
ROW = lg.asarray(M[None, :1])
BYTES = np.array([3, 200], np.uint8)
HALF = lg.asarray([0.5, 3.0, -1.0, 2.0], dtype=lg.float16)
WINDOW = lg.ones((1, 1, 2))
CONVOLVED = (lg.ndimage.convolve1d, lg.ndimage.convolve)
BLUR, PERCENT, SHIFT = lg.ndimage.gaussian_filter, lg.ndimage.percentile_filter, lg.ndimage.shift

ALIKE: dict[str, tuple[Any, Any]] = {
    "arange of an array": (lambda: lg.arange(np.array(3)), lambda: lg.arange(3)),
    "arange by an array": (lambda: lg.arange(0, 6, np.array(2)), lambda: lg.arange(0, 6, 2)),
    "arange down from a small integer": (lambda: lg.arange(np.uint8(5), 3, -0.5), lambda: lg.arange(5, 3, -0.5)),
    "unwrap": (lambda: lg.unwrap([0, 3, 6], period=np.int64(4)), lambda: lg.unwrap([0, 3, 6], period=4)),
    "unwrap by an array": (lambda: lg.unwrap([0, 3, 6], period=np.array(4)), lambda: lg.unwrap([0, 3, 6], period=4)),
    "unwrap without a sign": (lambda: lg.unwrap(M, period=np.uint8(4)), lambda: lg.unwrap(M, period=4)),
    "unwrap by a tensor": (lambda: lg.unwrap(M, period=lg.asarray(BYTES)[0]), lambda: lg.unwrap(M, period=3)),
    "kaiser of 16 bits": (lambda: lg.kaiser(5, np.float16(8.6015625)), lambda: lg.kaiser(5, 8.6015625)),
    "a norm of 16 bits": (lambda: lg.linalg.norm(M[1], np.float16(2.5)), lambda: lg.linalg.norm(M[1], 2.5)),
    "a norm of 64 bits": (lambda: lg.vector_norm(HALF, ord=np.float64(3)), lambda: lg.vector_norm(HALF, ord=3)),
    "a norm by an array": (lambda: lg.linalg.norm(M[1], np.array(3)), lambda: lg.linalg.norm(M[1], 3)),
    "a norm by a tensor": (lambda: lg.linalg.norm(HALF, lg.asarray(1.5)), lambda: lg.linalg.norm(HALF, 1.5)),
    "percents of 16 bits": (lambda: lg.percentile(M, np.float16(3)), lambda: lg.percentile(M, 3)),
    "percents that are a tensor": (lambda: lg.percentile(HALF, lg.asarray(3)), lambda: lg.percentile(HALF, 3)),
    "a sum's start": (lambda: lg.sum(BYTES, initial=np.int64(2)), lambda: lg.sum(BYTES, initial=2)),
    "a product's start": (lambda: lg.prod(BYTES, initial=np.array(2)), lambda: lg.prod(BYTES, initial=2)),
    "a sum's start of 64 bits": (lambda: lg.sum(HALF, initial=np.float64(2)), lambda: lg.sum(HALF, initial=2)),
    "convolve by a number": (lambda: lg.convolve(M[0], np.int64(2)), lambda: lg.convolve(M[0], [2])),
    "repeat by bools": (lambda: lg.repeat(M[0], np.array([True, False, True])), lambda: lg.repeat(M[0], [1, 0, 1])),
    "bincount of bools": (lambda: lg.bincount(np.array([True, False, True])), lambda: lg.asarray([1, 2])),
    "a blur by an array": (lambda: BLUR(M, np.array(1)), lambda: BLUR(M, 1)),
    "a percentile of int8": (lambda: PERCENT(M, np.int8(80), 3), lambda: PERCENT(M, 80, 3)),
    "an order that is an array": (lambda: SHIFT(M, 0.5, order=np.array(1)), lambda: SHIFT(M, 0.5, order=1)),
    "a filter's ends of uint8": (lambda: _filtered(np.uint8(4)), lambda: _filtered(4)),
    "no ends of a filter": (lambda: _filtered(-3), lambda: _filtered(0)),
    "origins of uint8": (lambda: _moved(np.uint8(1)), lambda: _moved(1)),
    "rows of uint8": (lambda: lg.triu_indices(np.uint8(3), -1)[0], lambda: lg.triu_indices(3, -1)[0]),
    "a diagonal of uint8": (lambda: lg.tril_indices(3, np.uint8(1))[1], lambda: lg.tril_indices(3, 1)[1]),
    "counts of uint8": (lambda: _drawn(np.uint8(200)), lambda: _drawn(200)),
    "strides": (lambda: lg.conv(ROW, WINDOW, stride=TWO), lambda: lg.conv(ROW, WINDOW, stride=2)),
    "padding": (lambda: lg.conv(ROW, WINDOW, padding=ONE), lambda: lg.conv(ROW, WINDOW, padding=1)),
    "pairs of padding": (lambda: lg.conv(ROW, WINDOW, padding=[ONE]), lambda: lg.conv(ROW, WINDOW, padding=[1])),
    "tensordot": (lambda: lg.tensordot(M, M.T, axes=ONE), lambda: lg.tensordot(M, M.T, axes=1)),
    "tensordot of pairs": (lambda: lg.tensordot(M, M, axes=(ONE, [1])), lambda: lg.tensordot(M, M, axes=(1, [1]))),
    "lu_solve": (lambda: _solved(ONE), lambda: _solved(1)),
    "polygamma": (lambda: lg.special.polygamma(ONE, [0.5]), lambda: lg.special.polygamma(1, [0.5])),
    "transpose": (lambda: lg.ones(3).transpose(ZERO), lambda: lg.ones(3).transpose(0)),
    "argnums": (lambda: lg.grad(lg.multiply, argnums=ONE)(2.0, 3.0), lambda: lg.grad(lg.multiply, argnums=1)(2.0, 3.0)),
    "jacobian": (lambda: lg.jacfwd(lg.multiply, argnums=ONE)(2.0, 3.0), lambda: lg.asarray(2.0)),
    "diag by a tensor": (lambda: lg.diag([1, 2], k=lg.asarray(1)), lambda: lg.diag([1, 2], k=1)),
    "groups by a tensor": (lambda: lg.conv(ROW, WINDOW, groups=lg.asarray(1)), lambda: lg.conv(ROW, WINDOW)),
    "a bool of groups": (lambda: lg.conv(ROW, WINDOW, groups=True), lambda: lg.conv(ROW, WINDOW)),
    "a size that is a tensor": (lambda: lg.argwhere(M, size=lg.asarray(2)), lambda: lg.argwhere(M, size=2)),
    "top_k": (lambda: lg.top_k([1.0, 3.0], np.array(1))[0], lambda: lg.top_k([1.0, 3.0], 1)[0]),
    "unravel_index": (lambda: lg.unravel_index(BYTES, (2, 300))[1], lambda: lg.unravel_index([3, 200], (2, 300))[1]),
    "static_argnums": (lambda: lg.compile(lg.multiply, static_argnums=ONE)(lg.ones(2), 3.0), lambda: lg.ones(2) * 3.0),
    "vmap": (lambda: lg.vmap(lg.sum, in_axes=ONE)(M), lambda: lg.sum(lg.asarray(M), axis=0)),
    "shard": (lambda: lg.gather_all(lg.shard(lg.arange, TWO, lg.mesh())), lambda: lg.arange(2)),
}  # fmt: skip


def _solved(trans: Any) -> Any:
    return lg.linalg.lu_solve(lg.linalg.lu_factor(SYSTEM), lg.asarray([4.0, 6.0]), trans=trans)


def _moved(origin: Any) -> Any:
    filters = (lg.ndimage.uniform_filter1d, lg.ndimage.maximum_filter)
    wide = [f(np.arange(9.0) ** 2, 5, origin=origin) for f in filters]
    return lg.stack([*wide, *[f(np.arange(9.0), [1, 2, 4], origin=origin) for f in CONVOLVED]])


def _drawn(count: Any) -> Any:
    return lg.random.default_rng(3).hypergeometric(count, count, count, size=5)


def _filtered(padlen: Any) -> Any:
    return lg.signal.filtfilt([0.5, 0.5], [1.0, -0.25], np.arange(9.0) ** 2, padlen=padlen)


@pytest.mark.parametrize("case", ALIKE)
def test_numbers_of_numpy(case: str) -> None:
    found, expected = [f() for f in ALIKE[case]]
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_the_diagonal_of_as_many_axes() -> None:
    assert [x.tolist() for x in lg.diag_indices(np.array(2), np.array(3))] == [[0, 1]] * 3


def test_complex_ranges() -> None:
    np.testing.assert_array_equal(lg.arange(1, 3, dtype=lg.complex64), np.arange(1, 3, dtype=np.complex64))


LONG: dict[str, Any] = {
    "invhilbert": lambda: lg.linalg.invhilbert(2**31),
    "pascal": lambda: lg.linalg.pascal(2**31, exact=False),
    "polyint": lambda: lg.polyint([1.0], 2**40),
    "polygamma": lambda: lg.special.polygamma(2**40, [1.0]),
    "gaussian_filter1d": lambda: lg.ndimage.gaussian_filter1d([0.0, 1.0], 1.0, order=2**40),
    "diag_indices": lambda: lg.diag_indices(2, 2**40),
}


@pytest.mark.parametrize("name", LONG)
def test_counts_that_nobody_waits_for_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: expected .*, got"):
        LONG[name]()


def test_nothing_is_left_of_a_polynomial() -> None:
    assert lg.polyder([1, 2, 3], 2**40).shape == (0,)


@pytest.mark.parametrize("name", ["cho_solve", "lu_solve"])
def test_factors_that_are_none(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}: expected .*, got int"):
        getattr(lg.linalg, name)(2, lg.ones(2))
