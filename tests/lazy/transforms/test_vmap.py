"""vmap: axes, trees, loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

M = np.arange(12.0).reshape(3, 4)


def test_axes(device: str) -> None:
    m, v = lg.asarray(M), lg.asarray(np.arange(4.0))
    check(lg.vmap(lambda r: r * 2)(m), M * 2)
    check(lg.vmap(lambda r: r.sum())(m), M.sum(1))
    check(lg.vmap(lambda r: r.sum(), in_axes=1)(m), M.sum(0))
    check(lg.vmap(lambda r: r, in_axes=1)(m), M.T)
    check(lg.vmap(lambda r: r * 2, out_axes=1)(m), (M * 2).T)
    check(lg.vmap(lambda r: r * 2, in_axes=-1, out_axes=-1)(m), M * 2)
    check(lg.vmap(lambda r, w: (r * w).sum(), in_axes=(0, None))(m, v), M @ np.arange(4.0))
    check(lg.vmap(lambda _: lg.ones(2))(m), np.ones((3, 2)))
    check(lg.vmap(lambda r: (r, lg.asarray(5.0)), out_axes=(0, None))(m)[1], 5.0)
    check(lg.vmap(lg.vmap(lambda a: a * a))(m), M * M)


def test_trees_and_keywords(device: str) -> None:
    def f(p: Any, k: float, *, s: Any) -> Any:
        return {"y": p["a"] * k + p["b"] + s}

    result = lg.vmap(f, in_axes=({"a": 0, "b": None}, None))({"a": lg.asarray(M), "b": lg.ones(4)}, 2.0, s=1)
    check(result["y"], M * 2 + 2)
    result = lg.vmap(f, in_axes=(0, None))({"a": lg.asarray(M), "b": lg.asarray(M)}, 2.0, s=1)
    check(result["y"], M * 3 + 1)


def test_scalar_loops_become_lanes(device: str) -> None:
    n = lg.asarray([0, 2, 5])
    start = lg.asarray([[1.0, 2.0], [1.0, 0.0], [0.5, 0.5]])
    check(lg.vmap(lambda v, k: lg.fori_loop(0, k, lambda _, w: w * 2, v))(start, n),
          start.numpy() * np.array([[1], [4], [32]]))  # fmt: skip
    check(lg.vmap(lambda v: lg.while_loop(lambda w: w.sum() < 10, lambda w: w * 2, v))(start),
          [[4.0, 8.0], [16.0, 0.0], [8.0, 8.0]])  # fmt: skip
    check(lg.vmap(lambda v: lg.cond(v.sum() > 1, lambda w: w, lambda w: -w, v))(start),
          [[1.0, 2.0], [-1.0, 0.0], [-0.5, -0.5]])  # fmt: skip


def test_with_derivatives(device: str) -> None:
    def f(v: Any) -> Any:
        return lg.while_loop(lambda w: w < 2, lambda w: w * w + 0.5, v)

    x = np.array([0.1, 1.5, 3.0])
    lanes = lg.grad(lambda v: f(v).sum())(lg.asarray(x))
    check(lg.vmap(lg.grad(f))(lg.asarray(x)), lanes)
    check(lg.grad(lambda v: lg.vmap(f)(v).sum())(lg.asarray(x)), lanes)


def test_errors() -> None:
    x = lg.ones(3)
    with pytest.raises(lg.ShapeError, match="one extent"):
        lg.vmap(lambda a, _: a)(x, lg.ones(4))
    with pytest.raises(lg.ShapeError, match="axis to batch over"):
        lg.vmap(lambda a: a)(1.0)
    with pytest.raises(lg.ShapeError, match="in_axes"):
        lg.vmap(lambda a: a, in_axes=None)(x)
    with pytest.raises(lg.ShapeError, match="axis"):
        lg.vmap(lambda a: a, in_axes=1)(x)
    with pytest.raises(lg.ShapeError, match="share"):
        lg.vmap(lambda a: a, out_axes=None)(x)
    with pytest.raises(lg.StructureError, match=r"expected the structure \(\*, \*\), got \(0,\); give an int or None"):
        lg.vmap(lambda a, _: a, in_axes=(0,))(x, x)
    with pytest.raises(lg.DTypeError, match="tensor at"):
        lg.vmap(lambda a, _: a)(x, "text")
    with pytest.raises(lg.TracedValueError):
        lg.vmap(lambda a: a if a > 0 else -a)(x)


def test_a_size_that_no_argument_has():
    filled = lg.vmap(lambda x: x + 1.0, in_axes=None, axis_size=3)(lg.asarray([1.0, 2.0]))
    assert filled.tolist() == [[2.0, 3.0]] * 3
    named = lg.vmap(lambda d: d["a"] * d["b"], in_axes=({"a": 0, "b": None},), axis_size=2)
    assert named({"a": lg.asarray([1.0, 2.0]), "b": lg.asarray(3.0)}).tolist() == [3.0, 6.0]
    with pytest.raises(lg.ShapeError, match="axis_size: 4"):
        lg.vmap(lambda x: x, axis_size=4)(lg.ones(3))


def test_none_among_arguments_and_results_stands_for_nothing():
    """Whatever axis is named for it, as in JAX: an argument that may be left out."""
    x = lg.asarray([1.0, 2.0])
    for axes in (0, (0, None), (0, 0), (0, {"mask": None}), (0, {"mask": 0})):
        options = {"mask": None} if isinstance(axes, tuple) and isinstance(axes[1], dict) else None
        assert lg.vmap(lambda a, _: 2.0 * a, in_axes=axes)(x, options).tolist() == [2.0, 4.0]
    for axes in (0, (0, None), (0, 0)):
        found, nothing = lg.vmap(lambda a: (a, None), out_axes=axes)(x)
        assert found.tolist() == [1.0, 2.0]
        assert nothing is None
