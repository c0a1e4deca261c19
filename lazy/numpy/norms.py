"""Norms, powers and chains of matrices."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import partial, reduce
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.complex_functions import square_of_size
from loopgrad.lazy.numpy.creation import eye
from loopgrad.lazy.numpy.elementwise import absolute, equal, less, negative, not_equal, power
from loopgrad.lazy.numpy.linalg.decompositions import svdvals
from loopgrad.lazy.numpy.linalg.operands import square
from loopgrad.lazy.numpy.linalg.solving import inv
from loopgrad.lazy.numpy.matrix_products import diagonal as diagonal_of
from loopgrad.lazy.numpy.matrix_products import matmul
from loopgrad.lazy.numpy.movement import broadcast_to, moveaxis
from loopgrad.lazy.numpy.reduction import max, min, sum
from loopgrad.lazy.numpy.smooth_functions import root_of_squares
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, cast, copied
from loopgrad.lazy.tensor.operands import as_float, normal_axes
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.repeated_calls import repeated, repeated_view

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "matrix_norm vector_norm"
PUBLIC_LINALG: Final = "diagonal matrix_norm matrix_power multi_dot norm trace vector_norm"
Axes = int | tuple[int, ...] | None


@repeated
def vector_norm(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, ord: float | None = 2) -> Tensor:
    """The norm over the axes (None: all): sum(abs(x)**ord)**(1/ord); the largest or smallest absolute value for
    infinity (of nothing 0) and its negative, the number of elements that aren't 0 for 0. `ord` None is 2.

    Integers give the default float, `keepdims` keeps reduced axes with extent 1. The derivative at zeros is 0. Raises
    ValueError for an `ord` that isn't a number.

    >>> lg.vector_norm(lg.asarray([3.0, 4.0])), lg.vector_norm(lg.asarray([3.0, -4.0]), ord=np.inf)
    (Tensor(5., dtype=float64), Tensor(4., dtype=float64))
    """
    t = as_float(x)
    p: float | None = _beside(t, ord)  # tensors are numbers here, too
    if p is None or p == 2:
        return root_of_squares(sum(square_of_size(t), axis=axis, keepdims=keepdims))
    if not isinstance(p, Real | TensorCore):
        raise ValueError(explained("vector_norm", "a number as ord", repr(ord), "see matrix_norm for others"))
    if p == float("inf"):
        return _largest(t)(absolute(t), axis=axis, keepdims=keepdims)
    if p == float("-inf"):
        return min(absolute(t), axis=axis, keepdims=keepdims)
    if p == 0:
        return sum(cast(not_equal(t, 0), t._value.dtype.part), axis=axis, keepdims=keepdims)
    if p == 1:
        return sum(absolute(t), axis=axis, keepdims=keepdims)
    total = sum(power(_size(t, p), p), axis=axis, keepdims=keepdims)
    zero = equal(total, 0.0)
    return where(zero, power(0.0, 1.0 / p), power(where(zero, 1.0, total), 1.0 / p))


def _beside(t: Tensor, ord: Any) -> Any:
    """`ord` as a number that leaves t its dtype, as in NumPy: by a float16 powers have three digits."""
    if isinstance(ord, np.generic | np.ndarray) and ord.ndim == 0:
        ord = ord.item()
    return cast(as_tensor(ord), t._value.dtype.part) if isinstance(ord, TensorCore) else ord


def _largest(t: Tensor) -> Callable[..., Tensor]:
    """The maximum of sizes: of nothing it is 0, as in NumPy."""
    return max if 0 not in t._value.shape else partial(max, initial=0)


def _size(t: Tensor, ord: float) -> Tensor:
    """What stands for |t| below the power: |t| ** ord has second derivatives at 0 above 1, which abs would hide."""
    if t._value.dtype.kind == "c":
        return absolute(t)
    if ord % 2 == 0:
        return t
    return where(less(t, 0.0), negative(t), t) if ord > 1 else absolute(t)


@repeated
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of matrices (the last two axes): "fro" or None (Frobenius), the largest (smallest) sum of absolute
    values of a column for 1 (-1), of a row for infinity (its negative), the largest (smallest) singular value for 2
    (-2), the sum of all for "nuc"; the largest of nothing is 0.

    Integers give the default float. Raises ShapeError for less than two axes, ValueError for another `ord`.

    >>> lg.matrix_norm(lg.asarray([[1.0, 2.0], [3.0, 4.0]]), ord=1)
    Tensor(6., dtype=float64)
    """
    t = as_float(x)
    if len(t._value.shape) < 2:
        raise ShapeError(explained("matrix_norm", "at least 2 dimensions", t._value.type, "use vector_norm"))
    if ord is None or ord == "fro":
        return vector_norm(t, axis=(-2, -1), keepdims=keepdims)
    largest = _largest(t)
    if ord in (2, -2, "nuc"):
        combined = sum if ord == "nuc" else largest if ord == 2 else min
        result = combined(svdvals(t), axis=-1, keepdims=keepdims)
        return result[..., None] if keepdims else result
    if ord not in (1, -1, float("inf"), float("-inf")):
        fix = "use one of these"
        raise ValueError(explained("matrix_norm", "ord 'fro', 'nuc', 1, -1, 2, -2, inf or -inf", repr(ord), fix))
    summed, other = (-2, -1) if abs(ord) == 1 else (-1, -2)
    sums = sum(absolute(t), axis=summed, keepdims=True)
    result = (largest if ord > 0 else min)(sums, axis=other, keepdims=True)
    return result if keepdims else result[..., 0, 0]


