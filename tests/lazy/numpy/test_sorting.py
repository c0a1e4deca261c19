"""Sorting and searching against NumPy; derivatives against finite differences and permutations by hand."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import both, check

CUBE = np.array([[[3.0, -1.0, 2.5, 0.0], [1.0, 1.0, -2.0, 7.0], [0.5, 4.0, 4.0, -3.0]]] * 2)
CUBE[1] *= -0.5
WITH_NAN = np.array([[2.0, np.nan, -1.0, np.inf, 2.0], [np.nan, np.nan, 0.0, -0.0, -np.inf]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sorting(device: str, axis: int) -> None:
    both("sort", CUBE, axis=axis)
    check(lg.argsort(lg.asarray(CUBE), axis=axis), np.argsort(CUBE, axis=axis, kind="stable"))
    check(lg.sort(lg.asarray(CUBE), axis=axis, descending=True), np.flip(np.sort(CUBE, axis=axis), axis))


def test_descending_argsort_is_stable(device: str) -> None:
    x = lg.asarray([1.0, 3.0, 1.0, 3.0])
    assert lg.argsort(x, descending=True).tolist() == [1, 3, 0, 2]


@pytest.mark.in_turns
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 8, 9, 100, 1000])
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float32", "float64"])
def test_searchsorted(device: str, side: str, count: int, dtype: str) -> None:
    rng = np.random.default_rng(count)
    table = np.sort(rng.integers(0, 60, count)).astype(dtype)
    both("searchsorted", table, rng.integers(0, 65, (3, 5)).astype(dtype), side=side)
    both("searchsorted", table, np.asarray(30, dtype), side=side)


def test_searchsorted_by_a_sorter(device: str) -> None:
    table = np.array([5.0, 1.0, 3.0])
    order = np.argsort(table)
    found = lg.searchsorted(lg.asarray(table), lg.asarray([0.0, 3.0, 9.0]), sorter=lg.asarray(order))
    check(found, np.searchsorted(table, [0.0, 3.0, 9.0], sorter=order))


def test_searchsorted_doesnt_look_at_all() -> None:
    """The work for each key grows with the number of digits of the table's size."""
    text = lg.compile(lg.searchsorted)
    text(lg.zeros((100_000,)), lg.zeros((10,)))
    assert text.text("kernel").count("load") < 30


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_top_k(device: str, axis: int, k: int) -> None:
    values, places = lg.top_k(lg.asarray(CUBE), k, axis=axis)
    order = np.take(np.argsort(-CUBE, axis=axis, kind="stable"), np.arange(k), axis=axis)
    check(places, order)
    check(values, np.take_along_axis(CUBE, order, axis=axis))


def test_top_k_takes_nan_for_the_largest(device: str) -> None:
    values, places = lg.top_k(lg.asarray(WITH_NAN), 3)
    check(places, np.array([[1, 3, 0], [0, 1, 2]]))
    check(values, np.array([[np.nan, np.inf, 2.0], [np.nan, np.nan, 0.0]]))


@pytest.mark.parametrize("k", [-1, 5])
def test_top_k_of_more_than_there_is(k: int) -> None:
    with pytest.raises(ValueError, match=f"top_k: expected 0 to 4 elements, got {k}"):
        lg.top_k(lg.asarray(CUBE), k)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lexsort(device: str, axis: int) -> None:
    rng = np.random.default_rng(0)
    keys = [rng.integers(0, 3, (6, 7)), rng.integers(0, 2, (6, 7)).astype(np.float32), rng.integers(0, 3, (6, 7))]
    check(lg.lexsort(list(map(lg.asarray, keys)), axis=axis), np.lexsort(keys, axis=axis))


def test_lexsort_refuses() -> None:
    with pytest.raises(lg.ShapeError, match="expected keys of one shape, got none"):
        lg.lexsort(())
    with pytest.raises(lg.ShapeError, match=r"got \(2,\), \(3,\)"):
        lg.lexsort((lg.zeros((2,)), lg.zeros((3,))))


def gradient_by_hand(x: np.ndarray, order: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of sum(weights * the elements at `order`)."""
    found = np.zeros_like(x)
    np.put_along_axis(found, order, np.broadcast_to(weights, order.shape), axis=-1)
    return found


@pytest.mark.parametrize("duplicates", [False, True])
def test_derivatives_move_with_the_elements(device: str, duplicates: bool) -> None:
    x = np.random.default_rng(3).standard_normal((3, 4, 10)).round(0 if duplicates else 6)
    weights, order = np.linspace(-1, 2, 10), np.argsort(x, axis=-1, kind="stable")
    down = np.argsort(-x, axis=-1, kind="stable")
    t, w = lg.asarray(x), lg.asarray(weights)
    check(lg.grad(lambda v: lg.sum(lg.sort(v) * w))(t), gradient_by_hand(x, order, weights))
    check(lg.grad(lambda v: lg.sum(lg.top_k(v, 4)[0] * w[:4]))(t), gradient_by_hand(x, down[..., :4], weights[:4]))
    tangent = np.random.default_rng(4).standard_normal(x.shape)
    _, moved = lg.jvp(lg.sort, (t,), (lg.asarray(tangent),))
    check(moved, np.take_along_axis(tangent, order, axis=-1))


def test_the_gradient_of_a_sort_adds_nothing_up() -> None:
    """Every element is written by one lane, so no exact sums are needed."""
    for function in (lg.sort, lambda v: lg.top_k(v, 5)[0], lambda v: lg.sort(v, axis=0, descending=True)):
        gradient = lg.compile(lg.grad(lambda v, f=function: lg.sum(f(v) ** 2)))
        gradient(lg.zeros((20, 30)))
        assert "exclusive=True" in gradient.text("kernel")
        assert "exclusive=False" not in gradient.text("kernel")


def test_many_sorts_under_vmap(device: str) -> None:
    x = np.random.default_rng(5).standard_normal((4, 3, 6)).round(1)
    check(lg.vmap(lambda v: lg.argsort(v, axis=0))(lg.asarray(x)), np.argsort(x, axis=1, kind="stable"))
    check(lg.vmap(lambda v: lg.top_k(v, 2)[0])(lg.asarray(x)), -np.sort(-x, axis=-1)[..., :2])
    table = np.sort(x[:, 0], axis=-1)
    wanted = np.stack([np.searchsorted(a, b) for a, b in zip(table, x[:, 1], strict=True)])
    check(lg.vmap(lg.searchsorted)(lg.asarray(table), lg.asarray(x[:, 1])), wanted)
