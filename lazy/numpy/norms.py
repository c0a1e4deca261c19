"""Norms, powers and chains of matrices: what of NumPy's `linalg` needs no factorisation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.complex_functions import square_of_size
from loopgrad.lazy.numpy.creation import eye
from loopgrad.lazy.numpy.elementwise import absolute, equal, less, negative, not_equal, power
from loopgrad.lazy.numpy.matrix_products import diagonal as diagonal_of
from loopgrad.lazy.numpy.matrix_products import matmul
from loopgrad.lazy.numpy.movement import broadcast_to, moveaxis
from loopgrad.lazy.numpy.reduction import max, min, sum
from loopgrad.lazy.numpy.smooth_functions import root_of_squares
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, copied
from loopgrad.lazy.tensor.operands import normal_axes
from loopgrad.lazy.tensor.promotion import float_dtype

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "matrix_norm vector_norm"
PUBLIC_LINALG: Final = "diagonal matrix_norm matrix_power multi_dot norm trace vector_norm"
Axes = int | tuple[int, ...] | None


def _as_float(x: ArrayLike) -> Tensor:
    t = as_tensor(x)
    return cast(t, float_dtype(t._value.dtype))


def vector_norm(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, ord: float = 2) -> Tensor:
    """The norm over the axes (None: all): sum(abs(x)**ord)**(1/ord); the largest or smallest absolute value for
    infinity and its negative, the number of elements that aren't 0 for 0.

    Integers give the default float, `keepdims` keeps reduced axes with extent 1. The derivative at zeros is 0.

    >>> lg.vector_norm(lg.asarray([3.0, 4.0])), lg.vector_norm(lg.asarray([3.0, -4.0]), ord=np.inf)
    (Tensor(5., dtype=float64), Tensor(4., dtype=float64))
    """
    t = _as_float(x)
    if ord == 2:
        return root_of_squares(sum(square_of_size(t), axis=axis, keepdims=keepdims))
    if ord == float("inf"):
        return max(absolute(t), axis=axis, keepdims=keepdims)
    if ord == float("-inf"):
        return min(absolute(t), axis=axis, keepdims=keepdims)
    if ord == 0:
        return sum(cast(not_equal(t, 0), t._value.dtype.part), axis=axis, keepdims=keepdims)
    if ord == 1:
        return sum(absolute(t), axis=axis, keepdims=keepdims)
    total = sum(power(_size(t, ord), ord), axis=axis, keepdims=keepdims)
    zero = equal(total, 0.0)
    return where(zero, power(0.0, 1.0 / ord), power(where(zero, 1.0, total), 1.0 / ord))


def _size(t: Tensor, ord: float) -> Tensor:
    """What stands for |t| below the power: |t| ** ord has second derivatives at 0 above 1, which abs would hide."""
    if t._value.dtype.kind == "c":
        return absolute(t)
    if ord % 2 == 0:
        return t
    return where(less(t, 0.0), negative(t), t) if ord > 1 else absolute(t)


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of matrices (the last two axes): "fro" (Frobenius), or the largest (smallest) sum of absolute values of
    a column for 1 (-1), of a row for infinity (its negative).

    Integers give the default float. Raises ShapeError for less than two axes, ValueError for another `ord`.

    >>> lg.matrix_norm(lg.asarray([[1.0, 2.0], [3.0, 4.0]]), ord=1)
    Tensor(6., dtype=float64)
    """
    t = _as_float(x)
    if len(t._value.shape) < 2:
        raise ShapeError(explained("matrix_norm", "at least 2 dimensions", t._value.type, "use vector_norm"))
    if ord == "fro":
        return vector_norm(t, axis=(-2, -1), keepdims=keepdims)
    if ord not in (1, -1, float("inf"), float("-inf")):
        fix = "norms by singular values aren't offered: np.linalg.norm(np.asarray(x), ord)"
        raise ValueError(explained("matrix_norm", "ord 'fro', 1, -1, inf or -inf", repr(ord), fix))
    summed, other = (-2, -1) if abs(ord) == 1 else (-1, -2)
    sums = sum(absolute(t), axis=summed, keepdims=True)
    result = (max if ord > 0 else min)(sums, axis=other, keepdims=True)
    return result if keepdims else result[..., 0, 0]


