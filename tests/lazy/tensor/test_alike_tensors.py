"""Lists of tensors that are asked for one after the other are computed together, to the bits of each alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.nodes import Leaf
from loopgrad.lazy.tensor import alike_tensors, evaluation, repeated_lines

X = np.linspace(0.1, 2.0, 40)
M = np.arange(120.0).reshape(40, 3)


class Given(NamedTuple):
    """lg or NumPy, a vector and a matrix."""

    xp: Any
    x: Any
    m: Any


PIECES: dict[str, Callable[[Given, int], Any]] = {
    "elements": lambda g, i: g.x[i] * 2.5 - 1.0,
    "of numbers": lambda g, i: (g.x[i] + i) * (1.0 + 0.1 * i) - g.m[0, 0],
    "functions": lambda g, i: g.xp.sqrt(g.x[i]) * g.x[39 - i],
    "rows": lambda g, i: g.m[i] * g.x[i] + 0.5,
    "comparisons": lambda g, i: (g.x[i] < 1.0) & (g.m[i, 1] > 3.0),
    "whole numbers": lambda g, i: g.xp.astype(g.m[i], np.int32) + i,
    "sums, which stay apart": lambda g, i: g.xp.sum(g.m[i] * g.x[i]),
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that run, by the way that they take."""
    found: list[str] = []

    def counted(module: Any, name: str) -> None:
        run = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *asked: found.append(name) or run(*asked))

    counted(evaluation, "_run")
    counted(repeated_lines, "run_line")
    counted(alike_tensors, "evaluate_graph")
    return found


@pytest.mark.parametrize("name", PIECES)
def test_lists_are_what_numpy_makes_of_each(name: str, runs: list[str]) -> None:
    piece = PIECES[name]
    for scale in (1.0, 1.5):
        expected = [piece(Given(np, X * scale, M), i) for i in range(40)]
        runs.clear()
        x, m = lg.asarray(X * scale), lg.asarray(M)
        listed = [piece(Given(lg, x, m), i) for i in range(40)]
        got = np.array([np.asarray(t) for t in listed])
        assert got.dtype == np.array(expected).dtype
        np.testing.assert_allclose(got, np.array(expected), rtol=1e-15)
        assert all(isinstance(t._value, Leaf) for t in listed)
        assert ("evaluate_graph" in runs) is (name != "sums, which stay apart")
        alone = [np.asarray(piece(Given(lg, x, m), i)) for i in (3, 39)]
        assert [a.tobytes() for a in alone] == [got[i].tobytes() for i in (3, 39)]
    if "evaluate_graph" in runs:
        assert len(runs) < 20, runs


def test_each_list_of_a_loop_is_computed_together(runs: list[str]) -> None:
    x = lg.asarray(X)
    for again in range(8):
        runs.clear()
        got = np.array([x[i] * 2.75 + again for i in range(40)])
        np.testing.assert_array_equal(got, X[:40] * 2.75 + again)
        assert len(runs) < 15, again


def test_lists_that_are_evaluated_at_once_are_arrays_each(runs: list[str]) -> None:
    x = lg.asarray(X)
    for again in range(2):
        listed, others = [x[i] * 2.25 + again for i in range(40)], [lg.sqrt(x[i]) for i in range(40)]
        total, reader = lg.sum(x), listed[3] + others[4]
        runs.clear()
        lg.eval(listed, {"others": others}, total)
        assert runs.count("evaluate_graph") == 2
        assert all(isinstance(t._value, Leaf) for t in (*listed, *others, total))
        np.testing.assert_array_equal([float(t) for t in listed], X * 2.25 + again)
        np.testing.assert_array_equal([float(t) for t in others], np.sqrt(X))
        np.testing.assert_array_equal(reader, X[3] * 2.25 + again + np.sqrt(X[4]))
        np.testing.assert_allclose(total, X.sum(), rtol=1e-15)


def test_what_reads_them_and_what_is_written_stays_right(runs: list[str]) -> None:
    x = lg.asarray(X)
    listed = [x[i] * 3.0 for i in range(40)]
    reader = listed[20] + listed[30]
    rows = [lg.asarray(M)[i] * 3.0 for i in range(40)]
    views = [row[1:] for row in rows]
    x[:] = 0.0
    rows[5][1] = -1.0
    np.testing.assert_array_equal([float(t) for t in listed], X * 3.0)
    assert "evaluate_graph" in runs
    np.testing.assert_array_equal(reader, X[20] * 3.0 + X[30] * 3.0)
    expected = M * 3.0
    expected[5, 1] = -1.0
    np.testing.assert_array_equal([row.numpy() for row in rows], expected)
    np.testing.assert_array_equal([view.numpy() for view in views], expected[:, 1:])
    rows[6][0] = 7.0
    np.testing.assert_array_equal(rows[6], [7.0, *expected[6, 1:]])
    np.testing.assert_array_equal(rows[7], expected[7])


def test_derivatives_and_other_threads() -> None:
    x = lg.asarray(X)
    listed = [x[i] * x[i] for i in range(40)]
    np.testing.assert_array_equal([float(t) for t in listed], X * X)
    (gradient,) = lg.gradients(listed[9] * 2.0 + listed[8], [x])
    expected = np.zeros(40)
    expected[[9, 8]] = 4.0 * X[9], 2.0 * X[8]
    np.testing.assert_allclose(gradient, expected, rtol=1e-15)
    shared = [x[i] * 1.75 for i in range(40)]
    found: list[Any] = []

    def look() -> None:
        found.append([float(t) for t in shared])

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each == [v * 1.75 for v in X.tolist()] for each in found)
    assert len(found) == 3


def test_large_ones_and_those_of_other_settings_are_computed_alone(runs: list[str]) -> None:
    big = lg.asarray(np.ones((20, 200)))
    for t in [big[i] * 2.0 for i in range(20)]:
        assert float(t[0]) == 2.0
    assert "evaluate_graph" not in runs
    placed = lg.to_device(lg.asarray(X), "interpreter")
    for i, t in enumerate([placed[i] * 2.0 for i in range(40)]):
        assert (float(t), t.device) == (X[i] * 2.0, "interpreter")
