"""Keywords of NumPy's and JAX's functions, against NumPy.

Rows are expressions of `xp` (NumPy, loopgrad) and of arrays; what JAX has and NumPy hasn't is compared by itself.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import loopgrad as lg
from tests.lazy.oracle import check, unlike_numpy
from tests.programs.numpy_scripts.scripts import quiet

_rng = np.random.default_rng(1)
ARRAYS = {
    "v": np.array([3.0, -1.0, 2.0, 2.0, 7.0, 0.5]), "m": _rng.normal(size=(3, 5)), "n": _rng.normal(size=(3, 5)),
    "i": np.array([4, 1, 3, 1, 0]), "c": _rng.normal(size=(2, 3, 4)), "f4": np.float32([1.5, 2.5, 3.5]),
    "z": np.array([[1.5, np.nan, 2.0, 0.5], [np.nan, np.nan, 1.0, 4.0], [3.0, 1.0, -2.0, 0.0]]),
    "w": np.array([1.0, 2.0, 0.5, 3.0, 1.5]), "k": np.array([1, 2, 1, 3, 1]), "p": np.array([0.0, 0.4, 1.0, 1.7, 3.0]),
    "g": np.array([2.0, 1.0]), "h": np.array([8.0, 10.0]), "q": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "i1": np.array([100, -100, 7], np.int8),
    "cx": _rng.normal(size=(2, 6)) + 1j * _rng.normal(size=(2, 6)), "u": _rng.normal(size=(4, 3)),
}  # fmt: skip
METHODS = (
    "linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf", "closest_observation",
    "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased", "normal_unbiased",
)  # fmt: skip
QUANTILES = [
    f"xp.{name}({x}, {q}, axis={axis}, method={method!r})"
    for method in METHODS
    for name, x, q, axis in (
        ("quantile", "v", [0.0, 0.1, 0.25, 0.5, 0.75, 1.0], None), ("quantile", "i", [0.1, 0.3, 0.5], 0),
        ("percentile", "m", 30, 1), ("quantile", "m", 0.62, (0, 1)), ("nanquantile", "z", [0.2, 0.5, 1.0], 1),
        ("nanpercentile", "z", 40, 0),
    )
]  # fmt: skip
REDUCTIONS = """
    xp.var(m, axis=1, dtype=xp.float32); xp.std(f4, dtype=xp.float64); xp.var(i, dtype=xp.float32); xp.var(cx)
    xp.std(cx, 1); xp.var(m, axis=0, mean=xp.mean(m, axis=0, keepdims=True))
    xp.std(m, mean=xp.ones((1, 1)), correction=1); xp.var(m, axis=1, ddof=1, where=m > 0)
    xp.mean(f4, dtype=xp.float64); xp.mean(m, 0, xp.float32); xp.sum(f4, 0, xp.float64); xp.nanvar(z, axis=1, ddof=1)
    xp.nanstd(z, axis=1, dtype=xp.float32); xp.nanmean(z, 0, xp.float32); xp.nanvar(z, correction=1)
    xp.nanmean(z, where=z > 0, axis=1); xp.nanmax(z, axis=1, initial=2.5)
    xp.nanmin(z, axis=0, initial=9.0, where=z > 0)
    xp.nansum(z, axis=1, dtype=xp.float32, keepdims=True, initial=1.0, where=z > 0)
    xp.nanargmax(z, axis=1, keepdims=True); xp.average(m, 1, w, True); xp.average(m, returned=True)
    xp.average(m, 0, returned=True); xp.average(m, weights=n * n); xp.average(c, (1, 2), xp.abs(c[0]))
    xp.average(c, (2, 1), xp.abs(c[0].T)); xp.average(m, axis=1, weights=w, keepdims=True); xp.cov(m); xp.cov(m, n)
    xp.cov(m, rowvar=False); xp.cov(m, bias=True); xp.cov(m, ddof=2); xp.cov(v); xp.cov(v, v * v)
    xp.cov(m, aweights=w); xp.cov(m, fweights=k); xp.cov(m, n, fweights=k, aweights=w); xp.cov(m, aweights=w, ddof=0)
    xp.cov(m, dtype=xp.float32); xp.cov(u, rowvar=False); xp.corrcoef(m, n); xp.corrcoef(m, rowvar=False)
    xp.corrcoef(v, v * v); xp.corrcoef(m, dtype=xp.float32)
    xp.trace(xp.ones((3, 3), dtype=xp.int8), dtype=xp.int8)
    xp.quantile(m, 0.3, axis=1, weights=w, method="inverted_cdf")
    xp.percentile(v, [10, 60], weights=v * v, method="inverted_cdf")
    xp.nanquantile(z, 0.4, axis=1, weights=xp.ones_like(z), method="inverted_cdf"); xp.quantile(m, 0.3, keepdims=True)
