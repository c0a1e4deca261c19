"""NumPy's less usual functions against NumPy: sets, polynomials, windows, grids, writes, histograms, bits.

Each row is an expression of `xp` (NumPy, loopgrad) and of arrays that are made anew for it; a statement before `;` is
run first. Results, and the arrays afterwards, are compared.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.numpy import rearranging
from tests.lazy.oracle import check, unlike_numpy
from tests.programs.numpy_scripts.scripts import quiet


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "a": np.array([3, 1, 2, 3, 7, 1]), "b": np.array([2, 3, 9]), "u": np.array([4, 2, 8]),
        "f": np.array([0.5, -1.5, 2.0, 0.5, np.nan]), "g": np.array([2.0, -1.5, np.nan]),
        "z": np.array([0, 0, 1.5, 0, 2.5, 0]), "zz": np.array([[0, 0, 0], [0, 1, 0], [0, 2, 0]]),
        "m": rng.normal(size=(3, 4)), "s": np.arange(9).reshape(3, 3), "t": rng.normal(size=(6, 3)),
        "c": rng.normal(size=(2, 3, 4)), "e": np.zeros((0,)), "p": rng.uniform(0.5, 2, 5),
        "q": np.array([2.0, 0.5, 1.0]),
        "k": np.array([1, 0, 1, 1, 0, 1, 0, 1, 1]), "h": np.array([[7, 255], [3, 128]], np.uint8),
        "i8": np.array([5, -3, 5], np.int8), "xs": rng.normal(size=100), "ys": rng.normal(size=100),
        "w": rng.uniform(size=100), "cube": np.zeros((3, 3, 3)), "tall": np.zeros((7, 3)), "f4": np.float32([1, 2, 3]),
    }  # fmt: skip


SETS = """
    xp.union1d(a, b); xp.union1d(f, g); xp.union1d(i8, a); xp.union1d(s, m); xp.union1d(e, f); xp.intersect1d(a, b)
    xp.intersect1d(f, g); xp.intersect1d(a, b, return_indices=True); xp.intersect1d(s, m)
    xp.intersect1d(b, u, assume_unique=True, return_indices=True); xp.intersect1d(e, f); xp.intersect1d(i8, a)
    xp.setdiff1d(a, b); xp.setdiff1d(f, g); xp.setdiff1d(b, u, assume_unique=True); xp.setdiff1d(e, f)
    xp.setxor1d(a, b); xp.setxor1d(f, g); xp.setxor1d(b, u, True); xp.setxor1d(e, e); xp.ediff1d(a)
    xp.ediff1d(s, to_begin=[1, 2], to_end=5); xp.ediff1d(e); xp.ediff1d(f4, to_end=1.5); xp.trim_zeros(z)
    xp.trim_zeros(z, "f"); xp.trim_zeros(z, "b"); xp.trim_zeros(zz); xp.trim_zeros(zz, "f"); xp.trim_zeros(zz, axis=1)
    xp.trim_zeros(xp.zeros_like(a)); xp.trim_zeros(xp.zeros_like(a), "b"); xp.diff(a, n=0, append=b)
"""
POLYNOMIALS = """
    xp.polyadd(q, p); xp.polysub(q, p); xp.polysub(b, a); xp.polymul(a, b); xp.polymul(q, 2.0); xp.polydiv(p, q)
    xp.polydiv(q, p); xp.polyder(p); xp.polyder(p, 2); xp.polyder(a, 0); xp.polyder(i8); xp.polyder(q, 5)
    xp.polyint(p); xp.polyint(p, 2); xp.polyint(p, 2, [1.0, 2.0]); xp.polyint(p, 3, 1.0); xp.polyint(b); xp.poly(q)
    xp.poly(b); xp.polyval(p, m); xp.polyadd(1, p); xp.polyadd(p[:0], p); xp.polysub(p[:0], p[:0])
    xp.polymul(p[:1], p[:0]); xp.polyval(p[:0], m); xp.polyder(p[:0]); xp.polyint(p[:0])
