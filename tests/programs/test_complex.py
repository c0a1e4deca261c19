"""Programs of complex numbers on every device, beside NumPy and beside the same program written with pairs of reals."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.graph.complex_numbers.special_values import grid, ordinary

RNG = np.random.default_rng(7)
Z = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
W = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
DTYPES = ("complex64", "complex128")
Pair = tuple[Any, Any]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_and_movement_as_numpy(device: str, dtype: str) -> None:
    zn, wn = Z.astype(dtype), W.astype(dtype)
    position = np.array([2, 0, 7])
    programs: list[Callable[[Any, Any, Any], Any]] = [
        lambda xp, z, w: z * w + z - 1.5j,
        lambda xp, z, w: z / w - w / (2.0 + 1j) + 1.0 / z,
        lambda xp, z, w: -z + 3 - (1 + 2j) * w * np.complex64(1j),
        lambda xp, z, w: xp.sum(z * w, axis=0) + xp.sum(w),
        lambda xp, z, w: xp.cumsum(z, axis=1)[:, ::-2],
        lambda xp, z, w: xp.concatenate([z.T, w.T[::-1]])[xp.asarray(position)],
        lambda xp, z, w: xp.where(z.real > w.imag, z, xp.conj(w)),
        lambda xp, z, w: xp.pad(z, 1)[1:, None] * w.imag.reshape(-1)[:6],
        lambda xp, z, w: (z == w) | (z != z.real) | (z[0] == z),
        lambda xp, z, w: xp.asarray(np.array(2 - 1j, dtype)),
        lambda xp, z, w: z[:0] * w[:0],
    ]
    z, w = lg.asarray(zn), lg.asarray(wn)
    made = [program(lg, z, w) for program in programs]
    lg.eval(made)
    for number, (got, program) in enumerate(zip(made, programs, strict=True)):
        expected = program(np, zn, wn)
        assert got.dtype == expected.dtype, number
        tolerance = 1e-6 if dtype == "complex64" else 1e-14
        np.testing.assert_allclose(got, expected, tolerance, tolerance, err_msg=str(number))


def _iterate(z: Any) -> Any:
    """Lanes of their own trip counts, a branch, an array that is gathered from and scattered into."""
    v = lg.cond(lg.real(lg.sum(z)) > 0, lambda v: v * v * 0.5 + z, lambda v: v * (1.0 - 0.5j) + z, z)
    v = lg.while_loop(lambda v: lg.real(v * lg.conj(v)) < 40.0, lambda v: v * (1.1 + 0.3j) + z, v)
    table = lg.zeros_like(v).at[lg.asarray([1, 0, 1])].add(v[lg.asarray([2, 2, 0])])
    _, rows = lg.scan(lambda c, row: (c * row.sum() + 1j, c), 0.5 + 0j * z[0, 0], table * z)
    return table, rows


def _iterate_pairs(x: Any, y: Any) -> tuple[Pair, Pair]:
    def times(p: Pair, q: Pair) -> Pair:
        return p[0] * q[0] - p[1] * q[1], p[0] * q[1] + p[1] * q[0]

    def plus(p: Pair, q: Pair) -> Pair:
        return p[0] + q[0], p[1] + q[1]

    def square(v: Pair) -> Pair:
        a, b = times(v, v)
        return plus((a * 0.5, b * 0.5), (x, y))

    v = lg.cond(lg.sum(x) > 0, square, lambda v: plus(times(v, (1.0, -0.5)), (x, y)), (x, y))
    grown = lambda v: plus(times(v, (1.1, 0.3)), (x, y))
    v = lg.while_loop(lambda v: v[0] * v[0] + v[1] * v[1] < 40.0, grown, v)
    first, second = lg.asarray([1, 0, 1]), lg.asarray([2, 2, 0])
    table = tuple([lg.zeros_like(p).at[first].add(p[second]) for p in v])

    def row(c: Pair, row: Pair) -> tuple[Pair, Pair]:
        return plus(times(c, (row[0].sum(), row[1].sum())), (0.0, 1.0)), c

    _, rows = lg.scan(row, (0.5 + 0 * x[0, 0], 0 * x[0, 0]), times(table, (x, y)))
    return table, rows


def _loss(z: Any) -> Any:
    table, rows = _iterate(z)
    return lg.sum(lg.sin(table.real) * table.imag) + lg.sum(rows.real * rows.imag)


def _loss_of_pairs(x: Any, y: Any) -> Any:
    (a, b), (c, d) = _iterate_pairs(x, y)
    return lg.sum(lg.sin(a) * b) + lg.sum(c * d)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("dtype", DTYPES)
def test_loops_and_gradients_as_of_pairs(device: str, dtype: str) -> None:
    """Values, the gradient dL/dre + i dL/dim, tangents, Hessian-vector products; compiled and replayed."""
    z, t = lg.asarray(Z.astype(dtype)), lg.asarray(W.astype(dtype))
    x, y = z.real, z.imag
    bound = 2e-4 if dtype == "complex64" else 1e-11
    close = {"rtol": bound, "atol": bound}
    value, slope = lg.value_and_grad(_loss)(z)
    expected, (re, im) = lg.value_and_grad(_loss_of_pairs, (0, 1))(x, y)
    assert slope.dtype == dtype
    np.testing.assert_allclose(value, expected, **close)
    np.testing.assert_allclose(slope, np.asarray(re) + 1j * np.asarray(im), **close)

    tangent = lg.jvp(_loss, (z,), (t,))[1]
    np.testing.assert_allclose(tangent, lg.jvp(_loss_of_pairs, (x, y), (t.real, t.imag))[1], **close)
    bent = lg.hvp(_loss, z, t)
    re, im = lg.hvp(_loss_of_pairs, (x, y), (t.real, t.imag))
    scale = float(lg.max(re * re)) ** 0.5
    np.testing.assert_allclose(np.asarray(bent) / scale, (np.asarray(re) + 1j * np.asarray(im)) / scale, **close)

    step = lg.compile(lg.grad(_loss))
    replay = step.capture(z)
    np.testing.assert_allclose(step(z), slope, **close)
    np.testing.assert_allclose(replay.replay(z * 1.0), slope, **close)
    np.testing.assert_allclose(replay.replay(t), lg.grad(_loss)(t), **close)


def test_descent() -> None:
    """A step against the gradient goes down, from either part."""
    z = lg.asarray([3.0 - 4.0j, 1j])
    loss = lambda z: lg.sum((z * lg.conj(z)).real)
    np.testing.assert_allclose(lg.grad(loss)(z), 2 * z)
    assert loss(z - 0.1 * lg.grad(loss)(z)) < loss(z)
    with pytest.raises(lg.GradientError, match="a real loss"):
        lg.grad(lambda z: lg.sum(z * z))(z)


def test_gradients_reach_tensors_on_the_way() -> None:
    """What is made of two parts is found again, by whoever asks for its derivative."""
    x, y = lg.asarray([1.0, 2.0]), lg.asarray([0.5, -1.0])
    z = x * 1j + y
    w = z * z
    loss = lg.sum(lg.imag(w) + 2 * w.real)
    to_z, to_w, to_x = lg.gradients(loss, [z, w, x])
    np.testing.assert_allclose(to_w, [2 + 1j, 2 + 1j])
    np.testing.assert_allclose(to_z, np.conj(2 * np.asarray(z)) * (2 + 1j))
    np.testing.assert_allclose(to_x, np.asarray(to_z).imag)
    (further,) = lg.gradients(lg.sum(to_z.real * to_z.imag), [to_z])
    np.testing.assert_allclose(further, np.asarray(to_z).imag + 1j * np.asarray(to_z).real)


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts(dtype: str) -> None:
    """To complex numbers from any, back from none: a cast would drop the imaginary part."""
    for source in (np.float32([1.5, -0.0]), np.int32([1, 2]), np.array([True, False]), np.array([1 + 2j], "complex64")):
        np.testing.assert_array_equal(lg.asarray(source).astype(dtype), source.astype(dtype))
    z = lg.asarray(np.array([1 + 2j, 0j, 1j, np.nan], dtype))
    np.testing.assert_array_equal(z.astype(bool), z.numpy().astype(bool))
    for target in ("float64", "int32", "uint8"):
        with pytest.raises(lg.DTypeError, match=r"take \.real"):
            z.astype(target)


def test_numbers_that_change_are_compiled_once() -> None:
    """A complex constant is made of numbers that become inputs after the first change."""
    from loopgrad.runtime.session import SESSION

    z = lg.asarray([1.0 + 1j])
    counts = []
    for k in range(5):
        np.testing.assert_allclose(z * (0.3 + k) + (k + 0.25) * 1j, np.array([1 + 1j]) * (0.3 + k) + (k + 0.25) * 1j)
        counts.append(SESSION.compiled)
    assert counts[-1] == counts[1]


@pytest.mark.costly
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_as_numpy_on_devices(device: str, dtype: str) -> None:
    """Special values and ordinary ones, in one program; tests/graph/complex_numbers asks more of the CPU."""
    z = np.concatenate([grid(dtype), ordinary(dtype, 300)])
    names = ("abs", "sqrt", "exp", "log", "sinh", "tan", "arcsin", "arctanh", "sign")
    made = [getattr(lg, name)(lg.asarray(z)) for name in names]
    made += [lg.asarray(z) ** 3, lg.power(lg.asarray(z), 1.5 - 0.5j)]
    lg.eval(made)
    with np.errstate(all="ignore"):
        expected = [getattr(np, name)(z) for name in names] + [z * z * z, z ** (1.5 - 0.5j)]
        ordinary_sizes = abs(np.log(abs(z))) < 60  # beyond, powers over- and underflow
    for name, got, e in zip((*names, "cube", "power"), made, expected, strict=True):
        g = got.numpy()
        same = (g == e) | (np.isnan(g) & np.isnan(e)) | (~np.isfinite(g) & ~np.isfinite(e))
        with np.errstate(all="ignore"):
            apart = abs(g - e) / np.maximum(abs(e), np.finfo(dtype).tiny)
        bound = (3e-4 if dtype == "complex64" else 1e-12) if name == "power" else 20 * np.finfo(dtype).eps
        wrong = ~(same | (apart < bound)) & (ordinary_sizes | (name not in ("cube", "power")))
        assert not wrong.any(), (name, z[wrong][:3], g[wrong][:3], e[wrong][:3])


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_and_products_as_numpy(device: str, dtype: str) -> None:
    zn, wn = Z.astype(dtype), W.astype(dtype)
    programs: list[Callable[[Any, Any, Any], Any]] = [
        lambda xp, z, w: xp.prod(z, axis=1) + xp.prod(w),
        lambda xp, z, w: xp.prod(z[:0]) + xp.sum(w[:0]),
        lambda xp, z, w: xp.cumprod(z, axis=0) * xp.cumprod(w.reshape(-1))[5],
        lambda xp, z, w: xp.mean(z, axis=0) + xp.sum(w),
        lambda xp, z, w: xp.var(z, axis=1) + xp.std(w),
        lambda xp, z, w: z @ w.T,
        lambda xp, z, w: xp.dot(z[0], w[1]) + xp.vdot(z, w),
        lambda xp, z, w: xp.vecdot(z, w) + xp.linalg.vector_norm(z, axis=1),
        lambda xp, z, w: xp.einsum("ij,kj->ik", z, xp.conj(w)) + xp.tensordot(z, w, axes=([1], [1])),
        lambda xp, z, w: xp.outer(z[0], w[:, 0]) + xp.trace(z @ w.T),
        lambda xp, z, w: xp.stack([xp.allclose(z, z + 1e-12), xp.allclose(z, w), xp.isclose(z, w)[0, 0]]),
        lambda xp, z, w: xp.round(z, 2) + xp.diff(w, axis=0, prepend=w[:1]),
        lambda xp, z, w: xp.linspace(0, 1 + 2j, 5).astype(w.dtype) * w[0, 0],
        lambda xp, z, w: xp.all(z, axis=0) & xp.any(w - w, axis=0),
        lambda xp, z, w: xp.sort(w - w.real, axis=1) + xp.take_along_axis(z, xp.argsort(z, axis=0), axis=0),
        lambda xp, z, w: xp.convolve(z[0], w[1]) + xp.correlate(z[2], w[0], "full"),
        lambda xp, z, w: xp.cov(z).astype(w.dtype) + xp.linalg.norm(w),
    ]
    z, w = lg.asarray(zn), lg.asarray(wn)
    made = [program(lg, z, w) for program in programs]
    lg.eval(made)
    for number, (got, program) in enumerate(zip(made, programs, strict=True)):
        expected = program(np, zn, wn)
        tolerance = 4e-6 if dtype == "complex64" else 1e-13
        assert got.dtype == expected.dtype, number
        np.testing.assert_allclose(got, expected, tolerance, tolerance, err_msg=str(number))


def test_results_that_nobody_computes(device: str) -> None:
    """Complex arguments and constants among the results, called and replayed."""
    moved = lg.compile(lambda z, x: (z, lg.asarray([1j, 2.0]), x, z + x, z), device=device)
    replay = moved.capture(Z, Z.real)
    for z in (Z, 2j * Z):
        for results in (moved(z, z.real), replay.replay(z, z.real)):
            for got, expected in zip(results, (z, np.array([1j, 2.0]), z.real, z + z.real, z), strict=True):
                assert got.dtype == expected.dtype
                np.testing.assert_array_equal(got, expected)


def test_what_has_no_meaning_is_refused() -> None:
    """No function is made up."""
    z = lg.asarray([1j, 2.0])
    for refused in (
        lambda: lg.floor(z), lambda: lg.quantile(z, 0.5), lambda: lg.arctan2(z, z), lambda: z // 2,
        lambda: z % 2, lambda: lg.erf(z),
        lambda: float(z[0]), lambda: lg.arange(3j), lambda: lg.hypot(z, z),
        lambda: lg.fabs(z), lambda: lg.frexp(z), lambda: lg.deg2rad(z),
        lambda: lg.cummax(z),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            refused()  # type: ignore[no-untyped-call]


def test_dtypes_numbers_text_and_exchange() -> None:
    """Python complex numbers are weak; arrays go to NumPy, DLPack, pickles and text, and come back."""
    narrow, wide = lg.asarray(np.array([1 + 2j], "complex64")), lg.asarray([1 + 2j])
    assert (narrow * 2j).dtype == (narrow + lg.float32(1.0)).dtype == lg.complex64
    assert (lg.ones(1, dtype=lg.float32) * 1j).dtype == lg.complex64
    assert (wide * narrow).dtype == (narrow + np.float64([1.0])).dtype == (lg.ones(1) + 1j).dtype == lg.complex128
    assert (lg.arange(2) * 1j).dtype == lg.asarray(1j).dtype == lg.complex128
    assert lg.result_type(lg.complex64, 1.0) == lg.complex64
    assert lg.result_type(lg.float64, lg.complex64) == lg.complex128
    assert lg.isdtype(lg.complex64, "complex floating")
    assert lg.can_cast(lg.float32, lg.complex64)
    assert not lg.can_cast(lg.complex64, lg.float64)
    assert lg.finfo(lg.complex64).bits == 32
    assert lg.finfo(narrow).dtype == lg.float32
    assert repr(wide) == "Tensor([1.+2.j], dtype=complex128)"
    assert complex(wide[0]) == wide.item() == wide.tolist()[0] == 1 + 2j
    assert pickle.loads(pickle.dumps(narrow)).dtype == lg.complex64
    np.testing.assert_array_equal(np.from_dlpack(narrow), narrow)
    np.testing.assert_array_equal(lg.from_dlpack(np.array([3 - 1j])), [3 - 1j])
    z = lg.zeros(3, dtype=complex)
    z[1] += 2j
    z *= 1j
    z[0] = 1.5
    assert z.tolist() == [1.5, -2, 0]
    with pytest.raises(lg.DTypeError):
        lg.zeros(2)[0] = 1j
    nan = np.nan
    odd = np.array([1 + 2j, complex(0, nan), complex(nan, 3), 1 - 2j, complex(nan, nan), 0, complex(-1, nan)])
    np.testing.assert_array_equal(lg.sort(lg.asarray(odd)), np.sort(odd))
    np.testing.assert_array_equal(lg.argsort(lg.asarray(odd)), np.argsort(odd, kind="stable"))
    assert lg.real_if_close(wide).dtype == lg.complex128
    assert lg.real_if_close(wide * (1 + 0j) - 2j).dtype == lg.float64


def test_parts_are_views() -> None:
    """What is written to a part is written to the number, as in NumPy."""

    def write(xp: Any) -> list[Any]:
        z = xp.asarray([[1 + 2j, 3j], [-1.5, 2 - 1j]])
        row, part = z[1], z.real
        part[0, 1] = 7.0
        z.imag *= 2.0
        row.real = [0.5, 0.25]
        z.T.imag[0] += 1.0
        z[0].real[...] = z[0].imag
        before = z.imag * 1.0
        z *= 1j
        return [z, part, row, before, z.real.reshape(4), z[::-1].imag.ravel()]

    for got, expected in zip(write(lg), write(np), strict=True):
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(ValueError, match="read-only"):
        lg.ones(2).imag[0] = 1.0


@pytest.mark.usefixtures("formulas_alone")
def test_transforms_of_complex_functions() -> None:
    """Batches, own rules, checkpoints, budgets, carries that become complex."""
    z = lg.asarray(Z)
    f = lambda v: lg.sum(lg.arcsin(v) * lg.sqrt(v) + lg.fori_loop(0, 4, lambda _, u: lg.exp(-u) * v, v))
    rows = [f(row) for row in z]
    np.testing.assert_allclose(lg.vmap(f)(z), [np.asarray(r) for r in rows])
    slopes = lg.vmap(lg.grad(f, holomorphic=True))(z)
    np.testing.assert_allclose(slopes, np.stack([np.asarray(lg.grad(f, holomorphic=True)(row)) for row in z]))

    loss = lambda v: lg.abs(f(v))
    np.testing.assert_allclose(lg.grad(lg.checkpoint(loss))(z[0]), lg.grad(loss)(z[0]))
    grown = lambda v, **how: lg.abs(lg.sum(lg.fori_loop(0, 40, lambda _, u: lg.sin(u) + 0.1 * v, v, **how)))
    tight = lg.grad(lambda v: grown(v, memory_budget=1000))(z[0])
    np.testing.assert_allclose(tight, lg.grad(grown)(z[0]), 1e-9)

    @lg.custom_jvp
    def cube(v: Any) -> Any:
        return v * v * v

    @cube.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return cube(primals[0]), 3 * primals[0] ** 2 * tangents[0]

    @lg.custom_vjp
    def same(v: Any) -> Any:
        return v

    same.defvjp(lambda v: (v, None), lambda _, ct: (2 * ct,))
    np.testing.assert_allclose(lg.grad(lambda v: lg.sum(cube(v)), holomorphic=True)(z[0]), 3 * Z[0] ** 2)
    np.testing.assert_allclose(lg.grad(lambda v: lg.sum(same(v).imag))(z[0]), np.full(4, 2j))

    turned = lg.fori_loop(0, 3, lambda _, v: v * 1j, 1.0)
    assert turned.dtype == lg.complex128
    np.testing.assert_allclose(turned, -1j)
    with pytest.raises((lg.DTypeError, lg.StructureError, lg.ShapeError)):
        lg.fori_loop(0, 3, lambda _, v: v * 1j, lg.ones(2))


def test_numbers_that_change_beside_complex_values_on_the_way() -> None:
    """New programs run directly; those of pairs of reals have more numbers than the script."""
    x = np.array([0.5, -1.0, 2.0])
    for k in (2.5, 2.5, 2.5, 3.5, 4.5):
        t = lg.asarray(x)
        found = lg.abs(lg.fft.fft(t * k)) * 0.5 + lg.where(t > k, 1.0, 2.0)
        np.testing.assert_allclose(found, np.abs(np.fft.fft(x * k)) * 0.5 + 2.0)
        turned = lg.real(lg.exp(1j * t) * k) + k * 2
        np.testing.assert_allclose(turned, np.real(np.exp(1j * x) * k) + k * 2)
