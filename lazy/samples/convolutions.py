"""Convolutions of arrays: sums of products, or by Fourier transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.complex_functions import conjugated
from loopgrad.lazy.numpy.convolution import conv
from loopgrad.lazy.numpy.elementwise import multiply, round
from loopgrad.lazy.numpy.fft.fast_lengths import next_fast_len
from loopgrad.lazy.numpy.fft.several_axes import fftn, ifftn, irfftn, rfftn
from loopgrad.lazy.numpy.movement import flip
from loopgrad.lazy.samples.borders import extended
from loopgrad.lazy.tensor.core import ArrayLike, cast
from loopgrad.lazy.tensor.operands import as_float, joined_shape, meet_arrays, normal_axes
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SIGNAL: Final = "convolve convolve2d correlate correlate2d fftconvolve oaconvolve=fftconvolve"
DIRECT: Final = 2.0**9  # products for each element, from which on Fourier transforms are faster
_BOUNDARIES: Final = {"fill": "constant", "wrap": "wrap", "symm": "reflect"}


def _modes(op: str, mode: str) -> None:
    if mode not in ("full", "same", "valid"):
        raise ValueError(explained(op, "mode 'full', 'same' or 'valid'", repr(mode), "pass one of them"))


def _operands(op: str, in1: ArrayLike, in2: ArrayLike, mode: str) -> tuple[Tensor, Tensor, bool]:
    """Both in one dtype, and for "valid" the larger one first, which is said."""
    _modes(op, mode)
    a, b = meet_arrays(in1, in2)
    if len(a.shape) != len(b.shape):
        raise ShapeError(explained(op, "arrays with as many axes", f"{a.shape} and {b.shape}", "add axes"))
    if 0 in a.shape or 0 in b.shape:
        raise ShapeError(explained(op, "arrays with elements", f"{a.shape} and {b.shape}", "pass some"))
    smaller = [m < n for m, n in zip(a.shape, b.shape, strict=True)]
    larger = [m > n for m, n in zip(a.shape, b.shape, strict=True)]
    swapped = mode == "valid" and any(smaller)
    if swapped and any(larger):
        expected = "one array that is as large as the other along every axis"
        raise ShapeError(explained(op, expected, f"{a.shape} and {b.shape}", "use 'full' or 'same'"))
    return (b, a, True) if swapped else (a, b, False)


def _cut(full: Tensor, first: tuple[int, ...], second: tuple[int, ...], mode: str, axes: Any = None) -> Tensor:
    """The part of the full convolution that a mode gives."""
    if mode == "full":
        return full
    wanted = [n if mode == "same" else n - m + 1 for n, m in zip(first, second, strict=True)]
    index = []
    for d, (extent, n) in enumerate(zip(full.shape, wanted, strict=True)):
        start = 0 if axes is not None and d not in axes else (extent - n) // 2
        index.append(slice(start, start + n) if axes is None or d in axes else slice(None))
    return full[tuple(index)]


@repeated
def convolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto") -> Tensor:
    """The convolution of two arrays: all of it ("full"), the middle part of in1's shape ("same"), or where they overlap
    ("valid"). By sums of products (`method` "direct"), by Fourier transforms ("fft"), or, of floats that are large
    enough, by these ("auto"; of integers and of more than three axes sums need `lg.conv`).

    Dtypes are promoted to one, the result's. Raises ShapeError for other numbers of axes, ValueError for another mode
    or method.

    >>> lg.signal.convolve([1.0, 2.0, 3.0], [1.0, 1.0], "same")
    Tensor([1., 3., 5.], dtype=float64)
    """
    if method not in ("auto", "direct", "fft"):
        fix = "pass one of them"
        raise ValueError(explained("convolve", "method 'auto', 'direct' or 'fft'", repr(method), fix))
    a, b, _ = _operands("convolve", in1, in2, mode)
    products = min(float(np.prod(a.shape)), float(np.prod(b.shape)))
    large = a._value.dtype.kind in "fc" and products > DIRECT
    if not a.shape:
        return multiply(a, b)
    if method == "fft" or len(a.shape) > 3 or (method == "auto" and large):
        found = fftconvolve(a, b, mode)
        return found if a._value.dtype.kind in "fc" else cast(round(found), a._value.dtype)
    return _cut(_direct(a, b), a.shape, b.shape, mode)


def _direct(a: Tensor, b: Tensor) -> Tensor:
    """The full convolution by products."""
    if np.prod(a.shape) < np.prod(b.shape):
        a, b = b, a
    found: Tensor = conv(a[None, None], flip(b)[None, None], padding=[(n - 1, n - 1) for n in b.shape])[0, 0]
    return found


@repeated
def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Any = None) -> Tensor:
    """`convolve` by Fourier transforms, along `axes` (None: all); the other axes broadcast. Integers give the default
    float. Modes and errors are those of `convolve`.

    >>> lg.signal.fftconvolve([1.0, 2.0, 3.0], [1.0, 1.0]).round(12)
    Tensor([1., 3., 5., 3.], dtype=float64)
    """
    a, b, _ = _operands("fftconvolve", as_float(in1), as_float(in2), mode)
    chosen = normal_axes("fftconvolve", axes, len(a.shape))
    shapes = [tuple([1 if d in chosen else n for d, n in enumerate(t.shape)]) for t in (a, b)]
    joined_shape("fftconvolve", shapes)
    full = [a.shape[d] + b.shape[d] - 1 for d in chosen]
    lengths = [next_fast_len(n, a._value.dtype.kind == "f") for n in full]
    if a._value.dtype.kind == "c":
        product = ifftn(fftn(a, lengths, chosen) * fftn(b, lengths, chosen), lengths, chosen)
    else:
        product = irfftn(rfftn(a, lengths, chosen) * rfftn(b, lengths, chosen), lengths, chosen)
    ends = dict(zip(chosen, full, strict=True))
    index = tuple([slice(0, ends[d]) if d in ends else slice(None) for d in range(len(a.shape))])
    return cast(_cut(product[index], a.shape, b.shape, mode, chosen), a._value.dtype)


@repeated
def correlate(in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto") -> Tensor:
    """The correlation of two arrays: `convolve` of in1 with in2 (of complex numbers its conjugates) from behind, with
    its modes, dtypes and errors.

    >>> lg.signal.correlate([1.0, 2.0, 3.0], [0.0, 1.0], "same")
    Tensor([1., 2., 3.], dtype=float64)
    """
    first, second, swapped = _operands("correlate", in1, in2, mode)
    if swapped:  # the larger one slides under the smaller one, the other way round
        return flip(conjugated(convolve(first, flip(conjugated(second)), mode, method)))
    return convolve(first, flip(conjugated(second)), mode, method)


@repeated
def convolve2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill", fillvalue: ArrayLike = 0.0
) -> Tensor:
    """The convolution of two matrices, beyond whose borders in1 is `fillvalue` ("fill"), comes again ("wrap") or is
    mirrored ("symm"). Modes, dtypes and errors are those of `convolve`; ValueError for another boundary.

    >>> lg.signal.convolve2d([[1.0, 2.0]], [[1.0, 1.0]], "same", "wrap")
    Tensor([[3., 3.]], dtype=float64)
    """
    a, b, _ = _operands("convolve2d", in1, in2, mode)
    return _slid("convolve2d", a, flip(b), {"full": 2, "same": 1, "valid": 0}[mode], 0, (boundary, fillvalue))


def _slid(op: str, a: Tensor, window: Tensor, sides: int, odd: int, beyond: tuple[str, ArrayLike]) -> Tensor:
    """Sums of products of a window with what is under it, where it lies on the matrix, or beyond one or both `sides`;
    of an even width one more element is before, or (`odd`) behind."""
    boundary, fillvalue = beyond
    if boundary not in _BOUNDARIES:
        raise ValueError(explained(op, "boundary 'fill', 'wrap' or 'symm'", repr(boundary), "pass one of them"))
    if len(a.shape) != 2:
        raise ShapeError(explained(op, "two matrices", f"{a.shape} and {window.shape}", "use convolve"))
    for d, n in enumerate(window.shape):
        around = sides * (n - 1)
        low = (around + 1 - odd) // 2
        a = extended(a, d, low, around - low, _BOUNDARIES[boundary], fillvalue)
    found: Tensor = conv(a[None, None], window[None, None])[0, 0]
    return found


@repeated
def correlate2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill", fillvalue: ArrayLike = 0.0
) -> Tensor:
    """The correlation of two matrices: `convolve2d` of in1 with in2 (of complex numbers its conjugates) from behind, of
    the same shape and dtype.

    >>> lg.signal.correlate2d([[1.0, 2.0]], [[0.0, 1.0]], "valid")
    Tensor([[2.]], dtype=float64)
    """
    first, second, swapped = _operands("correlate2d", in1, in2, mode)
    sides = {"full": 2, "same": 1, "valid": 0}[mode]
    found = _slid("correlate2d", first, conjugated(second), sides, 1, (boundary, fillvalue))
    return flip(conjugated(found)) if swapped else found
