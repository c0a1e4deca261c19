"""`lg.compile`, capture and replay."""

from __future__ import annotations

import copy
import pickle
import sys
import types
import weakref
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
    with pytest.raises(lg.StaticArgumentError, match=r"argument 1 .* array float64\[2\]"):
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


def test_numbers_are_told_from_their_classes(device: str) -> None:
    f, calls = counted(lambda x, s: x * s if not isinstance(s, type) else x.astype(s))
    check(f(X, 2.0), X * 2)
    assert f(X, float).dtype is lg.float64
    assert f(X, np.float32).dtype is lg.float32
    assert len(calls) == 3


KINDS: list[tuple[Any, ...]] = [
    (lg.asarray(X),), (X,), (2.0,), (lg.asarray(X), X, 3.0), (X.astype(np.float32), lg.ones(2)),
]  # fmt: skip


@pytest.mark.parametrize("args", KINDS, ids=len)
def test_both_ways_to_a_version_have_one_key(args: tuple[Any, ...]) -> None:
    """Calls with arrays alone make their key themselves: what `_version` traced they must find."""
    f = lg.compile(lambda *x: [v * 2 for v in x])
    lg.eval(args)
    f(*args)
    assert f._known(args, None) is not None
    with lg.options(fast_math=True):
        assert f._known(args, None) is None


def decorated(x: Any) -> Any:
    return x * 3


by_name = lg.compile(decorated)


@lg.compile
def own_name(x: Any) -> Any:
    return x * 4


def test_copies_compile_for_themselves(device: str) -> None:
    f = lg.compile(lambda x, n: x * n, static_argnums=-1)
    check(f(X, 2), X * 2)
    for made in (copy.copy(f), copy.deepcopy(f), copy.deepcopy([f])[0]):
        assert made is not f
        assert made.versions == 0
        check(made(X, 2), X * 2)
        check(made(np.array([1]), 1.0), [1.0])
    assert weakref.ref(f)() is f
    check(by_name(X), X * 3)
    made = pickle.loads(pickle.dumps(by_name))
    assert made.versions == 0
    check(made(X), X * 3)
    check(own_name(X), X * 4)
    check(copy.copy(own_name)(X), X * 4)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(f)


def test_a_decorated_function_is_pickled_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("a_users_module")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("import loopgrad as lg\n@lg.compile\ndef double(x):\n    return 2 * x\n", module.__dict__)
    check(module.double(X), X * 2)
    assert pickle.loads(pickle.dumps(module.double)) is module.double


def test_captured_calls_stay_in_their_process(device: str) -> None:
    replay = lg.compile(lambda x: x * 2).capture(X)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="capture again"):
            attempt(replay)
    check(replay(X), X * 2)


def test_a_replay_keeps_its_static_arguments(device: str) -> None:
    f = lg.compile(lambda x, n, *, mode: x * n if mode == "times" else x + n, static_argnums=1)
    replay = f.capture(X, 2, mode="times")
    check(replay(X + 1, 2, mode="times"), (X + 1) * 2)
    for n, mode in ((2.0, "times"), (2, "plus")):
        with pytest.raises(lg.StaticArgumentError, match="replay"):
            replay(X, n, mode=mode)


def test_a_write_to_a_captured_tensor_is_seen(device: str) -> None:
    w = lg.ones(3) * 1.0
    f, calls = counted(lambda x: x * w)
    check(f(X), X)
    replay = f.capture(X)
    w[0] = 7.0
    check(f(X), X * np.array([7.0, 1.0, 1.0]))
    check(f(X), X * np.asarray(w))
    assert len(calls) == 2
    assert f.versions == 1
    assert "was written to" in f.explain()
    with pytest.raises(lg.StaleCaptureError, match="capture again"):
        replay(X)
    with pytest.raises(lg.StaleCaptureError):
        replay()
    lg.eval(w)
    f(X)
    w[1] = 5.0  # of an evaluated tensor
    check(f(X), X * np.asarray(w))
    other = w.copy()
    other[2] = 1.0
    check(f(X), X * np.asarray(w))


def test_a_write_to_a_tensor_that_was_read_in_the_trace(device: str) -> None:
    w = lg.asarray(X)
    f = lg.compile(lambda x: x * w.tolist()[0])
    check(f(X), X * X[0])
    w[0] = 7.0
    check(f(X), X * 7.0)
    g = lg.compile(lambda x: lg.vmap(lambda e: e * w[1])(x))
    check(g(X), X * X[1])
    w[1] = 9.0
    check(g(X), X * 9.0)


SHAPES: list[Any] = [
    lg.zeros, lg.eye, lg.arange, lambda n: lg.ones((2, n)), lambda n: lg.ones(6).reshape((n, 2)),
    lambda n: lg.linspace(0.0, 1.0, n), lambda n: lg.ones(9)[:n], lambda n: lg.repeat(lg.ones(2), n),
    lambda n: [0 for _ in range(n)], lambda n: lg.scan(lambda c, _: (c, c), 0.0, length=n), lambda n: 1 if n else 2,
]  # fmt: skip


