"""`x.flat`: the elements of a tensor row by row, as one sequence that can be written to.

    x.flat[3]        x.flat[1:5]        x.flat[2] = 7.0        x.flat = [0.0, 1.0]        for v in x.flat

Reading gives copies, as NumPy's does; writing writes to x, and so to all that shares its memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.at_updates import At
from loopgrad.lazy.numpy.creation import arange
from loopgrad.lazy.numpy.indexing import get_item
from loopgrad.lazy.numpy.movement import ravel, reshape
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, copied
from loopgrad.lazy.tensor.outputs import assign

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor


class Flat:
    """The elements of `base`, row by row."""

    __slots__ = ("base",)

    def __init__(self, base: Tensor) -> None:
        self.base = base

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.copy())

    def __getitem__(self, index: Any) -> Tensor:
        return copied(get_item(ravel(self.base), index))

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        """Values are converted to the dtype of the tensor, and repeated where there are fewer than positions."""
        x = self.base
        flat, places = ravel(x), get_item(arange(x.size), index)
        new = ravel(cast(as_tensor(values), x.dtype))
        if not places.size:
            return
        if not new.size:
            raise ShapeError(explained("x.flat[...] = v", "at least one value", "none", "leave it out"))
        repeated = take(new, arange(places.size) % new.size)
        assign("x.flat[...] =", x, reshape(At(flat)[ravel(places)].set(repeated), x.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.copy(), dtype=dtype)

    def copy(self) -> Tensor:
        """The elements as a vector of their own."""
        return copied(ravel(self.base))


def _write_all(x: Tensor, values: ArrayLike) -> None:
    Flat(x)[...] = values


_TEXT: Final = """The elements row by row: read by a position or a slice, walked over, written to.

>>> x = lg.zeros((2, 2))
>>> x.flat[2] = 5.0
>>> x.flat[1:], len(x.flat)
(Tensor([0., 5., 0.], dtype=float64), 4)
"""
flat: Final = property(Flat, _write_all, doc=_TEXT)
