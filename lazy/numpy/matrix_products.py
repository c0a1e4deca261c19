"""Products of vectors, matrices and higher arrays; every contraction becomes one matmul."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import bool_, int64
from loopgrad.lazy.numpy.complex_functions import conjugated
from loopgrad.lazy.numpy.elementwise import multiply, subtract
from loopgrad.lazy.numpy.indexing import get_item
from loopgrad.lazy.numpy.movement import expand_dims, moveaxis, ravel, reshape, stack
from loopgrad.lazy.numpy.preferred_types import with_preferred
from loopgrad.lazy.numpy.reduction import sum
from loopgrad.lazy.numpy.views_and_assignment import Diagonal
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    as_tensor,
    broadcast_value,
    cast,
    cast_value,
    copied,
    requested_dtype,
    wrap,
)
from loopgrad.lazy.tensor.operands import joined_shape, meet_arrays, normal_axis, positions, whole_number
from loopgrad.lazy.tensor.outputs import Out, delivered, in_dtype
from loopgrad.lazy.tensor.promotion import check_casting
from loopgrad.lazy.tensor.repeated_calls import repeated, repeated_view
from loopgrad.lazy.tensor.storage import viewed

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "cross diag diagflat diagonal dot inner matmul matvec outer tensordot trace vdot vecdot vecmat"
PUBLIC_LINALG: Final = "cross matmul outer tensordot vecdot"


def in_one_dtype(
    op: str, xs: Sequence[ArrayLike], dtype: Any = None, casting: str = "same_kind"
) -> tuple[list[Value], bool]:
    """The operands in one dtype, `dtype` where it is given (bools as int64), and whether they are bools."""
    wanted = requested_dtype(dtype)
    check_casting(op, casting)
    operands = meet_arrays(*xs) if wanted is None else [in_dtype(op, x, wanted, casting) for x in xs]
    values = [t._value for t in operands]
    were_bool = values[0].dtype is bool_
    return [cast_value(v, int64) for v in values] if were_bool else values, were_bool


@repeated
def matmul(
    x: ArrayLike, y: ArrayLike, /, out: Out = None, *, dtype: Any = None, casting: str = "same_kind",
    precision: Any = None, preferred_element_type: Any = None,
) -> Tensor:  # fmt: skip
    """Matrix product; leading axes broadcast, a vector counts as a row (left) or a column (right). With `out` written
    to that, and returned.

    Shapes (..., m, k) and (..., k, n) give (..., m, n), in the dtype to which both are promoted, or `dtype`, to which
    both are converted first. Products here take JAX's keywords, too: `preferred_element_type` is the result's dtype,
    and where it is wider, the sums'; `precision` changes nothing (`lg.options(matmul_precision=)` does). Raises
    ShapeError for a scalar and where the inner extents differ, DTypeError where `casting` (`lg.can_cast`) forbids the
    conversion, ValueError for an unknown precision.

    >>> lg.matmul(lg.asarray([[1, 2], [3, 4]]), lg.asarray([1, 10]))
    Tensor([21, 43], dtype=int64)
    """
    if precision is not None or preferred_element_type is not None:
        return delivered("matmul", with_preferred("matmul", matmul, (x, y), precision, preferred_element_type), out)
    (a, b), were_bool = in_one_dtype("matmul", (x, y), dtype, casting)
    product = wrap(_matrix_product(a, b))
    return delivered("matmul", cast(product, bool_) if were_bool else product, out)


def _matrix_product(a: Value, b: Value) -> Value:
    left, right = a.shape, b.shape
    if not left or not right:
        fix = "multiply by a scalar with *"
        raise ShapeError(explained("matmul", "at least one dimension on each side", f"{left} @ {right}", fix))
    row, column = len(left) == 1, len(right) == 1
    if row:
        a = ops.reshape(a, (1, *a.shape))
    if column:
        b = ops.reshape(b, (*b.shape, 1))
    if a.shape[-1] != b.shape[-2]:
        fix = "transpose or reshape one of them"
        raise ShapeError(explained("matmul", f"{a.shape[-1]} rows on the right", f"{left} @ {right}", fix))
    result = _batched_matmul(a, b)
    shape = result.shape
    if row and column:
        result = ops.reshape(result, shape[:-2])
    elif row:
        result = ops.reshape(result, (*shape[:-2], shape[-1]))
    elif column:
        result = ops.reshape(result, shape[:-1])
    return result


def _batched_matmul(a: Value, b: Value) -> Value:
    batch = joined_shape("matmul", (a.shape[:-2], b.shape[:-2]))
    if len(b.shape) == 2 and len(a.shape) > 2:  # one matrix for the whole batch: a single tall product
        tall = ops.reshape(a, (prod(a.shape[:-1]), a.shape[-1]))
        return ops.reshape(ops.matmul(tall, b), (*a.shape[:-1], b.shape[-1]))
    return ops.matmul(broadcast_value(a, (*batch, *a.shape[-2:])), broadcast_value(b, (*batch, *b.shape[-2:])))


@repeated
def dot(
    x: ArrayLike, y: ArrayLike, /, out: Out = None, *, precision: Any = None, preferred_element_type: Any = None
) -> Tensor:
    """NumPy's dot: product with a scalar, inner product of vectors, last axis with second to last. With `out` written
    to that, and returned.

    Shapes (..., k) and (..., k, n) give all axes of x but the last, then those of y but the summed one. Dtypes, JAX's
    keywords and errors are those of `matmul`.

    >>> lg.dot(lg.asarray([1.0, 2.0]), lg.asarray([3.0, 4.0]))
    Tensor(11., dtype=float64)
    """
    if precision is not None or preferred_element_type is not None:
        return delivered("dot", with_preferred("dot", dot, (x, y), precision, preferred_element_type), out)
    a, b = meet_arrays(x, y)
    if not a._value.shape or not b._value.shape:
        return delivered("dot", multiply(a, b), out)
    product = matmul(a, b) if len(b._value.shape) <= 2 else tensordot(a, b, axes=([-1], [-2]))
    return delivered("dot", product, out)


@repeated
def vecdot(
    x: ArrayLike, y: ArrayLike, /, axis: int = -1, *, out: Out = None, dtype: Any = None, casting: str = "same_kind",
    precision: Any = None, preferred_element_type: Any = None,
) -> Tensor:  # fmt: skip
    """The inner product along an axis of each, of complex numbers with the conjugates of x, in the dtype to which both
    are promoted; other axes broadcast. All keywords but the axis are those of `matmul`.

    Raises ShapeError where they don't, where the axis' extents differ, and for an axis that one of them hasn't.

    >>> lg.vecdot(lg.asarray([[1, 2], [3, 4]]), lg.asarray([1, 10]))
    Tensor([21, 43], dtype=int64)
    """
    if precision is not None or preferred_element_type is not None:
        along = partial(vecdot, axis=axis)
        return delivered("vecdot", with_preferred("vecdot", along, (x, y), precision, preferred_element_type), out)
    (a, b), were_bool = in_one_dtype("vecdot", (x, y), dtype, casting)
    first, second = [moveaxis(wrap(v), normal_axis("vecdot", axis, len(v.shape)), -1) for v in (a, b)]
    if first._value.shape[-1] != second._value.shape[-1]:
        got = f"{a.shape} and {b.shape}"
        raise ShapeError(explained("vecdot", f"equal extents along axis {axis}", got, "make them equally long"))
    result = sum(multiply(conjugated(first), second), axis=-1, dtype=a.dtype)
    return delivered("vecdot", cast(result, bool_) if were_bool else result, out)


@repeated
def matvec(x: ArrayLike, y: ArrayLike, /, out: Out = None, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    """Matrices times vectors: shapes (..., m, n) and (..., n) give (..., m), in one promoted dtype; others broadcast.

    Raises ShapeError where the extents differ, and for less than a matrix or a vector. `out`, `dtype` and `casting` are
    those of `matmul`.

    >>> lg.matvec(lg.asarray([[1, 2], [3, 4]]), lg.asarray([[1, 0], [0, 1]]))
    Tensor([[1, 3],
            [2, 4]], dtype=int64)
    """
    _ranked("matvec", (x, 2), (y, 1))
    return delivered("matvec", matmul(x, expand_dims(y, -1), dtype=dtype, casting=casting)[..., 0], out)


@repeated
def vecmat(x: ArrayLike, y: ArrayLike, /, out: Out = None, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    """Vectors (their conjugates) times matrices: shapes (..., m) and (..., m, n) give (..., n), in one promoted dtype.

    Other axes broadcast. Raises ShapeError where the extents differ, and for less than a vector or a matrix. `out`,
    `dtype` and `casting` are those of `matmul`.

    >>> lg.vecmat(lg.asarray([[1, 0], [0, 1]]), lg.asarray([[1, 2], [3, 4]]))
    Tensor([[1, 2],
            [3, 4]], dtype=int64)
    """
    _ranked("vecmat", (x, 1), (y, 2))
    product = matmul(expand_dims(conjugated(x), -2), y, dtype=dtype, casting=casting)
    return delivered("vecmat", product[..., 0, :], out)


def _ranked(op: str, *operands: tuple[ArrayLike, int]) -> None:
    for x, least in operands:
        value = as_tensor(x)._value
        if len(value.shape) < least:
            raise ShapeError(explained(op, f"at least {least} dimensions", value.type, "add axes, or use lg.matmul"))


@repeated
def vdot(x: ArrayLike, y: ArrayLike, /, *, precision: Any = None, preferred_element_type: Any = None) -> Tensor:
    """The inner product of all elements, of complex numbers with the conjugates of x, of shape (); raises ShapeError
    where their numbers differ. The keywords are those of `matmul`.

    >>> lg.vdot(lg.asarray([[1, 2], [3, 4]]), lg.ones((2, 2)))
    Tensor(10., dtype=float64)
    """
    a, b = ravel(conjugated(x)), ravel(y)
    return matmul(a, b, precision=precision, preferred_element_type=preferred_element_type)


@repeated
def inner(x: ArrayLike, y: ArrayLike, /, *, precision: Any = None, preferred_element_type: Any = None) -> Tensor:
    """The sum of products over the last axes: shapes (..., k) and (..., k) give all other axes, x's first.

    Dtypes are promoted to one; the keywords are those of `matmul`. Raises ShapeError where the last extents differ.

    >>> lg.inner(lg.asarray([[1, 2], [3, 4]]), lg.asarray([1, 10]))
    Tensor([21, 43], dtype=int64)
    """
    if precision is not None or preferred_element_type is not None:
        return with_preferred("inner", inner, (x, y), precision, preferred_element_type)
    a, b = meet_arrays(x, y)
    if not a._value.shape or not b._value.shape:
        return multiply(a, b)
    return tensordot(a, b, axes=([-1], [-1]))


@repeated
def outer(x: ArrayLike, y: ArrayLike, /, out: Out = None) -> Tensor:
    """All products of two vectors (others are raveled): shapes (m,) and (n,) give (m, n), in one promoted dtype.

    >>> lg.outer(lg.asarray([1, 2]), lg.asarray([3, 4, 5]))
    Tensor([[ 3,  4,  5],
            [ 6,  8, 10]], dtype=int64)
    """
    a, b = map(ravel, meet_arrays(x, y))
    return multiply(reshape(a, (-1 if a._value.shape[0] else 0, 1)), reshape(b, (1, b._value.shape[0])), out=out)


@repeated
def tensordot(
    x: ArrayLike, y: ArrayLike, /, axes: int | tuple[Sequence[int], Sequence[int]] = 2, *, precision: Any = None,
    preferred_element_type: Any = None,
) -> Tensor:  # fmt: skip
    """Sum of products over pairs of axes (an int: the last of `x` with the first of `y`).

    The result has x's other axes, then y's, in one promoted dtype; the keywords are those of `matmul`. Raises
    ShapeError where paired extents differ.

    >>> lg.tensordot(lg.ones((2, 3, 4)), lg.ones((3, 4, 5)), axes=2).shape
    (2, 5)
    """
    if precision is not None or preferred_element_type is not None:
        summed = partial(tensordot, axes=axes)
        return with_preferred("tensordot", summed, (x, y), precision, preferred_element_type)
    (a, b), were_bool = in_one_dtype("tensordot", (x, y))
    if isinstance(axes, int | np.integer):
        most = min(len(a.shape), len(b.shape))
        if axes > most:
            fix = "pass fewer, or a pair of lists of axes"
            raise ShapeError(explained("tensordot", f"at most {most} axes of {a.shape} and {b.shape}", axes, fix))
        left = list(range(len(a.shape) - axes, len(a.shape)))
        right = list(range(axes))
    else:
        left, right = _paired_axes(axes, len(a.shape), len(b.shape))
    if [a.shape[d] for d in left] != [b.shape[d] for d in right]:
        got = f"{a.shape} over {left} with {b.shape} over {right}"
        raise ShapeError(explained("tensordot", "equal extents on the summed axes", got, "check the axes"))
    free_left = [d for d in range(len(a.shape)) if d not in left]
    free_right = [d for d in range(len(b.shape)) if d not in right]
    rows, columns = [a.shape[d] for d in free_left], [b.shape[d] for d in free_right]
    depth = prod(a.shape[d] for d in left)
    m = ops.reshape(ops.transpose(a, (*free_left, *left)), (prod(rows), depth))
    n = ops.reshape(ops.transpose(b, (*right, *free_right)), (depth, prod(columns)))
    result = wrap(ops.reshape(ops.matmul(m, n), (*rows, *columns)))
    return cast(result, bool_) if were_bool else result


def _paired_axes(axes: Any, left: int, right: int) -> tuple[list[int], list[int]]:
    """Axes of either side, each one or some, counted from the front."""
    try:
        of_left, of_right = [[x] if isinstance(x, int | np.integer) else list(x) for x in axes]
    except (TypeError, ValueError):
        fix = "pass one of these"
        raise TypeError(explained("tensordot", "a number of axes, or axes of x and of y", repr(axes), fix)) from None
    return [normal_axis("tensordot", d, left) for d in of_left], [normal_axis("tensordot", d, right) for d in of_right]


# ---- diagonals


@repeated_view
def diagonal(x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonal over two axes, as a new last axis: a read-only view.

    Raises ShapeError for less than two axes.

    >>> lg.diagonal(lg.asarray([[1, 2], [3, 4]]))
    Tensor([1, 4], dtype=int64)
    """
    return diagonal_view(x, offset, axis1, axis2, Diagonal)


