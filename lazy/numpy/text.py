"""Numbers as text, and how many of them: NumPy prints, and tensors' `repr` and `str` follow its settings.

Also what walks over positions, or asks for less than elements, in scripts: `ndindex`, `ndenumerate`, `iterable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor
from loopgrad.lazy.tensor.evaluation import to_numpy

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = (
    "array2string array_repr array_str base_repr binary_repr format_float_positional format_float_scientific "
    "get_printoptions iterable ndenumerate ndindex printoptions set_printoptions"
)
_TEXT: Final = """{what}: what `np.{name}` says of the elements, with its arguments and errors; evaluates a tensor.

>>> lg.{name}({call})
{result}
"""


def _said(name: str, what: str, call: str, result: str) -> Callable[..., str]:
    say = getattr(np, name)

    def function(x: Any, *args: Any, **options: Any) -> str:
        return say(to_numpy(x, "text") if isinstance(x, TensorCore) else x, *args, **options)  # type: ignore[no-any-return]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _TEXT.format(name=name, what=what, call=call, result=result)
    return function


array2string = _said("array2string", "Elements as text", "lg.asarray([0.5, 2.0]), precision=1", "'[0.5 2. ]'")
array_str = _said("array_str", "Elements as text, as `str` has them", "lg.arange(3)", "'[0 1 2]'")
array_repr = _said("array_repr", "Elements as NumPy's `repr` has them", "lg.arange(3)", "'array([0, 1, 2])'")
base_repr = _said("base_repr", "A whole number to another base", "255, 16", "'FF'")
binary_repr = _said("binary_repr", "The bits of a whole number", "5, width=8", "'00000101'")
format_float_positional = _said(
    "format_float_positional", "A float without an exponent", "lg.asarray(1e-5)", "'0.00001'"
)
format_float_scientific = _said("format_float_scientific", "A float with an exponent", "lg.asarray(0.25)", "'2.5e-01'")


def set_printoptions(*args: Any, **options: Any) -> None:
    """NumPy's settings of how arrays are printed, `precision`, `threshold`, `suppress` and so on: tensors follow them.
    Raises ValueError or TypeError as `np.set_printoptions` does.

    >>> lg.set_printoptions(precision=3)
    >>> lg.asarray([1 / 3])
    Tensor([0.333], dtype=float64)
    >>> lg.set_printoptions(precision=8)
    """
    np.set_printoptions(*args, **options)


def get_printoptions() -> dict[str, Any]:
    """The settings that `set_printoptions` takes, of which none changes shapes, dtypes or elements.

    >>> lg.get_printoptions()["precision"]
    8
    """
    return dict(np.get_printoptions())


def printoptions(*args: Any, **options: Any) -> AbstractContextManager[Any]:
    """`set_printoptions` inside a `with`; afterwards they are as before. Raises ValueError or TypeError
    as that does.

    >>> with lg.printoptions(precision=2):
    ...     print(lg.asarray([1 / 3]))
    [0.33]
    """
    return np.printoptions(*args, **options)


def iterable(y: Any) -> bool:
    """Whether y can be walked over: a tensor with axes, a list and so on; nothing is computed.

    >>> lg.iterable(lg.ones(2)), lg.iterable(3.0)
    (True, False)
    """
    return bool(y._value.shape) if isinstance(y, TensorCore) else np.iterable(y)


def ndindex(*shape: Any) -> Iterator[tuple[int, ...]]:
    """All positions of an array of a shape (ints, or a tuple of them), row by row; ValueError for negative extents.

    >>> list(lg.ndindex(2, 2))
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    return np.ndindex(*shape)


def ndenumerate(x: ArrayLike) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Each position of x with its element, row by row. A loop of Python's: a graph, or a program, has its length.

    >>> list(lg.ndenumerate([[1, 2]]))
    [((0, 0), Tensor(1, dtype=int64)), ((0, 1), Tensor(2, dtype=int64))]
    """
    t = as_tensor(x)
    return ((index, t[index]) for index in np.ndindex(t.shape))


def tobytes(x: ArrayLike, order: str = "C") -> bytes:
    """The bytes of the elements, row by row or, with "F", column by column; evaluates.

    >>> lg.asarray([72, 105], dtype=lg.uint8).tobytes()
    b'Hi'
    """
    return to_numpy(as_tensor(x), "tobytes").tobytes(order)  # type: ignore[arg-type]


def tofile(x: ArrayLike, fid: Any, sep: str = "", format: str = "%s") -> None:
    """Writes the elements to the file `fid`, a name or open, as bytes or, with `sep`, as text; evaluates. Raises what
    NumPy's method raises.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     lg.arange(3).tofile(file)
    ...     _ = file.seek(0)
    ...     np.fromfile(file, np.int64)
    array([0, 1, 2])
    """
    to_numpy(as_tensor(x), "tofile").tofile(fid, sep, format)
