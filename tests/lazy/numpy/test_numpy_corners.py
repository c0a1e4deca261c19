"""Corners where NumPy users expect NumPy's result: rounding, NaN order, infinities, masks, ints as data."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.session import SESSION


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cube_roots_of_large_and_small_numbers_are_exact_to_two_ulp(device, dtype):
    info = np.finfo(dtype)
    x = np.array([info.max, -info.max, info.tiny, -info.tiny, 27.0, 1e-30, 0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    np.testing.assert_array_max_ulp(np.asarray(lg.cbrt(lg.asarray(x))), np.cbrt(x), 2)


def test_the_derivative_of_a_cube_root(device):
    x = np.array([8.0, -27.0, 1e-30])
    slope = lg.grad(lambda x: lg.sum(lg.cbrt(x)))(lg.asarray(x))
    np.testing.assert_allclose(np.asarray(slope), np.cbrt(x) / x / 3, rtol=1e-13)


def test_sigmoid_of_large_negative_numbers_and_its_slope_at_zero(device):
    x = np.array([-100.0, -92.5, -1.0, 0.0, 3.0, 200.0], np.float32)
    exact = 1.0 / (1.0 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(np.asarray(lg.sigmoid(lg.asarray(x))), exact, rtol=3e-7, atol=2e-45)
    slope = lg.grad(lambda x: lg.sum(lg.sigmoid(x)))(lg.asarray(x.astype(np.float64)))
    exact = 1.0 / (1.0 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(np.asarray(slope), exact * (1 - exact), rtol=1e-12, atol=1e-80)


def test_nan_to_num_replaces_infinities(device):
    x = np.array([np.nan, np.inf, -np.inf, 1.0])
    np.testing.assert_array_equal(np.asarray(lg.nan_to_num(lg.asarray(x))), np.nan_to_num(x))
    replaced = np.asarray(lg.nan_to_num(lg.asarray(x), nan=7.0, posinf=8.0, neginf=9.0))
    np.testing.assert_array_equal(replaced, [7.0, 8.0, 9.0, 1.0])
    assert np.asarray(lg.nan_to_num(lg.asarray([1, 2]))).tolist() == [1, 2]


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_puts_nan_behind_everything(device, side):
    keys = np.array([0.0, 2.0, 9.0, np.nan])
    for table in (np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, np.nan, np.nan])):
        found = np.asarray(lg.searchsorted(lg.asarray(table), lg.asarray(keys), side=side))
        np.testing.assert_array_equal(found, np.searchsorted(table, keys, side=side))


def test_offsets_of_diagonals_by_position():
    x = np.arange(12.0).reshape(3, 4)
    assert float(lg.trace(lg.asarray(x), 1)) == np.trace(x, 1)
    np.testing.assert_array_equal(np.asarray(lg.diagonal(lg.asarray(x), -1)), np.diagonal(x, -1))


@pytest.mark.parametrize(
    "index", [np.zeros((4, 3), bool), (0, np.ones(3, bool)), (..., np.ones(3, bool)), [True, False]]
)
def test_a_mask_of_another_extent_is_refused(index):
    x = lg.zeros((3, 4))
    with pytest.raises(lg.IndexRangeError, match=r"expected a mask of extent \d for axis"):
        x[index]


def test_masks_of_the_right_extent_beside_other_indices():
    x = np.arange(24.0).reshape(2, 3, 4)
    row = x[0, :, 0] > 1.5
    for index in ((0, x[0] > 3), (..., x[0, 0] > 1), (None, x > 3), (slice(None), x[0] > 4), ([1, 0], row)):
        np.testing.assert_array_equal(np.asarray(lg.asarray(x)[index]), x[index])


def test_a_matrix_product_with_a_number_is_refused():
    with pytest.raises(lg.ShapeError, match=r"got \(3,\) @ \(\); multiply by a scalar with \*"):
        lg.ones(3) @ 2.0


def test_ints_made_tensors_are_data_and_compile_once():
    x = lg.asarray([1.0, 2.0])
    before = SESSION.compiled
    for trips in range(2, 9):
        y = lg.fori_loop(0, lg.asarray(trips), lambda _, v: v * 2.0, x)
        assert np.asarray(y).tolist() == [2.0**trips, 2.0 ** (trips + 1)]
    assert SESSION.compiled - before <= 2
    with pytest.raises(OverflowError):
        lg.asarray(2**63)


def test_arguments_as_numpy_takes_them(device):
    x, m = lg.arange(6.0), lg.asarray([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(lg.arange(lg.max(lg.asarray([2, 3])) + 1), [0, 1, 2, 3])
    np.testing.assert_array_equal(lg.einsum(m, [0, 1], lg.asarray([1.0, 10.0]), [1], [0]), [21.0, 43.0])
    np.testing.assert_array_equal(lg.einsum(m, [1, 0]), [[1.0, 3.0], [2.0, 4.0]])
    np.testing.assert_array_equal(lg.einsum(m, [..., 1], [...]), [3.0, 7.0])
    with pytest.raises(lg.ShapeError, match="a list of numbers behind each operand"):
        lg.einsum(m, "ij", m, "jk")
    parts = lg.split(x, lg.asarray([2, 3])), lg.array_split(x, np.array([2, 3])), lg.hsplit(x, (2, 3))
    for cut in parts:
        assert [p.tolist() for p in cut] == [[0.0, 1.0], [2.0], [3.0, 4.0, 5.0]]
    assert lg.size(lg.ones((2, 3, 4)), axis=(0, 2)) == 8
    place = lg.zeros(4, dtype=lg.complex64)
    assert lg.fft.rfft(x, out=place) is place
    np.testing.assert_allclose(place, np.fft.rfft(np.arange(6.0)), rtol=1e-6)
    with pytest.raises(lg.ShapeError, match="a result of shape"):
        lg.fft.fft2(m, out=place)
    y = lg.asarray([2.0, 1.0])
    y.sort(-1, "stable", None)
    assert y.tolist() == [1.0, 2.0]
    last, _ = lg.scan(lambda c, v: (c + v, None), 0.0, x, unroll=2)
    assert float(last) == 15.0
    assert int(lg.fori_loop(0, 3, lambda i, c: c + i, 0, unroll=True)) == 3


def test_elements_on_the_edges_of_equal_bins(device):
    """Edges have NumPy's bits, so elements that lie on one fall into NumPy's bin."""
    rng = np.random.default_rng(3)
    cases = [(np.array([1, 2, 3, 10, 11, 15, 19, 25]), 5, (0, 25)), (np.arange(30) / 10, 7, (0.1, 2.3))]
    cases += [(rng.integers(-10, 20, 40), bins, None) for bins in (1, 3, 7, 11)]
    for x, bins, between in cases:
        counts, edges = lg.histogram(lg.asarray(x), bins=bins, range=between)
        exact, exact_edges = np.histogram(x, bins=bins, range=between)
        np.testing.assert_array_equal(np.asarray(edges), exact_edges)
        np.testing.assert_array_equal(np.asarray(counts), exact)


def test_ends_that_are_not_finite():
    """Equal bins from or to an infinity, or NaN, are none: refused where elements are known, NaN where they aren't."""
    for x, between in (([1.0, np.inf], None), ([1.0, np.nan], None), ([1.0, 2.0], (0.0, np.inf))):
        for count in (lg.histogram, lg.histogram_bin_edges, lambda x, range: lg.histogram2d(x, x, range=[range] * 2)):
            with pytest.raises(ValueError, match="a range with finite ends"):
                count(lg.asarray(x), range=between)
    counts, _ = lg.histogram(lg.asarray([1.0, np.inf, 2.0]), range=(0.0, 3.0))
    assert counts.sum() == 2
    assert np.isnan(lg.compile(lambda x: lg.histogram_bin_edges(x))(lg.asarray([1.0, np.inf]))[0])
    slope = lg.grad(lambda x: lg.sum(lg.histogram(x, bins=3)[1]))(lg.asarray([1.0, 4.0, 2.0]))
    assert slope.tolist() == [2.0, 2.0, 0.0]


