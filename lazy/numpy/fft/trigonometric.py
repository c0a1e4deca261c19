"""Discrete cosine and sine transforms of the types 1 to 4, with SciPy's arguments. They are made of Fourier transforms,
products and movement (`cosines`), so derivatives of any order are what these have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Final

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.parts import joined, parts
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.numpy.fft import cosines
from loopgrad.lazy.numpy.fft.operands import (
    at_end,
    axes_and_lengths,
    axis_of,
    fitted,
    float_value,
    length,
    norm_word,
    put_back,
)
from loopgrad.lazy.tensor.core import ArrayLike, wrap
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_FFT: Final = "dct dctn dst dstn idct idctn idst idstn"
Axes = Sequence[int] | None
INVERSE: Final = {1: 1, 2: 3, 3: 2, 4: 4}
ROOT: Final = sqrt(2.0)


@repeated
def dct(
    x: ArrayLike, /, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    *, orthogonalize: bool | None = None,
) -> Tensor:  # fmt: skip
    """The discrete cosine transform along an axis, of one of four types. For N numbers, y[k] is

    - 1: x[0] + (-1)**k x[N-1] + 2 times the sum of x[j] cos(pi j k / (N - 1)) over the others,
    - 2: 2 times the sum of x[j] cos(pi (2 j + 1) k / (2 N)),
    - 3: x[0] + 2 times the sum of x[j] cos(pi j (2 k + 1) / (2 N)) over the others,
    - 4: 2 times the sum of x[j] cos(pi (2 j + 1) (2 k + 1) / (4 N)).

    x is cut or filled up with zeros to n numbers (None: as many as there are). `norm` "backward", as None, leaves the
    division to `idct`, "forward" divides by M, "ortho" by its root, where M is 2 N, of type 1 2 (N - 1). With
    `orthogonalize`, as by default with "ortho", the matrix of the transform is orthogonal: type 2 divides y[0] by the
    root of 2, type 3 multiplies x[0] by it, type 1 does both at both ends. The result is float64, of narrower floats
    float32; of complex numbers both parts are transformed.

    Raises ShapeError for an axis that isn't there, n below 1 (of type 1: below 2), ValueError for another type or norm.

    N. Ahmed, T. Natarajan, K. R. Rao, Discrete cosine transform, 1974; J. Makhoul, A fast cosine transform in one and
    two dimensions, 1980.

    >>> lg.round(lg.fft.dct(lg.asarray([4.0, 3.0, 5.0, 10.0])), 4)
    Tensor([ 44.    , -12.6173,   8.4853,  -0.8967], dtype=float64)
    """
    return _alone("dct", x, type, n, axis, norm, orthogonalize)


@repeated
def idct(
    x: ArrayLike, /, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    *, orthogonalize: bool | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of `dct` of that type: `dct` of type 3 for 2, of type 2 for 3, divided by M for `norm` "backward".

    Arguments, dtypes and errors are those of `dct`.

    >>> lg.round(lg.fft.idct(lg.fft.dct(lg.asarray([4.0, 3.0, 5.0]))), 4)
    Tensor([4., 3., 5.], dtype=float64)
    """
    return _alone("idct", x, type, n, axis, norm, orthogonalize)


@repeated
def dst(
    x: ArrayLike, /, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    *, orthogonalize: bool | None = None,
) -> Tensor:  # fmt: skip
    """The discrete sine transform along an axis, of one of four types. For N numbers, y[k] is

    - 1: 2 times the sum of x[j] sin(pi (j + 1) (k + 1) / (N + 1)),
    - 2: 2 times the sum of x[j] sin(pi (2 j + 1) (k + 1) / (2 N)),
    - 3: (-1)**k x[N-1] + 2 times the sum of x[j] sin(pi (j + 1) (2 k + 1) / (2 N)) over the others,
    - 4: 2 times the sum of x[j] sin(pi (2 j + 1) (2 k + 1) / (4 N)).

    With `orthogonalize` type 2 divides y[N-1] by the root of 2, type 3 multiplies x[N-1] by it. M is 2 N, of type 1
    2 (N + 1), which needs 1 number. Other arguments, dtypes and errors are those of `dct`.

    S. A. Martucci, Symmetric convolution and the discrete sine and cosine transforms, 1994.

    >>> lg.round(lg.fft.dst(lg.asarray([1.0, 2.0, 3.0])), 4)
    Tensor([ 8.    , -3.4641,  4.    ], dtype=float64)
    """
    return _alone("dst", x, type, n, axis, norm, orthogonalize)


