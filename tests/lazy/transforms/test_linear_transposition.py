"""`lg.linear_transpose` against inner products and against the transposed matrix."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

A = np.random.default_rng(0).standard_normal((3, 4))
STRUCT = lg.ShapeDtypeStruct

LINEAR = {
    "product": lambda x: lg.asarray(A) @ x,
    "movement": lambda x: lg.concat([x[1:] * 2.0, lg.flip(x)]),
    "loop": lambda x: lg.fori_loop(0, 3, lambda i, v: lg.roll(v, 1) * (i + 2.0) - v, x),
    "scan": lambda x: lg.scan(lambda c, v: (c + v, 3.0 * c), 0.0 * x[0], x),
    "total": lambda x: {"total": lg.cumsum(x), "part": (x[0],)},
}


@pytest.mark.parametrize("name", LINEAR)
def test_inner_products(name: str, device: str) -> None:
    f, random = LINEAR[name], np.random.default_rng(1)
    x = random.standard_normal(4)
    y = f(lg.asarray(x))
    cotangent = lg.tree.map(lambda t: lg.asarray(random.standard_normal(t.shape)), y)
    (turned,) = lg.linear_transpose(f, STRUCT((4,), lg.float64))(cotangent)
    left = sum(np.vdot(a, b) for a, b in zip(lg.tree.leaves(cotangent), lg.tree.leaves(y), strict=True))
    check(np.vdot(turned, x), left)


def test_more_primals_and_dtypes(device: str) -> None:
    f = lg.linear_transpose(lambda p, y: p["a"] - 2 * y, {"a": STRUCT((2,), "float32")}, np.ones(2, np.float32))
    first, second = f(np.array([1.0, 3.0], np.float32))
    check(first["a"], np.array([1.0, 3.0], np.float32))
    check(second, np.array([-2.0, -6.0], np.float32))
    (unread,) = lg.linear_transpose(lambda _: lg.zeros(2), 1.0)(lg.ones(2))
    check(unread, 0.0)
    matrix = lg.vmap(lg.linear_transpose(lambda x: lg.asarray(A) @ x, STRUCT((4,), lg.float64)))(lg.eye(3))[0]
    check(matrix, A)


def test_what_is_refused() -> None:
    for f in (lambda x: x * x, lg.sin, lambda x: lg.while_loop(lambda v: v < 9.0, lambda v: v * x, x)):
        with pytest.raises(lg.GradientError, match="a linear function"):
            lg.linear_transpose(f, 1.0)(1.0)
    with pytest.raises(lg.GradientError, match="float dtypes"):
        lg.linear_transpose(lambda x: x, 1)
    with pytest.raises(lg.ShapeError):
        lg.linear_transpose(lambda x: 2 * x, lg.ones(2))(lg.ones(3))
