"""Options that JAX's functions have beside NumPy's: what a shape or a write would otherwise depend on."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

X = np.arange(8.0).reshape(2, 4)


def test_as_many_elements_as_asked_for(device: str) -> None:
    x, mask = lg.asarray(X), lg.asarray([1, 0, 1, 1])
    check(lg.compress(mask, x, axis=1, size=2), X[:, [0, 2]])
    check(lg.compress(mask, x, axis=1, size=4, fill_value=-1), np.insert(X[:, [0, 2, 3]], 3, -1.0, axis=1))
    check(lg.compress(mask, x, size=2), [0.0, 2.0])
    check(lg.extract(x > 3, x, size=6, fill_value=9), [4.0, 5.0, 6.0, 7.0, 9.0, 9.0])
    picked = lg.compile(lambda m, x, fill: (lg.extract(m, x, size=3), lg.nonzero(m, size=3, fill_value=fill)[0]))
    values, places = picked(lg.asarray([False, True, True, False]), lg.arange(4.0), 4)
    check(values, [1.0, 2.0, 0.0])
    check(places, [1, 2, 4])


def test_copies_in_place_of_writes(device: str) -> None:
    x = lg.asarray(X)
    writes = [
        (lg.fill_diagonal, np.fill_diagonal, ([1.0, 2.0],)),
        (lg.place, np.place, (X > 3, [7.0, 8.0])),
        (lg.put, np.put, ([0, 5], [9.0])),
        (lg.put_along_axis, np.put_along_axis, (np.array([[0], [1]]), 5.0, 1)),
    ]
    for ours, theirs, arguments in writes:
        expected = X.copy()
        theirs(expected, *arguments)
        check(ours(x, *arguments, inplace=False), expected)
        check(x, X)
        written = lg.copy(x)
        assert ours(written, *arguments) is None
        check(written, expected)


def test_counts_of_so_many_integers(device: str) -> None:
    """Negative ones count as 0; what is too large doesn't count."""
    check(lg.bincount(lg.asarray([-1, 0, -3, 7, 2]), length=5), [3, 0, 1, 0, 0])
    check(lg.compile(lambda x: lg.bincount(x, [1.0, 2.0, 4.0], length=2))(lg.asarray([-1, 1, 2])), [1.0, 2.0])


def test_sets_of_so_many_elements(device: str) -> None:
    """As JAX 0.11 gives them."""
    a, b = lg.asarray([3, 1, 1, 7, 5]), lg.asarray([5, 9, 3])
    check(lg.intersect1d(a, b, size=4), [3, 5, 3, 3])
    check(lg.intersect1d(a, [100], size=2), [0, 0])
    for result, expected in zip(
        lg.compile(lambda a, b: lg.intersect1d(a, b, size=4, fill_value=-1, return_indices=True))(a, b),
        ([3, 5, -1, -1], [0, 4, 5, 5], [2, 0, 3, 3]),
        strict=True,
    ):
        check(result, expected)
    check(lg.setdiff1d(a, b, size=4), [1, 7, 0, 0])
    check(lg.setdiff1d(a, b, assume_unique=True, size=4, fill_value=-1), [1, 1, 7, -1])
    check(lg.setxor1d(a, b, size=6), [1, 7, 9, 1, 1, 1])
    check(lg.setxor1d(a, b, size=2), [1, 7])


def test_the_dtype_of_sums_of_products(device: str) -> None:
    x = np.array([[100, -128], [7, 100]], np.int8)
    wide, wanted = x.astype(np.int32), {"precision": "highest", "preferred_element_type": "int32"}
    check(lg.matmul(x, x, **wanted), wide @ wide)
    check(lg.dot(x, x, **wanted), wide @ wide)
    check(lg.inner(x, x, **wanted), wide @ wide.T)
    check(lg.vdot(x, x, **wanted), np.int32((wide * wide).sum()))
    check(lg.vecdot(x, x, **wanted), (wide * wide).sum(-1).astype(np.int32))
    check(lg.tensordot(x, x, axes=1, **wanted), wide @ wide)
    check(lg.einsum("ij,kj->ik", x, x, **wanted), wide @ wide.T)
    check(lg.dot_general(x, x, (([1], [0]), ([], [])), **wanted), wide @ wide)
    check(lg.convolve(x[0], x[1], **wanted), np.convolve(wide[0], wide[1]))
    check(lg.correlate(x[0], x[1], **wanted), np.correlate(wide[0], wide[1]))
    check(lg.matmul(lg.ones((2, 2)), lg.ones((2, 2)), preferred_element_type="float32"), np.full((2, 2), 2, np.float32))
    with pytest.raises(ValueError, match=r"precision.*'lots'"):
        lg.matmul(x, x, precision="lots")
    with pytest.raises(lg.DTypeError, match="same_kind"):
        lg.matmul(lg.ones((2, 2)), x, preferred_element_type="int32")


def test_parts_of_a_batch_with_kernels_of_their_own(device: str) -> None:
    x, kernel = np.arange(32.0).reshape(4, 2, 4), np.arange(12.0).reshape(2, 2, 3)
    found = lg.conv_general_dilated(x, kernel, (1,), "VALID", batch_group_count=2)
    halves = [lg.conv_general_dilated(x[2 * k :][:2], kernel[k : k + 1], (1,), "VALID") for k in range(2)]
    check(found, np.concatenate(halves, axis=1))
    with pytest.raises(lg.ShapeError, match="batch_group_count that divides 4"):
        lg.conv_general_dilated(x, kernel, (1,), "VALID", batch_group_count=3)


def test_how_to_search_is_not_asked(device: str) -> None:
    check(lg.searchsorted(lg.asarray([1, 2, 4]), [3], method="sort"), [2])
    check(lg.digitize(lg.asarray([0.5, 3.0]), [1.0, 2.0], method="compare_all"), [0, 2])
    check(lg.isin(lg.asarray([1, 5]), [5], method="binary_search"), [False, True])
