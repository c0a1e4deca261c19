"""Transforms along several axes, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.complex_numbers.arithmetic import conjugate
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.numpy.fft.operands import (
    axes_and_lengths,
    complex_value,
    float_value,
    norm_word,
    real_result,
    real_value,
)
from loopgrad.lazy.numpy.fft.transforms import mirrored, of_reals, to_reals, transformed
from loopgrad.lazy.tensor.core import ArrayLike, cast, wrap
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_FFT: Final = "fft2 fftn hfft2 hfftn ifft2 ifftn ihfft2 ihfftn irfft2 irfftn rfft2 rfftn"
Axes = Sequence[int] | None
LAST_TWO: Final = (-2, -1)


@repeated
def fftn(x: ArrayLike, /, s: Axes = None, axes: Axes = None, norm: str | None = "backward", out: Out = None) -> Tensor:
    """The discrete Fourier transform along several axes (None: all, or the last ones, as many as `s` has lengths).

    `s`: to how many numbers x is cut or filled up with zeros along each of them, -1 for all there are. `norm`, dtypes
    and errors are those of `fft`; ShapeError where `s` and `axes` aren't as many.

    >>> lg.fft.fftn(lg.asarray([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([[10.+0.j, -2.+0.j],
            [-4.+0.j,  0.+0.j]], dtype=complex128)
    """
    return delivered("fftn", _along("fftn", x, s, axes, norm, inverse=False), out)


@repeated
def ifftn(x: ArrayLike, /, s: Axes = None, axes: Axes = None, norm: str | None = "backward", out: Out = None) -> Tensor:
    """The inverse of `fftn`, with its arguments, dtypes and errors.

    >>> lg.fft.ifftn(lg.asarray([[10.0, -2.0], [-4.0, 0.0]])).real
    Tensor([[1., 2.],
            [3., 4.]], dtype=float64)
    """
    return delivered("ifftn", _along("ifftn", x, s, axes, norm, inverse=True), out)


@repeated
def rfftn(x: ArrayLike, /, s: Axes = None, axes: Axes = None, norm: str | None = "backward", out: Out = None) -> Tensor:
    """The `fftn` of real numbers, without what the rest of it says already: the last of the axes has
    n // 2 + 1 numbers.

    Arguments and dtypes are those of `fftn`. Raises DTypeError for complex numbers, ShapeError for no axes, and what
    `fftn` raises.

    >>> lg.fft.rfftn(lg.ones((2, 4))).shape
    (2, 3)
    """
    return delivered("rfftn", _of_reals("rfftn", x, s, axes, norm), out)


@repeated
def irfftn(
    x: ArrayLike, /, s: Axes = None, axes: Axes = None, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """The inverse of `rfftn`. Without `s` the length along the last of the axes is even, 2 (m - 1) for m numbers.

    Arguments and errors are those of `rfftn`; the result is float64 or float32.

    >>> lg.fft.irfftn(lg.fft.rfftn(lg.asarray([[1.0, 2.0], [3.0, 4.0]])))
    Tensor([[1., 2.],
            [3., 4.]], dtype=float64)
    """
    return delivered("irfftn", _to_reals("irfftn", x, s, axes, norm), out)


@repeated
def fft2(
    x: ArrayLike, /, s: Axes = None, axes: Axes = LAST_TWO, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """`fftn` along the last two axes, or those given.

    >>> lg.fft.fft2(lg.ones((3, 2, 2))).shape
    (3, 2, 2)
    """
    return delivered("fft2", _along("fft2", x, s, axes, norm, inverse=False), out)


@repeated
def ifft2(
    x: ArrayLike, /, s: Axes = None, axes: Axes = LAST_TWO, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """`ifftn` along the last two axes, or those given.

    >>> lg.fft.ifft2(lg.ones((3, 2, 2))).dtype
    complex128
    """
    return delivered("ifft2", _along("ifft2", x, s, axes, norm, inverse=True), out)


@repeated
def rfft2(
    x: ArrayLike, /, s: Axes = None, axes: Axes = LAST_TWO, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """`rfftn` along the last two axes, or those given.

    >>> lg.fft.rfft2(lg.ones((3, 2, 5))).shape
    (3, 2, 3)
    """
    return delivered("rfft2", _of_reals("rfft2", x, s, axes, norm), out)


@repeated
def irfft2(
    x: ArrayLike, /, s: Axes = None, axes: Axes = LAST_TWO, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """`irfftn` along the last two axes, or those given.

    >>> lg.fft.irfft2(lg.fft.rfft2(lg.ones((2, 5))), s=(2, 5)).shape
    (2, 5)
    """
    return delivered("irfft2", _to_reals("irfft2", x, s, axes, norm), out)


@repeated
def hfftn(x: ArrayLike, /, s: Axes = None, axes: Axes = None, norm: str | None = "backward", out: Out = None) -> Tensor:
    """The `fftn`, which is real, of numbers with Hermitian symmetry, x[-i, -j] = conj(x[i, j]), of which the last of
    the axes has the first n // 2 + 1.

    Arguments, dtypes and errors are those of `irfftn`, but "backward" leaves the division to `ihfftn`.

    >>> lg.fft.hfftn(lg.asarray([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([[10., -2.],
            [-4.,  0.]], dtype=float64)
    """
    return delivered("hfftn", _to_reals("hfftn", x, s, axes, norm, inverse=False), out)


@repeated
def ihfftn(
    x: ArrayLike, /, s: Axes = None, axes: Axes = None, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """The inverse of `hfftn`: of the `ifftn` of real numbers the first half along the last of the axes. Arguments,
    dtypes and errors are those of `rfftn`.

    >>> lg.fft.ihfftn(lg.ones((2, 4))).shape
    (2, 3)
    """
    return delivered("ihfftn", _of_reals("ihfftn", x, s, axes, norm, inverse=True), out)


@repeated
def hfft2(
    x: ArrayLike, /, s: Axes = None, axes: Axes = LAST_TWO, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """`hfftn` along the last two axes, or those given.

    >>> lg.fft.hfft2(lg.ones((3, 2, 2))).shape
    (3, 2, 2)
    """
    return delivered("hfft2", _to_reals("hfft2", x, s, axes, norm, inverse=False), out)


@repeated
def ihfft2(
    x: ArrayLike, /, s: Axes = None, axes: Axes = LAST_TWO, norm: str | None = "backward", out: Out = None
) -> Tensor:
    """`ihfftn` along the last two axes, or those given.

    >>> lg.fft.ihfft2(lg.ones((3, 2, 5))).shape
    (3, 2, 3)
    """
    return delivered("ihfft2", _of_reals("ihfft2", x, s, axes, norm, inverse=True), out)


def _along(op: str, x: ArrayLike, s: Axes, axes: Axes, norm: str | None, inverse: bool) -> Tensor:
    value, word = float_value(x), norm_word(op, norm, inverse)
    found = axes_and_lengths(op, value, s, axes)
    named = [axis for axis, _ in found]
    if value.dtype.kind != "c" and found and len({*named}) == len(named):
        value = mirrored(_half(value, found, word), named, found[-1][1])
        return wrap(conjugate(value) if inverse else value)
    for axis, n in reversed(found):
        value = transformed(value, axis, n, word, inverse)
    return wrap(complex_value(wrap(value)))


def _half(value: Value, axes: Sequence[tuple[int, int]], word: str) -> Value:
    """Of the transform of real numbers: the first half along the last of the axes."""
    *others, (axis, n) = axes
    value = of_reals(value, axis, n, word)
    for axis, n in reversed(others):
        value = transformed(value, axis, n, word, inverse=False)
    return value


def _of_reals(op: str, x: ArrayLike, s: Axes, axes: Axes, norm: str | None, inverse: bool = False) -> Tensor:
    value, word = real_value(op, x), norm_word(op, norm, inverse)
    half = _half(value, _some(op, axes_and_lengths(op, value, s, axes), value), word)
    return wrap(conjugate(half) if inverse else half)


def _to_reals(op: str, x: ArrayLike, s: Axes, axes: Axes, norm: str | None, inverse: bool = True) -> Tensor:
    value, word = complex_value(x), norm_word(op, norm, inverse)
    value = value if inverse else conjugate(value)
    *others, (axis, n) = _some(op, axes_and_lengths(op, value, s, axes, half=True), value)
    for other, extent in others:
        value = transformed(value, other, extent, word, inverse=True)
    found = wrap(to_reals(value, axis, n, word))
    return found if others else cast(found, real_result(x))


def _some(op: str, found: list[tuple[int, int]], value: Value) -> list[Any]:
    if not found:
        raise ShapeError(
            explained(op, "at least one axis", value.type, "name the axes, or pass an array that has some")
        )
    return found
