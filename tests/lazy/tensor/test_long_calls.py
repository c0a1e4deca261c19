"""Long calls that come again are one operation: with the bits of what they stand for, in lines, lists, derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.nodes import NODE, CallAttributes
from loopgrad.lazy.tensor import new_lines
from loopgrad.lazy.tensor.repeated_calls import repeated_method
from loopgrad.runtime.cpu import direct_program
from loopgrad.runtime.executable import Outgrown
from loopgrad.runtime.session import SESSION

X = np.array([0.3, 1.7, -2.4, 0.05])
TIMES = 4  # made, learned, and noted as a call


def is_call(x: Any) -> bool:
    """Whether a tensor was noted as a call."""
    return type(x._value.note[2]) is CallAttributes


def horner(xp: Any, x: Any) -> Any:
    """Many operations, which NumPy has with the same bits."""
    return xp.polyval(xp.asarray([0.5, -3.0, 0.125, 7.0, 1.5, -0.75]), x)


def test_a_long_call_is_one_operation_from_the_second_time_on() -> None:
    x = lg.asarray(X)
    each = [lg.special.j0(x) for _ in range(TIMES)]
    assert [is_call(y) for y in each] == [False, True, True, True]
    first, *others = map(np.asarray, each)
    assert all(other.tobytes() == first.tobytes() for other in others)


def test_of_calls_that_differ_in_numbers_one_is_one_operation() -> None:
    """Numbers of operations are inputs of one program; those of a call's graph are in its code, one program each."""
    x = lg.asarray(np.arange(12.0))
    with lg.options(direct=False):
        for again in range(TIMES):
            before = SESSION.compiled
            for i in range(12):
                np.testing.assert_array_equal(x.at[i].set(20.0), np.where(np.arange(12) == i, 20.0, np.arange(12.0)))
            assert SESSION.compiled - before <= (3 if again == 0 else 1)


def test_what_a_call_computes_of_numbers_alone_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (5, 6, 8):  # each with arrays that calls before have made of 25 and 75
        given = np.random.default_rng(count).normal(size=count)
        x, expected = lg.asarray(given), np.percentile(given, [25, 75])
        for k in range(TIMES):
            if count == 8 and k == TIMES - 1:
                monkeypatch.setattr("loopgrad.lazy.numpy.quantiles._quantile", None)
            np.testing.assert_allclose(lg.percentile(x, [25, 75]), expected, rtol=1e-14)
    monkeypatch.undo()
    for _ in range(TIMES):
        y = lg.median(x)
    assert len(y._value.note[2].function.nodes) < 30  # of 60: places are known
    assert float(y) == np.median(given)


LINES: dict[str, Callable[[Any, Any, float], Any]] = {
    "alone": lambda xp, x, _: horner(xp, x),
    "beside a number that changes": lambda xp, x, t: horner(xp, x * t) * t - 0.3,
    "twice": lambda xp, x, _: horner(xp, x) - horner(xp, x + 1.0) * x,
    "within itself": lambda xp, x, _: horner(xp, horner(xp, x) * 0.1),
    "of a constant": lambda xp, x, t: horner(xp, xp.zeros(4) + t) + x,
    "joined": lambda xp, x, t: xp.concatenate([horner(xp, x), x])[2:] / t,
}


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("name", LINES)
def test_lines_with_calls_give_what_numpy_gives(name: str, direct: bool) -> None:
    line = LINES[name]
    with lg.options(direct=direct):
        for k in range(6):  # noted, looked up, learned, known
            np.testing.assert_array_equal(line(lg, lg.asarray(X + k), 0.7 + k % 3), line(np, X + k, 0.7 + k % 3))


def test_a_script_that_nobody_looks_at_in_between() -> None:
    x, expected = lg.asarray(X * 0.1), X * 0.1
    for _ in range(300):
        x, expected = horner(lg, x) * 0.01 + 0.1, horner(np, expected) * 0.01 + 0.1
    np.testing.assert_array_equal(x, expected)


def test_a_list_of_calls_is_an_array() -> None:
    x = lg.asarray(np.linspace(-1.0, 1.0, 40))
    for _ in range(2):
        found = lg.stack([horner(lg, x[i]) * 2.0 for i in range(40)])
        np.testing.assert_array_equal(found, horner(np, np.asarray(x)) * 2.0)


def test_derivatives_go_through_calls() -> None:
    for _ in range(TIMES):
        x = lg.asarray(X)
        loss = lg.sum(lg.special.j0(x) * 3.0)
        (slope,) = lg.gradients(loss, [x])
        np.testing.assert_allclose(slope, -3.0 * np.asarray(lg.special.j1(x)), rtol=1e-12)


def test_a_loop_of_a_call_that_takes_too_long_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spent(direct_program.Budget):
        def spend(self, work: int) -> None:
            raise Outgrown

    a, b, x = lg.asarray([1.5, 2.0]), lg.asarray([0.5, 3.0]), lg.asarray([0.25, 0.75])
    found = []
    for k in range(7):
        if k == 5:
            monkeypatch.setattr(direct_program, "Budget", Spent)
        found.append(np.asarray(lg.special.betainc(a, b, x) * 2.0).tobytes())
    assert len({*found}) == 1


def test_methods_are_told_apart_by_their_objects() -> None:
    class Scaled:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @repeated_method
        def of(self, x: Any) -> Any:
            return lg.sin(x) * self.factor

    one, two = Scaled(2.0), Scaled(3.0)
    for _ in range(TIMES):
        x = lg.asarray(X)
        np.testing.assert_array_equal(one.of(x) * 3.0, two.of(x) * 2.0)
        assert len(one.of(x)._value.note) == NODE


def test_calls_of_leaves_are_computed_together_before_what_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    computed_first = new_lines._computed_first
    monkeypatch.setattr(
        new_lines,
        "_computed_first",
        lambda values, config: together.append(len(values)) or computed_first(values, config),
    )
    rng, same = lg.random.default_rng(5), lg.random.default_rng(5)
    for n in (3, 40):
        x, walked = lg.asarray(0.0), []
        for _ in range(n):
            x = x + rng.normal()
            walked.append(x)
        steps = [float(same.normal()) for _ in range(n)]
        np.testing.assert_array_equal(lg.stack(walked), np.cumsum(steps))
    assert together == [40]


def test_a_list_of_tensors_with_elements_of_their_own() -> None:
    each = [lg.asarray(X * k) for k in range(30)]
    found = lg.stack([horner(lg, x) + 1.0 for x in each])
    np.testing.assert_array_equal(found, [horner(np, X * k) + 1.0 for k in range(30)])


@pytest.mark.parametrize("held", [False, True])
def test_calls_that_read_what_is_noted_alike_are_computed_together_too(held: bool) -> None:
    for n in (3, 40):
        x, total, expected, kept = lg.asarray(X), lg.zeros(4), np.zeros(4), []
        for k in range(n):
            given = x * (0.1 * k + 0.3)
            total, expected = total + horner(lg, given), expected + horner(np, X * (0.1 * k + 0.3))
            kept += [given] * held
        np.testing.assert_array_equal(total, expected)
