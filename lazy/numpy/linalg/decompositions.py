"""Factorisations of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loopgrad.graph import matrix_ops as mx
from loopgrad.lazy.numpy.linalg.operands import float_values, is_empty, square
from loopgrad.lazy.tensor.core import ArrayLike, wrap

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = "cholesky"


def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """The lower triangular l with `l @ l.T = x` for symmetric positive definite matrices; l.T with `upper`.

    Shape (..., n, n) stays, integers give the default float. One triangle of x is read, the lower one (with `upper` the
    other), and to it belongs the whole derivative. Raises LinAlgError for matrices that aren't square. A matrix that
    isn't positive definite gives NaN.

    >>> lg.linalg.cholesky(lg.asarray([[4.0, 2.0], [2.0, 5.0]]))
    Tensor([[2., 0.],
            [1., 2.]], dtype=float64)
    """
    (a,) = float_values("cholesky", x)
    square("cholesky", a)
    if is_empty(a):
        return wrap(a)
    return wrap(mx.transposed(mx.cholesky(mx.transposed(a))) if upper else mx.cholesky(a))
