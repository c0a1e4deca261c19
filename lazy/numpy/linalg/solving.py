"""Systems of linear equations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.numpy.linalg.operands import column, float_values, is_empty, meeting, square
from loopgrad.lazy.tensor.core import ArrayLike, wrap
from loopgrad.lazy.tensor.refusals import refused

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = "inv solve"


def solve(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The x with `a @ x = b`, by the LU factorisation of `a` with exchanged rows.

    Shapes (..., n, n) and (..., n, k) give (..., n, k), whose leading axes broadcast; a `b` of shape (n,) is one column
    and gives (..., n), as in NumPy 2. The dtype is the float to which both are promoted. Raises LinAlgError for
    matrices that aren't square, ShapeError where extents differ, DTypeError for 16-bit floats. Where `a` is singular
    evaluating raises LinAlgError; in functions that are traced the solution has infinities or NaN. The derivative
    solves systems with the same factors.

    >>> lg.linalg.solve(lg.asarray([[2.0, 0.0], [1.0, 4.0]]), lg.asarray([2.0, 9.0]))
    Tensor([1., 2.], dtype=float64)
    """
    left, right = float_values("solve", a, b)
    square("solve", left)
    vector = len(right.shape) == 1
    rows = column(right) if vector else right
    if not rows.shape or rows.shape[-2] != left.shape[-1]:
        fix = "b has as many rows as a"
        raise ShapeError(explained("solve", f"{left.shape[-1]} rows in b", f"{left.type} and {right.type}", fix))
    left, rows = meeting("solve", left, rows)
    x = solution(left, rows, "solve")
    return wrap(ops.reshape(x, x.shape[:-1]) if vector else x)


def solution(a: Value, b: Value, by: str = "") -> Value:
    """The x with `a @ x = b`; evaluation refuses singular matrices for the function that is named."""
    if is_empty(a, b):
        return b
    packed, _, rows = mx.lu(a)
    return mx.solve_factored(a, refused(packed, "singular", by) if by else packed, rows, b)


def inv(x: ArrayLike, /) -> Tensor:
    """The inverses of matrices: shape (..., n, n) stays.

    Integers give the default float. Raises LinAlgError for matrices that aren't square, and where a singular one is
    evaluated; in functions that are traced its inverse has infinities or NaN. To solve equations, `solve` is quicker
    and more accurate.

    >>> lg.linalg.inv(lg.asarray([[2.0, 0.0], [0.0, 4.0]]))
    Tensor([[0.5 , 0.  ],
            [0.  , 0.25]], dtype=float64)
    """
    (a,) = float_values("inv", x)
    square("inv", a)
    return wrap(inverse(a, "inv"))


def inverse(a: Value, by: str = "") -> Value:
    return solution(a, mx.identity(a.shape[:-2], a.shape[-1], a.dtype), by)
