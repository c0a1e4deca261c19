"""What a compiled function writes to its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg


def fill(v: Any, w: Any = None) -> Any:
    v[0] = 100.0
    if w is not None:
        w -= v
    return lg.sum(v)


class Foreign:
    """An array of another library."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.ones(3, dtype)


@pytest.mark.parametrize("make", [lg.asarray, np.array])
def test_arguments_are_written_to_as_without_compile(device: str, make: Any) -> None:
    compiled = lg.compile(fill)
    for _ in range(2):  # traced, then the fast path
        x, y, u, v = (make(a) for a in ([1.0, 2.0], [5.0, 6.0], [1.0, 2.0], [5.0, 6.0]))
        assert float(compiled(x, y)) == float(fill(u, v)) == 102
        assert (np.asarray(x).tolist(), np.asarray(y).tolist()) == (np.asarray(u).tolist(), np.asarray(v).tolist())


def test_views_of_arguments_and_views_as_arguments(device: str) -> None:
    x = lg.zeros((2, 3))
    row, turned = x[1], x.T
    lg.compile(fill)(row)
    assert turned.tolist() == [[0, 100], [0, 0], [0, 0]]


def test_trees_are_written_to(device: str) -> None:
    state = {"a": lg.zeros(2), "b": [lg.ones(2)]}

    def step(state: Any) -> None:
        state["b"][0] += 1
        state["a"][...] = state["b"][0]

    lg.compile(step)(state)
    assert (state["a"].tolist(), state["b"][0].tolist()) == ([2, 2], [2, 2])


def test_numbers_are_not_written_to(device: str) -> None:
    def add(n: Any, v: Any) -> Any:
        before = n
        n += 1
        return before + lg.sum(v) * 0

    x, total = lg.ones(2), lg.sum(lg.ones(3))
    assert float(lg.compile(add)(total, x)) == float(add(total, x)) == 3
    assert float(lg.compile(add)(3.0, x)) == 3
    assert float(total) == 3
    array = lg.asarray(3.0)
    assert float(lg.compile(add)(array, x)) == 4
    assert float(array) == 4


def test_arguments_that_share_memory_are_refused() -> None:
    compiled = lg.compile(fill)
    x, a = lg.ones(3), np.ones(3)
    for pair in ((x, x), (x[:2], x[1:]), (a, a), (a[:2], a[1:])):
        with pytest.raises(ValueError, match=r"share no memory(.|\n)*test_compiled_arguments.py"):
            compiled(*pair)
    assert (x.tolist(), a.tolist()) == ([1, 1, 1], [1, 1, 1])
    compiled(x[:1], x[1:2])
    assert x.tolist() == [100, -99, 1]


def test_read_only_arguments_are_refused() -> None:
    a = np.ones(3)
    a.flags.writeable = False
    for x in (a, lg.broadcast_to(lg.ones(1), (3,)), Foreign()):
        with pytest.raises(ValueError, match="written to"):
            lg.compile(fill)(x)


def test_functions_that_only_read_leave_arguments_alone(device: str) -> None:
    compiled = lg.compile(lambda v: v[1:] * 2)
    a = np.ones(3)
    a.flags.writeable = False
    assert compiled(a).tolist() == [2, 2]


def test_writes_mark_programs_that_read_the_tensor(device: str) -> None:
    weights = lg.ones(2)
    half = weights[:1]
    total = lg.compile(lambda v: lg.sum(v * weights))
    assert float(total(lg.ones(2))) == 2
    half += 5.0
    assert float(total(lg.ones(2))) == 7
    weights *= 2.0
    assert float(total(lg.ones(2))) == 14