"""
ORDER = """
    xp.sort(v, kind="stable"); xp.sort(m, 0, "mergesort", None); xp.argsort(v, kind="stable")
    xp.argsort(m, 1, "heapsort"); xp.take(v, [7, -8, 2], mode="wrap"); xp.take(m, [[7, -8]], axis=1, mode="clip")
    xp.take(v, indices=[1, 1]); xp.unravel_index([5, 1], (2, 3), order="F")
    xp.isin(i, [1, 4], assume_unique=False, invert=True, kind="sort")
    xp.searchsorted(xp.sort(v), v=[0.7, 9.0], side="right"); xp.digitize(v, bins=xp.asarray([0.0, 2.0]))
    xp.moveaxis(c, source=0, destination=2); xp.swapaxes(c, axis1=0, axis2=1); xp.split(v, indices_or_sections=3)
    xp.tile(v, reps=2); xp.percentile(v, q=20); xp.delete(v, obj=1); xp.insert(v, obj=1, values=9.0)
    xp.append(v, values=3.0)
"""
MAKING = """
    xp.zeros(3, int, "C"); xp.ones((2, 2), order="F"); xp.full((2,), 3, None, "C"); xp.asarray(m, None, "K")
    xp.array(m, order="F"); xp.zeros_like(m, int, "K"); xp.full_like(m, 2, order="A"); xp.copy(m, "K"); xp.eye(3, M=4)
    xp.tri(2, M=3, k=1); xp.isin(i, test_elements=[1, 3]); xp.nan_to_num(z, copy=True, nan=5.0)
    xp.select(condlist=[m > 1, m > 0], choicelist=[m, n], default=2.0); xp.choose(k % 2, [w, i])
    xp.polyfit(p, w, 3); xp.polyfit(p, w, 1, w=w); xp.polyfit(p, w, 2, cov=True); xp.polyfit(i, xp.stack([w, p], 1), 2)
    xp.polyfit(p, w, 2, full=True)[::3]; xp.polyfit(p, xp.stack([w, i], 1), 1, cov=True); xp.polyfit(p, k, 0)
    xp.polyfit(p, w, 2, cov="unscaled"); xp.polyfit(f4, f4 * f4, 1); xp.polyfit(g, h, 3, full=True)[0]
    xp.sort(xp.roots(v)); xp.sort(xp.roots([0, 0, 1, -3, 2, 0, 0]) + 0j); xp.roots([5.0]) + 0j; xp.roots([0.0]) + 0j
    xp.sort(xp.roots(f4) + 0j); xp.roots([2, 4]) + 0j; xp.vectorize(lambda a, b: a * b + 1)(m, w)
    xp.vectorize(lambda a, b: (a @ b, a - b), signature="(n),(n)->(),(n)")(m, w)
    xp.vectorize(lambda a, b: a + b)(c, u.T); xp.vectorize(lambda a, k=2: a * k)(m, k=3)
    xp.vectorize(lambda a, b: a * b[1], excluded=[1])(m, (1.0, 2.0)); xp.vectorize(lambda a: a + 1)(3)
    xp.vectorize(lambda a: a @ a.T, signature="(m,n)->(m,m)")(c); xp.vectorize(lambda a, b: a * b)(m[:1], u[:, :1])
    xp.stack([i, i], dtype=xp.float32); xp.concatenate([v, v[:2]], dtype=xp.float32)
    xp.hstack([v, i], dtype=xp.float64); xp.vstack([i, i], dtype=xp.float64); xp.concat([m, n], 1, dtype=xp.float32)
    xp.linspace(g, h, 4); xp.linspace(g, 9.0, 3, axis=1); xp.linspace(0, 1, 5, False)
    xp.linspace(0, 1, 5, retstep=True); xp.linspace(g, h, 4, retstep=True, axis=-1)
    xp.linspace(0, 9, 4, dtype=xp.int64); xp.linspace(3.0, 3.0, 1, retstep=False); xp.linspace(0, 1, 0)
    xp.linspace(f4[0], f4[1], 4); xp.linspace(0, 1j, 3); xp.linspace(1, 10, num=4, endpoint=True)
    xp.logspace(0, 2, 3, base=2.0); xp.logspace(g, h, 3, axis=1); xp.logspace(0, 2, 4, False)
    xp.geomspace(1, 1000, 4); xp.geomspace(g, h, 5); xp.geomspace(g, h, 5, axis=1); xp.geomspace(1, 256, 9, False)
    xp.geomspace(-1.0, -8.0, 4); xp.zeros_like(m, shape=(2, 2)); xp.ones_like(i, shape=3)
    xp.full_like(m, 7.0, shape=(1, 2)); xp.array(v, ndmin=3); xp.array(2.0, ndmin=1); xp.eye(3, 4, 1)
    xp.eye(2, 3, -1, xp.int64); xp.tri(3, 4, 1, xp.int32); xp.indices((2, 3), sparse=True)
    xp.indices((2, 2), xp.float64); xp.atleast_1d(v, 2.0); xp.atleast_2d(v, m); xp.atleast_3d(v, m, c)
    xp.meshgrid(i, v, copy=False, indexing="ij"); xp.clip(v, a_min=0.0, a_max=2.0); xp.clip(v, min=1.0)
    xp.clip(v, 0, a_max=3); xp.nan_to_num(z, nan=1.0, posinf=9.0); xp.diagonal(c, 1, 0, 2); xp.trace(c, 0, 1, 2)
    xp.cross(u, u[::-1]); xp.cross(u.T, u[::-1], axisa=0, axisc=0); xp.cross(u.T, u.T * 2 + 1, axis=0)
    xp.interp([-1.0, 0.3, 5.2, 7.7], p, w, period=3.5); xp.interp(v, p[::-1], w, period=-2.5)
    xp.interp(v, xp=p, fp=w, left=0.0, right=1.0); xp.gradient(m); xp.gradient(m, 2.0, axis=1)
    xp.gradient(m, 2.0, 3.0); xp.gradient(m, p, axis=1); xp.gradient(w, p, edge_order=2)
    xp.gradient(m, 0.5, edge_order=2); xp.gradient(c, axis=(0, 2)); xp.gradient(m, xp.asarray([0.0, 1.0, 5.0]), p)
    xp.gradient(i, edge_order=2); xp.vecdot(cx, cx[::-1]); xp.trapezoid(y=w, x=p)
    xp.sum(m, axis=1, where=m > 0, initial=3.0); xp.linalg.pinv(q, hermitian=True); xp.linalg.matrix_power(q, n=3)
    xp.linalg.pinv(q, 0.5, True); xp.linalg.matrix_rank(q, hermitian=True); xp.linalg.matrix_rank(q, 3.0, True)
    xp.linalg.pinv(cx[:, :2], hermitian=True); xp.linalg.matrix_rank(cx[:, :2] * 0, hermitian=True)
