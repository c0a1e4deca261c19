"""Derivatives of functions: wiring, trees, errors. (The rules themselves are tested in tests/autodiff.)"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

X = np.array([0.1, 0.2, 0.3])


def iterate(x: Any) -> Any:
    """A loop whose trip count depends on data, per lane."""
    return lg.while_loop(lambda v: v < 2, lambda v: v * v + 0.5, x).sum()


def test_the_jacobian_of_one_number_is_its_gradient() -> None:
    """Of a single result there is no batch, in which lanes would run to the end of the longest."""
    x = lg.asarray(X)
    assert [lg.compile(f).text("kernel", x) for f in (lg.jacrev(iterate), lg.hessian(iterate))] == [
        lg.compile(f).text("kernel", x) for f in (lg.grad(iterate), lg.jacfwd(lg.grad(iterate)))
    ]
    check(lg.jacrev(lambda v: (v * v).sum().reshape(1, 1))(x), 2 * X[None, None])
    check(lg.jacrev(lambda v: (v[:0], v[0] ** 2))(x)[0], np.zeros((0, 3)))


def central(f: Any, x: np.ndarray, h: float = 1e-6) -> np.ndarray:
    result = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        result[i] = (float(f(lg.asarray(up))) - float(f(lg.asarray(down)))) / (2 * h)
    return result


def test_grad(device: str) -> None:
    x = lg.asarray(X)
    check(lg.grad(lambda v: (v * v).sum())(x), 2 * X)
    check(lg.grad(iterate)(x), central(iterate, X), rtol=1e-6)
    value, gradient = lg.value_and_grad(iterate)(x)
    check(value, float(iterate(x)))
    check(gradient, lg.grad(iterate)(x))


def test_argnums_trees_and_aux(device: str) -> None:
    def f(p: Any, k: Any, *, shift: float) -> Any:
        return (p["w"] * k).sum() + p["b"] * shift, {"seen": k * 2}

    p = {"w": lg.asarray(X), "b": 2.0}
    gradient, aux = lg.grad(f, has_aux=True)(p, lg.asarray(X), shift=3.0)
    check(gradient["w"], X)
    assert gradient["b"].item() == 3
    check(aux["seen"], 2 * X)
    (value, aux), both = lg.value_and_grad(f, argnums=(0, 1), has_aux=True)(p, lg.asarray(X), shift=1.0)
    check(value, (X * X).sum() + 2)
    check(both[1], X)
    check(lg.grad(lambda a, b: (a * b).sum(), argnums=-1)(lg.asarray(X), lg.ones(3)), X)


def test_dataclasses_as_arguments(device: str) -> None:
    @dataclasses.dataclass
    class Parameters:
        a: Any
        b: Any

    gradient = lg.grad(lambda p: (p.a * p.a).sum() + p.b)(Parameters(lg.asarray(X), 1.0))
    assert isinstance(gradient, Parameters)
    check(gradient.a, 2 * X)


def test_what_the_result_does_not_depend_on(device: str) -> None:
    check(lg.grad(lambda a, _: (a * 2).sum(), argnums=(0, 1))(lg.asarray(X), lg.asarray(X))[1], np.zeros(3))
    check(lg.grad(lambda _: lg.asarray(1.0))(lg.asarray(X)), np.zeros(3))
    check(lg.grad(lambda a: lg.stop_gradient(a).sum())(lg.asarray(X)), np.zeros(3))


def test_dtypes_of_gradients(device: str) -> None:
    x = lg.asarray(X.astype(np.float32))
    assert lg.grad(lambda v: (v * v).sum())(x).dtype is lg.float32
    assert lg.grad(lambda v: v.astype(lg.float64).sum())(x).dtype is lg.float32
    assert lg.grad(lambda v: v * x[0])(2.0).dtype in (lg.float32, lg.float64)


def test_vjp_and_jvp_agree(device: str) -> None:
    def f(x: Any, y: Any) -> Any:
        return {"a": lg.sin(x) * y, "n": (x > 0).astype(lg.int32)}, lg.cumsum(y)

    x, y = lg.asarray(X), lg.asarray(X + 1)
    out, pull = lg.vjp(f, x, y)
    seeds = {"a": lg.asarray([1.0, 2.0, 3.0]), "n": lg.zeros(3)}, lg.asarray([0.5, 0.25, 1.0])
    gx, gy = pull(seeds)
    primal, tangent = lg.jvp(f, (x, y), (lg.ones(3), lg.asarray(X)))
    check(primal[1], out[1])
    left = (gx * lg.ones(3)).sum() + (gy * lg.asarray(X)).sum()
    right = (tangent[0]["a"] * seeds[0]["a"]).sum() + (tangent[1] * seeds[1]).sum()
    check(left, right)
    assert tangent[0]["n"].tolist() == [0, 0, 0]
    value, push = lg.linearize(f, x, y)
    check(push(lg.ones(3), lg.asarray(X))[1], tangent[1])
    check(value[1], out[1])


def test_jacobians(device: str) -> None:
    x = lg.asarray(X)
    matrix = np.arange(6.0).reshape(2, 3)
    for jacobian in (lg.jacrev, lg.jacfwd):
        check(jacobian(lambda v: lg.asarray(matrix) @ v)(x), matrix)
        check(jacobian(lambda v: v * v[::-1])(x), np.diag(X[::-1]) + np.fliplr(np.diag(X)))
        check(jacobian(iterate)(x), lg.grad(iterate)(x))
        tree = jacobian(lambda v, w: {"p": v * w}, argnums=(0, 1))(x, lg.asarray(2.0))
        check(tree["p"][0], np.eye(3) * 2)
        check(tree["p"][1], X)
        check(jacobian(lambda m: m.sum(axis=0))(lg.ones((2, 3))), np.repeat(np.eye(3)[:, None], 2, axis=1))


def test_second_order(device: str) -> None:
    def f(v: Any) -> Any:
        return (v**3).sum() * v[0]

    x = lg.asarray(X)
    expected = np.diag(6 * X * X[0])
    expected[0] += 3 * X**2
    expected[:, 0] += 3 * X**2
    check(lg.hessian(f)(x), expected)
    check(lg.jacrev(lg.grad(f))(x), expected)
    check(lg.hvp(f, x, lg.ones(3)), expected.sum(1))
    check(lg.hvp(lambda a, b: (a * a * b).sum(), (x, x), (lg.ones(3), lg.zeros(3)))[1], 2 * X)
    check(lg.grad(lambda v: lg.grad(iterate)(v).sum())(x), lg.hessian(iterate)(x).sum(axis=0), rtol=1e-9)


def test_values_may_be_read_while_differentiating(device: str) -> None:
    def f(v: Any) -> Any:
        w = v * v
        if w[0] > 0.5:
            return w.sum()
        repr(w)
        return (w * 3).sum()

    check(lg.grad(f)(lg.asarray(X)), 6 * X)


ERRORS: list[tuple[Any, str]] = [
    (lambda x: lg.grad(lambda v: v)(x), r"scalar loss, got float64\[3\]"),
    (lambda x: lg.grad(lambda v: (v, v))(x), "scalar loss"),
    (lambda x: lg.grad(lambda _: None)(x), "scalar loss"),
    (lambda x: lg.grad(lambda v: (v > 0).sum())(x), "float loss"),
    (lambda _: lg.grad(lambda v: v.sum())(lg.arange(3)), "float dtype"),
    (lambda _: lg.grad(lambda v: v)(3), "float dtype"),
    (lambda _: lg.grad(lambda v: v)("x"), "float tensors"),
    (lambda x: lg.grad(lambda v: v.sum(), argnums=1)(x), "argnums"),
    (lambda x: lg.grad(lambda v: v.sum(), has_aux=True)(x), "has_aux"),
    (lambda x: lg.grad(lambda u, v: (u * v).sum(), argnums=(0, -2))(x, x), "each argument once"),
    (lambda x: lg.grad(lambda v: v.sum(), argnums=0.0)(x), "argnums"),
    (lambda x: lg.vjp(lambda v: v, x)[1](lg.ones(2)), "float64"),
    (lambda x: lg.vjp(lambda v: (v, v), x)[1](x), "structure"),
    (lambda x: lg.jvp(lambda v: v, (x,), (lg.ones(2),)), "float64"),
    (lambda x: lg.jvp(lambda v: v, x, x), "tuples"),
    (lambda x: lg.jvp(lambda v: v, (x,), (x, x)), "tangents"),
    (lambda x: lg.vjp(lambda v: v.astype(lg.float32), x)[1](lg.ones(3)), "astype"),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case: int) -> None:
    attempt, text = ERRORS[case]
    with pytest.raises(TypeError if case not in (11, 13) else ValueError, match=text) as caught:
        attempt(lg.asarray(X))
    assert "test_derivatives.py" in str(caught.value)


def test_an_error_in_the_function_leaves_nothing_behind(device: str) -> None:
    def broken(v: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        lg.grad(broken)(lg.asarray(X))
    x = lg.asarray(X) * 2
    x.numpy()
    assert "mul" not in lg.to_text(x + 1).split("add")[0] or x.tolist()


def test_what_comes_beside_a_result(device: str) -> None:
    """`has_aux`, with JAX's order of results."""

    def f(x, y):
        return x**2 * y, {"y": y, "mean": lg.mean(x)}

    x, y = lg.asarray(X), lg.asarray(2.0)
    for transform in (lg.jacfwd, lg.jacrev):
        matrix, aux = transform(f, has_aux=True)(x, y)
        check(matrix, np.diag(4 * X))
        check(aux["mean"], X.mean())
        (_, by_y), aux = transform(f, (0, 1), has_aux=True)(x, y)
        check(by_y, X**2)
        check(aux["y"], 2.0)
    second, aux = lg.hessian(lambda x: (lg.sum(x**3), x[0]), has_aux=True)(x)
    check(second, np.diag(6 * X))
    check(aux, X[0])
    _, push, aux = lg.linearize(lambda x: (x**2, lg.sum(x)), x, has_aux=True)
    check(push(lg.ones(len(X))), 2 * X)
    check(aux, X.sum())
    with pytest.raises(lg.GradientError, match="has_aux"):
        lg.jacrev(lambda x: x, has_aux=True)(x)


