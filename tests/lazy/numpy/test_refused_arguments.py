"""Arguments that NumPy refuses are refused: numbers came of them, of which nobody could say what they meant."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

X, M = np.array([3.0, 1.0, 2.0]), np.arange(6.0).reshape(2, 3)

REFUSED = {
    "compress beyond the end": (lambda m: m.compress([True, False, True, True], m.asarray(X)), IndexError),
    "compress rows beyond the end": (lambda m: m.compress([0, 1, 1], m.asarray(M), axis=0), IndexError),
    "compress by a mask of rank 2": (lambda m: m.compress(m.asarray(M > 2), m.asarray(X)), ValueError),
    "extract beyond the end": (lambda m: m.extract(m.asarray(M > 2), m.asarray(X)), IndexError),
    "diff of negative order": (lambda m: m.diff(m.asarray(X), n=-1), ValueError),
    "matvec of a vector": (lambda m: m.matvec(m.asarray(X), m.asarray(X)), ValueError),
    "vecmat with a vector": (lambda m: m.vecmat(m.asarray(X), m.asarray(X)), ValueError),
    **{
        f"{name} with initial arrays": (lambda m, n=name: getattr(m, n)(m.asarray(X), initial=[1.0, 2.0]), ValueError)
        for name in ("sum", "prod", "max", "min", "nansum", "nanprod", "nanmax", "nanmin")
    },
    "pad with fractions": (lambda m: m.pad(m.asarray(X), 1.5), TypeError),
    "pad with a pair of fractions": (lambda m: m.pad(m.asarray(X), [0.5, 1.5]), TypeError),
    "pad with triples": (lambda m: m.pad(m.asarray(M), [[1, 2, 3], [1, 2, 3]]), ValueError),
    "partition at a fraction": (lambda m: m.partition(m.asarray(X), 1.5), TypeError),
    "argpartition beyond the end": (lambda m: m.argpartition(m.asarray(X), m.asarray([0, 3])), ValueError),
    "searchsorted by a short sorter": (lambda m: m.searchsorted(m.asarray(X), 1.5, sorter=[1, 2]), ValueError),
    "searchsorted by a mask": (lambda m: m.searchsorted(m.asarray(X), 1.5, sorter=m.asarray(X > 1)), ValueError),
    "fftfreq of no number": (lambda m: m.fft.fftfreq(None), TypeError),
    "rfftfreq of no number": (lambda m: m.fft.rfftfreq(None), TypeError),
    "histogram2d of unpaired coordinates": (lambda m: m.histogram2d(m.asarray(X), m.asarray(X[:1])), ValueError),
    "histogram2d of matrices": (lambda m: m.histogram2d(m.asarray(M), m.asarray(M)), ValueError),
    "nanmean of floats in integers": (lambda m: m.nanmean(m.asarray(X), dtype=np.uint8), TypeError),
    "cov in integers": (lambda m: m.cov(m.asarray(M), dtype=np.int64), TypeError),
    "corrcoef in bools": (lambda m: m.corrcoef(m.asarray(M), dtype=np.bool_), TypeError),
    "lexsort along no axis": (lambda m: m.lexsort(m.asarray(M), axis=None), TypeError),
    "lexsort along two axes": (lambda m: m.lexsort(m.asarray(M), axis=(0,)), TypeError),
    "polydiv of nothing": (lambda m: m.polydiv(m.asarray(X[:0]), m.asarray(X)), (ValueError, IndexError)),
    "select by numbers": (lambda m: m.select([m.asarray(X)], [m.asarray(X)]), TypeError),
    "unravel_index of fractions": (lambda m: m.unravel_index(m.asarray(X), (2, 3)), TypeError),
    "take behind the end": (lambda m: m.take(m.asarray(X), [0, 3]), IndexError),
    "take before the beginning": (lambda m: m.take(m.asarray(M), np.array([-3]), axis=0), IndexError),
    "take_along_axis behind the end": (lambda m: m.take_along_axis(m.asarray(M), np.array([[0, 3]]), 1), IndexError),
    "put behind the end": (lambda m: m.put(m.asarray(M).copy(), [6], 1.0), IndexError),
    "put_along_axis behind the end": (lambda m: m.put_along_axis(m.asarray(X).copy(), np.array([3]), 1, 0), IndexError),
    "choose from too few": (lambda m: m.choose([0, 2], m.asarray(M)), ValueError),
    "choose before the first": (lambda m: m.choose([0, -1], m.asarray(M)), ValueError),
    "ravel_multi_index behind the end": (lambda m: m.ravel_multi_index(([0, 2], [0, 0]), (2, 3)), ValueError),
    "insert before the beginning": (lambda m: m.insert(m.asarray(X), -7, [1.0, 2.0]), IndexError),
    "insert several behind the end": (lambda m: m.insert(m.asarray(X), [0, 7], [1.0, 2.0]), IndexError),
    "matrix_rank by two bounds": (lambda m: m.linalg.matrix_rank(m.asarray(M), 0.1, rtol=0.1), ValueError),
    "round to a fraction": (lambda m: m.round(m.asarray(X), 0.5), TypeError),
    "digitize by unordered edges": (lambda m: m.digitize(m.asarray(X), m.asarray([0.0, 2.0, 1.0])), ValueError),
    "histogram of unordered edges": (lambda m: m.histogram(m.asarray(X), m.asarray([0.0, 2.0, 1.0])), ValueError),
    "histogram of three ends": (lambda m: m.histogram(m.asarray(X), 2, range=(0.0, 1.0, 2.0)), ValueError),
    "histogram of few weights": (lambda m: m.histogram(m.asarray(X), 2, weights=m.asarray([1.0])), ValueError),
    "histogramdd of one weight": (lambda m: m.histogramdd(m.asarray(M), 2, weights=m.asarray(-7.0)), ValueError),
    "an axis of several": (lambda m: m.sum(m.asarray(M), axis=np.array([0, 1])), TypeError),
    "an extent of several": (lambda m: m.broadcast_to(m.asarray(X), np.array([1.5, 2.0])), TypeError),
    "zeros of dtype 0": (lambda m: m.zeros(2, 0), TypeError),
    "ones of dtype 3": (lambda m: m.ones(2, 3), TypeError),
    "split into a fraction of sections": (lambda m: m.split(m.asarray(M[0, :2]), 1.5), ValueError),
    "hsplit into a fraction of sections": (lambda m: m.hsplit(m.asarray(M[:, :2]), 1.5), ValueError),
    "bincount of a fraction of bins": (lambda m: m.bincount(m.asarray([0, 1]), minlength=0.5), TypeError),
    "array of a fraction of axes": (lambda m: m.array([1.0], ndmin=0.5), TypeError),
    "array of too many axes": (lambda m: m.array([1.0], ndmin=2**20), ValueError),
    "the diagonal at a fraction": (lambda m: m.diagonal(m.asarray(M), 0.5), TypeError),
    "diag at a fraction": (lambda m: m.diag(m.asarray(X), 0.5), TypeError),
    "tensordot over no axes": (lambda m: m.tensordot(m.asarray(M), m.asarray(M), axes=None), TypeError),
    "polyint a word of times": (lambda m: m.polyint(m.asarray(X), "a"), TypeError),
    "the diagonal of a fraction of axes": (lambda m: m.diag_indices(2, 1.5), TypeError),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_numpy_refuses_is_refused(case):
    call, error = REFUSED[case]
    with pytest.raises((TypeError, ValueError, IndexError)):
        call(np)
    with pytest.raises(error, match=r"expected .*, got"):
        call(lg)


@pytest.mark.parametrize(
    "case",
    [
        lambda m: m.compress([True, False], m.asarray(X)),
        lambda m: m.compress([True, False, True, False], m.asarray(X)),
        lambda m: m.diff(m.asarray(X), n=0),
        lambda m: m.sum(m.asarray(M), axis=0, initial=m.asarray(2.0)),
        lambda m: m.max(m.asarray(M > 7), initial=m.asarray(True)),
        lambda m: m.pad(m.asarray(M), [[1, 2], [0, 1]]),
        lambda m: m.pad(m.asarray(M), np.array([[1], [2]])),
        lambda m: m.partition(m.asarray(X), (0, -1)),
        lambda m: m.insert(m.asarray(X), [3, -3], 7.0),
        lambda m: m.digitize(m.asarray(X), m.asarray([2.0, 2.0, 1.0])),
        lambda m: m.histogram(m.asarray(M), m.asarray([0.0, 2.0, 2.0, 9.0]), weights=m.asarray(M))[0],
        lambda m: m.round(m.asarray(X), np.int8(1)),
    ],
)
def test_what_lies_beside_it_is_as_before(case):
    np.testing.assert_array_equal(np.asarray(case(lg)), case(np))


def test_conditions_of_a_function_that_is_traced_end_with_the_axis():
    """Nobody knows yet whether one holds behind the end, where there is nothing to take."""
    function = lg.compile(lambda c, x: lg.compress(c, x, size=3, fill_value=9.0))
    assert function(lg.asarray([False, True, True, True, True]), lg.asarray(X)).tolist() == [1.0, 2.0, 9.0]


def test_edges_of_a_function_that_is_differentiated_are_checked_and_followed():
    weights = lg.asarray([1.0, 2.0, 3.0])
    slope = lg.grad(lambda e: lg.sum(lg.digitize(e, e) * e * weights))(lg.asarray([1.0, 2.0, 4.0]))
    assert slope.tolist() == [1.0, 4.0, 9.0]


@pytest.mark.parametrize("given", [np.float32(2.0), np.ones(3), lg.asarray(1.0), [], (), {"a": 1}, 2, 0, "ij,k", "O"])
def test_what_is_no_dtype(given):
    """A number that has a dtype was taken for it, and was remembered as the dtype of all numbers that equal it."""
    for _ in range(2):
        with pytest.raises(TypeError, match="dtype: expected one of bool"):
            lg.zeros(2, dtype=given)


@pytest.mark.parametrize("given", [2, [], {"a": 1}, lg.asarray(1.0)])
def test_what_is_no_device(given):
    with pytest.raises(TypeError, match="device: expected a device's name"):
        lg.zeros(2, device=given)
