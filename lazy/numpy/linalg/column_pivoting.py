"""The order of columns in which each is the longest of those left, less what the ones before it span."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopgrad.graph import matrix_ops as mx
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.numpy.complex_functions import conj
from loopgrad.lazy.numpy.elementwise import divide, sqrt, stop_gradient, subtract
from loopgrad.lazy.numpy.matrix_products import matmul
from loopgrad.lazy.numpy.movement import broadcast_to, expand_dims, matrix_transpose
from loopgrad.lazy.numpy.reduction import argmax, sum
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.numpy.taking import take_along_axis
from loopgrad.lazy.tensor.core import wrap
from loopgrad.lazy.tensor.operands import positions

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor


def pivoted_order(a: Tensor) -> Tensor:
    """int64 positions (..., n) of the columns of (..., m, n), by P. Businger and G. Golub (Linear least squares
    solutions by Householder transformations, 1965); lengths are taken of what is left of columns, not brought up to
    date, which loses digits. Positions don't depend on the matrix smoothly: no derivative goes through them."""
    *batch, m, n = a.shape
    columns = wrap(positions((*batch, n), len(batch)))

    def step(j: Tensor, carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        left, order = carry
        sizes = where(columns < j, -1.0, sum(wrap(mx.squared(left._value)), axis=-2))
        best = argmax(sizes, axis=-1, keepdims=True)
        exchanged = where(columns == j, best, where(columns == best, j, columns))
        order = take_along_axis(order, exchanged, axis=-1)
        rows = broadcast_to(expand_dims(exchanged, -2), left.shape)
        left = take_along_axis(left, rows, axis=-1)
        here = expand_dims(columns == j, -2)
        column = sum(where(here, left, 0.0), axis=-1, keepdims=True)
        size = sqrt(sum(wrap(mx.squared(column._value)), axis=-2, keepdims=True))
        unit = divide(column, where(size > 0.0, size, 1.0))
        along = matmul(unit, matmul(conj(matrix_transpose(unit)), left))
        return where(expand_dims(columns > j, -2), subtract(left, along), left), order

    start: Tensor = stop_gradient(a)
    found: tuple[Tensor, Tensor] = fori_loop(0, min(m, n), step, (start, columns))
    return found[1]
