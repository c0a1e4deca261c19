"""Activations against formulas in NumPy, their derivatives against differences, dtypes and corners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import loopgrad as lg

X = np.array([-8.0, -2.7, -1.3, -0.2, 0.3, 0.9, 1.7, 2.9, 6.5])
_rate = special.expit
FORMULAS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0), "relu6": lambda x: np.clip(x, 0, 6), "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6, "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x), "elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "celu": lambda x: np.where(x < 0, np.expm1(x), x), "silu": lambda x: x * _rate(x),
    "selu": lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "soft_sign": lambda x: x / (1 + np.abs(x)),
    "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2, "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
    "sparse_plus": lambda x: np.where(x < -1, 0, np.where(x > 1, x, (x + 1) ** 2 / 4)),
    "sigmoid": _rate, "swish": lambda x: x * _rate(x), "log_sigmoid": special.log_expit, "tanh": np.tanh,
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6, "softplus": lambda x: np.logaddexp(x, 0),
    "softmax": special.softmax, "log_softmax": special.log_softmax, "logsumexp": special.logsumexp,
    "glu": lambda x: x[:4] * _rate(x[4:]), "log1mexp": lambda x: np.log(-np.expm1(-x)),
    "standardize": lambda x: (x - x.mean()) / np.sqrt(x.var() + 1e-5),
}  # fmt: skip
POINTS = {"glu": X[:8], "log1mexp": np.abs(X)}
OTHERS = {"one_hot", "dot_product_attention"}


@pytest.mark.costly
def test_as_their_formulas(device: str) -> None:
    """One evaluation for all; each function's slope against a difference of five points."""
    assert {*FORMULAS, *OTHERS} == {*lg.nn.__all__}
    values, slopes = {}, {}
    for name in FORMULAS:
        x = lg.asarray(POINTS.get(name, X))
        weights = np.cos(np.arange(x.size))
        function = getattr(lg.nn, name)

        def weighted(x: Any, f: Any = function, w: Any = weights) -> Any:
            return lg.sum((y := f(x)) * w[: y.size])

        values[name] = function(x), lg.vmap(function)(lg.stack([x, x]))[1]
        slopes[name] = lg.grad(weighted)(x), lg.jvp(weighted, (x,), (lg.ones_like(x),))[1]
    lg.eval((values, slopes))
    for name, formula in FORMULAS.items():
        x, h = POINTS.get(name, X), 1e-3
        for value in values[name]:
            np.testing.assert_allclose(np.asarray(value), formula(x), rtol=1e-12, atol=1e-15, err_msg=name)

        def weighted(x: Any, f: Any = formula) -> Any:
            return np.sum((y := f(x)) * np.cos(np.arange(x.size))[: np.size(y)])

        found = np.asarray(slopes[name][0])
        for k in range(len(x)):
            d = np.eye(len(x))[k] * h
            ends = [weighted(x + m * d) for m in (-2, -1, 1, 2)]
            wanted = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h)
            np.testing.assert_allclose(found[k], wanted, rtol=1e-7, atol=1e-8, err_msg=f"{name} {x[k]}")
        np.testing.assert_allclose(float(slopes[name][1]), found.sum(), rtol=1e-12, atol=1e-14, err_msg=name)


