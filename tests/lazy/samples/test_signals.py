"""`lg.signal` beside SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

import loopgrad as lg
from tests.lazy.oracle import check

RNG = np.random.default_rng(6)
OURS = lg.signal


@pytest.mark.in_turns
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_convolutions(dtype: str, mode: str) -> None:
    def draw(*shape: int) -> np.ndarray:
        return RNG.normal(size=shape) + (1j * RNG.normal(size=shape) if dtype == "complex128" else 0.0)

    pairs = [(draw(7), draw(4)), (draw(3), draw(8)), (draw(5, 6), draw(3, 2)), (draw(4, 3), draw(6, 5))]
    for a, b in pairs:
        for name in ("convolve", "correlate"):
            for method in ("direct", "fft"):
                check(getattr(OURS, name)(lg.asarray(a), b, mode, method), getattr(signal, name)(a, b, mode, method))
        swapped = mode == "valid" and a.shape < b.shape and dtype == "complex128"
        for boundary in ("fill", "wrap", "symm") if a.ndim == 2 else ():
            check(OURS.convolve2d(a, b, mode, boundary, 0.5), signal.convolve2d(a, b, mode, boundary, 0.5))
            expected = signal.correlate2d(a, b, mode, boundary, 0.5)
            check(OURS.correlate2d(a, b, mode, boundary, 0.5), expected.conj() if swapped else expected)


def test_convolutions_along_an_axis_and_of_integers() -> None:
    a, b = RNG.normal(size=(3, 50)), RNG.normal(size=(3, 9))
    check(OURS.fftconvolve(a, b, "same", axes=1), signal.fftconvolve(a, b, "same", axes=1))
    check(OURS.convolve([1, 2, 3], [4, 5]), signal.convolve([1, 2, 3], [4, 5]))
    lg.testing.check_grads(
        lambda a, b: lg.sum(OURS.fftconvolve(a, b) ** 2), (lg.asarray(a[0, :4]), lg.asarray(b[0, :3])), order=1
    )


FILTERS = [([0.2, 0.3], [1.0, -0.4, 0.1]), ([2.0, 1.0], [2.0, -0.6]), ([1.0, 2.0, 3.0], [1.0]), ([0.5], [1.0, -0.3])]


@pytest.mark.parametrize(("b", "a"), FILTERS, ids=str)
def test_recursive_filters(b: list[float], a: list[float]) -> None:
    x = RNG.normal(size=(2, 30, 2))
    check(OURS.lfilter(b, a, lg.asarray(x), axis=1), signal.lfilter(b, a, x, axis=1))
    start = RNG.normal(size=(2, max(len(a), len(b)) - 1, 2))
    for ours, theirs in zip(OURS.lfilter(b, a, x, 1, start), signal.lfilter(b, a, x, 1, start), strict=True):
        check(ours, theirs)
    check(OURS.lfilter_zi(b, a), signal.lfilter_zi(b, a))
    for padtype in ("odd", "even", "constant", None):
        expected = signal.filtfilt(b, a, x, 1, padtype)
        check(OURS.filtfilt(b, a, lg.asarray(x), 1, padtype), expected, 1e-10)


def test_second_order_sections(device: str) -> None:
    sos, x = signal.butter(5, 0.3, output="sos"), RNG.normal(size=(2, 40))
    check(OURS.sosfilt(sos, lg.asarray(x)), signal.sosfilt(sos, x))
    check(OURS.sosfilt_zi(sos), signal.sosfilt_zi(sos), 1e-10)
    start = RNG.normal(size=(3, 2, 2))
    for ours, theirs in zip(OURS.sosfilt(sos, x, 1, start), signal.sosfilt(sos, x, 1, start), strict=True):
        check(ours, theirs)
    check(OURS.sosfiltfilt(sos, lg.asarray(x)), signal.sosfiltfilt(sos, x), 1e-10)


def test_slopes_by_coefficients_and_samples(device: str) -> None:
    b, a, x = (lg.asarray(v) for v in ([0.2, 0.3], [1.1, -0.4, 0.1], RNG.normal(size=(2, 6))))
    lg.testing.check_grads(lambda b, a, x: lg.sum(OURS.lfilter(b, a, x) ** 2), (b, a, x), order=1)


def test_what_cannot_be_filtered_is_refused() -> None:
    with pytest.raises(lg.ShapeError, match="vectors of coefficients"):
        OURS.lfilter(lg.ones((2, 2)), [1.0], lg.ones(3))
    with pytest.raises(lg.ShapeError, match=r"zi of shape \(1,\)"):
        OURS.lfilter([1.0], [1.0, 0.5], lg.ones(3), zi=lg.ones(2))
    with pytest.raises(ValueError, match="more than padlen"):
        OURS.filtfilt([1.0], [1.0, 0.5], lg.ones(3))
    with pytest.raises(lg.ShapeError, match="along every axis"):
        OURS.convolve(lg.ones((2, 5)), lg.ones((3, 3)), "valid")
    with pytest.raises(ValueError, match="boundary"):
        OURS.convolve2d(lg.ones((2, 5)), lg.ones((3, 3)), boundary="odd")
