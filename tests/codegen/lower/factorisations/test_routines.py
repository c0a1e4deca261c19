"""Factorisations in loops over a lane's arrays do what the primitives' references do, in few operations."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.kernel.nodes import walk
from loopgrad.codegen.lower.factorisations.table import ROUTINES
from loopgrad.codegen.options import Options
from loopgrad.codegen.pipeline import build_program
from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.nodes import Value
from loopgrad.graph.primitives import REFERENCE
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import DTYPES, TensorType
from tests.codegen.factorisations.test_in_lanes import cases

MOST_OPERATIONS = 500


@pytest.mark.in_turns
@pytest.mark.parametrize("n", [9, 14])
@pytest.mark.parametrize("inner", [(), (2,)], ids=["lane", "batch"])
def test_routines_are_the_references(n: int, inner: tuple[int, ...]) -> None:
    """`inner`: several matrices a lane."""
    done = set()
    for op, attrs, arrays in cases(n):
        if arrays[0].ndim < 3:
            continue
        repeated = [np.repeat(x[:, None], 2, axis=1) if inner else x for x in arrays]
        types = [TensorType(a.shape, DTYPES[a.dtype.name]) for a in repeated]
        graph, _ = trace(lambda *v, op=op, attrs=attrs: emit(op, v, attrs), types)
        program = build_program(graph, Options())
        assert any(kernel.arrays for kernel in program.kernels), op
        assert sum(1 for kernel in program.kernels for _ in walk(kernel.body)) < MOST_OPERATIONS
        for found, expected in zip(interpret_program(program, repeated), REFERENCE[op](attrs, *repeated), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11, err_msg=f"{op} {attrs}")
        done.add(op)
    assert done <= set(ROUTINES)


def split(x: np.ndarray) -> np.ndarray:
    """Pairs of reals, of complex numbers."""
    return np.ascontiguousarray(x).view(np.float64).reshape(*x.shape, 2) if x.dtype.kind == "c" else x


def joined(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.complex128)[..., 0]


def test_complex_solutions() -> None:
    """Cholesky and LU factors, and what is solved by them, as the references have them."""
    for op, attrs, arrays in cases(9):
        if arrays[0].ndim < 3:
            continue
        turned = [x * np.exp(1j * np.cos(np.arange(x.shape[-1]))) if x.dtype.kind == "f" else x for x in arrays]
        if op == "cholesky":
            phases = np.exp(1j * np.cos(np.arange(arrays[0].shape[-1])))
            turned = [phases.conj()[:, None] * arrays[0] * phases]  # as far from singular as the real one
        kinds = "".join("c" if x.dtype.kind == "c" else "r" for x in turned)
        paired = [split(x) for x in turned]
        types = [TensorType(a.shape, DTYPES[a.dtype.name]) for a in paired]
        graph, _ = trace(lambda *v, op=op, attrs=attrs, kinds=kinds: emit(op, v, {**attrs, "pairs": kinds}), types)
        program = build_program(graph, Options())
        assert sum(1 for kernel in program.kernels for _ in walk(kernel.body)) < MOST_OPERATIONS
        for found, expected in zip(interpret_program(program, paired), REFERENCE[op](attrs, *turned), strict=True):
            whole = joined(found) if expected.dtype.kind == "c" else found
            np.testing.assert_allclose(whole, expected, rtol=1e-9, atol=1e-11, err_msg=f"{op} {attrs}")


def computed(op: str, attrs: dict[str, object], a: np.ndarray) -> list[np.ndarray]:
    """By lanes, in a loop of one trip."""
    type = TensorType(a.shape, DTYPES[a.dtype.name])

    def looped(a: Value, count: Value) -> tuple[Value, ...]:
        starts = [ops.full(0, TensorType(v.shape, v.dtype)) for v in emit(op, (a,), attrs)]

        def step(_: Value, a: Value, *last: Value) -> tuple[Value, ...]:
            return (ops.add(a, 1), *emit(op, (a,), attrs)[: len(last)])

        return tuple(traced_for(count, [a, *starts], step)[1:])

    graph, _ = trace(looped, [type, TensorType((), DTYPES["int64"])])
    program = build_program(graph, Options())
    assert any(kernel.arrays for kernel in program.kernels), op
    return list(interpret_program(program, [a, np.asarray(1)]))


@pytest.mark.in_turns
@pytest.mark.parametrize(("m", "n"), [(10, 10), (11, 4), (4, 11)])
def test_orthogonal_factors(m: int, n: int) -> None:
    """Of full rank, of rank 1, of zeros, and of what isn't finite."""
    a = np.random.default_rng(3).standard_normal((5, m, n))
    a[1], a[2], a[3] = np.outer(a[1, :, 0], a[1, 0]), 0.0, a[3] * 1e200
    a[4, 1, 2] = np.inf
    q, r = computed("qr", {"complete": True}, a)
    expected, large = np.linalg.qr(a[[0, 3]], "complete"), np.array([1.0, 1e200])[:, None, None]
    np.testing.assert_allclose(q[[0, 3]], expected[0], atol=1e-12)
    np.testing.assert_allclose(r[[0, 3]] / large, expected[1] / large, atol=1e-12)
    u, s, vh = computed("svd", {"full": True, "vectors": True}, a)
    k, size = min(m, n), np.array([1.0, 1.0, 1.0, 1e200])[:, None]
    np.testing.assert_allclose(s[:4] / size, np.linalg.svd(a[:4], compute_uv=False) / size, atol=1e-13)
    product = (u[:4, :, :k] * (s[:4] / size)[:, None]) @ vh[:4, :k]
    np.testing.assert_allclose(product, a[:4] / size[..., None], atol=1e-13)
    for v in (u[:4], vh[:4]):
        np.testing.assert_allclose(v @ v.swapaxes(1, 2), np.broadcast_to(np.eye(v.shape[1]), v.shape), atol=1e-13)
    assert all(np.isnan(x[4]).all() for x in (u, s, vh))