def test_softmax_is_over_the_last_axis_and_what_is_chosen(device: str) -> None:
    """JAX's defaults and `where`, against SciPy on what is chosen; infinities that aren't reach nothing."""
    rng = np.random.default_rng(2)
    x, chosen = rng.normal(size=(3, 4)), rng.random((3, 4)) > 0.4
    chosen[:2, 0], chosen[2] = True, False
    np.testing.assert_allclose(np.asarray(lg.nn.softmax(lg.asarray(x))), special.softmax(x, axis=-1), rtol=1e-12)
    logs = lg.nn.log_softmax(lg.asarray(x))
    np.testing.assert_allclose(np.asarray(logs), special.log_softmax(x, axis=-1), rtol=1e-12)
    filled = np.where(chosen, x, np.inf)
    for axis in (-1, 0, (0, 1)):
        wanted = np.where(chosen, np.exp(x), 0.0)
        total = wanted.sum(axis=axis, keepdims=True)
        wanted = np.divide(wanted, total, out=np.zeros_like(x), where=chosen)
        got = lg.nn.softmax(lg.asarray(filled), axis, where=lg.asarray(chosen))
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-12)
        logs = lg.nn.log_softmax(lg.asarray(filled), axis=axis, where=lg.asarray(chosen))
        np.testing.assert_allclose(np.asarray(lg.exp(logs)), wanted, rtol=1e-12)
        weights = rng.normal(size=(3, 4))
        loss = lambda t, a=axis, w=weights: lg.sum(lg.nn.softmax(t, a, lg.asarray(chosen)) * w)  # noqa: E731
        slope = lg.grad(loss)(lg.asarray(filled))
        mean = (wanted * weights).sum(axis=axis, keepdims=True)
        np.testing.assert_allclose(np.asarray(slope), wanted * (weights - mean), rtol=1e-9, atol=1e-12)
    rows = lg.nn.softmax(lg.ones(2), where=lg.asarray([[True, True], [False, True]]))
    np.testing.assert_allclose(np.asarray(rows), [[0.5, 0.5], [0.0, 1.0]], rtol=1e-14)
    with pytest.raises(lg.ShapeError):
        lg.nn.softmax(lg.ones(2), where=lg.ones(3, dtype=bool))


def test_corners() -> None:
    zero = {name: float(lg.grad(getattr(lg.nn, name))(0.0)) for name in ("relu", "relu6", "elu", "celu", "silu")}
    assert zero == {"relu": 0.0, "relu6": 0.0, "elu": 1.0, "celu": 1.0, "silu": 0.5}
    far = lg.asarray([-np.inf, -800.0, 800.0, np.inf, np.nan])
    assert lg.nn.relu(far).tolist()[:4] == [0.0, 0.0, 800.0, np.inf]
    for name in ("relu", "relu6", "elu", "gelu", "mish", "hard_tanh", "sparse_plus", "softplus"):
        assert np.isnan(float(getattr(lg.nn, name)(far)[4])), name
        slope = lg.grad(lambda x, n=name: lg.sum(getattr(lg.nn, n)(x)))(lg.asarray([-800.0, 800.0]))
        assert np.isfinite(np.asarray(slope)).all(), name
    for dtype in ("int32", "float16", "bfloat16", "float32"):
        x = lg.asarray([-1, 0, 2]).astype(getattr(lg, dtype))
        assert lg.nn.relu(x).dtype == dtype
        wanted = lg.default_dtype() if dtype == "int32" else getattr(lg, dtype)
        assert {lg.nn.gelu(x).dtype, lg.nn.elu(x).dtype, lg.nn.standardize(x).dtype} == {wanted}
    assert lg.nn.relu(lg.zeros((0, 3))).shape == (0, 3)


def test_one_hot_and_attention() -> None:
    x = lg.asarray([[0, 2], [-1, 5]])
    assert lg.nn.one_hot(x, 3, dtype=lg.int8).tolist() == [[[1, 0, 0], [0, 0, 1]], [[0, 0, 0], [0, 0, 0]]]
    for axis in (0, 1, -2):
        wanted = np.moveaxis(np.asarray(lg.nn.one_hot(x, 3)), -1, axis)
        assert np.array_equal(np.asarray(lg.nn.one_hot(x, 3, axis=axis)), wanted)
    with pytest.raises(lg.DTypeError, match="one_hot: expected"):
        lg.nn.one_hot(lg.ones(2), 3)
    draw = np.random.default_rng(0).normal
    q, k, v = draw(size=(2, 5, 4, 3)), draw(size=(2, 6, 2, 3)), draw(size=(2, 6, 2, 3))
    scores = np.einsum("bthd,bshd->bhts", q, np.repeat(k, 2, 2)) / np.sqrt(3)
    wanted = np.einsum("bhts,bshd->bthd", special.softmax(scores, -1), np.repeat(v, 2, 2))
    np.testing.assert_allclose(np.asarray(lg.nn.dot_product_attention(q, k, v)), wanted, rtol=1e-12)


def test_what_is_not_there_says_what_to_do() -> None:
    with pytest.raises(AttributeError, match=r"initializers.*rng\.normal"):
        _ = lg.nn.initializers
    with pytest.raises(AttributeError, match="no attribute 'odd'"):
        _ = lg.nn.odd
