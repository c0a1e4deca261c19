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


@pytest.mark.parametrize("equal_nan", [True, False])
@pytest.mark.parametrize("name", ARRAYS)
def test_elements(device: str, name: str, equal_nan: bool) -> None:
    x = ARRAYS[name]
    wanted = np.unique(x, True, True, True, equal_nan=equal_nan)
    for got, want in zip(lg.unique(lg.asarray(x), True, True, True, equal_nan=equal_nan), wanted, strict=True):
        check(got, want)
    check(lg.unique(lg.asarray(x), equal_nan=equal_nan), wanted[0])


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