def test_integers_among_arguments(device: str) -> None:
    p = {"w": lg.asarray(X), "step": lg.asarray([1, 2]), "on": lg.asarray(True)}

    def loss(p):
        return lg.sum(p["w"] ** 2) * p["step"][1]

    value, slope = lg.value_and_grad(loss, allow_int=True)(p)
    check(value, 2 * np.sum(X**2))
    check(slope["w"], 4 * X)
    check(slope["step"], np.zeros(2, np.int64))
    check(slope["on"], np.False_)
    check(lg.grad(lambda n: 2.0 * n, allow_int=True)(3), 0)
    with pytest.raises(lg.GradientError, match=r"'on'.*allow_int=True gives it zeros"):
        lg.grad(loss)(p)
    with pytest.raises(lg.GradientError, match="leave it out of argnums"):
        lg.jacrev(loss)(p)


def test_texts_in_trees_are_left_alone_where_their_field_says_so():
    def layer(**more):
        name = ("name", str, dataclasses.field(default="first", **more))
        return dataclasses.make_dataclass("layer", ["w", name])(lg.asarray(3.0))

    def square(a):
        return a.w * a.w

    with pytest.raises(lg.GradientError, match=r"argument 0\.name .*got 'first'.*static"):
        lg.grad(square)(layer())
    slope = lg.grad(square)(layer(metadata={"static": True}))
    check(slope.w, 6.0)
    assert slope.name == "first"


def test_hessians_of_results_of_any_shape():
    x = lg.asarray([1.0, 2.0])
    np.testing.assert_allclose(lg.hessian(lambda x: x**3)(x), 6.0 * np.eye(2)[:, :, None] * np.diag([1.0, 2.0]))
    both = {"a": x, "b": lg.asarray([1.0, 2.0, 3.0])}
    found = lg.hessian(lambda d: {"c": d["a"] ** 2 * lg.sum(d["b"])})(both)["c"]
    np.testing.assert_allclose(found["a"]["b"], np.diag([2.0, 4.0])[:, :, None] * np.ones(3))
    np.testing.assert_allclose(found["b"]["b"], np.zeros((2, 3, 3)))
