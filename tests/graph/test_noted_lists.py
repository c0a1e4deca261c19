"""Long lists of pieces that are noted alike have the elements that their nodes give; others are no arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.nodes import Leaf
from loopgrad.graph.noted_lists import noted_list
from loopgrad.lazy.tensor.call_words import MOST_OPERANDS
from loopgrad.lazy.tensor.core import LIVE
from loopgrad.lazy.tensor.evaluator import known_leaf

A = np.linspace(0.1, 4.0, 80)
B = np.arange(60).reshape(30, 2)
COUNT = MOST_OPERANDS + 1  # a stack of so many is noted anew each time, and no remembered call


class Place(NamedTuple):
    """lg or NumPy, A and B, and a position of a list."""

    xp: Any
    a: Any
    b: Any
    i: int


ALIKE: dict[str, Callable[[Place], Any]] = {
    "numbers": lambda v: v.a[v.i] * 2.0 + 1.0,
    "other numbers each": lambda v: v.a[3 * v.i] * (0.1 * v.i + 0.3) - 1.0 / (v.i + 1),
    "out of order": lambda v: v.a[7 * v.i % 20] + v.a[(v.i * v.i) % 60],
    "a number in front": lambda v: 1.5 - v.a[59 - v.i],
    "integers": lambda v: v.b[v.i, 1] * (v.i + 3) // 2,
    "two arrays": lambda v: v.a[v.i] * v.b[v.i, 0],
    "rows": lambda v: v.b[v.i] * 2,
    "windows": lambda v: v.a[2 * v.i : 2 * v.i + 5] * 0.5,
    "comparisons": lambda v: v.a[v.i] < 1.0 + 0.1 * v.i,
    "functions": lambda v: v.xp.exp(-v.a[v.i]) + v.xp.minimum(v.a[v.i], 0.5),
    "a power": lambda v: v.a[v.i] ** 3,
    "signs of zero": lambda v: v.a[v.i] * (0.0 if v.i % 2 else -0.0),
    "halves beyond their range": lambda v: v.xp.astype(v.a[v.i], np.float16) * (1e3 * v.i),
}
NOT_ALIKE: dict[str, Callable[[Place], Any]] = {
    "another operation": lambda v: v.xp.exp(v.a[v.i]) if v.i == 7 else v.a[v.i] * 2.0,
    "another dtype": lambda v: v.b[v.i, 0] * 2 if v.i == 7 else v.a[v.i] * 2.0,
    "another array": lambda v: (v.b * 0.5)[v.i, 0] if v.i % 2 else v.a[v.i] * 2.0,
    "exponents": lambda v: v.a[v.i] ** (v.i % 4),
    "sums": lambda v: v.xp.sum(v.a[v.i : v.i + 3]),
    "an array itself": lambda v: v.a[v.i],
}


@pytest.mark.parametrize("held", [False, True], ids=["", "held"])
def test_alike_pieces_are_arrays(held: bool) -> None:
    x, y = lg.asarray(A), lg.asarray(B)
    for name, piece in ALIKE.items():
        with np.errstate(all="ignore"):
            expected = np.asarray([piece(Place(np, A, B, i)) for i in range(COUNT)])
        alone = np.stack([piece(Place(lg, x, y, i)).numpy() for i in range(COUNT)])
        np.testing.assert_allclose(alone, expected, rtol=1e-15, err_msg=name)
        pieces = [piece(Place(lg, x, y, i)) for i in range(COUNT)]
        listed = lg.stack(pieces)
        found = noted_list(listed._value, known_leaf)
        assert found is not None, name
        assert len(found.graph.nodes) < 40, name
        del found
        if not held:
            pieces.clear()
        assert listed.numpy().tobytes() == alone.tobytes(), name
        for i, t in enumerate(pieces):
            assert t.numpy().tobytes() == alone[i].tobytes(), name
    LIVE.tensors.clear()


def test_other_pieces_are_computed_as_they_are() -> None:
    x, y = lg.asarray(A), lg.asarray(B)
    for name, piece in NOT_ALIKE.items():
        expected = np.asarray([piece(Place(np, A, B, i)) for i in range(COUNT)])
        listed = lg.asarray([piece(Place(lg, x, y, i)) for i in range(COUNT)])
        np.testing.assert_allclose(listed.numpy(), expected, err_msg=name, rtol=1e-15)
    joined = lg.concatenate([x[i : i + 2] * 2.0 for i in range(COUNT)])
    np.testing.assert_array_equal(joined, np.concatenate([A[i : i + 2] * 2.0 for i in range(COUNT)]))
    different = lg.concatenate([x[i : i + 1 + i % 2] * 2.0 for i in range(COUNT)])
    np.testing.assert_array_equal(different, np.concatenate([A[i : i + 1 + i % 2] * 2.0 for i in range(COUNT)]))


def test_large_pieces_that_are_held_have_elements_then() -> None:
    x = lg.asarray(np.linspace(0.0, 1.0, 5000))
    pieces = [x * (0.5 * i) for i in range(16)]
    listed = lg.stack(pieces).numpy()
    for i, t in enumerate(pieces):
        assert isinstance(t._value, Leaf)
        np.testing.assert_array_equal(t, listed[i])


def test_what_all_pieces_read_may_wait_itself() -> None:
    x, number = lg.asarray(A), lg.asarray(1.5)
    for again in range(2):  # the second time it has elements
        y = lg.sqrt(x)
        expected = np.stack([np.sqrt(A)[i] * 1.5 + np.sqrt(A) * i for i in range(COUNT)])
        pieces = [y[i] * number + y * float(i) for i in range(COUNT)]
        if again:
            lg.eval(y, number)
            assert noted_list(lg.stack(pieces)._value, known_leaf) is not None
        np.testing.assert_array_equal(lg.stack(pieces), expected)
        number = lg.asarray(3.0) * 0.5
        del y
    np.testing.assert_array_equal(lg.stack(pieces), expected)


def test_what_else_is_read_of_a_list_is_right() -> None:
    x = lg.asarray(A)
    halves = [x[i] * 0.5 for i in range(COUNT)]
    pieces = [half + 1.0 for half in halves]
    listed, reader = lg.asarray(pieces), pieces[3] * 2.0
    np.testing.assert_array_equal(listed, A[:COUNT] * 0.5 + 1.0)
    np.testing.assert_array_equal(lg.asarray(halves), A[:COUNT] * 0.5)
    assert float(reader) == (A[3] * 0.5 + 1.0) * 2.0
    pieces[4] += 1.0
    np.testing.assert_array_equal(lg.asarray(pieces)[:5], A[:5] * 0.5 + 1.0 + (np.arange(5) == 4))
    again = lg.asarray([x[i] * x[i] for i in range(COUNT)])
    float(again[2])
    (gradient,) = lg.gradients(lg.sum(again), [x])
    np.testing.assert_allclose(gradient, np.where(np.arange(80) < COUNT, 2.0 * A, 0.0))
