"""Options that JAX's functions have beside NumPy's: what a shape or a write would otherwise depend on."""

from __future__ import annotations

import numpy as np

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