"""
BY_NAME = """
    xp.matmul(i1, i1, dtype=xp.int32); xp.matmul(m, m.T, dtype=xp.float32); xp.vecdot(i1, i1, dtype=xp.int64)
    xp.matvec(m, w, dtype=xp.float32); xp.vecmat(u[:3, 0], m, dtype=xp.float32, casting="same_kind")
    xp.einsum("ij,j->i", m, w, dtype=xp.complex64, casting="unsafe"); xp.einsum("i,i", i1, i1, dtype=xp.int64)
    xp.einsum("ij,jk", q, q, order="F"); xp.concat([m, m], dtype=xp.float32, casting="same_kind")
    xp.stack([v, v], dtype=xp.int64, casting="unsafe"); xp.hstack([v, v], dtype=xp.float32, casting="same_kind")
    xp.vstack([v, v], dtype=xp.int8, casting="unsafe"); v.astype(dtype=xp.int64); v.copy(order="F")
    v.astype(xp.float32, "K", "same_kind", True, True); xp.partition(v, 1, kind="introselect")[1]
    xp.argpartition(v, 1, -1, "introselect", None)[:1]; xp.eye(N=2, M=3, k=1); xp.eye(2, 3, 0, int, "F")
    xp.tri(N=2, M=3); xp.identity(n=2); xp.hanning(M=4); xp.kaiser(M=4, beta=2.0); xp.tril_indices(n=3)[0]
    xp.mask_indices(n=3, mask_func=xp.triu)[0]; xp.ravel_multi_index(multi_index=([0, 1], [1, 2]), dims=(2, 3))
    xp.resize(v, new_shape=(2, 2)); xp.rollaxis(m, axis=1, start=0); xp.vander(x=v, N=2)
    xp.piecewise(v, condlist=[v > 0], funclist=[1.0]); xp.apply_over_axes(func=xp.sum, a=m, axes=(0,))
    xp.apply_along_axis(func1d=lambda r: r.sum(), axis=1, arr=m); xp.interp(x=v, xp=p, fp=w)
    xp.linalg.solve(a=q, b=g); xp.linalg.norm(x=v); xp.fft.fftfreq(n=4, d=0.5); xp.digitize(x=v, bins=p)
    xp.angle(z=cx); xp.searchsorted(a=p, v=v); xp.nan_to_num(x=z); xp.corrcoef(x=m); xp.histogram2d(x=v, y=v)[0]
    xp.linalg.lstsq(a=q, b=g)[0]; xp.i0(x=v); xp.can_cast(xp.float64, xp.float32, casting="same_kind")
    xp.can_cast(xp.float64, xp.int32, "unsafe"); xp.can_cast(xp.float64, xp.int32, "same_kind")
    xp.can_cast(xp.int8, xp.int8, "no"); xp.can_cast(xp.int8, xp.int16, "equiv"); xp.can_cast(xp.int8, xp.uint8)