def norm(x: ArrayLike, /, ord: Any = None, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """NumPy's norm: of all elements (2-norm) where neither `ord` nor `axis` is given, else `vector_norm` for one axis
    and `matrix_norm` for two.

    Integers give the default float. Raises ShapeError for more than two axes, ValueError for an `ord` without a
    meaning.

    >>> lg.linalg.norm(lg.asarray([[3.0, 0.0], [0.0, 4.0]]))
    Tensor(5., dtype=float64)
    """
    t = _as_float(x)
    rank = len(t._value.shape)
    if ord is None and (axis is None or rank == 0):
        return vector_norm(t, axis=axis, keepdims=keepdims)
    axes = normal_axes("norm", axis, rank) if axis is None else _in_order(axis, rank)
    if len(axes) == 1:
        return vector_norm(t, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ShapeError(explained("norm", "one or two axes", axis, "use lg.vector_norm for more"))
    rows = moveaxis(t, axes, (-2, -1))
    result = matrix_norm(rows, keepdims=keepdims, ord="fro" if ord is None else ord)
    return copied(moveaxis(result, (-2, -1), axes)) if keepdims else result


def _in_order(axis: Axes, rank: int) -> tuple[int, ...]:
    normal_axes("norm", axis, rank)  # refuses what isn't there, and one axis twice
    return tuple([a % rank for a in (axis if isinstance(axis, tuple) else (axis,))])  # type: ignore[operator]


def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """The product of `n` (at least 0) copies of square matrices (the last two axes), by squaring.

    Shape and dtype stay. Raises ShapeError for matrices that aren't square, ValueError for a negative `n`.

    >>> lg.linalg.matrix_power(lg.asarray([[1, 1], [1, 0]]), 5)
    Tensor([[8, 5],
            [5, 3]], dtype=int64)
    """
    t = as_tensor(x)
    shape = t._value.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(explained("matrix_power", "square matrices", t._value.type, "check the last two axes"))
    if n < 0:
        fix = "inverses aren't offered"
        raise ValueError(explained("matrix_power", "an exponent of at least 0", n, fix))
    result: Tensor | None = None
    while n:
        if n % 2:
            result = t if result is None else matmul(result, t)
        n //= 2
        t = matmul(t, t) if n else t
    return broadcast_to(eye(shape[-1], dtype=t._value.dtype), shape) if result is None else result


def multi_dot(xs: Sequence[ArrayLike], /) -> Tensor:
    """The product of matrices, from left to right.

    Vectors may stand first and last. Raises ShapeError for no matrices and where inner extents differ.

    >>> lg.linalg.multi_dot([lg.ones((1, 2)), lg.ones((2, 3)), lg.ones((3, 1))])
    Tensor([[6.]], dtype=float64)
    """
    if not len(xs):
        raise ShapeError(explained("multi_dot", "at least one matrix", "none", "pass one"))
    return reduce(matmul, [as_tensor(x) for x in xs])


# ---- the array API standard's, over the last two axes


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """The diagonal of matrices (the last two axes), as a new last axis: a read-only view.

    Raises ShapeError for less than two axes.

    >>> lg.linalg.diagonal(lg.asarray([[1, 2], [3, 4]]))
    Tensor([1, 4], dtype=int64)
    """
    return diagonal_of(x, offset, axis1=-2, axis2=-1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of the diagonal of matrices (the last two axes), which the result hasn't.

    Integers are added up in 64 bits unless `dtype` is given. Raises ShapeError for less than two axes.

    >>> lg.linalg.trace(lg.asarray([[1, 2], [3, 4]]))
    Tensor(5, dtype=int64)
    """
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)
