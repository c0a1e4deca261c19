"""Calls in a row of one compiled function, like each other or nearly: each gives what the function itself gives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.tensor.errors import StaticArgumentError
from loopgrad.lazy.tensor.trees import flatten
from loopgrad.lazy.transforms.compile import Compiled
from loopgrad.lazy.transforms.latest_call import LatestCall
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.mesh.device import MeshDevice, MeshExecutable, numbers_of

A, B = np.arange(1.0, 4.0), np.array([0.5, -2.0, 7.0])


def total(x: Any, y: Any = 1.0, *, k: Any = 2.0) -> Any:
    """Takes numbers, arrays, pairs and dicts of them."""
    parts = flatten((x, y, k))[0]
    result = parts[0] * 2.0
    for i, part in enumerate(parts[1:]):
        result = result * 0.5 + part * (i + 1.0)
    return {"result": result, "first": parts[0]}


def numbers(tree: Any) -> list[Any]:
    return [np.asarray(x) for x in flatten(tree)[0]]


@pytest.fixture
def interpreted() -> Iterator[None]:
    """Nothing is compiled to machine code."""
    with lg.default_device("interpreter"):
        yield


def calls() -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Fresh arguments of many kinds; what is written to one doesn't reach another."""
    a, b = lg.asarray(A), lg.asarray(B)
    element = lg.asarray(A)[1:2].reshape(())
    return {
        "tensors": ((a, b), {}),
        "one": ((a,), {}),
        "a keyword": ((a, b), {"k": b}),
        "a pair": (((a, b),), {}),
        "two pairs": (((a, b), (b, a)), {}),
        "a list": (([a, b],), {}),
        "dicts": (({"x": a, "y": b},), {"k": 3.0}),
        "other keys": (({"x": a, "z": b},), {"k": 3.0}),
        "arrays": ((A.copy(), B.copy()), {}),
        "not in a row": ((np.arange(6.0)[::2], B.copy()), {}),
        "narrow": ((lg.asarray(A, dtype=lg.float32), b), {}),
        "a number": ((a, 2.5), {}),
        "an integer": ((a, 3), {}),
        "a bool": ((a, True), {}),
        "to be computed": ((a + 1.0, b * 2.0), {}),
        "weak": ((lg.asarray(A, dtype=lg.float32), lg.compile(lambda n: n)(2)), {}),
        "without axes": ((a, element), {}),
        "a number that is a tensor": ((a, lg.sum(b)), {}),
        "an array without axes": ((a, np.array(2.0)), {}),
        "NumPy's number": ((a, np.float64(2.0)), {}),
        "other lengths": ((lg.asarray(A[:2]), lg.asarray(B[:2])), {}),
        "empty": ((lg.asarray(A[:0]), lg.asarray(B[:0])), {}),
        "elsewhere": ((lg.to_device(a, "cpu"), b), {}),
    }


def test_calls_of_all_kinds_after_each_other(interpreted: None) -> None:
    f = lg.compile(total)
    expected = {name: numbers(total(*args, **kwargs)) for name, (args, kwargs) in calls().items()}
    order = [*permutations(expected, 2)]
    given = calls()
    for pair in order[::3]:
        for name in pair * 2:
            args, kwargs = given[name]
            for want, got in zip(expected[name], numbers(f(*args, **kwargs)), strict=True):
                assert (got.dtype, got.shape) == (want.dtype, want.shape), (pair, name)
                np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=str((pair, name)))


def test_most_calls_are_like_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    given = calls()
    known = Compiled._version
    monkeypatch.setattr(Compiled, "_version", lambda self, *asked: looked.append(name) or known(self, *asked))
    monkeypatch.setattr(Compiled, "_known", lambda *_: None)
    for name in ("tensors", "a keyword", "two pairs", "dicts", "a number", "a number that is a tensor"):
        f = lg.compile(lambda *args, **kwargs: total(*args, **kwargs)["result"])
        args, kwargs = given[name]
        lg.eval(args)
        for _ in range(3):
            f(*args, **kwargs)
    assert len(looked) == len(set(looked)), looked


