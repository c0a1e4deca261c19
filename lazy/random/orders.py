"""Random orders and choices of a generator: positions sorted by random keys.

Keys of a permutation are words of 64 bits: among n of them two are equal with probability n**2 / 2**65, and keep their
order then. A choice without replacement by weights takes the smallest of exponential numbers over weights (Efraimidis
and Spirakis, Weighted random sampling with a reservoir, 2006).
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from loopgrad.graph.errors import AxisError, explained
from loopgrad.graph.types import float64, int64
from loopgrad.lazy.numpy.creation import arange
from loopgrad.lazy.numpy.elementwise import divide
from loopgrad.lazy.numpy.movement import ravel, reshape
from loopgrad.lazy.numpy.running_totals import cumsum
from loopgrad.lazy.numpy.sorting import argsort, searchsorted
from loopgrad.lazy.numpy.taking import take, take_along_axis
from loopgrad.lazy.random.bit_generators import BitGenerator, long_word
from loopgrad.lazy.random.continuous import exponential_from_0, standard_uniform
from loopgrad.lazy.random.integers import integers_between
from loopgrad.lazy.random.shapes import shape_of, size_of
from loopgrad.lazy.tensor.core import TensorCore, as_tensor, cast
from loopgrad.lazy.tensor.operands import Shape, normal_axis

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor


def order(bits: BitGenerator, shape: Shape, axis: int = 0) -> Tensor:
    """Along the axis, positions in random order, each row in one of its own."""
    return argsort(bits.drawn(shape, long_word), axis=axis)


def population(op: str, a: Any, axis: Any) -> tuple[Tensor, int]:
    """What is chosen from or put in another order, and along which axis: an int stands for the integers below it."""
    if isinstance(a, int | np.integer) and not isinstance(a, bool):
        return arange(index(a)), 0
    t = as_tensor(a)
    if not t._value.shape:
        fix = "pass an int for the integers below it, or what has rows"
        raise AxisError(explained(op, "an int, or an array of at least one axis", a, fix))
    return t, normal_axis(op, axis, len(t._value.shape))


def permuted(bits: BitGenerator, x: Tensor, axis: int | None) -> Tensor:
    """Each row along the axis in an order of its own; None: all elements."""
    if axis is None:
        flat = ravel(x)
        return reshape(take(flat, order(bits, flat._value.shape)), x._value.shape)
    at = normal_axis("permuted", axis, len(x._value.shape))
    return take_along_axis(x, order(bits, x._value.shape, at), axis=at)


def chosen_positions(bits: BitGenerator, count: int, size: Any, replace: bool, p: Any) -> Tensor:
    """Positions below `count`, of that shape: with replacement, or all of them different; `p` are probabilities."""
    shape = shape_of(size)
    wanted = size_of(shape)
    if not count and wanted:
        raise ValueError(explained("choice", "something to choose from", "nothing", "pass size=0"))
    if not replace and wanted > count:
        raise ValueError(explained("choice", f"a size of at most {count}", wanted, "pass replace=True"))
    weights = None if p is None else _weights(p, count)
    if replace and weights is None:
        return bits.drawn(shape, integers_between, 0, max(count, 1), int64, False)
    if replace:
        assert weights is not None
        total = cumsum(weights)
        unit = bits.drawn(shape, standard_uniform, float64)
        return searchsorted(divide(total, total[-1]), unit, side="right")
    if weights is None:
        places = order(bits, (count,))
    else:
        places = argsort(divide(bits.drawn((count,), exponential_from_0, float64), weights))
    return reshape(places[:wanted], shape)


def _weights(p: Any, count: int) -> Tensor:
    weights = cast(as_tensor(p), float64)
    if weights._value.shape != (count,):
        raise ValueError(
            explained("choice", f"{count} probabilities", weights._value.type, "pass one for each element")
        )
    if not isinstance(p, TensorCore):
        given = np.asarray(p, np.float64)
        if not (given >= 0).all():
            raise ValueError(explained("choice", "probabilities of at least 0", p, "check them"))
        if not abs(given.sum() - 1.0) < 1e-8:
            raise ValueError(
                explained("choice", "probabilities that sum to 1", given.sum(), "divide them by their sum")
            )
    return weights