"""
PADS = [
    f"xp.pad({x}, {width}, {rest})"
    for x, width in (("v", "(3, 9)"), ("m", "((1, 2), (0, 3))"), ("i", "2"), ("c", "{1: 2, -1: (0, 5)}"))
    for rest in (
        "'edge'", "'wrap'", "'reflect'", "'symmetric'", "'reflect', reflect_type='odd'", "'linear_ramp'",
        "'symmetric', reflect_type='odd'", "'maximum'", "'minimum', stat_length=2", "'mean'", "'median', stat_length=3",
        "'linear_ramp', end_values=(2, -3)", "'constant', constant_values=(4, 5)", "mode='constant', constant_values=3",
    )
]  # fmt: skip
ROWS = [*QUANTILES, *PADS, *[row.strip() for text in (REDUCTIONS, ORDER, MAKING, BY_NAME)
        for line in text.strip().splitlines() for row in line.split(";") if row.strip()]]  # fmt: skip


def flat(result: object) -> list[object]:
    return [leaf for part in result for leaf in flat(part)] if isinstance(result, list | tuple) else [result]


@pytest.mark.costly
@pytest.mark.in_turns
@pytest.mark.parametrize("start", range(6))
def test_as_in_numpy(device: str, start: int) -> None:
    tensors = {name: lg.asarray(x) for name, x in ARRAYS.items()}
    with quiet():
        wrong = list(
            unlike_numpy(
                ROWS[start::6],
                lambda row: flat(eval(row, {"xp": lg, **tensors})),
                lambda row: flat(eval(row, {"xp": np, **ARRAYS})),
                rtol=1e-11,
            )
        )
    assert not wrong, "\n".join(wrong)


@pytest.mark.in_turns
def test_sizes_make_positions_possible_while_tracing(device: str) -> None:
    """JAX's `size` and `fill_value`: the first positions, then the fill."""
    for x in (ARRAYS["m"] > 0, np.array([0, 3, 0, 5]), np.zeros((2, 0)), np.zeros(3), np.ones(4)):
        found = np.nonzero(x)
        for size in (0, 2, 9):
            missing = max(size - found[0].size, 0)
            wanted = [np.r_[p[:size], np.full(missing, -7)] for p in found]
            got = lg.compile(lambda t, n=size: lg.nonzero(t, size=n, fill_value=-7))(lg.asarray(x))
            for ours, theirs in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(np.asarray(ours), theirs)
            rows = lg.argwhere(lg.asarray(x), size=size, fill_value=-7)
            np.testing.assert_array_equal(np.asarray(rows), np.stack(wanted, 1))
    x = lg.asarray([0, 3, 0, 5])
    assert lg.flatnonzero(x, size=3).tolist() == [1, 3, 0]
    assert [p.tolist() for p in lg.where(x > 0, size=1)] == [[1]]
    assert lg.nonzero(lg.ones((2, 2)), size=5, fill_value=(8, 9))[1].tolist() == [0, 1, 0, 1, 9]