"""
WINDOWS = """
    xp.hanning(7); xp.hanning(1); xp.hanning(0); xp.hanning(4); xp.hamming(8); xp.hamming(1); xp.blackman(9)
    xp.blackman(1); xp.bartlett(6); xp.bartlett(7); xp.bartlett(1); xp.kaiser(8, 14.0); xp.kaiser(5, 0.0)
    xp.kaiser(1, 3.0); xp.i0(m); xp.i0(10 * m); xp.i0(100 * m); xp.i0(a); xp.i0([700.0, -700.0, xp.nan, 8.0])
"""
GRIDS = """
    xp.mgrid[0:3]; xp.mgrid[0:3, 1:2:3j]; xp.mgrid[-1:1:5j, 0:4:2, 2:0:-1]; xp.ogrid[0:3]; xp.ogrid[0:3, 1:2:3j]
    xp.ogrid[-1:1:5j, 0:4:2]; xp.mgrid[:3, :2.5]; xp.r_[1:4, 0, 0, b]; xp.r_[p, 1.5, 0:1:3j]; xp.r_["-1", s, s]
    xp.r_["0,2", a, a]; xp.r_["0,2,0", a, b]; xp.r_["1,2,0", a, a]; xp.r_["0,3,1", s, s]; xp.r_["0,2", 1:4, b]
    xp.c_[a, a]; xp.c_[s, s]; xp.c_[1:4, b, 0:1:3j]; s[xp.s_[1:, ::2]]; s[xp.index_exp[0]]; s[xp.ix_([0, 2], [1, 2])]
    xp.ix_(b, a, [True, False, True]); xp.ix_([], b); xp.diag_indices(3); xp.diag_indices(2, 3)
    xp.diag_indices_from(s); xp.tril_indices(3); xp.tril_indices(3, 1, 4); xp.triu_indices(4, -1)
    xp.triu_indices(2, 1, 5); xp.tril_indices_from(m, -1); xp.triu_indices_from(s, 1); xp.mask_indices(3, xp.triu, 1)
    xp.mask_indices(3, xp.tril); xp.ravel_multi_index((b % 3, b % 4), (3, 4))
    xp.ravel_multi_index((b, a[:3]), (3, 4), mode="clip")
    xp.ravel_multi_index((b, -a[:3]), (3, 4), mode=("wrap", "clip"), order="F"); xp.ravel_multi_index((1, 2), (3, 4))
"""
WRITES = """
    xp.copyto(m, 5.0); xp.copyto(m, [1, 2, 3, 4], where=m > 0); xp.copyto(a, m[0, 0], casting="unsafe")
    xp.place(m, m > 0, [7.0, 8.0, 9.0]); xp.place(a, a > 5, b); xp.place(s, s > 99, [1])
    xp.putmask(m, m > 0, [7.0, 8.0, 9.0]); xp.putmask(a, a > 2, 10 * a); xp.putmask(s, s > 1, [[1, 2]])
    xp.put(a, [0, -1, 3], [10, 20]); xp.put(m, [11, -12, 5], -1.0); xp.put(m, [13, -13], 2.0, mode="wrap")
    xp.put(m, [99, -99], [4.0, 5.0], mode="clip"); xp.put(s, b % 9, b); m.put([1, 5], [2.0, 3.0])
    xp.put_along_axis(m, xp.asarray([[1], [0], [3]]), 9.0, axis=1); xp.put_along_axis(a, xp.asarray([0, 5]), 8, None)
    xp.put_along_axis(s, xp.asarray([[0, 1, 2]]), xp.asarray([[7, 8, 9]]), axis=0); xp.fill_diagonal(s, 5)
    xp.fill_diagonal(m, [1.0, 2.0]); xp.fill_diagonal(cube, [1.0, 2.0, 3.0]); xp.fill_diagonal(tall, 4.0)
    xp.fill_diagonal(tall, [4.0, 5.0], wrap=True); xp.fill_diagonal(tall.T, 1.0); xp.fill_diagonal(m[:, ::2], 3.0)
    xp.put(m.T, [0, 1], 6.0); xp.place(m[1:], m[1:] > 0, 0.0); m.fill(4); a.fill(2)
