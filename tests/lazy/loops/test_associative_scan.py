"""`associative_scan` against loops written out in NumPy, and its derivatives against those of closed forms."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.associative import BLOCK
from tests.lazy.oracle import check

LENGTHS = [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK**2 - 1, BLOCK**2, BLOCK**2 + 1, 3 * BLOCK**2 + 5, BLOCK**3 + 3]
Line = namedtuple("Line", ["slope", "offset"])
RNG = np.random.default_rng(5)


def then(first: Line, second: Line) -> Line:
    """second(first(x))"""
    return Line(second.slope * first.slope, second.slope * first.offset + second.offset)


def recurrence(slope: np.ndarray, offset: np.ndarray) -> np.ndarray:
    x, found = np.zeros(slope.shape[1:]), np.zeros_like(offset)
    for k in range(len(slope)):
        x = found[k] = slope[k] * x + offset[k]
    return found


@pytest.mark.in_turns
@pytest.mark.parametrize("length", LENGTHS)
def test_of_any_length(device: str, length: int) -> None:
    slope, offset = RNG.uniform(-1, 1, (2, length))
    result = lg.associative_scan(then, Line(lg.asarray(slope), lg.asarray(offset)))
    assert type(result) is Line
    check(result.offset, recurrence(slope, offset))
    check(result.slope, np.cumprod(slope))


@pytest.mark.in_turns
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_of_arguments(device: str, length: int, reverse: bool) -> None:
    """Of two integers as one, the left one's digits come first: associative, and never commutative."""
    base = 3

    def joined(a: Any, b: Any) -> Any:
        return (a[0] * b[1] + b[0]) % 1000003, (a[1] * b[1]) % 1000003

    digits = RNG.integers(0, base, length)
    got, _ = lg.associative_scan(joined, (lg.asarray(digits), lg.full(length, base)), reverse=reverse)
    expected, total = [], 0
    for d in digits[::-1] if reverse else digits:
        total = (total * base + int(d)) % 1000003
        expected.append(total)
    check(got, np.array(expected[::-1] if reverse else expected, np.int64))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_along_any_axis(device: str, axis: int) -> None:
    x = RNG.normal(size=(11, 9, 10))
    check(lg.associative_scan(lg.maximum, lg.asarray(x), axis=axis), np.maximum.accumulate(x, axis))
    got = lg.associative_scan(lg.maximum, lg.asarray(x), reverse=True, axis=axis)
    check(got, np.flip(np.maximum.accumulate(np.flip(x, axis), axis), axis))


def test_of_matrices(device: str) -> None:
    x = np.linalg.qr(RNG.normal(size=(21, 3, 3)))[0]
    expected = [x[0]]
    for m in x[1:]:
        expected.append(expected[-1] @ m)
    check(lg.associative_scan(lambda a, b: a @ b, lg.asarray(x)), np.stack(expected))


def test_leaves_of_different_shapes_and_dtypes(device: str) -> None:
    tree = {"count": lg.ones(20, dtype=lg.int32), "rows": lg.ones((20, 3), dtype=lg.float32)}
    result = lg.associative_scan(lambda a, b: {"count": a["count"] + b["count"], "rows": a["rows"] + b["rows"]}, tree)
    check(result["count"], np.arange(1, 21, dtype=np.int32))
    check(result["rows"], np.repeat(np.arange(1, 21, dtype=np.float32)[:, None], 3, 1))


def test_gradients_of_a_recurrence(device: str) -> None:
    """loss = sum(w * x); the adjoint of a linear recurrence is one backwards."""
    n = 3 * BLOCK + 2
    slope, offset, w = RNG.uniform(-1, 1, (3, n))

    def loss(a: Any, b: Any) -> Any:
        return lg.sum(lg.asarray(w) * lg.associative_scan(then, Line(a, b)).offset)

    x, adjoint = recurrence(slope, offset), np.zeros(n + 1)
    for k in reversed(range(n)):
        adjoint[k] = w[k] + (slope[k + 1] * adjoint[k + 1] if k + 1 < n else 0.0)
    by_slope, by_offset = lg.grad(loss, argnums=(0, 1))(lg.asarray(slope), lg.asarray(offset))
    check(by_offset, adjoint[:n])
    check(by_slope, adjoint[:n] * np.concatenate([[0.0], x[:-1]]))
    _, along = lg.jvp(lambda a: loss(a, lg.asarray(offset)), (lg.asarray(slope),), (lg.asarray(w),))
    check(along, np.sum(np.asarray(by_slope) * w))


def test_second_derivatives(device: str) -> None:
    """y = the product of all: d2y / dx_i dx_j is the product of the others, also beside a zero."""
    x = RNG.uniform(0.5, 1.5, 2 * BLOCK + 1)
    x[3] = 0.0
    got = lg.hessian(lambda v: lg.associative_scan(lg.multiply, v)[-1])(lg.asarray(x))
    n = len(x)
    expected = np.array([[0.0 if i == j else np.prod(np.delete(x, [i, j])) for j in range(n)] for i in range(n)])
    check(got, expected)


def test_batches(device: str) -> None:
    x = RNG.normal(size=(4, 3 * BLOCK + 1))
    got = lg.vmap(lambda row: lg.associative_scan(lg.add, row))(lg.asarray(x))
    check(got, np.cumsum(x, 1))
    got = lg.vmap(lambda row: lg.associative_scan(lg.add, row), in_axes=1, out_axes=1)(lg.asarray(x))
    check(got, np.cumsum(x, 0))


def test_compiled_and_in_a_loop(device: str) -> None:
    x = RNG.normal(size=2 * BLOCK + 3)
    twice = lg.compile(lambda v: lg.fori_loop(0, 2, lambda _, u: lg.associative_scan(lg.add, u), v))
    check(twice(lg.asarray(x)), np.cumsum(np.cumsum(x)))


def test_a_number_stands_for_equal_elements() -> None:
    check(lg.associative_scan(lambda *_: 2.0, lg.arange(9.0)), np.array([0.0] + [2.0] * 8))


def test_what_is_refused() -> None:
    x = lg.ones((4, 3))
    with pytest.raises(lg.ShapeError, match="associative_scan"):
        lg.associative_scan(lg.add, x, axis=2)
    with pytest.raises(lg.ShapeError, match="one extent"):
        lg.associative_scan(lambda a, _: a, (x, lg.ones((5, 3))))
    with pytest.raises(lg.ShapeError, match="one extent"):
        lg.associative_scan(lambda a, _: a, ())
    with pytest.raises(lg.ShapeError, match="a result of shape"):
        lg.associative_scan(lambda a, b: lg.concat([a, b]), x)
    with pytest.raises(lg.ShapeError, match=r"a result of shape \(2,\)"):  # what stands side by side isn't to be summed
        lg.associative_scan(lambda a, b: lg.sum(a + b), lg.arange(9.0))
    with pytest.raises(lg.DTypeError, match="convert elems to float64"):
        lg.associative_scan(lambda a, b: a * 0.5 + b, lg.ones(4, dtype=lg.int32))
    with pytest.raises(lg.StructureError, match="the function of associative_scan"):
        lg.associative_scan(lambda a, b: (a, b), x)
    with pytest.raises(TypeError, match="a function"):
        lg.associative_scan(x, x)  # type: ignore[arg-type]
