"""Libraries of the array API standard on tensors, where they are installed: docs/interoperation.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

X = np.arange(24.0).reshape(2, 3, 4)
ROOT = Path(__file__).parents[2]


def same(got: Any, wanted: Any) -> None:
    assert isinstance(got, lg.Tensor)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-12)


def test_the_page_runs() -> None:
    """In a process of its own, as SciPy looks at the variable when it is imported."""
    page = (ROOT / "docs" / "interoperation.md").read_text()
    blocks = "\n".join(re.findall(r"```py\n(.*?)```", page, re.DOTALL))
    run = subprocess.run([sys.executable, "-c", blocks], capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr


def test_einops() -> None:
    einops, ours = pytest.importorskip("einops"), pytest.importorskip("einops.array_api")
    for function, pattern, options in (
        ("rearrange", "a b c -> (a c) b", {}), ("rearrange", "a b (c d) -> a d (b c)", {"d": 2}),
        ("repeat", "a b c -> a r b c", {"r": 3}), ("reduce", "a b c -> a c", {"reduction": "mean"}),
        ("reduce", "a b (c d) -> a c", {"d": 2, "reduction": "max"}), ("reduce", "a b c ->", {"reduction": "sum"}),
    ):  # fmt: skip
        wanted = getattr(einops, function)(X, pattern, **options)
        same(getattr(ours, function)(lg.asarray(X), pattern, **options), wanted)
    packed, shapes = ours.pack([lg.asarray(X), lg.asarray(X[:, :, 0])], "a b *")
    same(ours.unpack(packed, shapes, "a b *")[1], X[:, :, 0])
    slope = lg.grad(lambda x: lg.sum(ours.rearrange(x, "a b c -> c (a b)")[1] ** 2))(lg.asarray(X))
    assert np.count_nonzero(np.asarray(slope)) == 6


EXTRA = """
    xpx.apply_where(x > 3, (x,), lambda t: t + 1, lambda t: 2 * t); xpx.atleast_nd(x, ndim=5); xpx.cov(x[0])
    xpx.create_diagonal(x[0, 0]); xpx.isclose(x, x + 1e-9); xpx.isin(x, x[0, 0]); xpx.kron(x[0], x[1]); xpx.pad(x, 1)
    xpx.nunique(x % 5); xpx.one_hot(xp.asarray([1, 0, 2]), 3); xpx.setdiff1d(xp.reshape(x, (-1,)), x[0, 0])
    xpx.partition(x, 2)[..., 2]; xpx.argpartition(x, 2)[..., 2]; xpx.at(x)[0].add(5.0, copy=True)
    xpx.at(x)[x > 3].set(7.0, copy=True); xpx.at(x)[:, 1].multiply(2.0, copy=True)
    xpx.nan_to_num(x / x); xpx.angle(x); xpx.sinc(x / 7)