"""
HISTOGRAMS = """
    xp.histogram(xs, 7, density=True); xp.histogram(xs, 5, (-1, 1), True, w)
    xp.histogram(xs, [-2, 0, 0.5, 3], density=True); xp.histogram(a, 4); xp.histogram(xs, "fd")
    xp.histogram_bin_edges(xs, "auto"); xp.histogram_bin_edges(a, 3); xp.histogram_bin_edges(xs, 4, (0, 2))
    xp.histogram2d(xs, ys); xp.histogram2d(xs, ys, [3, 4], weights=w)
    xp.histogram2d(xs, ys, [-1, 0, 1], density=True); xp.histogram2d(xs, ys, [3, [-1, 0, 2]], [[-1, 1], [0, 1]])
    xp.histogramdd(t, 3); xp.histogramdd([xs, ys, w], [2, 3, 4], density=True); xp.histogramdd(t, [2, [-1, 0, 1], 3])
    xp.histogramdd([xs, ys], 2, [(-1, 1), (-2, 2)], weights=w)
"""
REARRANGING = """
    xp.sort(xp.partition(a, 2)[:2]); xp.partition(a, 2)[2]; xp.partition(m, (0, 2), axis=0)[0]
    xp.partition(m, 3, None)[3]; m.reshape(-1)[xp.argpartition(m, 4, axis=None)[4]]
    xp.choose([0, 1, 2, 1], [a[:4], -a[:4], 10 * a[:4]]); xp.choose([[2], [-1]], [b, 2 * b, a[:3]], mode="wrap")
    xp.choose([5, -7, 1], [b, 2 * b], mode="clip"); xp.choose([True, False], [1.5, 2.5])
    xp.piecewise(m, [m < 0, m > 1], [lambda v: -v, 7.0]); xp.piecewise(m, [m < 0, m > -1], [lambda v: -v, xp.exp, 3])
    xp.piecewise(a, a > 2, [1.7, lambda v, n: v * n], 3); xp.piecewise(m[0, 0], [True], [5.0])
    xp.piecewise(a, [a > 1, a > 2, a > 6], [1, 2, 3, 4]); xp.insert(a, 1, 9); xp.insert(a, [1, 1, 4], b)
    xp.insert(a, slice(0, 4, 2), 7); xp.insert(a, [0, -1], [8, 9.7]); xp.insert(m, 1, 5.0, axis=1)
    xp.insert(m, [0, 2], 5.0, axis=0); xp.insert(m, 2, p[:3], axis=1); xp.insert(s, 0, b, 0)
    xp.insert(s, [1], [[1], [2], [3]], axis=1); xp.insert(s, 1, [[1, 2, 3], [4, 5, 6]], axis=0); xp.insert(a, 2, b)
    xp.insert(b, xp.asarray([True, False, True]), 7); xp.take(m, xp.asarray([True, False, True]), axis=1); a.take(True)
    xp.insert(m, 3, 1.0); xp.insert(a, [], 3); xp.resize(a, (2, 5)); xp.resize(s, 4); xp.resize(e, (2, 2))
    xp.resize(s, (0,)); xp.rollaxis(c, 2); xp.rollaxis(c, 0, 3); xp.rollaxis(c, 1, -1); xp.rollaxis(c, -1, 1)
    xp.array_equiv(a, a[None]); xp.array_equiv(a, 3); xp.array_equiv(a, b); xp.matvec(c, q[0] * c[:, 0])
    xp.vecmat(c[:, :, 0], c); xp.fix(m * 3); xp.matvec(s, b); xp.vecmat(b, s)
    xp.take_along_axis(m, xp.asarray([3, 7, -1]), None); xp.packbits(k); xp.packbits(k, bitorder="little")
    xp.packbits(m > 0, axis=1); xp.packbits(m > 0, axis=0); xp.unpackbits(h); xp.unpackbits(h, axis=0)
    xp.unpackbits(h, 1, 5); xp.unpackbits(h, 1, -3, "little"); xp.unpackbits(h, 1, 20)
    xp.unwrap(xp.cumsum(xs * 2) % 6.0); xp.unwrap(m * 9, axis=0); xp.unwrap(a * 3, period=4)
    xp.unwrap(a * 3, period=5); xp.unwrap(m * 9, 4.0, axis=1, period=3.0)
    xp.unwrap(xp.asarray([0, xp.pi, 0, -xp.pi])); xp.apply_along_axis(lambda v: v - v[0], 1, m)
    xp.apply_along_axis(xp.sum, 0, c); xp.apply_along_axis(lambda v, n: v[:, None] * v[None] * n, 1, c, 2.0)
    xp.apply_along_axis(xp.sort, -1, a); xp.apply_over_axes(xp.sum, c, (0, 2)); xp.apply_over_axes(xp.cumsum, c, 1)
    xp.tril(p); xp.triu(b, 1); xp.tril(a[:0]); xp.linalg.matrix_norm(m, ord=None)
    xp.linalg.vector_norm(m, ord=None)
    a.compress([0, 1, 1]); m.compress([1, 0], 1); a[:3].choose([b, b + 1, b + 2, b + 3]); xp.euler_gamma
    xp.isscalar(3.5); xp.isscalar(a); xp.nan_to_num(f)