def test_eigenvectors() -> None:
    """The lower triangle alone is read; equal eigenvalues; what isn't finite."""
    n = 10
    a = np.random.default_rng(4).standard_normal((4, n, n))
    a[1], a[2] = 3.0 * np.eye(n), 0.0
    a[3, 4, 2] = np.nan
    values, vectors = computed("eigh", {"vectors": True}, a)
    whole = (np.tril(a) + np.tril(a, -1).swapaxes(1, 2))[:3]
    np.testing.assert_allclose(values[:3], np.linalg.eigvalsh(whole), atol=1e-12)
    np.testing.assert_allclose(whole @ vectors[:3], vectors[:3] * values[:3, None], atol=1e-12)
    np.testing.assert_allclose(computed("eigh", {"vectors": False}, a)[0], values, atol=1e-12)
    assert np.isnan(values[3]).all()
    assert np.isnan(vectors[3]).all()


@pytest.mark.in_turns
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 5), (7, 3), (3, 6)])
def test_complex_matrices(m: int, n: int) -> None:
    """Of pairs of reals, in as little code whatever their size; with NaN in one of them, and equal eigenvalues."""
    rng, k = np.random.default_rng(6), min(m, n)
    a = rng.standard_normal((4, m, n)) + 1j * rng.standard_normal((4, m, n))
    a[1], a[2] = np.eye(m, n) * 2j, 0.0
    a[3, -1, 0] = np.nan
    pairs = split(a)
    q, r = map(joined, computed("qr", {"complete": False, "pairs": "c"}, pairs))
    for found, expected in zip((q, r), np.linalg.qr(a[:3]), strict=True):
        np.testing.assert_allclose(found[:3], expected, atol=1e-13)
    u, s, vh = computed("svd", {"full": True, "vectors": True, "pairs": "c"}, pairs)
    u, vh = joined(u), joined(vh)
    np.testing.assert_allclose(s[:3], np.linalg.svd(a[:3], compute_uv=False), atol=1e-13)
    np.testing.assert_allclose((u[:3, :, :k] * s[:3, None]) @ vh[:3, :k], a[:3], atol=1e-13)
    for v in (u[:3], vh[:3]):
        product = v @ v.conj().swapaxes(1, 2)
        np.testing.assert_allclose(product, np.broadcast_to(np.eye(v.shape[1]), v.shape), atol=1e-13)
    assert all(np.isnan(x[3]).all() for x in (u, s, vh))
    if m == n:
        values, vectors = computed("eigh", {"vectors": True, "pairs": "c"}, pairs)
        vectors, lower = joined(vectors), np.tril(a[:3], -1)
        whole = lower + lower.conj().swapaxes(1, 2) + np.eye(n) * a[:3].real
        np.testing.assert_allclose(values[:3], np.linalg.eigvalsh(whole), atol=1e-13)
        np.testing.assert_allclose(whole @ vectors[:3], vectors[:3] * values[:3, None], atol=1e-13)
        assert np.isnan(values[3]).all() == np.isnan(vectors[3]).all() == np.isnan(np.tril(a[3])).any()
