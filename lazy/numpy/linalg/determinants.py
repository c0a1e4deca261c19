"""Determinants, by LU factorisations."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops, region_ops
from loopgrad.graph.build import enter, trace
from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType
from loopgrad.lazy.numpy.linalg.determinant_tangent import (
    by_pivots,
    counted_pivots,
    elements,
    odd_exchanges,
    with_tangent,
    written_out,
)
from loopgrad.lazy.numpy.linalg.operands import float_values, is_empty, square
from loopgrad.lazy.tensor.core import ArrayLike, wrap
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = "det slogdet"
WRITTEN_OUT: Final = 3  # rows


class SlogdetResult(NamedTuple):
    """What `slogdet` gives."""

    sign: Tensor
    logabsdet: Tensor


@repeated
def det(x: ArrayLike, /, *, overwrite_a: bool = False, check_finite: bool = True) -> Tensor:
    """Determinants of square matrices: shape (..., n, n) gives (...,).

    Integers give the default float. Raises LinAlgError for matrices that aren't square. Singular matrices have
    derivatives, too: the cofactors. Up to 3 rows are written out as sums of products: where some of these are larger
    than floats can be, the result may be NaN in place of an infinity or of a number; `slogdet` has no such limit.
    SciPy's `overwrite_a` and `check_finite` change nothing.

    >>> lg.linalg.det(lg.asarray([[2.0, 1.0], [1.0, 3.0]]))
    Tensor(5., dtype=float64)
    >>> lg.grad(lg.linalg.det)(lg.asarray([[0.0, 0.0], [0.0, 3.0]]))
    Tensor([[3., 0.],
            [0., 0.]], dtype=float64)
    """
    (a,) = float_values("det", x)
    square("det", a)
    batch, n = a.shape[:-2], a.shape[-1]
    if is_empty(a):
        return wrap(ops.full(1, TensorType(batch, a.dtype)))
    if n <= WRITTEN_OUT:
        return wrap(written_out(elements(a), n))
    assert isinstance(a.type, TensorType)
    (result,) = region_ops.call((a,), _regions(a.type), "jvp", arguments=1, name="det")
    return wrap(result)


@lru_cache(maxsize=256)
def _regions(type: TensorType) -> tuple[Graph, Graph]:
    """The function and its rule, as graphs that no call changes."""
    with enter(None):  # what is kept belongs to no function that is being traced
        value, _ = trace(lambda a: [by_pivots(*mx.lu(a)[:2])], [type])
        rule, _ = trace(with_tangent, [type, type])
    return value, rule


@repeated
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
    packed, swaps, _ = mx.lu(a)
    diagonal, negative = counted_pivots(packed), odd_exchanges(swaps)
    sign = computed("reduce_prod", _signs(diagonal), axes=(len(batch),))
    logarithm = ops.reduce_sum(ops.log(mx.absolute(diagonal)), (len(batch),))
    return SlogdetResult(wrap(ops.select(negative, ops.neg(sign), sign)), wrap(logarithm))


def _signs(pivots: Value) -> Value:
    """Of NaN 1, as in NumPy."""
    signs = computed("sign", pivots)
    return signs if pivots.dtype.kind == "c" else ops.select(ops.is_nan(pivots), 1, signs)