@repeated
def norm(x: ArrayLike, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """NumPy's norm: of all elements (2-norm) where neither `ord` nor `axis` is given, else `vector_norm` for one axis
    and `matrix_norm` for two.

    Integers give the default float. Raises ShapeError for more than two axes, ValueError for an `ord` without a
    meaning.

    >>> lg.linalg.norm(lg.asarray([[3.0, 0.0], [0.0, 4.0]]))
    Tensor(5., dtype=float64)
    """
    t = as_float(x)
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


@repeated
def matrix_power(x: ArrayLike, /, n: int) -> Tensor:
    """The product of `n` copies of square matrices (the last two axes), by squaring; of their inverses below 0.

    Shape and dtype stay, but for the default float of inverses of integers. Raises LinAlgError for matrices that aren't
    square, TypeError for an `n` that isn't an integer.

    >>> lg.linalg.matrix_power(lg.asarray([[1, 1], [1, 0]]), 5)
    Tensor([[8, 5],
            [5, 3]], dtype=int64)
    """
    t = as_tensor(x)
    square("matrix_power", t._value)
    exponent = index(n)
    shape = t._value.shape
    if exponent < 0:
        t, exponent = inv(t), -exponent
    result: Tensor | None = None
    while exponent:
        if exponent % 2:
            result = t if result is None else matmul(result, t)
        exponent //= 2
        t = matmul(t, t) if exponent else t
    return broadcast_to(eye(shape[-1], dtype=t._value.dtype), shape) if result is None else result


@repeated
def multi_dot(xs: Sequence[ArrayLike], /, *, out: Out = None) -> Tensor:
    """The product of matrices, in the order that takes the fewest multiplications (Cormen et al., section 15.2).

    Vectors may stand first and last. With `out` it is written to that, and returned. Raises ShapeError for no matrices,
    for stacks of them (`matmul` takes these) and where extents differ.

    >>> lg.linalg.multi_dot([lg.ones((1, 2)), lg.ones((2, 3)), lg.ones((3, 1))])
    Tensor([[6.]], dtype=float64)
    """
    if not len(xs):
        raise ShapeError(explained("multi_dot", "at least one matrix", "none", "pass one"))
    tensors = [as_tensor(x) for x in xs]
    shapes = [t._value.shape for t in tensors]
    deeper = [t for t in tensors if len(t._value.shape) > 2]
    if deeper:
        raise ShapeError(explained("multi_dot", "vectors and matrices", deeper[0]._value.type, "use matmul for stacks"))
    if len(shapes) < 3 or not all(shapes):
        return delivered("multi_dot", reduce(matmul, tensors), out)
    extents = [1 if len(shapes[0]) == 1 else shapes[0][0], *[s[-2] if len(s) == 2 else s[0] for s in shapes[1:]]]
    extents.append(1 if len(shapes[-1]) == 1 else shapes[-1][-1])
    splits = _cheapest_splits(extents)

    def product(first: int, last: int) -> Tensor:
        if first == last:
            return tensors[first]
        middle = splits[first, last]
        return matmul(product(first, middle), product(middle + 1, last))

    return delivered("multi_dot", product(0, len(tensors) - 1), out)


def _cheapest_splits(extents: Sequence[int]) -> dict[tuple[int, int], int]:
    """After which matrix each stretch of a chain is cut; matrix i is extents[i] by extents[i + 1]."""
    count = len(extents) - 1
    cost = {(i, i): 0 for i in range(count)}
    splits = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            ways = [cost[i, k] + cost[k + 1, j] + extents[i] * extents[k + 1] * extents[j + 1] for k in range(i, j)]
            splits[i, j] = i + ways.index(builtins.min(ways))
            cost[i, j] = builtins.min(ways)
    return splits


# ---- the array API standard's, over the last two axes


@repeated_view
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """The diagonal of matrices (the last two axes), as a new last axis: a read-only view.

    Raises ShapeError for less than two axes.

    >>> lg.linalg.diagonal(lg.asarray([[1, 2], [3, 4]]))
    Tensor([1, 4], dtype=int64)
    """
    return diagonal_of(x, offset, axis1=-2, axis2=-1)


@repeated
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of the diagonal of matrices (the last two axes), which the result hasn't.

    Integers are added up in 64 bits unless `dtype` is given. Raises ShapeError for less than two axes.

    >>> lg.linalg.trace(lg.asarray([[1, 2], [3, 4]]))
    Tensor(5, dtype=int64)
    """
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)
