"""Arrays from text, bytes and iterators: NumPy reads, and `lg.asarray` takes what it read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.lazy.tensor.core import from_data
from loopgrad.lazy.tensor.promotion import as_dtype

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "frombuffer fromiter fromstring genfromtxt loadtxt"
_TEXT: Final = """{what}: a tensor of what `np.{name}` reads, with its arguments, shape, dtype and errors.

>>> lg.{name}({call})
Tensor({result})
"""


def _read(name: str, what: str, call: str, result: str) -> Callable[..., Tensor]:
    read = getattr(np, name)

    def function(source: Any, dtype: Any = float, *args: Any, **options: Any) -> Tensor:
        return from_data(read(source, as_dtype(dtype).np, *args, **options))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _TEXT.format(name=name, what=what, call=call, result=result)
    return function


frombuffer = _read("frombuffer", "Numbers in bytes", 'b"\\x01\\x02", dtype=lg.uint8', "[1, 2], dtype=uint8")
fromiter = _read(
    "fromiter", "Numbers of an iterator", "(k * k for k in range(3)), float", "[0., 1., 4.], dtype=float64"
)
fromstring = _read("fromstring", "Numbers in a text", '"1 2 3", sep=" "', "[1., 2., 3.], dtype=float64")
loadtxt = _read(
    "loadtxt", "A table in a text file, or in its lines", '["1 2", "3 4"]',
    "[[1., 2.],\n        [3., 4.]], dtype=float64",
)  # fmt: skip
genfromtxt = _read(
    "genfromtxt", "A table with gaps, in a text file or its lines", '["1,2", "3,"], delimiter=","',
    "[[ 1.,  2.],\n        [ 3., nan]], dtype=float64",
)  # fmt: skip
