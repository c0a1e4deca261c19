"""Polynomials that fit points, and the zeros of polynomials; of coefficients the highest power comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.types import TensorType, complex64, complex128
from loopgrad.lazy.numpy.creation import eye, ones
from loopgrad.lazy.numpy.elementwise import add, divide, multiply, negative, sqrt
from loopgrad.lazy.numpy.linalg.decompositions import eigvals
from loopgrad.lazy.numpy.linalg.least_squares import lstsq
from loopgrad.lazy.numpy.linalg.solving import inv
from loopgrad.lazy.numpy.matrix_products import matmul, outer
from loopgrad.lazy.numpy.movement import concat, expand_dims, matrix_transpose, ravel, reshape
from loopgrad.lazy.numpy.reduction import sum
from loopgrad.lazy.numpy.sampled_functions import vander
from loopgrad.lazy.numpy.shapes_and_dtypes import finfo
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, wrap
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.operands import as_float, vector_operand
from loopgrad.lazy.tensor.promotion import float_dtype, promote_arrays
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "poly polyfit roots"


@repeated
def polyfit(
    x: ArrayLike, y: ArrayLike, deg: int, rcond: float | None = None, full: bool = False, w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Any:  # fmt: skip
    """The coefficients of the polynomial of degree `deg` that fits the points best, by least squares: deg + 1 of them,
    the highest power first, of the float dtype to which x and y are promoted.

    x is a vector of n, y one too, or a matrix (n, k) of k sets of points, which gives (deg + 1, k). `w` are weights of
    the distances (not of their squares). Singular values below `rcond` (n times the dtype's epsilon) times the largest
    are left out. With `full` a tuple: then also the sums of squares of what is left (none where n is at most deg + 1 or
    the rank is deficient, as `lg.linalg.lstsq`), the rank, the singular values and `rcond`. With `cov` also the
    covariance matrix of the coefficients, scaled by chi**2 over the degrees of freedom unless it is "unscaled".
    Differentiable by x, y and w.

    Raises ShapeError where shapes don't fit, ValueError for a negative degree and where `cov` has too few points.

    >>> lg.polyfit([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 5.0, 10.0], 2).round(6) + 0.0
    Tensor([1., 0., 1.], dtype=float64)
    """
    if deg < 0:
        raise ValueError(explained("polyfit", "a degree of at least 0", deg, "pass 0 for a constant"))
    points, values = vector_operand("polyfit", x), as_tensor(y)
    count = points._value.shape[0]
    if len(values._value.shape) not in (1, 2) or values._value.shape[0] != count:
        fix = "pass one value, or one row of values, for each point"
        raise ShapeError(explained("polyfit", f"{count} values of y", values._value.type, fix))
    dtype = float_dtype(promote_arrays((points._value.dtype, points._weak), (values._value.dtype, values._weak)))
    table, target = vander(cast(points, dtype), deg + 1), cast(values, dtype)
    if w is not None:
        weights = cast(vector_operand("polyfit", w), dtype)
        if weights._value.shape != (count,):
            raise ShapeError(explained("polyfit", f"{count} weights", weights._value.type, "pass one for each point"))
        table = multiply(table, expand_dims(weights, 1))
        target = multiply(target, weights if len(values._value.shape) == 1 else expand_dims(weights, 1))
    least = count * finfo(dtype).eps if rcond is None else rcond
    scale = sqrt(sum(multiply(table, table), axis=0))  # columns of one length: a better condition
    found, rest, rank, singular = lstsq(divide(table, scale), target, rcond=least)
    coefficients = divide(found, scale if len(values._value.shape) == 1 else expand_dims(scale, 1))
    if full:
        return coefficients, rest, rank, singular, least
    if not cov:
        return coefficients
    return coefficients, _covariance(table, scale, rest, count - deg - 1, cov)


def _covariance(table: Tensor, scale: Tensor, rest: Tensor, freedom: int, cov: bool | str) -> Tensor:
    """Of the coefficients; for several sets of points one matrix each, along the last axis."""
    columns = divide(table, scale)
    base = divide(inv(matmul(matrix_transpose(columns), columns)), outer(scale, scale))
    if cov == "unscaled":
        return base
    if freedom <= 0:
        fix = "pass more points, or cov='unscaled'"
        raise ValueError(explained("polyfit", "more points than coefficients for cov=True", f"{freedom} more", fix))
    factor = divide(rest, freedom)
    return multiply(base, factor) if factor._value.shape[0] == 1 else multiply(expand_dims(base, 2), factor)


@repeated
def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Tensor:
    """The zeros of the polynomial with these coefficients (a vector, the highest power first), as the eigenvalues of
    its companion matrix (R. Horn and C. Johnson, Matrix analysis): complex, in no order that is promised.

    Leading zeros lower the degree and trailing ones are zeros of the polynomial: how many there are depends on data, so
    the coefficients are evaluated, and TracedValueError is raised while tracing, unless `strip_zeros` is False (as in
    JAX): then the first coefficient must not be 0. Raises ShapeError for what isn't a vector.

    >>> lg.roots([1.0, -3.0, 2.0, 0.0]).real
    Tensor([2., 1., 0.], dtype=float64)
    """
    t = as_tensor(p)
    t = reshape(t, (1,)) if not t._value.shape else t
    if len(t._value.shape) != 1:
        raise ShapeError(explained("roots", "a vector of coefficients", t._value.type, "ravel it"))
    t = as_float(t)
    zero = 0
    if strip_zeros:
        (there,) = np.nonzero(to_numpy(t, "roots of coefficients, without strip_zeros=False"))
        if not len(there):
            return _zeros(0, t)
        zero = t._value.shape[0] - 1 - int(there[-1])
        t = t[int(there[0]) : int(there[-1]) + 1]
    degree = t._value.shape[0] - 1
    if degree < 1:
        return _zeros(zero, t)
    first_row = reshape(negative(divide(t[1:], t[0])), (1, degree))
    companion = concat([first_row, eye(degree - 1, degree, dtype=t._value.dtype)]) if degree > 1 else first_row
    found = eigvals(companion)
    return concat([found, _zeros(zero, t)]) if zero else found


def _zeros(count: int, like: Tensor) -> Tensor:
    dtype = complex64 if like._value.dtype.bits == 32 or like._value.dtype is complex64 else complex128
    return wrap(ops.full(0.0, TensorType((count,), dtype)))


@repeated
def poly(zeros_of: ArrayLike, /) -> Tensor:
    """The polynomial with these zeros (a vector of n) and the leading coefficient 1: n + 1 coefficients. Of a square
    matrix its characteristic polynomial, whose zeros are the eigenvalues.

    Of a float dtype, integers give the default float. Raises ShapeError for a matrix that isn't square.

    >>> lg.poly([1.0, -1.0])
    Tensor([ 1.,  0., -1.], dtype=float64)
    """
    t = as_tensor(zeros_of)
    if len(t._value.shape) > 1:
        if len(t._value.shape) != 2 or t._value.shape[0] != t._value.shape[1]:
            raise ShapeError(explained("poly", "a vector of zeros or a square matrix", t._value.type, "reshape it"))
        coefficients = poly(eigvals(t))
        return coefficients if t._value.dtype.kind == "c" else coefficients.real
    t = ravel(as_float(t))
    result: Any = ones((1,), dtype=t._value.dtype)
    for i in range(t._value.shape[0]):
        moved = multiply(negative(t[i]), result)
        result = concat([result[:1], add(result[1:], moved[:-1]), moved[-1:]])
    return result  # type: ignore[no-any-return]
