"""Threads that share lazy tensors, one step of theirs at a time (programs/test_random_threads.py has many)."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.ambient import LIMIT
from loopgrad.graph.nodes import Leaf
from loopgrad.lazy.tensor import evaluation, new_lines, repeated_lines
from loopgrad.lazy.tensor.call_programs import CallProgram
from loopgrad.lazy.tensor.core import LIVE

X = np.array([0.1, 0.2, 0.3, 0.4])
WAYS: list[tuple[Any, str]] = [
    (evaluation, "_run"), (repeated_lines, "run_line"), (new_lines, "_settled"), (CallProgram, "run"),
]  # fmt: skip


class Paused:
    """Evaluations wait here, in the midst of computing, until they may go on."""

    def __init__(self) -> None:
        self.compute: Callable[..., Any] = lambda run, *asked: run(*asked)
        self.calls = 0
        self.inside, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def pausing(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def paused(*asked: Any) -> Any:
            self.calls += 1
            self.inside.release()
            assert self.go_on.acquire(timeout=20)
            return self.compute(run, *asked)

        return paused


@pytest.fixture(params=["new", "known"])
def paused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Paused:
    """The lines of the tests, as they run when nobody has seen them, and when they come again."""
    repeated_lines.forget()
    for factor in (2, 3) if request.param == "known" else ():
        for _ in range(3):
            (lg.asarray(X) * factor).numpy()
    found = Paused()
    for module, name in WAYS:
        monkeypatch.setattr(module, name, found.pausing(getattr(module, name)))
    return found


@contextmanager
def started(function: Callable[[], Any], results: list[Any]) -> Iterator[threading.Thread]:
    def run() -> None:
        try:
            results.append(function())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield thread
    thread.join(20)
    assert not thread.is_alive()


def test_one_thread_computes_and_the_others_take_it(paused: Paused) -> None:
    y = lg.asarray(X) * 2
    results: list[Any] = []
    with started(y.numpy, results):
        assert paused.inside.acquire(timeout=20)
        with started(y.numpy, results), started(y.numpy, results):
            paused.go_on.release()
    assert paused.calls == 1
    for found in results:
        np.testing.assert_array_equal(found, X * 2)


def test_siblings_are_computed_by_one_thread_too(paused: Paused) -> None:
    value, gradient = lg.value_and_grad(lambda x: lg.sum(x * x))(lg.asarray(X))
    results: list[Any] = []
    with started(value.numpy, results):
        assert paused.inside.acquire(timeout=20)
        with started(gradient.numpy, results):
            paused.go_on.release()
    assert paused.calls == 1
    np.testing.assert_allclose(value.numpy(), np.sum(X * X))
    np.testing.assert_allclose(gradient.numpy(), 2 * X)


def test_independent_programs_are_computed_side_by_side(paused: Paused) -> None:
    results: list[Any] = []
    with started((lg.asarray(X) * 2).numpy, results), started((lg.asarray(X) * 3).numpy, results):
        assert paused.inside.acquire(timeout=20)
        assert paused.inside.acquire(timeout=20), "both are computing"
        paused.go_on.release(2)
    assert sorted(float(r[0]) for r in results) == [0.2, 0.1 * 3]


def test_what_is_written_meanwhile_stays_written(paused: Paused) -> None:
    y = lg.asarray(X) * 2
    results: list[Any] = []
    with started(y.numpy, results):
        assert paused.inside.acquire(timeout=20)
        y[0] = 7.0
        paused.go_on.release(2)
    np.testing.assert_array_equal(results[0], X * 2)  # what it was when somebody asked
    np.testing.assert_array_equal(y, [7.0, 0.4, 0.6, 0.8])


def test_where_one_fails_the_next_computes(paused: Paused, monkeypatch: pytest.MonkeyPatch) -> None:
    y, compute = lg.asarray(X) * 2, paused.compute
    failures = [MemoryError("no room")]

    def failing(*asked: Any) -> Any:
        if failures:
            raise failures.pop()
        return compute(*asked)

    monkeypatch.setattr(paused, "compute", failing)
    results: list[Any] = []
    with started(y.numpy, results):
        assert paused.inside.acquire(timeout=20)
        with started(y.numpy, results):
            paused.go_on.release(2)
    assert paused.calls == 2
    assert isinstance(results[0], MemoryError)
    np.testing.assert_array_equal(results[1], X * 2)


def test_an_evaluation_inside_another_one_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a finalizer or a signal handler, of the very tensor that is being computed."""
    repeated_lines.forget()
    y = lg.asarray(X) * 2
    inner: list[Any] = []

    def nesting(compute: Callable[..., Any]) -> Callable[..., Any]:
        def nested(*asked: Any) -> Any:
            if not inner:
                inner.append(None)
                inner.append(y.numpy())
            return compute(*asked)

        return nested

    for module, name in WAYS:
        monkeypatch.setattr(module, name, nesting(getattr(module, name)))
    np.testing.assert_array_equal(y, X * 2)
    np.testing.assert_array_equal(inner[1], X * 2)
    assert isinstance(y._value, Leaf)


def test_a_thread_that_only_builds_forgets_what_is_gone() -> None:
    x = lg.asarray(X)
    sizes: list[int] = []

    def build() -> None:
        kept = [lg.cos(x) for _ in range(10)]
        for _ in range(3 * LIMIT):
            lg.sin(x)
            _ = x + x
        sizes.append(len(LIVE.tensors))
        held = {id(t) for r in LIVE.tensors if (t := r()) is not None}
        sizes.append(sum(id(t) in held for t in kept))

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    assert sizes[0] <= LIMIT
    assert sizes[1] == 10, "those that somebody holds stay"


def test_gradients_while_another_thread_evaluates(device: str) -> None:
    for k in range(20):
        x = lg.asarray(X + k) * 2
        loss = lg.sum(lg.sin(x))
        results: list[Any] = []
        with started(lambda x=x: lg.eval(x), results), started(lambda v=loss: lg.eval(v), results):
            (gradient,) = lg.gradients(loss, [x])
        np.testing.assert_allclose(gradient, np.cos(2 * (X + k)), rtol=1e-12)
        assert results == [None, None]
    gc.collect()
