"""What is known of arrays and dtypes without computing: shapes, kinds, limits."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from loopgrad.graph.errors import DTypeError, explained
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import DType
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, is_scalar
from loopgrad.lazy.tensor.operands import normal_axes
from loopgrad.lazy.tensor.promotion import as_dtype, promote, promote_all

PUBLIC: Final = (
    "complexfloating finfo floating generic iinfo inexact integer isdtype isscalar issubdtype ndim number "
    "promote_types result_type shape signedinteger size unsignedinteger"
)
complexfloating, floating, inexact, generic = np.complexfloating, np.floating, np.inexact, np.generic
integer, signedinteger, unsignedinteger, number = np.integer, np.signedinteger, np.unsignedinteger, np.number
_ABSTRACT: Final[dict[type, str]] = {
    generic: "biufc", number: "iufc", integer: "iu", signedinteger: "i", unsignedinteger: "u", inexact: "fc",
    floating: "f", complexfloating: "c",
}  # fmt: skip
_KINDS: Final = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def shape(x: ArrayLike, /) -> tuple[int, ...]:
    """The extent of every axis, as a tuple of ints; nothing is computed.

    >>> lg.shape([[1, 2, 3]])
    (1, 3)
    """
    return as_tensor(x)._value.shape


def ndim(x: ArrayLike, /) -> int:
    """The number of axes, an int; nothing is computed.

    >>> lg.ndim([[1, 2, 3]])
    2
    """
    return len(shape(x))


def isscalar(x: Any, /) -> bool:
    """Whether x is a Python number, one of NumPy's scalars or a text: not an array, of whatever shape.

    >>> lg.isscalar(3.0), lg.isscalar(lg.asarray(3.0))
    (True, False)
    """
    return not isinstance(x, TensorCore) and np.isscalar(x)


def size(x: ArrayLike, /, axis: int | tuple[int, ...] | None = None) -> int:
    """The number of elements, or the extent of one axis or product of several: an int; nothing is computed.

    >>> lg.size([[1, 2, 3]]), lg.size([[1, 2, 3]], axis=0)
    (3, 1)
    """
    extents = shape(x)
    return prod([extents[d] for d in normal_axes("size", axis, len(extents))])


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """What a float dtype can hold: `bits` of an element, `eps` from 1 to the next number, the largest (`max`) and
    smallest (`min`) finite number, the smallest positive one with all digits (`smallest_normal`)."""

    dtype: DType
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float

    @property
    def tiny(self) -> float:
        """Another name of `smallest_normal`."""
        return self.smallest_normal


@dataclass(frozen=True, slots=True)
class IntegerLimits:
    """What an integer dtype can hold: `bits` of an element, the smallest (`min`) and the largest (`max`) number."""

    dtype: DType
    bits: int
    min: int
    max: int


def finfo(dtype: Any, /) -> FloatLimits:
    """The limits of a float dtype (or of a tensor's), for a complex one its parts'; raises DTypeError for others.

    >>> lg.finfo(lg.float32).max, lg.finfo(lg.float64).bits
    (3.4028234663852886e+38, 64)
    """
    d = as_dtype(getattr(dtype, "dtype", dtype)).part
    if not d.is_float:
        raise DTypeError(explained("finfo", "a float dtype", d, "use lg.iinfo for integers"))
    known: Any
    if d.name == "bfloat16":
        import ml_dtypes  # late: only bfloat16 needs it

        known = ml_dtypes.finfo(d.np)  # type: ignore[no-untyped-call]
    else:
        known = np.finfo(d.np)
    numbers = [float(n) for n in (known.eps, known.max, known.min, known.smallest_normal)]
    return FloatLimits(d, d.bits, *numbers)


def iinfo(dtype: Any, /) -> IntegerLimits:
    """The limits of an integer dtype (or of a tensor's); raises DTypeError for others.

    >>> lg.iinfo(lg.int8).min, lg.iinfo(lg.int8).max
    (-128, 127)
    """
    d = as_dtype(getattr(dtype, "dtype", dtype))
    if not d.is_integer:
        raise DTypeError(explained("iinfo", "an integer dtype", d, "use lg.finfo for floats"))
    low, high = limits(d)
    return IntegerLimits(d, d.bits, low, high)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, a name of the array API standard ("bool", "signed integer", "unsigned
    integer", "integral", "real floating", "complex floating", "numeric"), or a tuple of these.

    Raises DTypeError for an unknown name.

    >>> lg.isdtype(lg.float32, "real floating"), lg.isdtype(lg.int8, (lg.int8, lg.int16))
    (True, True)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise DTypeError(explained("isdtype", f"one of {', '.join(_KINDS)}", repr(kind), "pass one, or a dtype"))
        return as_dtype(dtype).kind in _KINDS[kind]
    return as_dtype(dtype) is as_dtype(kind)


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype is of one of NumPy's kinds (`lg.floating`, `lg.integer`, ...), or is the dtype `arg2`; bfloat16
    is a floating one.

    >>> lg.issubdtype(lg.int8, lg.integer), lg.issubdtype(lg.bfloat16, lg.floating), lg.issubdtype("f4", lg.float64)
    (True, True, False)
    """
    found = as_dtype(arg1)
    if isinstance(arg2, type) and issubclass(arg2, np.generic) and arg2.__subclasses__():
        return found.kind in _ABSTRACT[arg2] if arg2 in _ABSTRACT else found is as_dtype(arg2)
    return found is as_dtype(arg2)


def promote_types(a: Any, b: Any, /) -> DType:
    """The dtype of an operation on arrays of dtypes `a` and `b`, by NumPy 2's rules; bfloat16 stands where float16
    does.

    >>> lg.promote_types(lg.int32, lg.float32), lg.promote_types(lg.uint8, lg.int8)
    (float64, int16)
    """
    return promote(as_dtype(a), as_dtype(b))


def result_type(*operands: Any) -> Any:
    """The dtype that an operation on these tensors, dtypes and Python scalars has.

    Promotion is NumPy 2's: a Python scalar gives way unless its kind is higher. Raises ValueError for no operand.

    >>> lg.result_type(lg.int32, lg.float32), lg.result_type(lg.float32, 1.0)
    (float64, float32)
    """
    if not operands:
        raise ValueError(explained("result_type", "at least one operand", "none", "pass tensors, dtypes or numbers"))
    parts = []
    for x in operands:
        if is_scalar(x):
            t = as_tensor(x)
            parts.append((t._value.dtype, True))
        elif isinstance(x, TensorCore):
            parts.append((x._value.dtype, x._weak))
        else:
            from_dtype = getattr(x, "dtype", x)
            parts.append((as_dtype(from_dtype), False))
    return promote_all(*parts)[0]
