"""Calls of transforms and loops that come again with users' functions: traced once where all that a function reads is
as it was, and anew where anything differs."""

from __future__ import annotations

import builtins
import functools
import math
import sys
from collections.abc import Callable, Iterator
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.tensor import repeated_calls
from loopgrad.lazy.tensor.call_programs import CallProgram

X = np.linspace(0.25, 1.0, 4)
GLOBAL = 2.0
TABLE = [1.0, 2.0]


def global_scale(v: Any) -> Any:
    return v * GLOBAL


def runs(function: Callable[[], Any], code: CodeType) -> int:
    """How often code is run meanwhile."""
    seen = []
    sys.setprofile(lambda frame, event, _: seen.append(event) if frame.f_code is code and event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(seen)


def scaled(k: Any) -> Callable[[Any], Any]:
    return lambda v: v * k


def polynomial(v: Any, *, k: float = 2.0) -> Any:
    return k * v**3 + lg.sin(v) * math.pi


CALLS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "cond": lambda x, f: lg.cond(x[0] > 0.0, f, lambda v: v - 1.0, x),
    "switch": lambda x, f: lg.switch(lg.asarray(1), [lambda v: v, f], x),
    "while": lambda x, f: lg.while_loop(lambda v: v < 10.0, lambda v: f(v) + v + 1.0, x),
    "for": lambda x, f: lg.fori_loop(0, 3, lambda i, v: f(v) + i, x),
    "scan": lambda x, f: lg.scan(lambda c, v: (f(c), {"sum": c + v}), 1.0, x),
    "map": lambda x, f: lg.map(f, x),
    "combined": lambda x, f: lg.associative_scan(lambda a, b: f(a) + b, x),
    "vmap": lambda x, f: lg.vmap(f)(x),
    "grad": lambda x, f: lg.grad(lambda v: lg.sum(f(v)))(x),
    "both": lambda x, f: lg.value_and_grad(lambda v: lg.sum(f(v)))(x),
    "hessian": lambda x, f: lg.hessian(lambda v: lg.sum(f(v)))(x),
    "jvp": lambda x, f: lg.jvp(f, (x,), (x + 1.0,)),
    "grad of a loop": lambda x, f: lg.grad(
        lambda v: lg.sum(lg.while_loop(lambda w: w < 9.0, lambda w: f(w) + w + v, v))
    )(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_that_is_as_it_was_is_not_traced_again(name: str) -> None:
    call = CALLS[name]
    made = [call(lg.asarray(X + i), scaled(2.0)) for i in range(4)]
    found = []
    assert runs(lambda: found.append(call(lg.asarray(X), scaled(2.0))), scaled(2.0).__code__) == 0
    for mine, first in zip(lg.tree.leaves(found[0]), lg.tree.leaves(made[0]), strict=True):
        np.testing.assert_array_equal(mine, first)


@pytest.mark.parametrize("name", CALLS)
def test_other_numbers_and_tensors_around_a_function_make_it_another(name: str) -> None:
    call = CALLS[name]
    for _ in range(3):
        for k in (2.0, 3, lg.asarray(2.0), lg.asarray(0.5), np.float32(2.0), np.array(1.5), np.float64(4.0)):
            mine, fresh = [lg.tree.leaves(call(lg.asarray(X), f)) for f in (scaled(k), _untold(k))]
            for a, b in zip(mine, fresh, strict=True):
                np.testing.assert_array_equal(a, b)
                assert a.dtype is b.dtype


def _untold(k: Any) -> Callable[[Any], Any]:
    """As `scaled`; an object's attribute may be anything the next time, so that it is traced each time."""
    held = SimpleNamespace(k=k)
    return lambda v: v * held.k


def test_globals_that_change_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lg.asarray(X)
    for scale in (2.0, 2.0, 2.0, 5.0, 5.0, 2.0, lg.asarray(3.0), 2):
        monkeypatch.setitem(globals(), "GLOBAL", scale)
        np.testing.assert_array_equal(lg.vmap(global_scale)(x), X * float(scale))


def test_attributes_of_modules_and_builtins_that_are_replaced_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lg.asarray(X)

    def call() -> Any:
        return lg.vmap(lambda v: lg.sin(v) * lg.linalg.norm(v) * divmod(4, 2)[0])(x)

    for place, name, other, expected in (
        (lg, "sin", lg.cos, np.cos(X) * X * 2),
        (lg, "sin", lambda v: v + 1.0, (X + 1.0) * X * 2),
        (lg.linalg, "norm", lg.cos, np.sin(X) * np.cos(X) * 2),
        (builtins, "divmod", lambda *_: (3, 0), np.sin(X) * X * 3),
    ):
        for _ in range(3):
            np.testing.assert_allclose(call(), np.sin(X) * X * 2, rtol=1e-15)
        with monkeypatch.context() as replaced:
            replaced.setattr(place, name, other)
            np.testing.assert_allclose(call(), expected, rtol=1e-15)


def test_how_an_array_lies_in_memory_is_looked_at_again() -> None:
    square = np.ones((2, 2))
    for a in (square, square, square, np.asfortranarray(square), square):
        found = lg.vmap(lambda v, a=a: v * a.strides[0])(lg.asarray(X))
        np.testing.assert_array_equal(found, X * a.strides[0])


def test_a_list_that_holds_itself_is_no_obstacle() -> None:
    numbers: list[Any] = [2.0]
    numbers.append(numbers)
    table: dict[str, Any] = {"k": 3.0}
    table["self"] = table
    for _ in range(3):
        found = lg.vmap(lambda v: v * numbers[0] * table["k"])(lg.asarray(X))
        np.testing.assert_array_equal(found, X * 6.0)


def effects() -> Iterator[tuple[Callable[[Any], Any], Callable[[], Any]]]:
    """Functions that leave a mark each time they run, and what takes the mark away and says whether it was there."""
    held = SimpleNamespace(mark=False)

    def attribute(v: Any) -> Any:
        held.mark = True
        return v * 2.0

    yield attribute, lambda: (held.mark, setattr(held, "mark", False))[0]
    yield lambda v: attribute(v) * 1.0, lambda: (held.mark, setattr(held, "mark", False))[0]
    count = 0

    def variable(v: Any) -> Any:
        nonlocal count
        count = 1
        return v * 2.0

    def counted() -> int:
        nonlocal count
        count, was = 0, count
        return was

    yield variable, counted

    def everywhere(v: Any) -> Any:
        global MARK
        MARK = 1
        return v * 2.0

    yield everywhere, lambda: globals().pop("MARK", 0)
    numbers: list[int] = []
    yield lambda v: (numbers.append(1), v * 2.0)[1], lambda: numbers and numbers.pop()
    table = {"n": 0}

    def stored(v: Any, into: dict[str, int] = table) -> Any:
        into["n"] = 1
        return v * 2.0

    yield stored, lambda: (table["n"], table.update(n=0))[0]
    array = np.zeros(1)

    def written(v: Any) -> Any:
        mine = array
        mine += 1.0
        return v * 2.0

    yield written, lambda: (array[0], array.fill(0.0))[0]

    def out(v: Any) -> Any:
        np.add(array, 1.0, out=array)
        return v * 2.0

    yield out, lambda: (array[0], array.fill(0.0))[0]

    def in_place(v: Any) -> Any:
        np.subtract(array, -1.0, array)
        return v * 2.0

    yield in_place, lambda: (array[0], array.fill(0.0))[0]

    def of_itself(v: Any) -> Any:
        of_itself.mark = True  # type: ignore[attr-defined]
        return v * 2.0

    yield of_itself, lambda: of_itself.__dict__.pop("mark", False)
    yield functools.partial(lambda log, v: (log.append(1), v * 2.0)[1], numbers), lambda: numbers and numbers.pop()
    numbered = iter([2.0] * 100)
    left = iter([2.0] * 100)
    yield lambda v: v * next(numbered), lambda: next(left) and numbered.__length_hint__() == left.__length_hint__()


def test_functions_that_do_more_than_compute_do_it_each_time() -> None:
    for number, (function, marked) in enumerate(effects()):
        for _ in range(6):
            np.testing.assert_array_equal(lg.vmap(function)(lg.asarray(X)), X * 2.0)
            assert marked(), number


def test_containers_around_a_function_count_by_what_is_in_them() -> None:
    numbers, weights = [1.0], {"w": lg.asarray(2.0)}
    for i in range(6):
        if i % 3 == 0:
            numbers[0] += 1.0
        weights["w"] = lg.asarray(float(i))
        found = lg.vmap(lambda v: v * weights["w"] + numbers[0])(lg.asarray(X))
        np.testing.assert_array_equal(found, X * i + numbers[0])


def test_elements_that_a_function_looks_at_are_looked_at_again() -> None:
    for k in (1.0, 2.0, 3.0, 4.0, 5.0):
        n = lg.asarray(k)
        np.testing.assert_array_equal(lg.vmap(lambda v: v * float(n))(lg.asarray(X)), X * k)  # noqa: B023


def test_gradients_reach_what_a_function_closes_over() -> None:
    for k in (1.0, 2.0, 3.0, 4.0):
        slope = lg.grad(lambda a: lg.sum(lg.scan(lambda c, x: (c * a, c * a * x), 1.0, lg.asarray(X))[1]))
        expected = sum(n * k ** (n - 1) * v for n, v in enumerate(X, 1))
        np.testing.assert_allclose(slope(lg.asarray(k)), expected, rtol=1e-12)
        np.testing.assert_allclose(
            lg.grad(slope)(lg.asarray(k)), sum(n * (n - 1) * k ** (n - 2) * v for n, v in enumerate(X, 1))
        )


def test_a_result_that_nobody_held_is_computed_once_for_whoever_reads_it() -> None:
    for _ in range(4):
        last, sums = lg.scan(lambda c, v: (c + v, c + v), 0.0, lg.asarray(X))
        doubled = last * 2.0
        del last
        np.testing.assert_array_equal(sums, np.cumsum(X))
        np.testing.assert_array_equal(doubled, 2.0 * np.sum(X))


def test_what_nobody_holds_of_a_calls_results_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    run = CallProgram.run
    monkeypatch.setattr(CallProgram, "run", lambda *asked: made.append(len(found := run(*asked))) or found)
    for whole in (False, False, False, False, True, True):
        results = lg.value_and_grad(lambda v: lg.sum(v * v * v))(lg.asarray(X))
        value, slope = results if whole else (results[0], None)
        del results
        np.testing.assert_allclose(value, np.sum(X**3), rtol=1e-15)
        if slope is not None:
            np.testing.assert_array_equal(slope, 3.0 * X * X)
    assert made == [1, 1, 1, 2, 2]  # from the second time on


def test_errors_come_each_time_from_the_line_that_asks() -> None:
    for _ in range(4):
        with pytest.raises(lg.DTypeError, match="a bool"):
            lg.while_loop(lambda v: v, lambda v: v + 1.0, lg.asarray(1.0))
        with pytest.raises(lg.GradientError, match="scalar loss"):
            lg.grad(lambda v: v * 2.0)(lg.asarray(X))


def test_a_function_is_found_after_many_that_came_once() -> None:
    x = lg.asarray(X)
    for number in range(repeated_calls.MOST_MISSED + 1):
        lg.vmap(scaled(1000.0 + number))(x)
    for _ in range(2):
        lg.vmap(scaled(2.0))(x)
    assert runs(lambda: lg.vmap(scaled(2.0))(x), scaled(2.0).__code__) == 0


def test_calls_with_many_operations_are_forgotten_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_calls, "MOST_REMEMBERED", 64)
    calls = repeated_calls.Calls()
    for number in range(40):
        for _ in range(3):
            found = calls.result(_powers, (lg.asarray(X), number), {})
        np.testing.assert_allclose(found, sum(X**k for k in range(1, 4)) * number, rtol=1e-12)
    assert sum(len(recipe.steps) for recipe in calls._known.values() if recipe is not None) <= 64


def _powers(x: Any, number: int) -> Any:
    total = power = x
    for _ in range(2):
        power = power * x
        total = total + power
    return total * number
