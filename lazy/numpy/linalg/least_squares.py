"""Systems without a unique solution, by singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.errors import LinAlgError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, int64
from loopgrad.lazy.numpy.linalg.decompositions import svd, svdvals, zeros
from loopgrad.lazy.numpy.linalg.operands import column, float_values, is_empty, matrices, meeting, square
from loopgrad.lazy.numpy.linalg.solving import inverse
from loopgrad.lazy.numpy.norms import norm
from loopgrad.lazy.numpy.shapes_and_dtypes import finfo
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, broadcast_value, cast_operand, wrap
from loopgrad.lazy.tensor.refusals import refused
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = "cond lstsq matrix_rank pinv"


@repeated
def pinv(
    x: ArrayLike, /, rcond: ArrayLike | None = None, hermitian: bool = False, *, rtol: ArrayLike | None = None
) -> Tensor:
    """The pseudo-inverses of matrices: shape (..., m, n) gives (..., n, m).

    Singular values of up to `rtol` (or `rcond`, a number for each matrix) times the largest count as 0; the default is
    max(m, n) times the distance between 1 and the next float, NumPy's for `rtol`. `hermitian` reads the lower triangle
    of symmetric matrices. Integers give the default float. Raises LinAlgError for less than two axes, for matrices that
    aren't square where `hermitian`, and where a NaN is evaluated, ValueError for both bounds. The derivative (G. Golub
    and V. Pereyra, 1973) is that for matrices of the same rank.

    >>> lg.linalg.pinv(lg.asarray([[2.0, 0.0], [0.0, 0.0]]))
    Tensor([[0.5, 0. ],
            [0. , 0. ]], dtype=float64)
    """
    _one_of("pinv", rcond=rcond, rtol=rtol)
    (a,) = float_values("pinv", x)
    (square if hermitian else matrices)("pinv", a)
    *batch, m, n = a.shape
    if is_empty(a):
        return wrap(zeros((*batch, n, m), a))
    if hermitian:
        a = mx.hermitian_of_lower(a)
    a = refused(a, "nan", "pinv")
    return wrap(mx.pinv(a, _ratio("pinv", a, rtol if rcond is None else rcond)))


def _one_of(op: str, **bounds: ArrayLike | None) -> None:
    """Refuses two bounds for one thing: one would be left unread."""
    if all(given is not None for given in bounds.values()):
        raise ValueError(explained(op, "one of " + " and ".join(bounds), "both", "leave one out"))


def _ratio(op: str, a: Value, given: ArrayLike | None) -> Value:
    """Below which part of the largest singular values are 0, for each matrix."""
    batch = a.shape[:-2]
    if given is None:
        return ops.full(max(a.shape[-2:]) * finfo(a.dtype).eps, TensorType(batch, a.dtype.part))
    value = cast_operand(as_tensor(given), a.dtype.part)
    return broadcast_value(ops.stop_gradient(value), batch)


@repeated
def lstsq(a: ArrayLike, b: ArrayLike, rcond: ArrayLike | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The shortest x for which `a @ x - b` is shortest, the squared lengths of the rests, the rank and the singular
    values of `a`.

    Shapes (..., m, n) and (..., m, k) give (..., n, k), (..., k) (where m > n, else (..., 0)), (...,) and
    (..., min(m, n)); leading axes broadcast as for `solve`, the last two results have those of `a`. A `b` of shape (m,)
    is one column and gives (..., n). `rcond` as for `pinv`. Unlike in NumPy, which has no batches here, the rests are
    there where the rank is less than n, too. Raises LinAlgError for an `a` of less than two axes, a `b` of none, and
    where an `a` with infinities or NaN is evaluated, ShapeError where the rows differ in number. By the pseudo-inverse.

    >>> x, rest, rank, values = lg.linalg.lstsq(lg.asarray([[1.0], [1.0]]), lg.asarray([1.0, 3.0]))
    >>> x, rest, rank
    (Tensor([2.], dtype=float64), Tensor([2.], dtype=float64), Tensor(1, dtype=int64))
    """
    left, right = float_values("lstsq", a, b)
    if len(left.shape) < 2 or not right.shape:
        got = f"{left.type} and {right.type}"
        raise LinAlgError(explained("lstsq", "matrices and matrices or a vector", got, "a matrix has two axes"))
    vector = len(right.shape) == 1
    rows = column(right) if vector else right
    *batch, m, n = left.shape
    if rows.shape[-2] != m:
        fix = "b has as many rows as a"
        raise ShapeError(explained("lstsq", f"{m} rows in b", f"{left.type} and {right.type}", fix))
    ratio = _ratio("lstsq", left, rcond)
    if is_empty(left):
        inverses, values = zeros((*batch, n, m), left), mx.real(zeros((*batch, min(m, n)), left))
    else:
        known = refused(left, "not finite", "lstsq")
        inverses, values = mx.pinv(known, ratio), mx.svdvals(known)
    x = ops.matmul(*meeting("lstsq", inverses, rows))
    lengths = _squared_rests(left, x, rows) if m > n else mx.real(zeros((*x.shape[:-2], 0), left))
    shaped = ops.reshape(x, x.shape[:-1]) if vector else x
    return wrap(shaped), wrap(lengths), wrap(_count_above(values, ratio)), wrap(values)