def diagonal_view(x: ArrayLike, offset: int, axis1: int, axis2: int, kind: type[Diagonal]) -> Tensor:
    t = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = t._value.shape[-2:]
    offset = whole_number("diagonal", "the number of a diagonal as offset", offset)
    first = min(max(-offset, 0), rows), min(max(offset, 0), columns)
    step = kind(first, max(min(rows - first[0], columns - first[1]), 0))
    return viewed(t, step, step.forward(t._value))


@repeated
def diag(x: ArrayLike, /, k: int = 0) -> Tensor:
    """A matrix with the vector on diagonal `k`, or the diagonal of a matrix; the dtype stays.

    Raises ShapeError for other numbers of axes.

    >>> lg.diag(lg.asarray([1, 2])), lg.diag(lg.asarray([[1, 2], [3, 4]]))
    (Tensor([[1, 0],
            [0, 2]], dtype=int64), Tensor([1, 4], dtype=int64))
    """
    t, k = as_tensor(x), whole_number("diag", "the number of a diagonal", k)
    if len(t._value.shape) == 2:
        return diagonal(t, offset=k)
    if len(t._value.shape) != 1:
        raise ShapeError(explained("diag", "one or two dimensions", t._value.type, "use lg.diagonal"))
    n = t._value.shape[0] + abs(k)
    rows = positions((n, n), 0)
    columns = positions((n, n), 1)
    wide = ops.pad(t._value, (max(k, 0),), (max(-k, 0),))
    placed = broadcast_value(wide, (n, n))  # element j of column j
    on_diagonal = ops.eq(columns, ops.add(rows, k)) if n else emit("eq", (columns, rows))[0]
    return wrap(ops.select(on_diagonal, placed, ops.zeros_like(placed)))


