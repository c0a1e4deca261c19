"""Transforms along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.complex_numbers.arithmetic import conjugate
from loopgrad.graph.nodes import Value
from loopgrad.lazy.numpy.fft.operands import (
    at_end,
    axis_of,
    complex_value,
    fitted,
    float_value,
    length,
    norm_word,
    put_back,
    real_result,
    real_value,
)
from loopgrad.lazy.tensor.core import ArrayLike, cast, wrap
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_FFT: Final = "fft hfft ifft ihfft irfft rfft"


@repeated
def fft(
    x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """The discrete Fourier transform along an axis: y[k] is the sum over j of x[j] exp(-2 pi i j k / n).

    x is cut or filled up with zeros to n numbers there (None: as many as there are); any length will do. `norm`
    "forward" divides by n, "ortho" by its root, "backward" leaves the division to `ifft`. The result is complex128 for
    float64, complex128 and integers (with default float64), complex64 for narrower floats. Raises ShapeError for an
    axis that isn't there and for n below 1, ValueError for another norm. With `out` it is written to that.
    Its derivative by x is the transform in the other direction. Where a device has no kernels, the host computes it,
    and `plan()` says so.

    Cooley and Tukey, An algorithm for the machine calculation of complex Fourier series, 1965; Bluestein, A linear
    filtering approach to the computation of the discrete Fourier transform, 1968.

    >>> lg.fft.fft(lg.asarray([1.0, 2.0, 3.0, 4.0]))
    Tensor([10.+0.j, -2.+2.j, -2.+0.j, -2.-2.j], dtype=complex128)
    """
    value = float_value(x)
    at = axis_of("fft", value, axis)
    n = length("fft", n, value.shape[at])
    return delivered("fft", wrap(transformed(value, at, n, norm_word("fft", norm, inverse=False), inverse=False)), out)


@repeated
def ifft(
    x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """The inverse of `fft`: x[j] is the sum over k of y[k] exp(+2 pi i j k / n), divided by n.

    Arguments, dtypes and errors are those of `fft`; `norm` "forward" leaves out the division.

    >>> lg.fft.ifft(lg.asarray([10.0, -2.0 + 2.0j, -2.0, -2.0 - 2.0j])).real
    Tensor([1., 2., 3., 4.], dtype=float64)
    """
    value = float_value(x)
    at = axis_of("ifft", value, axis)
    n = length("ifft", n, value.shape[at])
    return delivered("ifft", wrap(transformed(value, at, n, norm_word("ifft", norm, inverse=True), inverse=True)), out)


@repeated
def rfft(
    x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """The first n // 2 + 1 numbers of the `fft` of real numbers; the others are the conjugates of these.

    Arguments and dtypes are those of `fft`. Raises DTypeError for complex numbers, and what `fft` raises.

    >>> lg.fft.rfft(lg.asarray([1.0, 2.0, 3.0, 4.0]))
    Tensor([10.+0.j, -2.+2.j, -2.+0.j], dtype=complex128)
    """
    value = real_value("rfft", x)
    at = axis_of("rfft", value, axis)
    n = length("rfft", n, value.shape[at])
    return delivered("rfft", wrap(of_reals(value, at, n, norm_word("rfft", norm, inverse=False))), out)


@repeated
def irfft(
    x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """The inverse of `rfft`: n real numbers of the first n // 2 + 1 of their transform.

    n is even if it isn't given: 2 (m - 1) for m numbers. What must be real for a real result, number 0 and number n / 2
    of an even n, has its imaginary part ignored. The result's dtype is float64 or float32, of 16-bit floats their own.
    Errors are those of `fft`.

    >>> lg.fft.irfft(lg.asarray([10.0, -2.0 + 2.0j, -2.0]))
    Tensor([1., 2., 3., 4.], dtype=float64)
    """
    value = complex_value(x)
    at = axis_of("irfft", value, axis)
    n = length("irfft", n, 2 * (value.shape[at] - 1))
    found = to_reals(value, at, n, norm_word("irfft", norm, inverse=True))
    return delivered("irfft", cast(wrap(found), real_result(x)), out)


@repeated
def hfft(
    x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """The `fft`, which is real, of n numbers with Hermitian symmetry, x[n - j] = conj(x[j]), of which the first
    n // 2 + 1 are given.

    Arguments, dtypes and errors are those of `irfft`, but "backward" leaves the division to `ihfft`.

    >>> lg.fft.hfft(lg.asarray([1.0, 1.0j, 2.0]))
    Tensor([ 3.,  1.,  3., -3.], dtype=float64)
    """
    value = complex_value(x)
    at = axis_of("hfft", value, axis)
    n = length("hfft", n, 2 * (value.shape[at] - 1))
    found = to_reals(conjugate(value), at, n, norm_word("hfft", norm, inverse=False))
    return delivered("hfft", cast(wrap(found), real_result(x)), out)


@repeated
def ihfft(
    x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """The inverse of `hfft`: the first n // 2 + 1 numbers of the `ifft` of real numbers.

    Arguments, dtypes and errors are those of `rfft`.

    >>> lg.fft.ihfft(lg.asarray([3.0, 1.0, 3.0, -3.0]))
    Tensor([1.-0.j, 0.+1.j, 2.-0.j], dtype=complex128)
    """
    value = real_value("ihfft", x)
    at = axis_of("ihfft", value, axis)
    n = length("ihfft", n, value.shape[at])
    return delivered("ihfft", wrap(conjugate(of_reals(value, at, n, norm_word("ihfft", norm, inverse=True)))), out)


# ---- values


def transformed(value: Value, axis: int, n: int, norm: str, inverse: bool) -> Value:
    """The dft of real or complex values along an axis, cut or filled up to n."""
    if value.dtype.kind != "c":
        found = mirrored(of_reals(value, axis, n, norm), (axis,), n)
        return conjugate(found) if inverse else found
    value = at_end(fitted(value, axis, n), axis)
    return put_back(ops.from_pairs(emit("dft", (ops.pairs(value),), {"inverse": inverse, "norm": norm})[0]), axis)


def mirrored(half: Value, axes: Sequence[int], n: int) -> Value:
    """The transform of real numbers along these axes, of which this is the first half along the last axis named, of
    n numbers: each of the others is the conjugate of the one at the negative places."""
    *others, last = axes
    start, stop = [0] * len(half.shape), list(half.shape)
    start[last], stop[last] = 1, n - n // 2
    found = ops.flip(ops.slice(half, tuple(start), tuple(stop)), (last,))
    for axis in others:
        found = _negative(found, axis)
    return ops.concat([half, conjugate(found)], last)


def _negative(value: Value, axis: int) -> Value:
    """Number 0, then the others backwards."""
    extent, rank = value.shape[axis], len(value.shape)
    if extent < 3:
        return value
    first = tuple([1 if d == axis else e for d, e in enumerate(value.shape)])
    second = tuple([1 if d == axis else 0 for d in range(rank)])
    rest = ops.slice(value, second, value.shape)
    return ops.concat([ops.slice(value, (0,) * rank, first), ops.flip(rest, (axis,))], axis)


def of_reals(value: Value, axis: int, n: int, norm: str) -> Value:
    value = at_end(fitted(value, axis, n), axis)
    return put_back(ops.from_pairs(emit("real_dft", (value,), {"norm": norm})[0]), axis)


def to_reals(value: Value, axis: int, n: int, norm: str) -> Value:
    value = at_end(fitted(value, axis, n // 2 + 1), axis)
    return put_back(emit("hermitian_dft", (ops.pairs(value),), {"length": n, "norm": norm})[0], axis)