def test_indices_by_name_and_characteristic_polynomials():
    made = lg.fromfunction(lambda i, j, k: i + k * j, shape=(2, 3), k=3)
    np.testing.assert_array_equal(made, np.fromfunction(lambda i, j, k: i + k * j, shape=(2, 3), k=3))
    a = np.random.default_rng(0).normal(size=(4, 4))
    np.testing.assert_allclose(lg.poly(lg.asarray(a)), np.poly(a), rtol=1e-10)
    assert lg.poly(lg.asarray(a)).dtype == lg.float64
    np.testing.assert_allclose(lg.poly(lg.asarray(a + 1j)), np.poly(a + 1j), rtol=1e-10)
    with pytest.raises(lg.ShapeError, match="a vector of zeros or a square matrix"):
        lg.poly(lg.ones((2, 3)))


def test_shifts_and_axes_of_a_roll_broadcast(device):
    x = np.arange(12.0).reshape(3, 4)
    for shift, axis in [
        ((1, 2), None), (np.array([1, 2]), None), ((1, 2), 1), (np.array([1, -1]), (0, 1)), (np.int8(3), np.array([1])),
        ((), 0),
    ]:  # fmt: skip
        np.testing.assert_array_equal(np.asarray(lg.roll(lg.asarray(x), shift, axis)), np.roll(x, shift, axis))
    with pytest.raises(lg.ShapeError, match="one shift per axis"):
        lg.roll(lg.asarray(x), (1, 2, 3), (0, 1))