def test_numbers_and_arrays_of_a_meshs_calls_are_inputs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number is one that all processes must have given, in memory that nobody writes to again."""
    mesh = lg.mesh()
    lanes = lg.shard(A, mesh)
    monkeypatch.setattr(get_device(mesh.device), "_meets", True)  # as with others, who compare numbers
    f = lg.compile(lambda x, y, k, n: (lg.sum(x * y) * k + n, x * k))
    given = [(B.copy() + i, 0.5 * i, 3 - i) for i in range(4)]
    f(lanes, *given[0])
    seen: list[list[Any]] = []
    run = MeshExecutable.run
    monkeypatch.setattr(MeshDevice, "put", lambda *_: pytest.fail("copied"))
    monkeypatch.setattr(MeshExecutable, "run", lambda self, given: seen.append(numbers_of(given)) or run(self, given))
    for y, k, n in given:
        total, product = f(lanes, y, k, n)
        assert total.device == mesh.device
        np.testing.assert_allclose(total, np.sum(A * y) * k + n, rtol=1e-14)
        np.testing.assert_array_equal(lg.gather_all(product), A * k)
    assert seen[: len(given)] == [[np.array(k), np.array(n)] for _, k, n in given]


def test_settings_and_what_is_closed_over_count() -> None:
    scale = lg.asarray([2.0])
    f = lg.compile(lambda x: x * scale)
    x = lg.asarray(A)
    for n in range(1, 4):
        for _ in range(2):
            np.testing.assert_array_equal(f(x), A * 2.0 * n)
        with lg.options(check_indices=True):
            np.testing.assert_array_equal(f(x), A * 2.0 * n)
        with lg.default_device("interpreter"):
            y = f(x)
            assert y.device == "interpreter"
            np.testing.assert_array_equal(y, A * 2.0 * n)
        assert f(x).device == "cpu"
        scale[0] = 2.0 * (n + 1)
    f.clear()
    np.testing.assert_array_equal(f(x), A * 8.0)


def test_what_is_borrowed_is_neither_kept_nor_written_to() -> None:
    same = lg.compile(lambda x, y: (x, x + y))
    for n in range(3):
        a = A + n
        kept, _ = same(a, B)
        a[:] = -1.0
        np.testing.assert_array_equal(kept, A + n)

    def writing(x: Any, y: Any) -> Any:
        x += y
        return x * 2.0

    write = lg.compile(writing)
    a = A.copy()
    for n in range(1, 4):
        np.testing.assert_array_equal(write(a, B), 2.0 * (A + n * B))
        np.testing.assert_array_equal(a, A + n * B)


def test_derivatives_see_through(monkeypatch: pytest.MonkeyPatch) -> None:
    f = lg.compile(lambda x: lg.sum(x * x))
    x = lg.asarray(A)
    f(x)
    monkeypatch.setattr(LatestCall, "inputs", lambda *_: pytest.fail("a derivative is being taken"))
    np.testing.assert_array_equal(lg.grad(f)(x), 2.0 * A)


def test_arguments_that_the_user_put_on_a_device_choose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are held against the latest call as others are; results stay there, and where nobody chose they don't."""
    f = lg.compile(lambda x, y: x * 2.0 + y)
    a, b = lg.asarray(A), lg.asarray(B)
    there, other = lg.asarray(A, device="interpreter"), lg.asarray(B, device="interpreter")
    wanted = 2.0 * A + B
    known: list[bool] = []
    usual = LatestCall.inputs

    def watched(latest: LatestCall, *arguments: Any) -> Any:
        found = usual(latest, *arguments)
        known.append(found is not None)
        return found

    monkeypatch.setattr(LatestCall, "inputs", watched)
    for x, y in ((there, other), (there, other), (a, b), (there, b), (there, other), (a, b), (a, b)):
        found = f(x, y)
        np.testing.assert_array_equal(np.asarray(found), wanted)
        assert found.device == ("cpu" if x is a else "interpreter")
        assert found._value.committed == (x is there)
    assert known[0] is known[-1] is True
    assert False in known
    with pytest.raises(ValueError, match="interpreter"):
        f(there, lg.asarray(B, device="cpu"))


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that a key was made for."""
    found: list[Any] = []
    usual = Compiled._version
    monkeypatch.setattr(Compiled, "_version", lambda self, *given: found.append(given) or usual(self, *given))
    return found


def test_static_arguments_that_are_equal_make_a_call_like_the_latest(looked_up: list[Any]) -> None:
    def scaled(x: Any, k: Any, way: Any = "times") -> Any:
        return x * k if way == "times" else x + k

    x = lg.asarray(A)
    f = lg.compile(scaled, static_argnums=1, static_argnames="way")
    for k, way in ((2, "times"), (2, "plus"), (3, "plus"), (1, "times"), (True, "times"), (2.5, "times"), (2, "times")):
        np.testing.assert_array_equal(f(x, k, way=way), scaled(A, k, way))
        looked_up.clear()
        np.testing.assert_array_equal(f(x, k, way=way), scaled(A, k, way))
        assert bool(looked_up) == (type(k) is float)  # zeros have signs, and NaN isn't itself
    looked_up.clear()
    assert f(x, True).dtype is f(x, 1).dtype is lg.float64
    assert len(looked_up) == 2, "an int is none of a bool's"
    with pytest.raises(StaticArgumentError):
        f(x, np.ones(2))
    g = lg.compile(lambda p, k: p["x"] * k + p["y"], static_argnums=1)
    for _ in range(3):
        np.testing.assert_array_equal(g({"x": x, "y": x}, 3), A * 3 + A)
    np.testing.assert_array_equal(g({"x": 2.0, "y": x}, 3), 6.0 + A)


def test_a_tensor_that_waits_is_computed_for_a_call_like_the_latest(looked_up: list[Any]) -> None:
    x = lg.asarray(A)
    f = lg.compile(lambda a, b: a * 2.0 + b)
    f(x, x)
    looked_up.clear()
    for k in range(4):
        waiting = x * (1.5 + k)
        np.testing.assert_array_equal(f(waiting, x), A * (1.5 + k) * 2.0 + A)
        np.testing.assert_array_equal(waiting, A * (1.5 + k))
        slope = lg.grad(lambda v, k=k: lg.sum(f(v * (1.5 + k), v)))(x)
        np.testing.assert_array_equal(slope, np.full(3, 2.0 * (1.5 + k) + 1.0))
    assert not looked_up
    np.testing.assert_array_equal(f(x * 3.0, x + 1.0), A * 6.0 + A + 1.0)  # both in one program
    np.testing.assert_array_equal(f(lg.asarray(A, dtype=lg.float32) * 3.0, x), A * 6.0 + A)
    assert len(looked_up) == 2


def test_replays_of_trees_take_other_leaves() -> None:
    x, y = lg.asarray(A), lg.asarray(B)
    replayed = lg.compile(lambda p, *, k: {"z": p["a"] * 2.0 + p["b"][0], "k": k}).capture({"a": x, "b": [y]}, k=x)
    for a, b, k in ((x, y, x), (y, x, y), (x * 1.0, y, x)):
        found = replayed({"b": [b], "a": a}, k=k)
        np.testing.assert_array_equal(found["z"], np.asarray(a) * 2.0 + np.asarray(b))
        np.testing.assert_array_equal(found["k"], k)
    with pytest.raises(lg.ShapeError):
        replayed({"a": x[:2], "b": [y]}, k=x)
