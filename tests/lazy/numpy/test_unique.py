"""What is there, each once, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

RNG = np.random.default_rng(0)
ARRAYS = {
    "integers": RNG.integers(0, 5, (4, 6)),
    "nan": RNG.choice(np.array([0.0, 1.0, np.nan, -np.inf]), 30),
    "bools": RNG.integers(0, 2, (7, 2, 2)).astype(bool),
    "halves": RNG.integers(-3, 3, 20).astype(np.float16),
    "empty": np.zeros((0,)),
    "one": np.array(3.0),
}


@pytest.mark.costly
def test_sizes_make_it_possible_while_tracing(device: str) -> None:
    """The first ones, then the fill or the smallest again, as JAX has it."""
    rows = np.array([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0]])
    for x, axis in (
        (np.array([3, 1, 3, 2, 1]), None),
        (rows, None),
        (rows, 0),
        (np.array([np.nan, 1.0, np.nan]), None),
    ):
        found = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
        many = len(found[0])
        for size, fill in ((1, None), (2, -7), (many, -7), (many + 3, None), (many + 2, -7)):
            missing = max(size - many, 0)
            function = lambda t, s=size, f=fill, a=axis: lg.unique(t, True, True, True, a, size=s, fill_value=f)  # noqa: E731
            values, index, inverse, counts = [np.asarray(v) for v in lg.compile(function)(lg.asarray(x))]
            filled = np.full_like(found[0][:1], -7) if fill is not None else found[0][:1]
            wanted = np.concatenate([found[0][:size], *[filled] * missing])
            np.testing.assert_array_equal(values, wanted)
            np.testing.assert_array_equal(index, [*found[1][:size], *[found[1][0]] * missing])
            np.testing.assert_array_equal(inverse.ravel(), found[2].ravel())
            np.testing.assert_array_equal(counts, [*found[3][:size], *[0] * missing])
    assert lg.union1d([3, 1], [1, 2], size=5, fill_value=0).tolist() == [1, 2, 3, 0, 0]
    assert lg.unique_counts(lg.asarray([2, 2]), size=2).counts.tolist() == [2, 0]
    assert lg.grad(lambda t: lg.sum(lg.unique(t, size=3) ** 2))(lg.asarray([2.0, 1.0, 2.0])).tolist() == [4.0, 4.0, 0.0]
    with pytest.raises(lg.ShapeError, match="unique: expected at least one element"):
        lg.unique(lg.zeros(0), size=2)


@pytest.mark.in_turns
@pytest.mark.parametrize("equal_nan", [True, False])
@pytest.mark.parametrize("name", ARRAYS)
def test_elements(device: str, name: str, equal_nan: bool) -> None:
    x = ARRAYS[name]
    wanted = np.unique(x, True, True, True, equal_nan=equal_nan)
    for got, want in zip(lg.unique(lg.asarray(x), True, True, True, equal_nan=equal_nan), wanted, strict=True):
        check(got, want)
    check(lg.unique(lg.asarray(x), equal_nan=equal_nan), wanted[0])


@pytest.mark.in_turns
@pytest.mark.parametrize(("name", "axis"), [("integers", 0), ("integers", 1), ("bools", 0), ("bools", -1), ("nan", 0)])
def test_slices(device: str, name: str, axis: int) -> None:
    x = np.concatenate([ARRAYS[name], ARRAYS[name]], axis=axis)
    wanted = np.unique(x, True, True, True, axis=axis)
    for got, want in zip(lg.unique(lg.asarray(x), True, True, True, axis=axis), wanted, strict=True):
        check(got, want)


@pytest.mark.parametrize("name", ARRAYS)
def test_the_standards_functions(device: str, name: str) -> None:
    x = ARRAYS[name]
    for function in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
        wanted, got = getattr(np, function)(x), getattr(lg, function)(lg.asarray(x))
        if function == "unique_values":
            check(got, np.sort(wanted))
            continue
        assert got._fields == wanted._fields
        for field in wanted._fields:
            if name != "nan" or field in ("values", "counts"):  # NumPy numbers NaN in no order
                check(getattr(got, field), getattr(wanted, field))


def test_the_first_of_equal_elements_gets_the_derivative(device: str) -> None:
    slope = lg.grad(lambda v: lg.sum(lg.unique(v) ** 2))(lg.asarray([3.0, 1.0, 3.0]))
    assert slope.tolist() == [6.0, 2.0, 0.0]


def test_what_is_refused() -> None:
    with pytest.raises(lg.TracedValueError):
        lg.compile(lg.unique)(lg.asarray([1.0, 2.0]))
    with pytest.raises(lg.ShapeError, match="expected slices with elements"):
        lg.unique(lg.zeros((3, 0)), axis=0)


def test_positions_are_sorted_only_where_somebody_asks_for_them() -> None:
    """On the way there, elements would be looked up in that order."""
    x = lg.asarray([3.0, 1.0, 3.0])
    values = lg.compile(lambda x: lg.unique(x, size=4, return_counts=True))
    assert "argsort" not in str(values.plan(x))
    inverse = lg.compile(lambda x: lg.unique(x, size=4, return_inverse=True))
    assert "argsort" in str(inverse.plan(x))
