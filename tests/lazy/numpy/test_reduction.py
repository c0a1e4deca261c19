"""Reductions and running sums against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import loopgrad as lg
from tests.lazy.oracle import both, check

CUBE = np.array([[[3.0, -1.0, 2.5, 0.0], [1.0, 1.0, -2.0, 7.0], [0.5, 4.0, 4.0, -3.0]]] * 2)
CUBE[1] *= -0.5
AXES = [None, 0, -1, (0, 2), (0, 1, 2), ()]


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "mean", "all", "any", "var", "std", "count_nonzero"])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(device: str, name: str, axis: object, keepdims: bool) -> None:
    both(name, CUBE, axis=axis, keepdims=keepdims)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "min", "max"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64", "float32"])
def test_dtypes_of_reductions(device: str, name: str, dtype: str) -> None:
    both(name, np.array([[1, 0, 1], [1, 1, 0]]).astype(dtype))


@pytest.mark.parametrize("name", ["sum", "prod", "all", "any"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_of_nothing(device: str, name: str, axis: int | None) -> None:
    both(name, np.zeros((0, 3)), axis=axis)


def test_extremum_of_nothing_is_refused() -> None:
    for name in ("min", "max", "argmin", "argmax"):
        with pytest.raises(ValueError, match="at least one element"):
            getattr(lg, name)(lg.zeros((0,)))
    assert lg.max(lg.zeros((0, 3)), axis=1).shape == (0,)


@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_positions(device: str, name: str, axis: int | None, keepdims: bool) -> None:
    both(name, CUBE, axis=axis, keepdims=keepdims)


def test_nan_wins(device: str) -> None:
    x = np.array([1.0, np.nan, 3.0])
    for name in ("min", "max", "argmin", "argmax", "sum"):
        both(name, x)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_running(device: str, name: str, axis: int | None) -> None:
    both(name, CUBE, axis=axis)
    both(name, CUBE.astype(np.int32), axis=axis)


def test_running_backwards_and_extrema(device: str) -> None:
    x = lg.asarray(CUBE)
    check(lg.cumsum(x, axis=1, reverse=True), np.flip(np.cumsum(np.flip(CUBE, 1), 1), 1))
    check(lg.cummax(x, axis=2), np.maximum.accumulate(CUBE, 2))
    check(lg.cummin(x, axis=0), np.minimum.accumulate(CUBE, 0))


def test_diff_and_logsumexp(device: str) -> None:
    both("diff", CUBE)
    both("diff", CUBE, n=2, axis=1)
    assert lg.diff(lg.asarray(CUBE), n=2**62, axis=1).shape == (CUBE.shape[0], 0, CUBE.shape[2])
    check(lg.logsumexp(lg.asarray([1000.0, 1000.0])), np.float64(1000 + np.log(2)))
    check(lg.logsumexp(lg.asarray(CUBE), axis=1, keepdims=True), np.log(np.exp(CUBE).sum(1, keepdims=True)))


@pytest.mark.parametrize("correction", [0, 1, 0.5])
def test_variance_correction(device: str, correction: float) -> None:
    check(lg.var(lg.asarray(CUBE), axis=2, correction=correction), np.var(CUBE, axis=2, ddof=correction))  # type: ignore[arg-type]


def test_axis_errors() -> None:
    with pytest.raises(lg.ShapeError, match="axis"):
        lg.sum(lg.ones(3), axis=1)
    with pytest.raises(lg.ShapeError, match="once"):
        lg.sum(lg.ones((3, 3)), axis=(0, -2))
    with pytest.raises(lg.DTypeError):
        lg.sum(lg.ones(3), axis=0.5)


@pytest.mark.parametrize("name", ["max", "min", "nanmax", "nanmin"])
def test_extremes_of_no_bools_are_refused(name):
    for shape, axis in (((0,), None), ((3, 0), 1), ((0, 0), 0)):
        with pytest.raises(lg.ShapeError, match="at least one element"):
            getattr(lg, name)(lg.zeros(shape, dtype=bool), axis=axis)
    assert getattr(lg, name)(lg.zeros((0, 3), dtype=bool), axis=1).shape == (0,)
    assert getattr(lg, name)(lg.zeros(0, dtype=bool), initial=True).tolist() is True


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_two_names_of_one_correction_are_not_both_taken(name):
    function, x = getattr(lg, name), CUBE[0, 0]
    for correction in (0, 1):
        with pytest.raises(ValueError, match="ddof=1 and correction"):
            function(lg.asarray(x), ddof=1, correction=correction)
        with pytest.raises(ValueError, match="ddof"):  # as NumPy
            getattr(np, name)(x, ddof=1, correction=correction)
    both(name, x, ddof=0, correction=1)


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_variances_are_no_integers(name):
    with pytest.raises(lg.DTypeError, match="float or complex"):
        getattr(lg, name)(lg.asarray([1.0, 2.0, 4.0]), dtype=lg.int64)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", ["sum", "prod", "nansum", "nanprod"])
def test_sums_and_products_of_bools_as_bools(device, name):
    some = CUBE[0] * [1, 0, 0, 1]
    for x in (some, CUBE * 0, some.astype(np.int32), some != 0):
        for axis in (None, 0, -1):
            both(name, x, axis=axis, dtype=bool)
    both(name, some[:, :0], axis=1, dtype=bool)
    both(name, some, dtype=bool, initial=0)
    both(name, some, axis=0, dtype=bool, keepdims=True, where=some != 2.5)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum", "nancumprod"])
def test_running_totals_of_bools_as_bools(device, name):
    some = CUBE[0] * [0, 1, 0, 1]
    for x in (some, some[:, ::-1].copy(), some != 0, some[:0]):
        for axis in (None, 0, 1):
            both(name, x, axis=axis, dtype=bool)


def test_running_totals_of_bools_from_a_first_element():
    x = np.array([[False, True, False], [True, True, False]])
    for name in ("cumulative_sum", "cumulative_prod"):
        both(name, x, axis=1, dtype=bool, include_initial=True)


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "nansum", "nanmax"])
def test_the_first_element_of_a_reduction_is_a_number(name):
    """As in NumPy: an array took part in the result's shape."""
    for first in ([7.0], np.array([0.0, 1.0])):
        with pytest.raises(lg.ShapeError, match="a number as `initial`"):
            getattr(lg, name)(lg.asarray([1.0, 2.0]), initial=first)
    check(getattr(lg, name)(lg.asarray([[1.0, 2.0]]), axis=0, initial=np.array(7.0)), getattr(np, name)(
        np.array([[1.0, 2.0]]), axis=0, initial=7.0
    ))  # fmt: skip


