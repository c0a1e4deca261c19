"""Handles that share memory: what a write reaches, what it leaves alone, what it costs."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Leaf
from loopgrad.lazy.tensor.core import LIVE
from loopgrad.lazy.tensor.storage import share_memory
from tests.lazy.oracle import check

A = np.arange(12.0).reshape(3, 4)


@pytest.fixture(autouse=True)
def _interpreter() -> Any:
    with lg.default_device("interpreter"):
        yield


def test_a_name_and_a_callee_are_the_same_array() -> None:
    def bump(v: Any) -> None:
        v += 1
        v[0] = 9

    x = lg.zeros(3)
    y, held = x, {"x": x}
    bump(x)
    assert y is x
    assert held["x"].tolist() == [9, 1, 1]


def test_chained_subscripts_write() -> None:
    x, a = lg.asarray(A), A.copy()
    for m in (x, a):
        m[0][1] = 30
        m[1:][0][::2] += 5
        m.T[2][1] *= 2
        m[..., None][2, 1:, 0] = m[0, 1:]
    check(x, a)


def test_what_was_computed_before_stays() -> None:
    x = lg.asarray(A)
    doubled, row = x * 2, x[0].copy()
    x += 1
    check(doubled, A * 2)
    check(row, A[0])


def test_numbers_are_replaced_and_arrays_without_axes_written_to() -> None:
    x = lg.asarray(A)
    total = lg.sum(x)
    before = total
    total += 1
    assert (float(before), float(total)) == (A.sum(), A.sum() + 1)
    element = x[0, 1]
    element += 5
    assert float(x[0, 1]) == 1
    for array in (lg.zeros(()), x[0, 0, ...], lg.asarray(0.0), lg.copy(total), x[0].reshape(4, 1)[0].reshape(())):
        same = array
        array += 2
        assert same is array
    assert float(x[0, 0]) == 4
    alias, twice = total, 2 * total
    total[...] = 3.0  # what the array API standard's functions do to what they compute
    assert (float(alias), float(total), float(twice)) == (3.0, 3.0, 2 * (A.sum() + 1))
    alias += 1.0  # an array now
    assert alias is total
    masked = lg.sum(x)
    masked[masked > 0] = -1.0
    assert float(masked) == -1.0
    assert float(lg.compile(lambda v: _written_number(v))(x)) == 7.0


def _written_number(v: lg.Tensor) -> lg.Tensor:
    n = lg.sum(v)
    n[()] = 7.0
    return n


@pytest.mark.parametrize("sign", ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul"])
def test_in_place_operators(sign: str) -> None:
    apply: Callable[[Any, Any], Any] = getattr(operator, sign)
    a = np.array([[3.0, 1.0], [2.0, 5.0]])
    x, other = lg.asarray(a), np.array([[1.0, 2.0], [2.0, 1.0]])
    view = x.T
    assert apply(x, lg.asarray(other)) is x
    apply(a, other)
    check(x, a)
    check(view, a.T)


@pytest.mark.parametrize("sign", ["iand", "ior", "ixor", "ilshift", "irshift"])
def test_in_place_operators_on_bits(sign: str) -> None:
    apply: Callable[[Any, Any], Any] = getattr(operator, sign)
    a = np.array([12, 5, 7])
    x = lg.asarray(a)
    row = x[1:]
    apply(x, 2)
    apply(a, 2)
    check(row, a[1:])


def test_results_in_place_keep_dtype_and_shape() -> None:
    x = lg.asarray(np.ones(3, np.float32))
    view = x[1:]
    x += lg.ones(3)
    x *= 2.5
    assert x.dtype is view.dtype is lg.float32
    assert view.tolist() == [5, 5]
    whole = lg.asarray(np.arange(3))
    for refused in (0.5, lg.ones(3)):
        with pytest.raises(lg.DTypeError, match=r"fits int64(.|\n)*test_views_and_assignment.py"):
            whole += refused
    with pytest.raises(lg.DTypeError):
        whole /= 2
    with pytest.raises(lg.ShapeError, match=r"write x = x \+ y"):
        whole += lg.asarray([[1], [2]])
    assert whole.tolist() == [0, 1, 2]


def test_out_and_sort_write() -> None:
    x = lg.asarray([3.0, 1.0, 2.0])
    tail = x[1:]
    assert np.add(x, 1.0, out=x) is x
    assert x.sort() is None
    assert (x.tolist(), tail.tolist()) == ([2, 3, 4], [3, 4])


def test_copies_that_are_asked_for() -> None:
    x = lg.asarray(A)
    for copied in (lg.asarray(x, copy=True), lg.array(x), x.astype(lg.float64), lg.reshape(x, (3, 4), copy=True)):
        copied += 1
    check(x, A)
    turned = x.T
    refused: list[Callable[[], Any]] = [
        lambda: lg.reshape(turned, (12,), copy=False),
        lambda: lg.asarray(x, dtype=lg.float32, copy=False),
        lambda: lg.asarray([1.0, 2.0], copy=False),
        lambda: lg.asarray(1.0, copy=False),
        lambda: lg.asarray(A, dtype=lg.float32, copy=False),
    ]
    for call in refused:
        with pytest.raises(ValueError, match="copy=False"):
            call()


def test_read_only_views_follow_their_base() -> None:
    x, a = lg.asarray(A), A.copy()
    rows, diagonal = lg.broadcast_to(x[0], (2, 4)), lg.diagonal(x)
    x[0] = a[0] = 7.0
    check(rows, np.broadcast_to(a[0], (2, 4)))
    check(diagonal, np.diagonal(a))
    for view in (rows, diagonal, rows[0], diagonal.reshape(3, 1)):
        with pytest.raises(ValueError, match=r"x.copy\(\)(.|\n)*test_views_and_assignment.py"):
            view += 1


def test_a_diagonal_is_differentiated_without_a_table() -> None:
    a, w = np.arange(24.0).reshape(2, 3, 4), np.arange(1.0, 5)
    for offset in (-4, -2, 0, 1, 3):
        count = len(np.diagonal(a[0], offset))
        slope = lg.grad(lambda x, k=offset, n=count: lg.sum(lg.diagonal(x, k, 1, 2) * w[:n]))
        want = np.zeros_like(a)
        for d in range(count):
            want[:, d - min(offset, 0), d + max(offset, 0)] = w[d]
        check(slope(lg.asarray(a)), want)
    assert "scatter" not in lg.compile(slope).text("graph", lg.asarray(a))


def test_diagonals_can_be_written_to_through_einsum() -> None:
    x, a = lg.asarray(A[:, :3]), A[:, :3].copy()
    lg.einsum("ii->i", x)[...] = 5.0
    np.einsum("ii->i", a)[...] = 5.0
    check(x, a)


def test_rows_are_read_one_by_one() -> None:
    x = lg.asarray([1.0, 0.0, 0.0, 0.0])
    for i, v in enumerate(x[:-1]):
        x[i + 1] = v * 2
    assert x.tolist() == [1, 2, 4, 8]
    for row in (table := lg.zeros((2, 2))):
        row += 1
    assert table.tolist() == [[1, 1], [1, 1]]


def test_pickles_and_copies_are_apart() -> None:
    x = lg.asarray(A)
    other = pickle.loads(pickle.dumps(x[0]))
    x[0] = 5.0
    check(other, A[0])


# ---- functions that are traced


def test_memory_from_outside_cannot_be_written_to_while_tracing() -> None:
    table = lg.zeros((3, 2))

    def through_a_view(i: Any, v: Any) -> Any:
        row = table[i]
        row += v
        return v

    def in_place(i: Any, v: Any) -> Any:
        held = table
        held += v
        return v

    for body, text in ((through_a_view, "a view of one made outside"), (in_place, r"x = x \+ v")):
        with pytest.raises(lg.TracedValueError, match=rf"{text}(.|\n)*test_views_and_assignment.py"):
            lg.fori_loop(0, 3, body, 0.0)
    assert not np.asarray(table).any()


def test_transforms_call_functions_on_memory_of_their_own() -> None:
    def write(v: Any, *others: Any, **named: Any) -> Any:
        for t in (v, *others, *named.values()):
            t += 1.0
        return lg.sum(v * v)

    x, y, z = lg.ones(2), lg.zeros(2), lg.zeros(2)

    def body(_: Any, v: Any) -> Any:
        write(v)
        return v

    lg.grad(write)(x, y, z=z)
    lg.vjp(write, x, y)
    lg.jvp(write, (x,), (x,))
    lg.hessian(write)(x, y, z=z)
    lg.vmap(write, in_axes=(0, None))(lg.ones((3, 2)), y, z=z)
    lg.checkpoint(write)(x, y)
    lg.cond(True, write, write, x, y)
    lg.cond(lg.sum(y) < 1, write, write, x, y)
    lg.switch(0, [write], x)
    lg.fori_loop(0, 2, body, x)
    assert (x.tolist(), y.tolist(), z.tolist()) == ([1, 1], [0, 0], [0, 0])


def test_containers_of_the_caller_are_handed_on() -> None:
    """Where they aren't differentiated: what a function puts into them isn't lost."""

    def loss(v: Any, seen: Any) -> Any:
        seen["shape"] = v.shape
        return lg.sum(v * seen["w"])

    seen: dict[str, Any] = {"w": lg.ones(2)}
    lg.grad(loss)(lg.ones(2), seen)
    assert seen["shape"] == (2,)


# ---- what sharing costs


def test_a_temporary_is_not_computed_along() -> None:
    x, before = lg.asarray(A), len(LIVE.tensors)
    row = (x * 2)[0]
    held = [t for r in LIVE.tensors[before:] if (t := r()) is not None]
    assert [t is row for t in held] == [True]


def test_evaluated_roots_are_not_computed_again() -> None:
    x = lg.asarray(A) * 2
    row = x[0]
    lg.eval(x)
    assert row._view is not None
    assert row._view.storage is not None
    assert row._view.storage.value is x._value
    assert isinstance(x._value, Leaf)
    del x
    row += 1
    assert row.tolist() == [1, 3, 5, 7]


def test_a_view_alone_has_its_memory_for_itself() -> None:
    row = (lg.asarray(A) * 2)[0]
    row += 1
    assert row._view is None
    first, second = lg.asarray(A)[:2]
    first += 1
    assert first._view is None
    assert "select" not in lg.to_text(first)
    check(second, A[1])


@pytest.mark.parametrize("looked", ["root", "view", "other"])
def test_the_graph_does_not_grow_in_a_loop(looked: str) -> None:
    """Whatever is looked at, the root is computed at times: a write adds a handful of nodes to its graph."""
    x = lg.asarray(A)
    seen = {"root": x, "view": x[1], "other": x[:2]}
    del x
    if looked == "other":
        del seen["root"]
    for i in range(150):
        seen["view"][i % 4] += 1.0
        np.asarray(seen[looked])
    view = seen["view"]._view
    assert view is not None
    assert view.storage is not None
    assert len(extract([view.storage.value]).nodes) < 70 * 10


def test_numbers_as_subscripts_at_other_places() -> None:
    array = np.arange(60.0).reshape(5, 4, 3)
    for again in range(3):
        x = lg.asarray(array)
        for index in [2, -1, (0,), (4, 1), (-2, -3), (3, 2, 1), (-5, 0, -1)]:
            np.testing.assert_array_equal(x[index], array[index], err_msg=f"{again} {index}")
            np.testing.assert_array_equal(x[index] * 2.0 + 1.0, array[index] * 2.0 + 1.0)
            assert share_memory(x, x[index]) is (x[index].ndim > 0)
        for index in [5, -6, (0, 4), (0, 0, 3), (0, 0, -4)]:
            with pytest.raises(IndexError):
                x[index]
    one = lg.asarray(np.arange(4.0).reshape(4, 1))
    for i in range(4):
        assert float(one[i, 0]) == i
        np.testing.assert_array_equal(one[i], [i])


def test_rows_at_other_places_are_written_through() -> None:
    array = np.arange(24.0).reshape(4, 6)
    x, expected = lg.asarray(array), array.copy()
    for i in (2, 0, 3, -3):
        row = x[i]
        np.testing.assert_array_equal(row, expected[i])
        row += 1.0
        row[1] = -1.0
        expected[i] += 1.0
        expected[i, 1] = -1.0
        np.testing.assert_array_equal(x, expected)
        x[i, 2] = 9.0
        expected[i, 2] = 9.0
        np.testing.assert_array_equal(row, expected[i])


def test_rows_that_are_taken_backwards_are_no_rows() -> None:
    array = np.arange(12.0).reshape(3, 4)
    x = lg.asarray(array)
    for _ in range(4):
        for i in range(3):
            np.testing.assert_array_equal(x[i], array[i])
            np.testing.assert_array_equal(x[i, ::-1], array[i, ::-1])
            np.testing.assert_array_equal(lg.reshape(x[i : i + 1, ::-1], (4,)), array[i, ::-1])
            np.testing.assert_array_equal(lg.reshape(x[i : i + 1], (4,)), array[i])
