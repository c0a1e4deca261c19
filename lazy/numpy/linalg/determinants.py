"""Determinants, by LU factorisations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, bool_
from loopgrad.lazy.numpy.linalg.operands import float_values, is_empty, square
from loopgrad.lazy.tensor.core import ArrayLike, wrap

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = "det slogdet"
WRITTEN_OUT: Final = 3  # rows


class SlogdetResult(NamedTuple):
    """What `slogdet` gives."""

    sign: Tensor
    logabsdet: Tensor


def det(x: ArrayLike, /) -> Tensor:
    """Determinants of square matrices: shape (..., n, n) gives (...,).

    Integers give the default float. Raises LinAlgError for matrices that aren't square. Where a matrix of more than
    three rows is singular, the derivative is NaN.

    >>> lg.linalg.det(lg.asarray([[2.0, 1.0], [1.0, 3.0]]))
    Tensor(5., dtype=float64)
    """
    (a,) = float_values("det", x)
    square("det", a)
    batch, n = a.shape[:-2], a.shape[-1]
    if is_empty(a):
        return wrap(ops.full(1, TensorType(batch, a.dtype)))
    if n <= WRITTEN_OUT:
        return wrap(_written_out(a))
    diagonal, negative = _pivots(a)
    product = computed("reduce_prod", diagonal, axes=(len(batch),))
    return wrap(ops.select(negative, ops.neg(product), product))


def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """The sign and the logarithm of the absolute value of determinants, which may be too large or small for floats.

    Shape (..., n, n) gives two of (...,). Integers give the default float. Raises LinAlgError for matrices that aren't
    square. A singular matrix has the sign 0 and the logarithm -inf.

    >>> sign, logarithm = lg.linalg.slogdet(lg.asarray([[0.0, 1.0], [1.0, 0.0]]))
    >>> sign, logarithm
    (Tensor(-1., dtype=float64), Tensor(0., dtype=float64))
    """
    (a,) = float_values("slogdet", x)
    square("slogdet", a)
    batch = a.shape[:-2]
    if is_empty(a):
        one = ops.full(1, TensorType(batch, a.dtype))
        return SlogdetResult(wrap(one), wrap(mx.real(ops.zeros_like(one))))
    diagonal, negative = _pivots(a)
    sign = computed("reduce_prod", _signs(diagonal), axes=(len(batch),))
    logarithm = ops.reduce_sum(ops.log(mx.absolute(diagonal)), (len(batch),))
    return SlogdetResult(wrap(ops.select(negative, ops.neg(sign), sign)), wrap(logarithm))


def _signs(pivots: Value) -> Value:
    """Of NaN 1, as in NumPy."""
    signs = computed("sign", pivots)
    return signs if pivots.dtype.kind == "c" else ops.select(ops.is_nan(pivots), 1, signs)


def _pivots(a: Value) -> tuple[Value, Value]:
    """The diagonal of u, and whether an odd number of rows was exchanged. Beside a 0 infinities and NaN count as 1: as
    NumPy has it, the matrix is singular then."""
    packed, swaps, _ = mx.lu(a)
    axis = len(swaps.shape) - 1
    moved = ops.ne(swaps, ops.iota(TensorType(swaps.shape, swaps.dtype), axis))
    odd = ops.reduce_sum(ops.cast(moved, swaps.dtype), (axis,))
    diagonal = mx.diagonal(packed)
    size = mx.size(diagonal)
    singular = ops.reduce_or(ops.eq(size, 0), (axis,))
    lost = ops.and_(ops.broadcast_leading(singular, size.shape), ops.or_(ops.is_nan(size), ops.is_inf(size)))
    return ops.select(lost, 1, diagonal), ops.cast(ops.and_(odd, 1), bool_)


def _written_out(a: Value) -> Value:
    """By products of elements, which have derivatives where the determinant is 0."""
    n = a.shape[-1]

    def at(i: int, j: int) -> Value:
        return ops.reshape(mx.part(a, (i, i + 1), (j, j + 1)), a.shape[:-2])

    def minor(i: int, j: int, k: int, m: int) -> Value:
        return ops.sub(mx.mul(at(i, k), at(j, m)), mx.mul(at(i, m), at(j, k)))

    if n == 1:
        return at(0, 0)
    if n == 2:
        return minor(0, 1, 0, 1)
    terms = [mx.mul(at(0, j), minor(1, 2, (j + 1) % 3, (j + 2) % 3)) for j in range(3)]
    return ops.add(ops.add(terms[0], terms[1]), terms[2])