@pytest.mark.parametrize("name", ["sum", "mean", "var", "any", "nanmean", "nanstd", "add", "copyto", "logsumexp"])
def test_a_mask_is_of_bools(name):
    x, mask = lg.asarray([1.0, 2.0]), lg.asarray([0, 1])
    arguments = (x, x) if name in ("add", "copyto") else (x,)
    with pytest.raises(lg.DTypeError, match="bools as `where`"):
        getattr(lg, name)(*arguments, where=mask)


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_variances_are_as_complex_as_they_are_asked_for(device, name, dtype):
    for x in (np.arange(6, dtype=np.uint16).reshape(2, 3), CUBE + 1j):
        both(name, x, axis=1, dtype=dtype, rtol=1e-5 if dtype == "complex64" else None)


WEIGHTS = np.array([[0.5, -2.0, 0.0, 1.0]])
SPIRAL = np.array([[0.3 + 1.0j, -0.2 + 9.0j, 1.0 - 2.0j, 0.1j], [700.0 + 1j, 700.5 - 2j, -3.0 + 0j, 2.0 + 3j]])


@pytest.mark.in_turns
@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize(
    ("x", "options"),
    [
        (CUBE[0, 0], {"b": CUBE, "axis": (0, 2)}), (CUBE, {"b": np.float32([2.0]), "axis": 1}), (SPIRAL, {"axis": 1}),
        (SPIRAL, {"b": WEIGHTS, "axis": (1,), "keepdims": True}), (SPIRAL.astype("complex64"), {"axis": 0}),
        (np.zeros((0, 3)), {"axis": 0}), (np.array([np.inf, 1.0]), {"b": np.array([1.0, 2.0])}),
        (np.array([np.nan, 1.0]), {"b": np.array([0.0, 2.0])}), (np.array([1e4, 1.0]), {"b": np.array([0.0, 2.0])}),
        (np.array([-np.inf, -np.inf]), {}),
    ],
)  # fmt: skip
def test_logsumexp_as_scipy(device, x, options, sign):
    if sign and not x.size:
        pytest.skip("SciPy's sign of 0 is -1 there")
    with np.errstate(all="ignore"):
        expected = special.logsumexp(x, return_sign=sign, **options)
    got = lg.logsumexp(lg.asarray(x), return_sign=sign, **options)
    for a, b in zip(got if sign else [got], expected if sign else [expected], strict=True):
        check(a, b, 1e-5 if x.dtype == "complex64" else 1e-11)


@pytest.mark.in_turns
@pytest.mark.usefixtures("formulas_alone")
@pytest.mark.parametrize("signed", [False, True])
def test_derivatives_of_logsumexp_of_complex_numbers(signed):
    z = lg.asarray(SPIRAL[:1, :3])
    lg.testing.check_grads(lambda z: lg.logsumexp(z, axis=1, return_sign=signed), (z,), order=2)


@pytest.mark.usefixtures("formulas_alone")
def test_derivatives_of_logsumexp_with_more_weights():
    weighted = lambda x, b: lg.logsumexp(x, axis=0, b=b)  # noqa: E731
    lg.testing.check_grads(weighted, (lg.asarray([0.3, 1.0]), lg.ones((3, 2))), order=2)