def test_isin_of_many(device: str) -> None:
    """By comparing all, and by halves."""
    rng = np.random.default_rng(0)
    for dtype in ("float64", "int16", "uint64", "bool"):
        made, expected = [], []
        for count in (0, 1, 32, 33, 400):
            x, table = rng.integers(0, 500, (20, 30)).astype(dtype), rng.integers(0, 500, count).astype(dtype)
            if dtype == "float64":
                x[0, :3], table[:3] = (np.nan, -0.0, np.inf), (np.nan, 0.0, np.inf)[:count]
            for invert in (False, True):
                made.append(lg.isin(lg.asarray(x), lg.asarray(table), invert=invert))
                expected.append(np.isin(x, table, invert=invert))
        lg.eval(made)  # one program
        for got, wanted in zip(made, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(got), wanted)


def test_logsumexp_of_weighted_elements(device: str) -> None:
    """Against SciPy; what counts 0 times may be infinite, and has a derivative by its weight."""
    x = np.array([[1.0, 2.0, -np.inf, 0.5], [3.0, 900.0, 1.0, -2.0]])
    b = np.array([[1.0, -2.0, 3.0, 1.5], [2.0, 0.0, 1.0, -0.5]])
    with np.errstate(all="ignore"):
        for axis in (0, 1, None):
            for ours, theirs in zip(
                lg.logsumexp(lg.asarray(x), axis, b, return_sign=True),
                special.logsumexp(x, axis, b, False, True),
                strict=True,
            ):
                np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-12)
            got = lg.special.logsumexp(lg.asarray(x), axis=axis, b=abs(b), keepdims=True)
            np.testing.assert_allclose(np.asarray(got), special.logsumexp(x, axis, abs(b), True), rtol=1e-12)
            got = lg.logsumexp(lg.asarray(x), axis, where=x < 2.5)
            wanted = special.logsumexp(np.where(x < 2.5, x, -np.inf), axis)
            np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-12)
    y, w = np.array([0.5, 2.0, 1.0]), np.array([1.0, 0.0, 2.0])
    slopes = lg.grad(lambda y, w: lg.logsumexp(y, b=w), argnums=(0, 1))(lg.asarray(y), lg.asarray(w))
    total = (w * np.exp(y)).sum()
    np.testing.assert_allclose(np.asarray(slopes[0]), w * np.exp(y) / total, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(slopes[1]), np.exp(y) / total, rtol=1e-12)


def test_refusals() -> None:
    x = lg.arange(4.0)
    for call in (
        lambda: lg.zeros(3, order="X"), lambda: lg.select(x > 0, x, 2 * x), lambda: lg.tree.transpose([0], None, [1]),
        lambda: lg.sort(x, kind="odd"), lambda: lg.argsort(x, order="name"), lambda: lg.take(x, 0, mode="odd"),
        lambda: lg.quantile(x, 0.5, method="odd"), lambda: lg.quantile(x, 0.5, weights=x),
        lambda: lg.quantile(x, 0.5, method="inverted_cdf", weights=x[:2]), lambda: lg.cov(x, aweights=x[:2]),
        lambda: lg.average(x, weights=x[:2]), lambda: lg.pad(x, 1, "odd"), lambda: lg.gradient(x, edge_order=3),
        lambda: lg.gradient(x, 1.0, 2.0), lambda: lg.gradient(x, x[:2]), lambda: lg.unravel_index(x, (2, 2), "A"),
        lambda: lg.pad(x, 1, "mean", stat_length=0), lambda: lg.nonzero(x, size=2, fill_value=(1, 2)),
        lambda: lg.gradient(x[:2], edge_order=2), lambda: lg.geomspace(-1, 1), lambda: lg.pad(x[:0], 1, "mean"),
    ):  # fmt: skip
        with pytest.raises((lg.LoopgradError, ValueError), match=r"expected .*, got .*; "):
            call()