"""
ROWS = [row.strip() for text in (SETS, POLYNOMIALS, WINDOWS, GRIDS, WRITES, HISTOGRAMS, REARRANGING)
        for line in text.strip().splitlines() for row in line.split(";") if row.strip()]  # fmt: skip


def leaves(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [leaf for part in result for leaf in leaves(part)]
    return [] if result is None else [result]


@functools.cache
def in_numpy(row: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    """What NumPy gives, and the arrays after that which it writes to, or may."""
    data = arrays()
    results = leaves(eval(row, {"xp": np, **data}))
    return results, {n: x for n, x in data.items() if f"({n}," in row or x.tobytes() != arrays()[n].tobytes()}


def in_loopgrad(row: str) -> list[Any]:
    tensors = {name: lg.asarray(x) for name, x in arrays().items()}
    return [*leaves(eval(row, {"xp": lg, **tensors})), *[tensors[name] for name in in_numpy(row)[1]]]


def test_partitions_that_are_no_sorts(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is smaller, equal and larger keeps its order, NaN is the largest."""
    monkeypatch.setattr(rearranging, "_LONG", 4)
    table = np.random.default_rng(0).integers(0, 5, (40, 3)).astype(np.float32)
    table[[3, 9, 20], [0, 0, 1]] = np.nan
    for x, places in ((table, (3, 17)), (table, (-1,)), (table[:, 2].astype(np.int32), (20, 21, 0))):
        ordered = np.sort(x, axis=0)
        parts = sum([_against(x, ordered[k]) for k in places])
        wanted = np.argsort(parts, axis=0, kind="stable")
        check(lg.argpartition(lg.asarray(x), places, axis=0), wanted)
        check(lg.partition(lg.asarray(x), places, axis=0), np.take_along_axis(x, wanted, axis=0))
        check(lg.compile(lambda x, k=places: lg.partition(x, k, axis=0)[list(k)])(x), ordered[list(places)])
    slope = lg.grad(lambda x: lg.sum(lg.partition(x, 2)[:2]))(lg.asarray([3.0, 1.0, 5.0, 2.0, 4.0]))
    check(slope, np.array([0.0, 1.0, 0.0, 1.0, 0.0]))