@repeated
def diagflat(x: ArrayLike, /, k: int = 0) -> Tensor:
    """A matrix with the elements of x (of any shape) on diagonal `k`; the dtype stays.

    >>> lg.diagflat(lg.asarray([[1], [2]]))
    Tensor([[1, 0],
            [0, 2]], dtype=int64)
    """
    return diag(ravel(x), k)


@repeated
def trace(
    x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Out = None
) -> Tensor:
    """The sum of the diagonal over two axes, which the result hasn't; in `dtype`, or integers in 64 bits.

    Raises ShapeError for less than two axes.

    >>> lg.trace(lg.asarray([[1, 2], [3, 4]]))
    Tensor(5, dtype=int64)
    """
    return sum(diagonal(x, offset=offset, axis1=axis1, axis2=axis2), axis=-1, dtype=dtype, out=out)


@repeated
def cross(
    x: ArrayLike, y: ArrayLike, /, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """The cross product of vectors of 3 along an axis (the last; or `axisa` of x, `axisb` of y, `axisc` of the result).

    Vectors of 2 have a third component of 0; of two such the result is the third component alone, without the axis.
    Other axes broadcast, dtypes are promoted to one.

    Raises ShapeError for another extent of the axis.

    >>> lg.cross(lg.asarray([1, 0, 0]), lg.asarray([0, 1, 0]))
    Tensor([0, 0, 1], dtype=int64)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    for t, at in ((a, axisa), (b, axisb)):
        if t._value.shape[-1] not in (2, 3):
            raise ShapeError(explained("cross", f"extent 2 or 3 at axis {at}", t._value.type, "pass vectors of space"))
    both_flat = a._value.shape[-1] == b._value.shape[-1] == 2
    a0, a1, a2 = _components(a)
    b0, b1, b2 = _components(b)
    if both_flat:
        return copied(subtract(multiply(a0, b1), multiply(a1, b0)))
    parts = [
        subtract(multiply(a1, b2), multiply(a2, b1)),
        subtract(multiply(a2, b0), multiply(a0, b2)),
        subtract(multiply(a0, b1), multiply(a1, b0)),
    ]
    return copied(moveaxis(stack(parts, axis=-1), -1, axisc))


def _components(vectors: Tensor) -> list[ArrayLike]:
    """Three of each vector along the last axis."""
    found: list[ArrayLike] = [get_item(vectors, (..., i)) for i in range(vectors._value.shape[-1])]
    return [*found, 0] if len(found) == 2 else found