def test_casting_forbids(device: str) -> None:
    x, z = lg.asarray([1.5, 2.5]), lg.asarray([1.0 + 1.0j])
    for call in (
        lambda m: m.concat([m.asarray(x), m.asarray(x)], dtype=m.int64),
        lambda m: m.asarray(z).astype(m.float64, casting="safe"),
        lambda m: m.matmul(m.asarray(x), m.asarray(x), dtype=m.int32),
        lambda m: m.stack([m.asarray(x)], dtype=m.int8),
        lambda m: m.asarray(x).astype(m.float32, casting="safe"),
        lambda m: m.asarray(x).astype(m.float32, casting="no"),
        lambda m: m.einsum("i->", m.asarray(x), dtype=m.int64),
        lambda m: m.hstack([m.asarray(z)], dtype=m.float64),
        lambda m: m.add(m.asarray(x), 1.0, dtype=m.float32, casting="safe"),
    ):
        for module in (np, lg):
            with pytest.raises(TypeError):
                call(module)
    for call in (
        lambda: lg.can_cast(lg.int8, lg.int8, "odd"),
        lambda: lg.concat([x], casting="odd"),
        lambda: lg.partition(x, 0, kind="odd"),
        lambda: lg.matmul(x, x, casting="odd"),
        lambda: lg.eye(2, order="X"),
    ):
        with pytest.raises(ValueError, match=r"expected .*, got .*; "):
            call()


def test_products_write_to_out(device: str) -> None:
    m, v = lg.asarray(ARRAYS["m"]), lg.asarray(ARRAYS["w"])
    for function, operands, shape in (
        (lg.matvec, (m, v), (3,)), (lg.vecmat, (m[:, 0], m), (5,)), (lg.vecdot, (m, m), (3,)),
        (lg.matmul, (m, m.T), (3, 3)),
    ):  # fmt: skip
        out = lg.zeros(shape, dtype=lg.float32)
        assert function(*operands, out=out, dtype=lg.float32) is out
        check(out, np.asarray(function(*[t.astype(lg.float32) for t in operands])))


def test_gradients_go_through_the_keywords(device: str) -> None:
    """Against central differences."""
    x, w = ARRAYS["m"], np.abs(ARRAYS["w"])
    for function in (
        lambda x, w: lg.sum(lg.cov(x, aweights=w) ** 2),
        lambda x, w: lg.sum(lg.quantile(x, 0.3, axis=1, method="hazen") * w[:3]),
        lambda x, w: lg.sum(lg.average(x, 1, w, True)[0] ** 2),
        lambda x, w: lg.sum(lg.pad(x, 1, "mean") ** 3) + lg.sum(lg.pad(w, 2, "reflect", reflect_type="odd") ** 3),
        lambda x, w: lg.sum(lg.stack(lg.gradient(x, 0.5, lg.cumsum(w), edge_order=2)) ** 2),
    ):
        slopes = [np.asarray(s) for s in lg.grad(function, argnums=(0, 1))(lg.asarray(x), lg.asarray(w))]
        for k, at in ((0, (1, 2)), (0, (2, 4)), (1, (3,))):
            ends = []
            for h in (1e-5, -1e-5):
                moved = [x.copy(), w.copy()]
                moved[k][at] += h
                ends.append(float(function(*map(lg.asarray, moved))))
            assert abs((ends[0] - ends[1]) / 2e-5 - slopes[k][at]) < 1e-6 * (1 + abs(slopes[k][at]))