def test_logaddexp_of_complex_numbers_is_a_principal_logarithm(device):
    x, y = np.array([1 + 4j, 700 - 9j, -2 + 3j]), np.array([1 + 4j, 700.5 - 9j, 1 - 3.1j])
    shift = np.maximum(x.real, y.real)
    expected = np.log(np.exp(x - shift) + np.exp(y - shift)) + shift
    np.testing.assert_allclose(np.asarray(lg.logaddexp(lg.asarray(x), lg.asarray(y))), expected, rtol=1e-12)
    ones, zeros = lg.ones(3, dtype=complex), lg.zeros(3, dtype=complex)
    slope = lg.jvp(lg.logaddexp, (lg.asarray(x), lg.asarray(y)), (ones, zeros))[1]
    share = np.exp(x - shift) / (np.exp(x - shift) + np.exp(y - shift))
    np.testing.assert_allclose(np.asarray(slope), share, rtol=1e-12)


def test_an_axis_without_elements_has_nothing_to_read(device):
    nothing = lg.zeros((2, 0))
    for read in (lambda i: lg.take(nothing, i, axis=1), lambda i: nothing[:, i], lambda i: lg.take(nothing, i)):
        assert 0 in read(lg.zeros((0,), dtype=int)).shape
        with pytest.raises(IndexError, match="no position along axis"):
            read(lg.asarray([0]))
    assert np.isnan(np.asarray(lg.take(nothing, lg.asarray([0]), axis=1, mode="fill"))).all()


def test_ends_that_differences_cannot_hold(device):
    np.testing.assert_array_equal(np.asarray(lg.ediff1d([1, 2, 4], to_end=[300])), np.ediff1d([1, 2, 4], to_end=[300]))
    with pytest.raises(lg.DTypeError, match="same_kind"):
        lg.ediff1d([1, 2, 4], to_end=1.5)


def test_positions_beyond_an_array_are_not_unraveled(device):
    for places in (-1, 42, np.array([0, 100])):
        with pytest.raises(ValueError, match="0 to 41"):
            lg.unravel_index(places, (7, 6))
    data = lg.unravel_index(lg.asarray([-1, 41, 100]), (7, 6))  # as JAX gives them
    assert [np.asarray(t).tolist() for t in data] == [[6, 6, 6], [5, 5, 5]]


def test_powers_of_no_numbers(device):
    for options in ({}, {"N": 3}, {"N": 0}):
        assert lg.vander(lg.asarray([]), **options).shape == np.vander([], **options).shape


def test_equal_dtypes_have_equal_hashes():
    for dtype in (lg.float32, lg.bool_, lg.complex128, lg.int8):
        assert {np.dtype(dtype.name): 1}[dtype] == 1
        assert {dtype: 2}[np.dtype(dtype.name)] == 2