"""


def test_array_api_extra_and_compat() -> None:
    xpx, compat = pytest.importorskip("array_api_extra"), pytest.importorskip("array_api_compat")
    x = lg.asarray(X)
    for row in (r.strip() for line in EXTRA.strip().splitlines() for r in line.split(";")):
        with np.errstate(all="ignore"):
            wanted = eval(row, {"xpx": xpx, "xp": np, "x": X})
        got = eval(row, {"xpx": xpx, "xp": lg, "x": x})
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-10, err_msg=row)
    written = lg.asarray(X)
    xpx.at(written)[1].set(0.0)
    assert float(lg.sum(written[1])) == 0.0
    assert compat.array_namespace(x) is lg
    assert (compat.is_array_api_obj(x), compat.device(x), compat.size(x)) == (True, "cpu", 24)


def test_dtypes_as_xarray_asks_for_them() -> None:
    assert np.issubdtype(lg.asarray(X).dtype.type, np.floating)


def test_matplotlib() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    x, y = lg.arange(4), lg.asarray([1.0, 4.0, 2.0, 3.0])
    figure, axes = pyplot.subplots()
    for bars in (axes.bar(x, y), axes.bar(x, y, width=y / 10, bottom=y), axes.barh(x, y)):
        assert len(bars) == 4
    axes.fill_between(x, y, y + 1)
    axes.errorbar(x, y, yerr=y)
    axes.hist(y)
    axes.axvspan(y[0], y[2])
    figure.canvas.draw()
    pyplot.close(figure)


def test_dask() -> None:
    dask = pytest.importorskip("dask.array")
    dask.register_chunk_type(lg.Tensor)
    x = lg.asarray(X)
    chunks = dask.from_array(x, chunks=2)
    for call in (lambda x: x.std(), lambda x: x.var(axis=0), lambda x: x + X, lambda x: (x * x).sum(axis=1)):
        same(call(chunks).compute(), call(X))
    same((chunks + x).compute(), 2 * X)
    same((dask.from_array(X, chunks=2) * x[0, 0, 1]).compute(), X)
    same((x[:, :, 1] - chunks[:, :, 0]).compute(), np.ones((2, 3)))


def test_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    wanted, got = [xarray.DataArray(a, dims=("a", "b", "c"), coords={"c": np.arange(4.0)}) for a in (X, lg.asarray(X))]
    for call in (
        lambda x: x.interp(c=[0.5, 2.25]),
        lambda x: xarray.where(x > 3, x, 0.0),
        lambda x: x.where(x > 3, -1.0),
        lambda x: x.std("b"),
        lambda x: x.differentiate("c"),
        lambda x: x.quantile(0.3, "c"),
        lambda x: x.diff("a"),
    ):
        np.testing.assert_allclose(np.asarray(call(got).data), call(wanted).data, rtol=1e-12)


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    x, mask = lg.asarray([1.0, 4.0, 2.0]), lg.asarray([True, False, True])
    series = pandas.Series(x)
    assert series.tolist() == [1.0, 4.0, 2.0]
    assert pandas.DataFrame({"x": x, "y": 2 * x})["y"].sum() == 14.0
    assert series[np.asarray(mask)].tolist() == [1.0, 2.0]
    assert lg.asarray(series + x).tolist() == [2.0, 8.0, 4.0]


ESTIMATORS = """
    preprocessing.StandardScaler().fit_transform(x); preprocessing.normalize(x)
    linear_model.Ridge(solver="svd").fit(x, y).coef_
    decomposition.PCA(2, svd_solver="full").fit(x).explained_variance_; metrics.r2_score(y, y * 1.1)
    linear_model.LogisticRegression().fit(x, c).predict(x); metrics.pairwise.rbf_kernel(x); metrics.roc_auc_score(c, y)
    model_selection.cross_val_score(linear_model.Ridge(solver="svd"), x, y)
"""


def test_scikit_learn() -> None:
    """In a process of its own, as SciPy looks at the variable when it is imported."""
    pytest.importorskip("sklearn")
    rows = [row.strip() for line in ESTIMATORS.strip().splitlines() for row in line.split(";")]
    program = f"""
import numpy as np, loopgrad as lg, sklearn
from sklearn import decomposition, linear_model, metrics, model_selection, preprocessing
sklearn.set_config(array_api_dispatch=True)
x = np.random.default_rng(0).normal(size=(30, 3))
y = x @ np.array([1.0, -2.0, 0.5]) + 0.1
arrays = {{"x": x, "y": y, "c": (y > 0).astype(np.int64)}}
tensors = {{name: lg.asarray(a) for name, a in arrays.items()}}
for row in {rows!r}:
    wanted = eval(row, globals() | arrays)
    np.testing.assert_allclose(np.asarray(eval(row, globals() | tensors)), wanted, rtol=1e-6, err_msg=row)
"""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False, env=environment
    )
    assert run.returncode == 0, run.stderr