def _squared_rests(a: Value, x: Value, b: Value) -> Value:
    """The squared lengths of the columns of `a @ x - b`."""
    reached, wanted = meeting("lstsq", ops.matmul(*meeting("lstsq", a, x)), b)
    rest = ops.sub(wanted, reached)
    return ops.reduce_sum(mx.squared(rest), (len(rest.shape) - 2,))


def _count_above(values: Value, ratio: Value) -> Value:
    """How many of the descending singular values are larger than `ratio` times the first."""
    *batch, k = values.shape
    if not k:
        return ops.full(0, TensorType(tuple(batch), int64))
    first = ops.reduce_max(values, (len(batch),))
    least = ops.broadcast_leading(ops.mul(first, ratio), values.shape)
    return ops.reduce_sum(ops.cast(ops.gt(values, least), int64), (len(batch),))


@repeated
def matrix_rank(
    x: ArrayLike, /, tol: ArrayLike | None = None, hermitian: bool = False, *, rtol: ArrayLike | None = None
) -> Tensor:
    """How many singular values aren't 0: shape (..., m, n) gives int64 (...,).

    Those of up to `tol`, or `rtol` times the largest (max(m, n) times the distance between 1 and the next float),
    count as 0. `hermitian` reads the lower triangle of symmetric matrices. Of a number or vector it says whether an
    element isn't 0. Raises LinAlgError for matrices that aren't square where `hermitian`, ValueError for both bounds.

    >>> lg.linalg.matrix_rank(lg.asarray([[1.0, 2.0], [2.0, 4.0]]))
    Tensor(1, dtype=int64)
    """
    _one_of("matrix_rank", tol=tol, rtol=rtol)
    (a,) = float_values("matrix_rank", x)
    if len(a.shape) < 2:
        return wrap(ops.cast(ops.reduce_or(ops.ne(a, 0), range(len(a.shape))), int64))
    values = svd(x, compute_uv=False, hermitian=hermitian)._value
    if tol is None:
        return wrap(_count_above(values, _ratio("matrix_rank", a, rtol)))
    least = broadcast_value(cast_operand(as_tensor(tol), a.dtype.part), a.shape[:-2])
    above = ops.gt(values, ops.broadcast_leading(least, values.shape))
    return wrap(ops.reduce_sum(ops.cast(above, int64), (len(values.shape) - 1,)))


@repeated
def cond(x: ArrayLike, p: Any = None) -> Tensor:
    """Condition numbers: the norm of a matrix times that of its inverse, shape (..., m, n) gives (...,).

    `p` is the `ord` of `matrix_norm`: by default 2, the largest singular value over the smallest one, for which
    matrices needn't be square. A singular matrix has infinity. Raises LinAlgError for less than two axes or no
    elements, and for matrices that aren't square where `p` takes an inverse.

    >>> lg.linalg.cond(lg.asarray([[3.0, 0.0], [0.0, 4.0]]))
    Tensor(1.33333333, dtype=float64)
    """
    (a,) = float_values("cond", x)
    matrices("cond", a)
    if not min(a.shape[-2:]):
        raise LinAlgError(explained("cond", "matrices with elements", a.type, "there is nothing to divide"))
    if p in (None, 2, -2):
        values = svdvals(x)
        ratio = values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    else:
        square("cond", a)
        ratio = norm(x, p, (-2, -1)) * norm(wrap(inverse(a)), p, (-2, -1))
    given = wrap(ops.reduce_or(ops.is_nan(a), (len(a.shape) - 2, len(a.shape) - 1)))
    lost = wrap(ops.and_(ops.is_nan(ratio._value), ops.invert(given._value)))
    return where(lost, float("inf"), ratio)