@repeated
def idst(
    x: ArrayLike, /, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    *, orthogonalize: bool | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of `dst` of that type, with the arguments, dtypes and errors of `dct`.

    >>> lg.round(lg.fft.idst(lg.fft.dst(lg.asarray([1.0, 2.0, 3.0]))), 4)
    Tensor([1., 2., 3.], dtype=float64)
    """
    return _alone("idst", x, type, n, axis, norm, orthogonalize)


@repeated
def dctn(
    x: ArrayLike, /, type: int = 2, s: Axes = None, axes: Axes = None, norm: str | None = None,
    *, orthogonalize: bool | None = None,
) -> Tensor:  # fmt: skip
    """`dct` along several axes (None: all, or the last ones, as many as `s` has lengths), one after the other.

    `s`: to how many numbers x is cut or filled up with zeros along each of them. Other arguments, dtypes and errors are
    those of `dct`; ShapeError where `s` and `axes` aren't as many.

    >>> lg.fft.dctn(lg.ones((2, 2)))
    Tensor([[16.,  0.],
            [ 0.,  0.]], dtype=float64)
    """
    return _several("dctn", x, type, s, axes, norm, orthogonalize)


@repeated
def idctn(
    x: ArrayLike, /, type: int = 2, s: Axes = None, axes: Axes = None, norm: str | None = None,
    *, orthogonalize: bool | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of `dctn`, with its arguments, dtypes and errors.

    >>> lg.fft.idctn(lg.asarray([[16.0, 0.0], [0.0, 0.0]]))
    Tensor([[1., 1.],
            [1., 1.]], dtype=float64)
    """
    return _several("idctn", x, type, s, axes, norm, orthogonalize)


@repeated
def dstn(
    x: ArrayLike, /, type: int = 2, s: Axes = None, axes: Axes = None, norm: str | None = None,
    *, orthogonalize: bool | None = None,
) -> Tensor:  # fmt: skip
    """`dst` along several axes, with the arguments, dtypes and errors of `dctn`.

    >>> lg.fft.dstn(lg.ones((2, 3)), axes=(0,)).shape
    (2, 3)
    """
    return _several("dstn", x, type, s, axes, norm, orthogonalize)


@repeated
def idstn(
    x: ArrayLike, /, type: int = 2, s: Axes = None, axes: Axes = None, norm: str | None = None,
    *, orthogonalize: bool | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of `dstn`, with the arguments, dtypes and errors of `dctn`.

    >>> lg.fft.idstn(lg.ones((2, 3)), s=(4, 4)).shape
    (4, 4)
    """
    return _several("idstn", x, type, s, axes, norm, orthogonalize)


def _alone(
    op: str, x: ArrayLike, type: int, n: int | None, axis: int, norm: str | None, orthogonalize: bool | None
) -> Tensor:
    value = float_value(x)
    at = axis_of(op, value, axis)
    return _along(op, value, type, [(at, length(op, n, value.shape[at]))], norm, orthogonalize)


def _several(
    op: str, x: ArrayLike, type: int, s: Axes, axes: Axes, norm: str | None, orthogonalize: bool | None
) -> Tensor:
    value = float_value(x)
    return _along(op, value, type, axes_and_lengths(op, value, s, axes), norm, orthogonalize)


def _along(
    op: str, value: Value, type: int, axes: Sequence[tuple[int, int]], norm: str | None, orthogonalize: bool | None
) -> Tensor:
    if isinstance(type, bool) or type not in INVERSE:
        raise ValueError(explained(op, "a type from 1 to 4", repr(type), "use one of these"))
    inverse, cosine = op.startswith("i"), "c" in op
    word = norm_word(op, norm, inverse)
    type = INVERSE[type] if inverse else type
    orthogonal = norm == "ortho" if orthogonalize is None else orthogonalize
    for axis, n in axes:
        least = 2 if cosine and type == 1 else 1
        if n < least:
            raise ShapeError(explained(op, f"a transform of type 1 of at least {least} numbers", n, "use another type"))
        value = at_end(fitted(value, axis, n), axis)
        factor = _factor(word, 2 * n if type != 1 else 2 * n - 2 if cosine else 2 * n + 2)
        function = _cosines if cosine else _sines
        if value.dtype.kind == "c":
            re, im = parts(value)
            found = joined((function(re, type, factor, orthogonal), function(im, type, factor, orthogonal)))
        else:
            found = function(value, type, factor, orthogonal)
        value = put_back(found, axis)
    return wrap(value)


def _factor(norm: str, numbers: int) -> float:
    return {"none": 1.0, "ortho": 1.0 / sqrt(numbers), "full": 1.0 / numbers}[norm]


def _cosines(x: Value, type: int, factor: float, orthogonal: bool) -> Value:
    ends = {1: (0, x.shape[-1] - 1), 2: (0,), 3: (0,), 4: ()}[type] if orthogonal else ()
    if type in (1, 3):
        x = cosines.weighted(x, ends, ROOT)
    y = BY_TYPE[type](x, factor)
    return cosines.weighted(y, ends, 1 / ROOT) if type in (1, 2) else y


def _sines(x: Value, type: int, factor: float, orthogonal: bool) -> Value:
    """Of types 2 and 3 the end is the last number, which is the first of those that are turned round."""
    if type == 1:
        return cosines.sines(x, factor)
    if type == 2:
        return cosines.backwards(_cosines(_changing_signs(x), 2, factor, orthogonal))
    return _changing_signs(_cosines(cosines.backwards(x), type, factor, orthogonal))


def _changing_signs(x: Value) -> Value:
    odd = ops.eq(ops.and_(cosines.numbered(x), 1), 1)
    return ops.select(odd, ops.neg(x), x)


BY_TYPE: Final[dict[int, Callable[[Value, float], Value]]] = {
    1: cosines.first, 2: cosines.second, 3: cosines.third, 4: cosines.fourth,
}  # fmt: skip