def _against(x: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """0, 1, 2 for what is smaller, equal, larger, by the places of sorted elements."""
    larger = (x > middle) | (np.isnan(x) & ~np.isnan(middle))
    smaller = (x < middle) | (np.isnan(middle) & ~np.isnan(x))
    return 1 + larger.astype(int) - smaller


@pytest.mark.costly
@pytest.mark.in_turns
@pytest.mark.parametrize("start", range(6))
def test_as_in_numpy(device: str, start: int) -> None:
    with quiet():
        wanted = lambda row: [*in_numpy(row)[0], *in_numpy(row)[1].values()]  # noqa: E731
        wrong = list(unlike_numpy(ROWS[start::6], in_loopgrad, wanted, rtol=1e-11))
    assert not wrong, "\n".join(wrong)


def test_refusals() -> None:
    x = lg.arange(4)
    for call in (
        lambda: lg.put([1, 2], [0], 1), lambda: lg.place(x, [True] * 3, [1]), lambda: lg.place(x, x > 0, []),
        lambda: lg.copyto(x, lg.ones(4)), lambda: lg.copyto(x, 1, casting="no"), lambda: lg.put(x, [0], 1, mode="x"),
        lambda: lg.put(x, [0.5], 1), lambda: lg.fill_diagonal(x, 1), lambda: lg.fill_diagonal(lg.ones((2, 3, 2)), 1),
        lambda: lg.partition(x, 4), lambda: lg.choose([0.5], [x]), lambda: lg.choose([0], []),
        lambda: lg.piecewise(x, [x > 1], []), lambda: lg.insert(x, 5, 1), lambda: lg.compile(lg.insert)(x, x[1], 1),
        lambda: lg.packbits([1.0]), lambda: lg.packbits(x, bitorder="x"), lambda: lg.unpackbits(x),
        lambda: lg.ix_([[1]]),
        lambda: lg.mgrid[0 : lg.asarray(3)], lambda: lg.r_["r", x], lambda: lg.tril_indices_from(x),
        lambda: lg.ravel_multi_index((3, 0), (3, 4)), lambda: lg.ravel_multi_index((0,), (3, 4)),
        lambda: lg.polyder(x, -1),
        lambda: lg.polyint(x, 2, [1.0] * 3), lambda: lg.poly(lg.ones((2, 3))), lambda: lg.histogram(x, 0),
        lambda: lg.histogram(x, "odd"), lambda: lg.hanning(x), lambda: lg.kaiser(2.5, 1.0),
        lambda: lg.histogramdd([x, x], [1, 2, 3]), lambda: lg.trim_zeros(x, "x"),
        lambda: lg.apply_along_axis(lg.sum, 1, x), lambda: lg.vecdot(x, x[:1]), lambda: lg.rollaxis(x, 0, 3),
    ):  # fmt: skip
        with pytest.raises((lg.LoopgradError, TypeError, ValueError), match=r"expected .*, got .*; "):
            call()


def test_shapes_that_depend_on_data_are_refused_while_tracing() -> None:
    x = lg.asarray([1.0, 0.0, 2.0])
    pairs = (lg.union1d, lg.intersect1d, lg.setdiff1d, lg.setxor1d)
    calls = [lg.trim_zeros, lambda v: lg.histogram(v, "fd"), *[lambda v, f=f: f(v, v) for f in pairs]]
    for call in calls:
        with pytest.raises(lg.LoopgradError):
            lg.compile(call)(x)


def test_writes_while_tracing_and_their_derivatives(device: str) -> None:
    x, v = lg.asarray([1.0, -2.0, 3.0, -4.0]), lg.asarray([5.0, 7.0])

    def written(x: lg.Tensor, v: lg.Tensor) -> lg.Tensor:
        y = x * x
        lg.place(y, x > 0, v)
        return lg.sum(y * lg.asarray([1.0, 10.0, 100.0, 1000.0]))

    assert float(lg.compile(written)(x, v)) == 5.0 + 40.0 + 700.0 + 16000.0
    slopes = lg.grad(written, argnums=(0, 1))(x, v)
    assert [s.tolist() for s in slopes] == [[0.0, -40.0, 0.0, -8000.0], [1.0, 100.0]]


@pytest.mark.in_turns
def test_the_bessel_function_has_derivatives_of_every_order(device: str) -> None:
    from scipy import special

    x = np.array([-20.0, -3.0, 0.0, 0.5, 7.99, 8.01, 30.0])
    check(lg.i0(lg.asarray(x)), special.iv(0, x), rtol=5e-15)
    slope = lg.grad(lambda x: lg.sum(lg.i0(x)))
    check(slope(lg.asarray(x)), special.ivp(0, x), rtol=1e-13)
    check(lg.grad(lambda x: lg.sum(slope(x)))(lg.asarray(x)), special.ivp(0, x, 2), rtol=1e-11)
