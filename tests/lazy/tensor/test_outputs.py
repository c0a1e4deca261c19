"""`out=`, `where=`, `dtype=` and the places of arguments, against NumPy.

Each row runs with NumPy and with loopgrad, on arrays of its own; results are compared, and what was written to.
"""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check
from tests.programs.numpy_scripts.scripts import quiet

_rng = np.random.default_rng(5)
ARRAYS = {
    "m": _rng.normal(size=(3, 4)), "n": _rng.normal(size=(3, 4)), "v": np.array([4.0, 0.0, -1.0, 9.0]),
    "i": np.array([7, -3, 0, 5]), "z": np.array([[1.5, np.nan], [2.0, 0.5], [np.nan, 3.0]]), "s": np.float32([1, 2, 3]),
    "w": 1j * _rng.normal(size=4), "c": _rng.normal(size=(2, 3, 4)),
    # to write to
    "o": np.full((3, 4), 7.0), "r": np.full(4, 7.0), "k": np.full(3, 7), "b": np.zeros(4, dtype=bool), "t": np.zeros(3),
    "f": np.zeros(4, dtype=np.float32), "q": np.zeros((3, 3)), "e": np.array(0.0), "d": np.zeros((2, 3, 4)),
    "x": np.zeros(4, dtype=complex), "l": np.zeros((6, 4)), "p": np.zeros(4, dtype=int), "u": np.zeros(2),
}  # fmt: skip
WRITTEN = "okrbtfqedxlpu"
ROWS = """
    xp.add(m, n, out=o); xp.add(m, n, o); xp.multiply(m, 2, out=(o,)); xp.exp(m, out=m); xp.negative(v, v)
    xp.divide(1.0, v, out=r, where=v != 0); xp.log(v, out=r, where=v > 0); xp.sqrt(v, r, where=v >= 0)
    xp.add(v, 1.0, out=o); xp.maximum(m, 0.0, out=m[:, ::-1]); xp.less(v, 1.0, out=b); xp.isnan(v, out=b)
    xp.add(i, i, out=r); xp.add(v, v, out=f); xp.multiply(m, n, out=o, where=m > n); xp.greater(v, i, b, where=v > 0)
    xp.add(s, 1.0, dtype=xp.float64); xp.sqrt(i * i, dtype=xp.float32); xp.add(i, v, dtype=xp.float32)
    xp.add(v, 0.5, out=p, casting="unsafe"); xp.power(i, 2, out=r); xp.hypot(v, v, out=r)
    xp.copysign(v, -1.0, out=r); xp.fmax(v, 1.0, out=r); xp.gcd(i, 6, out=p); xp.conj(w, out=x)
    xp.logical_not(v, out=b); xp.rint(m, out=o); xp.abs(v, out=v); xp.logical_and(v, i, out=b, where=i > 0)
    xp.arctan2(v, i, r); xp.isfinite(v, b); xp.cbrt(v, r); xp.sum(m, 1, None, t); xp.sum(m, 0, None, r, False, 3.0)
    xp.sum(m, 1, float, None, True); xp.prod(m, axis=0, out=r); xp.max(m, 0, r); xp.min(m, 1, None, True)
    xp.amax(m, 1, t, False, 0.5, m > 0); xp.all(m, 0, b); xp.any(m, 0, b); xp.mean(m, 1, None, t)
    xp.mean(m, 0, None, None, True); xp.var(m, 1, None, t, 1); xp.std(m, 0, None, r, 1, False); xp.argmax(m, 1, k)
    xp.argmin(m, axis=1, out=k, keepdims=False); xp.cumsum(m, 1, None, o); xp.cumprod(v, 0, float)
    xp.cumsum(m, 0, xp.float32); xp.nansum(z, 0, None, u); xp.nanmax(z, 0, u); xp.nanmean(z, 0, None, u)
    xp.nanvar(z, 0, None, u, 1); xp.nancumsum(z, 1); xp.nanstd(z, 1, None, t); xp.nanargmin(z, 1, k); xp.ptp(m, 0, r)
    xp.median(m, 0, r); xp.median(m, 1, None, False, True); xp.quantile(m, 0.3, 0, r); xp.nanmedian(z, 0, u)
    xp.quantile(m, [0.3, 0.7], 1, None, False, "lower", True); xp.percentile(m, 30, 0, out=r, method="hazen")
    xp.clip(m, -0.5, 0.5, o); xp.clip(v, 0.0, None, out=v); xp.round(m, 1, o); xp.around(v, 0, v); xp.dot(m, v, t)
    xp.dot(m, n.T, out=q); xp.matmul(m, n.T, q); xp.matmul(c, m.T, out=d[:, :, :3])
    xp.outer(v, v, d.reshape(-1, 4)[:4]); xp.einsum("ij,kj->ik", m, n, out=q)
    xp.einsum("ij->i", m, out=t, optimize=True); xp.trace(m, 0, 0, 1, None, e); xp.concatenate([m, n], 0, l)
    xp.concatenate([v, v], out=l[:2].reshape(-1)); xp.stack([m, n], 0, d); xp.take(v, [2, 0, 1, 1], None, r, "wrap")
    xp.take(m, [1, 5], 1, None, "clip"); xp.choose([1, 0, 1, 0], [v, i], r)
    xp.compress([True, False, True], m, 0, o[:2]); xp.identity(3, int); xp.vander(v, 3, True)
    xp.reshape(m, (4, 3), "F"); xp.linalg.norm(m, 2, 1, True); xp.linalg.svd(m, False)[1]
    xp.linalg.qr(m.T, "r").shape; xp.cross(c[..., :3], c[..., 1:], -1, 2); np.add(m, n, out=o)
    np.divide(1.0, v, out=r, where=v != 0); np.add(s, 1.0, dtype=np.float64); np.add.reduce(m)
    np.add.reduce(m, axis=1, keepdims=True); np.maximum.reduce(m, axis=None); np.add.reduce(m, 1)
    np.logical_and.reduce(m > 0, axis=1); np.multiply.accumulate(m, axis=1); np.maximum.accumulate(v)
    np.subtract.outer(v, i); np.multiply.outer(m, v); np.sum(m, axis=1, out=t); np.cumsum(v, out=r)
"""


