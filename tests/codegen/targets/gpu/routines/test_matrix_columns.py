"""Factors of many small matrices by workgroups that have their columns, beside NumPy's: of numbers near the ends of the
range, of zeros, and of columns that need no reflection."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.program import ArraySlot, Program, RoutineStep
from loopgrad.graph.primitives import REFERENCE
from loopgrad.graph.types import DTYPES, TensorType
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

NAME = "columns in registers of workgroups"


def matrices(shape: tuple[int, ...], dtype: str, gpu: str) -> np.ndarray:
    a = np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)
    flat = a.reshape(-1, *shape[-2:])
    info = np.finfo(dtype)
    flat[0] *= info.max / 64
    flat[1] *= info.tiny * (2.0**24 if gpu.startswith("vulkan") else 4)  # it doesn't promise subnormal numbers
    flat[2] = 0
    flat[3, :, 0] = 0
    flat[4] = np.eye(*shape[-2:])
    return a


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((20, 16, 16), "float32"), ((33, 24, 9), "float64"), ((4, 5, 10, 32), "float32")],
)
def test_qr(gpu: str, shape: tuple[int, ...], dtype: str, mode: str) -> None:
    a = matrices(shape, dtype, gpu)
    x = lg.asarray(a, device=gpu)
    factors = lg.compile(lambda a: tuple(lg.linalg.qr(a, mode=mode)))
    assert NAME in str(factors.plan(x))
    q, r = map(np.asarray, factors(x))
    want = np.linalg.qr(a, mode)
    scale = np.maximum(np.abs(a).max((-1, -2), keepdims=True), np.finfo(dtype).tiny)
    near = 100 * np.finfo(dtype).eps
    assert (q.shape, r.shape) == (want[0].shape, want[1].shape)
    np.testing.assert_allclose(q @ (r / scale), a / scale, atol=near)
    np.testing.assert_allclose(np.swapaxes(q, -1, -2) @ q - np.eye(q.shape[-1]), 0, atol=near)
    np.testing.assert_allclose(np.abs(r) / scale, np.abs(want[1]) / scale, atol=near)
    assert not np.tril(r, -1).any()


def test_no_numbers_reach_no_other_matrix(gpu: str) -> None:
    a = np.random.default_rng(0).normal(size=(17, 10, 10)).astype(np.float32)
    a[5, 3, 4] = np.nan
    q, r = map(np.asarray, lg.compile(lambda a: tuple(lg.linalg.qr(a)))(lg.asarray(a, device=gpu)))
    assert np.isnan(r[5]).any()
    others = np.arange(17) != 5
    np.testing.assert_allclose((q @ r)[others], a[others], atol=1e-5)


def test_derivatives(gpu: str) -> None:
    """Those of a sum of squared entries of r, whose diagonal is that of Cholesky's factor."""
    a = np.random.default_rng(1).normal(size=(20, 12, 9))
    weights = np.cos(np.arange(20 * 9 * 9)).reshape(20, 9, 9)
    slope = lg.compile(lg.grad(lambda a: lg.sum(lg.asarray(weights) * lg.linalg.qr(a)[1] ** 2)))
    found = np.asarray(slope(lg.asarray(a, device=gpu)))
    turn = np.sin(np.arange(a.size)).reshape(a.shape)
    after, before = [np.sum(weights * np.linalg.qr(a + step * turn)[1] ** 2) for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(np.sum(found * turn), (after - before) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize(("shape", "own"), [((2, 12, 9), True), ((32, 4), True), ((8, 8), False), ((33, 9), False)])
def test_few_matrices(gpu: str, shape: tuple[int, ...], own: bool) -> None:
    """Of any number of columns, where a library would be called; lanes have smaller ones."""
    a = np.random.default_rng(1).normal(size=shape)
    few, x = lg.compile(lambda a: tuple(lg.linalg.qr(a))), lg.asarray(a, device=gpu)
    assert (NAME in str(few.plan(x))) == own
    q, r = map(np.asarray, few(x))
    np.testing.assert_allclose(q @ r, a, atol=1e-13)


def test_a_system_of_32_unknowns(gpu: str) -> None:
    """More than of many matrices, of whose pivots one invocation for each makes too much of a wait."""
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(32, 32)), rng.normal(size=(32, 3))
    solved, given = lg.compile(lg.linalg.solve), [lg.asarray(x, device=gpu) for x in (a, b)]
    assert str(solved.plan(*given)).count(NAME) == 2
    np.testing.assert_allclose(np.asarray(solved(*given)), np.linalg.solve(a, b), atol=1e-11)


@pytest.mark.parametrize("shape", [(20, 12, 7), (3, 7, 32), (5, 1, 9), (2, 3, 16, 16)])
def test_lu(shape: tuple[int, ...]) -> None:
    """Pivots of zeros and of no numbers, too."""
    a = np.random.default_rng(2).normal(size=shape)
    flat = a.reshape(-1, *shape[-2:])
    flat[0], flat[1, :, 0], flat[-1, -1, 0] = 0, 0, np.nan
    want = REFERENCE["lu"]({}, a)
    slots = tuple([ArraySlot(TensorType(x.shape, DTYPES[x.dtype.name]), "input") for x in (a, *want)])
    program = Program(slots, (0,), (1, 2, 3), (), (RoutineStep("lu", (0,), (1, 2, 3), ()),))
    for got, expected in zip(executable_of(program).run([device().put(a)]), want, strict=True):
        np.testing.assert_allclose(device().get(got), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("n", "columns", "dtype"), [(9, 1, "float64"), (16, 3, "float32"), (12, 16, "float64")])
def test_solutions_and_their_derivatives(gpu: str, n: int, columns: int, dtype: str) -> None:
    rng = np.random.default_rng(n)
    a, b = [rng.normal(size=shape).astype(dtype) for shape in ((18, n, n), (18, n, columns))]
    given = [lg.asarray(x, device=gpu) for x in (a, b)]
    solve = lg.compile(lg.value_and_grad(lambda a, b: lg.sum(lg.linalg.solve(a, b) ** 2), argnums=(0, 1)))
    assert str(solve.plan(*given)).count(NAME) == 2  # factors, and solutions by them
    value, slopes = solve(*given)
    x = np.linalg.solve(a.astype(float), b.astype(float))
    of_b = np.linalg.solve(np.swapaxes(a, 1, 2).astype(float), 2 * x)
    near = np.finfo(dtype).eps * 10 * np.linalg.cond(a).max() ** 2
    np.testing.assert_allclose(float(value), np.sum(x**2), rtol=near)
    for got, want in zip(slopes, (-of_b @ np.swapaxes(x, 1, 2), of_b), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, atol=near * np.abs(want).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cholesky(gpu: str, dtype: str) -> None:
    """What is above the diagonal isn't read; NaN where there are no factors, in these matrices alone."""
    r = np.random.default_rng(3).normal(size=(20, 11, 11))
    a = (r @ np.swapaxes(r, 1, 2) + np.eye(11)).astype(dtype)
    a[1, -1, -1], a[2], a[3, 2, 1] = -1, 0, np.nan
    factors = lg.compile(lambda a: lg.linalg.cholesky(a))
    x = lg.asarray(a + np.triu(np.full((11, 11), 1000, dtype), 1), device=gpu)
    assert NAME in str(factors.plan(x))
    found, good = np.asarray(factors(x)), np.setdiff1d(np.arange(20), [1, 2, 3])
    want = np.linalg.cholesky(a[good].astype(float))
    np.testing.assert_allclose(found[good], want, atol=20 * np.finfo(dtype).eps * np.abs(want).max())
    assert np.isnan(found[1:4]).all()
