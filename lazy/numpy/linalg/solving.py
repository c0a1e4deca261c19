"""Systems of linear equations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.numpy.elementwise import divide
from loopgrad.lazy.numpy.linalg.operands import column, float_values, is_empty, meeting, option, square
from loopgrad.lazy.tensor.core import ArrayLike, wrap
from loopgrad.lazy.tensor.refusals import refused
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = "inv solve"
_WHOLE: Final = (None, "gen", "general", "tridiagonal", "banded")  # of which all is read
_STRUCTURES: Final = (
    *_WHOLE, "diagonal", "upper triangular", "lower triangular", "pos", "positive definite", "sym", "symmetric", "her",
    "hermitian",
)  # fmt: skip


@repeated
def solve(
    a: ArrayLike, b: ArrayLike, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False, *,
    check_finite: bool = True, assume_a: str | None = None, transposed: bool = False,
) -> Tensor:  # fmt: skip
    """The x with `a @ x = b`, by the LU factorisation of `a` with exchanged rows.

    SciPy's keywords say more of `a`: `assume_a` "pos" takes Cholesky's factors of one triangle (the lower one with
    `lower`), "sym" and "her" read that triangle alone, "upper triangular" and "lower triangular" substitute, "diagonal"
    divides; "gen", "tridiagonal" and "banded" factorise all of it. With `transposed` it is `a.T @ x = b`. Nothing is
    overwritten, and what isn't finite isn't looked for.

    Shapes (..., n, n) and (..., n, k) give (..., n, k), whose leading axes broadcast; a `b` of shape (n,) is one column
    and gives (..., n), as in NumPy 2. The dtype is the float to which both are promoted. Raises LinAlgError for
    matrices that aren't square, ShapeError where extents differ, DTypeError for 16-bit floats, ValueError for another
    `assume_a`. Where `a` is singular
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
    option("solve", "assume_a", assume_a, _STRUCTURES)
    x = _structured(left, rows, assume_a, lower, transposed)
    return wrap(ops.reshape(x, x.shape[:-1]) if vector else x)


def _structured(a: Value, b: Value, assume_a: str | None, lower: bool, transpose: bool) -> Value:
    """The solution by what is known of the matrices, of which `lower` is read where they are symmetric."""
    if is_empty(a, b):
        return b
    if assume_a == "diagonal":
        diagonal = ops.reshape(mx.diagonal(refused(a, "singular", "solve")), (*a.shape[:-1], 1))
        return divide(wrap(b), wrap(diagonal))._value
    if assume_a in ("upper triangular", "lower triangular"):
        kept = refused(a, "singular", "solve")
        return mx.solve_triangular(kept, b, lower=assume_a == "lower triangular", transpose=transpose)
    triangle = a if lower or assume_a in _WHOLE else mx.transposed(a)
    turned = transpose is (triangle is a)  # of what is made of the triangle, as of the matrices
    if assume_a in ("pos", "positive definite"):
        factor = refused(mx.cholesky(mx.conj(triangle) if turned else triangle), "indefinite", "solve")
        return mx.solve_adjoint(factor, mx.solve_triangular(factor, b, lower=True), lower=True)
    if assume_a in ("sym", "symmetric"):
        return solution(ops.add(mx.lower(triangle), mx.transposed(mx.lower(triangle, -1))), b, "solve")
    whole = triangle if assume_a in _WHOLE else mx.hermitian_of_lower(triangle)
    return solution(mx.transposed(whole) if turned else whole, b, "solve")


def solution(a: Value, b: Value, by: str = "") -> Value:
    """The x with `a @ x = b`; evaluation refuses singular matrices for the function that is named."""
    if is_empty(a, b):
        return b
    packed, _, rows = mx.lu(a)
    return mx.solve_factored(a, refused(packed, "singular", by) if by else packed, rows, b)


@repeated
def inv(x: ArrayLike, /, *, overwrite_a: bool = False, check_finite: bool = True) -> Tensor:
    """The inverses of matrices: shape (..., n, n) stays.

    Integers give the default float. Raises LinAlgError for matrices that aren't square, and where a singular one is
    evaluated; in functions that are traced its inverse has infinities or NaN. To solve equations, `solve` is quicker
    and more accurate. SciPy's `overwrite_a` and `check_finite` change nothing.

    >>> lg.linalg.inv(lg.asarray([[2.0, 0.0], [0.0, 4.0]]))
    Tensor([[0.5 , 0.  ],
            [0.  , 0.25]], dtype=float64)
    """
    (a,) = float_values("inv", x)
    square("inv", a)
    return wrap(inverse(a, "inv"))


def inverse(a: Value, by: str = "") -> Value:
    return solution(a, mx.identity(a.shape[:-2], a.shape[-1], a.dtype), by)