@pytest.mark.costly
def test_as_in_numpy(device: str) -> None:
    wrong = []
    with quiet():
        for row in [row.strip() for line in ROWS.strip().splitlines() for row in line.split(";") if row.strip()]:
            theirs = {name: x.copy() for name, x in ARRAYS.items()}
            ours = {name: lg.asarray(x) for name, x in ARRAYS.items()}
            wanted = eval(row, {"xp": np, "np": np, **theirs})
            try:
                got = eval(row, {"xp": lg, "np": np, **ours})
                if isinstance(wanted, tuple):
                    assert got == wanted
                    continue
                single = np.asarray(wanted).dtype in (np.float32, np.complex64)
                check(got, wanted, rtol=3e-6 if single else 1e-11)
                for name in theirs:
                    check(ours[name], theirs[name], rtol=3e-6 if name == "f" else 1e-11)
                for name in WRITTEN:
                    assert (wanted is theirs[name]) == (got is ours[name]), name
            except Exception as error:
                wrong.append(f"{row}: {type(error).__name__} {str(error).strip()[:300]}")
    assert not wrong, "\n".join(wrong)


def test_what_a_mask_leaves_out() -> None:
    """It is 0 where there is nothing to write to, and has no derivative."""
    x = lg.asarray([0.0, 4.0])
    assert lg.log(x, where=x > 0).tolist() == [0.0, np.log(4.0)]
    assert lg.grad(lambda x: lg.sum(lg.sqrt(x, where=x > 0)))(x).tolist() == [0.0, 0.25]

    def written(x: lg.Tensor) -> lg.Tensor:
        out = 3.0 * x
        lg.multiply(x, x, out=out, where=x > 1.0)
        return lg.sum(out)

    assert lg.grad(written)(x).tolist() == [3.0, 8.0]
    assert lg.vmap(lg.grad(written))(lg.stack([x, x]))[1].tolist() == [3.0, 8.0]
    assert lg.compile(written)(x).tolist() == 16.0
    step = lambda _, y: lg.add(y, 1.0, out=lg.zeros(2), where=y > 1.0)  # noqa: E731
    assert lg.fori_loop(0, 3, step, x).tolist() == [0.0, 7.0]


def test_refusals() -> None:
    x, whole = lg.asarray([1.0, 2.0]), lg.asarray([1, 2])
    for error, call in (
        (TypeError, lambda: lg.add(x, 1.0, out=np.zeros(2))), (TypeError, lambda: lg.sum(x, out=0.0)),
        (lg.ShapeError, lambda: lg.add(x, 1.0, out=lg.zeros(3))), (lg.ShapeError, lambda: lg.sum(x, out=lg.zeros(2))),
        (lg.DTypeError, lambda: lg.add(x, 1.0, out=whole)), (lg.DTypeError, lambda: lg.sqrt(x, dtype=lg.int32)),
        (lg.DTypeError, lambda: lg.sqrt(whole, dtype=lg.int64)), (lg.DTypeError, lambda: lg.sum(x, out=whole[0, ...])),
        (lg.DTypeError, lambda: lg.add(whole, 2.5, dtype=lg.int8)), (lg.DTypeError, lambda: lg.floor(0.5, dtype=bool)),
        (ValueError, lambda: lg.add(x, 1.0, out=x, casting="odd")),
        (OverflowError, lambda: lg.minimum(whole.astype(lg.uint8), -1, dtype=lg.uint8)),
        (lg.ShapeError, lambda: lg.add(x, 1.0, where=[True, False, True])),
    ):  # fmt: skip
        with pytest.raises(error, match=r"expected .*, got .*; "):
            call()
    assert lg.add(whole.astype(lg.uint8), 2, dtype=lg.uint8).tolist() == [3, 4]
    assert lg.add(whole, 2.5, dtype=lg.int8, casting="unsafe").tolist() == [3, 4]
    assert x.tolist() == [1.0, 2.0]
    assert whole.tolist() == [1, 2]