@pytest.mark.parametrize("make", SHAPES)
def test_numbers_that_must_be_known_name_static_argnums(make: Any) -> None:
    def fun(n: Any) -> Any:
        return make(n)

    with pytest.raises((lg.TracedValueError, lg.DTypeError), match=r"static_argnums(.|\n)*test_compile.py"):
        lg.compile(fun)(3)
    lg.compile(fun, static_argnums=0)(3)


def test_a_leaked_value_names_the_line_that_uses_it() -> None:
    kept: list[Any] = []
    lg.compile(lambda x: (kept.append(x * 2), x)[1])(X)
    with pytest.raises(lg.LeakedValueError, match=r"made at .*(.|\n)*# the use"):
        kept[0] + 1  # the use
    with pytest.raises(lg.LeakedValueError, match=r"(.|\n)*# another use"):
        lg.compile(lambda x: x + kept[0])(X)  # another use


def test_a_function_that_writes_and_returns_nothing_writes_once_a_call():
    @lg.compile
    def add_one(a):
        a += 1.0

    tensor, array = lg.zeros(3), np.zeros(3)
    lg.eval(tensor)
    for count in range(1, 4):
        assert add_one(tensor) is None
        assert add_one(array) is None
        np.testing.assert_array_equal(np.asarray(tensor), count)
        np.testing.assert_array_equal(array, count)


def test_repeated_calls_with_numbers_trees_and_keywords():
    x = lg.asarray([1.0, 2.0])
    both = lg.compile(lambda p, n=2, *, scale=1.0: p["a"] * n + p["b"][0] * scale)
    for k in (3, 4, 5):
        np.testing.assert_array_equal(np.asarray(both({"a": x, "b": [x]}, k)), np.asarray(x) * (k + 1))
        np.testing.assert_array_equal(np.asarray(both({"a": x, "b": [x]}, scale=k)), np.asarray(x) * (2 + k))
        np.testing.assert_array_equal(np.asarray(both({"a": x, "b": (x,)}, k)), np.asarray(x) * (k + 1))
    assert both.versions == 3
    small = lg.compile(lambda v, n: v + n)
    bytes_ = lg.asarray(np.array([1, 2], np.uint8))
    for k in (1, 2):
        np.testing.assert_array_equal(np.asarray(small(bytes_, k)), np.array([1, 2]) + k)
    with pytest.raises(OverflowError):
        small(bytes_, 300)
    types = [np.asarray(small(1.0, k)).dtype for k in (1, True, 1.0, 1j, 1)]
    assert types == [np.float64, np.float64, np.float64, np.complex128, np.float64]


def test_arrays_that_are_returned_are_copied_whatever_ran_before():
    first = lg.compile(lambda v: v if v.shape == (2,) else v + 1.0)
    given = np.array([1.0, 2.0])
    first(given)
    for _ in range(2):
        first(np.ones(3))
        kept = first(given)
        given += 1.0
        np.testing.assert_array_equal(np.asarray(kept), given - 1.0)


def test_empty_and_read_only_arrays_are_arguments():
    double = lg.compile(lambda v: v * 2)
    fixed = np.arange(4.0)
    fixed.flags.writeable = False
    for array in (np.zeros((0, 3)), fixed, np.array(3.0), np.arange(6.0)[::2], np.arange(3, dtype=np.int8)):
        for _ in range(2):
            np.testing.assert_array_equal(np.asarray(double(array)), array * 2)


def within(function: Any) -> dict[str, Any]:
    """What a function of a vector gives by itself, and as a part of larger programs."""
    x = lg.asarray(X)
    return {
        "by itself": function(x),
        "compiled": lg.compile(function)(x),
        "differentiated": lg.jvp(function, (x,), (x,))[0],
        "in a loop": lg.scan(lambda v, _: (v, function(v)), x, None, length=1)[1][0],
        "batched": lg.vmap(function)(lg.stack([x, x]))[1],
    }


@pytest.mark.parametrize("returned", [lambda x: (x, x), lambda x: (x * 2, x[:]), lambda x: ((y := x + 1)[1:], y)])
def test_results_are_new_arrays_within_larger_programs_too(returned):
    inner = lg.compile(returned)

    def outer(x: Any) -> Any:
        x = x * 1.0
        a, b = inner(x)
        a[...] = 9.0
        b[...] = 7.0
        return lg.concatenate([a, b, x])

    expected = [9.0] * returned(X)[0].size + [7.0] * X.size + [*X]
    for way, found in within(outer).items():
        np.testing.assert_array_equal(np.asarray(found), expected, err_msg=way)


def test_containers_of_arguments_are_the_functions_own_within_larger_programs_too():
    @lg.compile(static_argnums=1)
    def scaled(parts: dict[str, Any], n: int) -> Any:
        parts["x"] = parts["x"] * n
        parts["y"] += 1.0
        return parts["x"]

    def outer(x: Any) -> Any:
        parts = {"x": x, "y": x * 1.0}
        return lg.stack([scaled(parts, 3), parts["x"], parts["y"]])

    for way, found in within(outer).items():
        np.testing.assert_array_equal(np.asarray(found), [X * 3, X, X + 1], err_msg=way)
