"""SciPy's functions on factors: triangular systems, and solving by Cholesky and LU factors that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType
from loopgrad.lazy.numpy.linalg.decompositions import cholesky, zeros
from loopgrad.lazy.numpy.linalg.operands import column, float_values, is_empty, matrices, meeting, option, square
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, wrap
from loopgrad.lazy.tensor.refusals import refused
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = "cho_factor cho_solve lu lu_factor lu_solve solve_triangular"


@repeated
def solve_triangular(
    a: ArrayLike, b: ArrayLike, /, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False,
    overwrite_b: bool = False, check_finite: bool = True,
) -> Tensor:  # fmt: skip
    """The x with `a @ x = b` for triangular `a`, of which the other triangle isn't read; `a.T @ x = b` for `trans` 1,
    with the complex conjugate for 2.

    SciPy's, for batches: shapes (..., n, n) and (..., n, k), or (n,) for one column. With `unit_diagonal` the diagonal
    counts as ones. `overwrite_b` and `check_finite`, and their like in the functions below, change nothing: results
    have memory of their own, and what isn't finite isn't looked for. Dtypes are promoted to one float. Raises
    LinAlgError for matrices that aren't square, ShapeError where extents differ, ValueError for another `trans`. Where
    a 0 on the diagonal is evaluated, LinAlgError is raised; in functions that are traced it gives infinities or NaN.

    >>> lg.linalg.solve_triangular(lg.asarray([[2.0, 0.0], [1.0, 4.0]]), lg.asarray([2.0, 9.0]), lower=True)
    Tensor([1., 2.], dtype=float64)
    """
    option("solve_triangular", "trans", trans, (0, 1, 2, "N", "T", "C"))
    left, rows, vector = systems("solve_triangular", a, b)
    if is_empty(left, rows):
        return wrap(_as_given(zeros(rows.shape, rows), vector))
    if not unit_diagonal:
        left = refused(left, "singular", "solve_triangular")
    adjoint = trans in (2, "C")
    transpose = trans not in (0, "N")
    right = mx.conj(rows) if adjoint else rows
    x = mx.solve_triangular(left, right, lower=lower, transpose=transpose, unit_diagonal=unit_diagonal)
    x = mx.conj(x) if adjoint else x
    return wrap(_as_given(x, vector))


def systems(op: str, a: ArrayLike, b: ArrayLike) -> tuple[Value, Value, bool]:
    """Matrices and right sides of one batch, and whether these were one vector."""
    left, right = float_values(op, a, b)
    square(op, left)
    vector = len(right.shape) == 1
    rows = column(right) if vector else right
    if not rows.shape or rows.shape[-2] != left.shape[-1]:
        fix = "b has as many rows as a"
        raise ShapeError(explained(op, f"{left.shape[-1]} rows in b", f"{left.type} and {right.type}", fix))
    return (*meeting(op, left, rows), vector)


def _as_given(x: Value, vector: bool) -> Value:
    return ops.reshape(x, x.shape[:-1]) if vector else x


@repeated
def cho_factor(
    a: ArrayLike, /, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Tensor, bool]:
    """The Cholesky factor for `cho_solve`, and which triangle it is: SciPy's, for batches, zeros in the other triangle.

    Shapes, dtypes and errors are those of `cholesky`.

    >>> factor = lg.linalg.cho_factor(lg.asarray([[4.0, 2.0], [2.0, 5.0]]))
    >>> lg.linalg.cho_solve(factor, lg.asarray([8.0, 12.0]))
    Tensor([1., 2.], dtype=float64)
    """
    return cholesky(a, upper=not lower), lower


@repeated
def cho_solve(
    factor: tuple[ArrayLike, bool], b: ArrayLike, /, overwrite_b: bool = False, check_finite: bool = True
) -> Tensor:
    """The x with `a @ x = b`, by what `cho_factor` gave.

    Shapes (..., n, n) and (..., n, k), or (n,) for one column. Raises LinAlgError for matrices that aren't square,
    ShapeError where extents differ.

    >>> lg.linalg.cho_solve((lg.asarray([[2.0, 0.0], [1.0, 2.0]]), True), lg.asarray([8.0, 12.0]))
    Tensor([1., 2.], dtype=float64)
    """
    if not isinstance(factor, tuple | list) or len(factor) != 2:
        got = type(factor).__name__
        raise TypeError(explained("cho_solve", "a factor and which triangle it is", got, "pass what cho_factor gave"))
    triangle, lower = factor
    left, rows, vector = systems("cho_solve", triangle, b)
    if is_empty(left, rows):
        return wrap(_as_given(zeros(rows.shape, rows), vector))
    if lower:
        x = mx.solve_adjoint(left, mx.solve_triangular(left, rows, lower=True), lower=True)
    else:
        x = mx.solve_triangular(left, mx.solve_adjoint(left, rows, lower=False), lower=False)
    return wrap(_as_given(x, vector))


@repeated
def lu(
    a: ArrayLike, /, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True,
    p_indices: bool = False,
) -> Any:  # fmt: skip
    """p, l and u with `a = p @ l @ u`: SciPy's, for batches.

    With k = min(m, n), shape (..., m, n) gives (..., m, m), (..., m, k) and (..., k, n). With `p_indices` the first is
    the int64 positions (..., m) with `a = l[p] @ u`; with `permute_l` there are p @ l and u. Integers give the default
    float. Raises LinAlgError for less than two axes.

    >>> p, l, u = lg.linalg.lu(lg.asarray([[0.0, 2.0], [4.0, 1.0]]))
    >>> u
    Tensor([[4., 1.],
            [0., 2.]], dtype=float64)
    """
    packed, _, rows = _factored("lu", a)
    m, n = packed.shape[-2:]
    k = min(m, n)
    left = mx.part(mx.unit_lower(packed), (0, m), (0, k))
    right = mx.part(mx.upper(packed), (0, k), (0, n))
    places = ops.argsort(rows, len(rows.shape) - 1)
    if permute_l:
        return wrap(mx.rows_at(left, places)), wrap(right)
    if p_indices:
        return wrap(places), wrap(left), wrap(right)
    eye = mx.identity(packed.shape[:-2], m, packed.dtype)
    return wrap(mx.rows_at(eye, places)), wrap(left), wrap(right)


@repeated
def lu_factor(a: ArrayLike, /, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Tensor, Tensor]:
    """Both LU factors in one array, and with which row each was exchanged (int64): SciPy's, for batches.

    Shape (..., m, n) gives (..., m, n) and (..., min(m, n)). Integers give the default float. Raises LinAlgError for
    less than two axes.

    >>> lg.linalg.lu_factor(lg.asarray([[0.0, 2.0], [4.0, 1.0]]))
    (Tensor([[4., 1.],
            [0., 2.]], dtype=float64), Tensor([1, 1], dtype=int64))
    """
    packed, swaps, _ = _factored("lu_factor", a)
    return wrap(packed), wrap(swaps)


def _factored(op: str, a: ArrayLike) -> tuple[Value, Value, Value]:
    (value,) = float_values(op, a)
    matrices(op, value)
    return mx.lu(value)


@repeated
def lu_solve(
    factors: tuple[ArrayLike, ArrayLike], b: ArrayLike, /, trans: int = 0, overwrite_b: bool = False,
    check_finite: bool = True,
) -> Tensor:  # fmt: skip
    """The x with `a @ x = b`, by what `lu_factor(a)` gave; `a.T @ x = b` for `trans` 1.

    Shapes (..., n, n) and (..., n, k), or (n,) for one column. Raises LinAlgError for matrices that aren't square,
    ShapeError where extents differ, DTypeError for exchanges that aren't integers, ValueError for another `trans`.

    >>> lg.linalg.lu_solve(lg.linalg.lu_factor(lg.asarray([[0.0, 2.0], [4.0, 1.0]])), lg.asarray([4.0, 6.0]))
    Tensor([1., 2.], dtype=float64)
    """
    option("lu_solve", "trans", trans, (0, 1, 2))
    if not isinstance(factors, tuple | list) or len(factors) != 2:
        got = type(factors).__name__
        raise TypeError(explained("lu_solve", "factors and exchanges of rows", got, "pass what lu_factor gave"))
    packed, swaps = factors
    exchanges = as_tensor(swaps)._value
    if not exchanges.dtype.is_integer:
        raise DTypeError(explained("lu_solve", "exchanges of integers", exchanges.type, "pass what lu_factor gave"))
    left, rows, vector = systems("lu_solve", packed, b)
    if is_empty(left, rows):
        return wrap(_as_given(zeros(rows.shape, rows), vector))
    order = ops.broadcast_to(_order(exchanges, left.shape[-1]), left.shape[:-1])
    unit = {"lower": True, "unit_diagonal": True, "transpose": bool(trans)}
    plain = {"lower": False, "unit_diagonal": False, "transpose": bool(trans)}
    rows = mx.conj(rows) if trans == 2 else rows
    if trans == 0:
        x = mx.solve_triangular(left, mx.solve_triangular(left, mx.rows_at(rows, order), **unit), **plain)
    else:
        x = mx.solve_triangular(left, mx.solve_triangular(left, rows, **plain), **unit)
        x = mx.rows_at(x, ops.argsort(order, len(order.shape) - 1))
    return wrap(_as_given(mx.conj(x) if trans == 2 else x, vector))


def _order(swaps: Value, m: int) -> Value:
    """Which row came to each place."""
    *batch, k = swaps.shape
    rank = len(batch)
    place = ops.iota(TensorType((*batch, m), swaps.dtype), rank)

    def one(v: Value) -> Value:
        return ops.broadcast_leading(v, place.shape)

    def body(j: Value, rows: Value) -> tuple[Value]:
        wide = ops.broadcast(j, tuple(batch), ())
        own = [ops.iota(TensorType(tuple(batch), swaps.dtype), d) for d in range(rank)]
        other = ops.gather(swaps, *own, wide)
        here, there = ops.gather(rows, *own, wide), ops.gather(rows, *own, other)
        moved = ops.select(ops.eq(place, one(other)), one(here), rows)
        return (ops.select(ops.eq(place, one(wide)), one(there), moved),)

    count = ops.full(k, TensorType((), swaps.dtype))
    return traced_for(count, [place], body)[0]
