"""`lg.compile`, capture and replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

X = np.array([0.1, 0.2, 0.3])


def counted(f: Any) -> tuple[Any, list[int]]:
    calls: list[int] = []

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return f(*args, **kwargs)

    return lg.compile(wrapper), calls


def test_traced_once_per_kind(device: str) -> None:
    f, calls = counted(lambda x, k: lg.sin(x) * k)
    for k in (2.0, 3.0):
        check(f(lg.asarray(X), k), np.sin(X) * k)
    check(f(X, 4.0), np.sin(X) * 4)
    assert len(calls) == 1
    check(f(X[:2], 4.0), np.sin(X[:2]) * 4)
    check(f(lg.asarray(X), 2), np.sin(X) * 2)
    assert len(calls) == 3
    assert f.versions == 3
    assert "first call" in f.explain()
    assert "float64[3] -> float64[2]" in f.explain()


def test_python_numbers_stay_weak(device: str) -> None:
    f = lg.compile(lambda x, k: x * k)
    assert f(lg.asarray(X.astype(np.float32)), 2.0).dtype is lg.float32


def test_trees_in_and_out(device: str) -> None:
    f, calls = counted(lambda p, _, *, s: {"y": (p["a"] + s, [p["b"][0]]), "mode": None})
    out = f({"a": lg.asarray(X), "b": [X]}, "fast", s=1)
    check(out["y"][0], X + 1)
    check(out["y"][1][0], X)
    assert out["mode"] is None
    f({"a": X, "b": [lg.asarray(X)]}, "fast", s=5)
    assert len(calls) == 1
    f({"a": X, "b": [X]}, "slow", s=5)
    f({"a": X, "b": [X, X]}, "slow", s=5)
    assert len(calls) == 3


def test_static_arguments(device: str) -> None:
    f = lg.compile(lambda x, n: sum([x] * n), static_argnums=1)
    check(f(X, 3), X * 3)
    check(f(X, 2), X * 2)
    assert f.versions == 2
    with pytest.raises(lg.DTypeError, match="hashable"):
        lg.compile(lambda x, _: x, static_argnums=1)(X, np.ones(2))


def test_results_of_every_shape(device: str) -> None:
    x = lg.asarray(X)
    assert lg.compile(lambda: (lg.ones(2), lg.zeros(1)))()[1].tolist() == [0]
    assert lg.compile(lambda v: (v, (v + 1,)))(x)[1][0].shape == (3,)
    assert lg.compile(lambda _: 3)(x).item() == 3
    assert lg.compile(lambda _: None)(x) is None
    check(lg.compile(lambda v: v)(X), X)


def test_returned_inputs_are_copies(device: str) -> None:
    source = X.copy()
    f = lg.compile(lambda v: v)
    first, second = f(source), f(source)
    source[:] = 7
    check(first, X)
    check(second, X)


def test_captured_tensors(device: str) -> None:
    table = lg.asarray(X) * 2
    f = lg.compile(lambda i: table[i])
    assert f(lg.asarray(2)).item() == 0.6
    assert f(lg.asarray(0)).item() == 0.2


def test_decorator(device: str) -> None:
    @lg.compile
    def double(x: Any) -> Any:
        """Twice."""
        return x * 2

    assert double.__name__ == "double"
    assert double.__doc__ == "Twice."
    check(double(X), X * 2)

    @lg.compile(static_argnums=(1,))
    def power(x: Any, n: int) -> Any:
        return x**n

    check(power(X, 2), X**2)


def test_inside_other_functions(device: str) -> None:
    f = lg.compile(lambda v: (v * v).sum())
    check(lg.grad(f)(lg.asarray(X)), 2 * X)
    check(lg.compile(lambda v: f(v) + 1)(X), (X * X).sum() + 1)
    check(lg.vmap(f)(lg.asarray([X, X])), [(X * X).sum()] * 2)
    check(lg.compile(lg.value_and_grad(f))(X)[1], 2 * X)


def test_settings_are_part_of_the_key(device: str) -> None:
    f, calls = counted(lambda v: v / 3)
    f(lg.asarray([1, 2]))
    with lg.options(check_indices=True):
        f(lg.asarray([1, 2]))
    assert len(calls) == 2
    lg.set_default_dtype(lg.float32)
    try:
        assert f(lg.asarray([1, 2])).dtype is lg.float32
    finally:
        lg.set_default_dtype(lg.float64)


def test_device_of_a_compiled_function() -> None:
    f = lg.compile(lambda v: v + 1, device="interpreter")
    assert f(X).device == "interpreter"
    assert (f(X) + 1).device == "interpreter"
    with pytest.raises(ValueError, match="devices"):
        lg.compile(lambda v: v, device="nowhere")(X)


def test_looking_inside(device: str) -> None:
    f = lg.compile(lambda v: lg.sin(v) + 1)
    with pytest.raises(ValueError, match="called"):
        f.text("graph")
    assert "nothing" in f.explain()
    assert "sin" in f.text("graph", X)
    assert str(f.plan(X))
    f.memory_stats()
    f.clear()
    assert f.versions == 0


def test_errors_in_the_function_pass(device: str) -> None:
    def broken(v: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        lg.compile(broken)(X)
    with pytest.raises(lg.TracedValueError, match=r"lg\.cond"):
        lg.compile(lambda v: v if v.sum() > 0 else -v)(X)
    check(lg.compile(lambda v: -v)(X), -X)


def test_replay(device: str) -> None:
    def f(x: Any, n: Any) -> Any:
        return lg.value_and_grad(lambda v: lg.fori_loop(0, n, lambda _, w: lg.sin(w) + 0.1, v).sum())(x)

    def expected(x: Any, n: Any) -> float:
        total = 0.0
        for v, k in zip(x, n, strict=True):
            w = v
            for _ in range(k):
                w = np.sin(w) + 0.1
            total += w
        return float(total)

    n = np.array([0, 1, 3])
    recorded = lg.compile(f).capture(X, n)
    check(recorded.replay()[0], expected(X, n))
    more = np.array([9, 4, 2])
    value, gradient = recorded.replay(lg.asarray(X * 2), more)
    check(value, expected(X * 2, more))
    check(gradient, lg.grad(lambda v: f(v, more)[0])(lg.asarray(X * 2)))
    check(recorded.replay(X, n)[0], expected(X, n))
    assert recorded.stats().replays == 3
    for arguments, error in (((X[:2], n), lg.ShapeError), ((X, n * 1.0), lg.DTypeError), ((X,), lg.ShapeError)):
        with pytest.raises(error, match="replay"):
            recorded.replay(*arguments)
    check(recorded.replay()[0], expected(X, n))
