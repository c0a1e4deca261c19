"""Which dtype an operation on mixed operands has.

Arrays follow NumPy 2: int32 with float32 gives float64, uint64 with int64 gives float64. (The array
API standard leaves mixed kinds open; NumPy's answer loses nothing.) bfloat16 takes float16's place in
those rules, and gives float32 beside float16.

Python scalars, and tensors that came from one (loop carries, arguments), are *weak*: they take the
other operand's dtype unless their kind is higher (bool < int < float < complex); then an integer
operand gives the default float. Weak beside weak stays weak. A Python int that the other operand's
dtype can't hold is refused, as is a loop's index, and what Python computes of ints that are arguments
of a compiled function (`graph.python_numbers`); what loops carry wraps as the other operand does.
Functions of such ints alone give an int64, as NumPy's do; operators give what gives way again.
Functions that make arrays of Python numbers (`promote_arrays`) have them as int64 among integers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from loopgrad.graph.errors import DTypeError, explained
from loopgrad.graph.types import (
    DTYPES,
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int64,
)
from loopgrad.lazy.tensor.config import current

PUBLIC: Final = "can_cast"
_RANK: Final = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
_CASTINGS: Final = ("no", "equiv", "safe", "same_kind", "unsafe")
_KINDS: Final = "buifc"  # one kind may be cast to those behind it
_promoted: dict[tuple[DType, DType], DType] = {}
_named: dict[Any, DType] = {}
_SPELLINGS = (type, str, np.dtype, type(None))


def as_dtype(dtype: Any) -> DType:
    """A DType from a DType, a NumPy dtype or scalar type, a name, or bool, int, float, complex."""
    if type(dtype) is DType:
        return dtype
    if dtype is float:
        return current().dtype
    if dtype is complex:
        return current().complex_dtype
    if not isinstance(dtype, _SPELLINGS):  # an array has a dtype, and a number may equal another key
        raise _no_dtype(dtype)
    known = _named.get(dtype)
    if known is None:
        known = _named_dtype(dtype)
        _named[dtype] = known
    return known


def _named_dtype(dtype: Any) -> DType:
    if dtype is bool:
        return bool_
    if dtype is int:
        return int64
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    try:
        name = np.dtype(dtype).name
    except (TypeError, ValueError):
        name = ""
    if name not in DTYPES:
        raise _no_dtype(dtype)
    return DTYPES[name]


def _no_dtype(given: Any) -> DTypeError:
    return DTypeError(explained("dtype", f"one of {', '.join(DTYPES)}", repr(given), "convert to one of these"))


def promote(a: DType, b: DType) -> DType:
    """The dtype of an operation on arrays of dtypes `a` and `b`."""
    if a is b:
        return a
    known = _promoted.get((a, b))
    if known is None:
        known = _promoted[a, b] = _promote(a, b)
    return known


def _promote(a: DType, b: DType) -> DType:
    if bfloat16 not in (a, b):
        return DTYPES[np.promote_types(a.np, b.np).name]
    other = b if a is bfloat16 else a
    if other is float16:
        return float32
    joined = promote(float16, other)
    return bfloat16 if joined is float16 else joined


def promote_weak(strong: DType, weak: DType) -> DType:
    """The dtype of an operation on an array of dtype `strong` and a weak scalar of kind `weak.kind`."""
    if _RANK[weak.kind] <= _RANK[strong.kind]:
        return strong
    if weak.kind == "c":
        narrow = strong.kind == "f" and strong is not float64
        return (complex64 if narrow else complex128) if strong.kind == "f" else current().complex_dtype
    return current().dtype if weak.kind == "f" else int64


def scalar_dtype(value: Any) -> DType:
    """The dtype a Python scalar has where nothing else decides."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    return current().complex_dtype if isinstance(value, complex) else current().dtype


def promote_arrays(*operands: tuple[DType, bool]) -> DType:
    """The dtype of several operands of a function that makes arrays of Python numbers, as NumPy's do that aren't
    ufuncs: a Python int is an int64 beside integers. Beside floats Python numbers give way here as well."""
    dtype, _ = promote_all(*operands)
    if dtype.is_integer and any(weak and d.is_integer for d, weak in operands):
        return promote(dtype, int64)
    return dtype


def promote_all(*operands: tuple[DType, bool]) -> tuple[DType, bool]:
    """The dtype of several operands given as (dtype, weak), and whether the result is weak."""
    strong: DType | None = None
    weakest: DType | None = None
    for dtype, weak in operands:
        if weak:
            weakest = dtype if weakest is None or _RANK[dtype.kind] > _RANK[weakest.kind] else weakest
        else:
            strong = dtype if strong is None else promote(strong, dtype)
    if strong is None:
        assert weakest is not None
        return weakest, True
    return (strong if weakest is None else promote_weak(strong, weakest)), False


def float_dtype(dtype: DType) -> DType:
    """The dtype in which a float function computes on `dtype`."""
    return dtype if dtype.kind in "fc" else current().dtype


def sum_dtype(dtype: DType) -> DType:
    """The dtype of a sum or product, as in NumPy: integers are widened to 64 bits."""
    if dtype.kind in "bi":
        return int64
    return DTYPES["uint64"] if dtype.kind == "u" else dtype


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether `from_` (a dtype or a tensor) may be converted to the dtype `to`, by NumPy's rules.

    "safe": every value of one is one of the other; "same_kind": also to fewer bits, and floats to complex; "unsafe":
    always; "no" and "equiv": only to the same dtype. Raises ValueError for other rules.

    >>> lg.can_cast(lg.int32, lg.float64), lg.can_cast(lg.float64, lg.float32), lg.can_cast("f8", "f4", "same_kind")
    (True, False, True)
    """
    check_casting("can_cast", casting)
    source, target = as_dtype(getattr(from_, "dtype", from_)), as_dtype(to)
    if casting == "unsafe" or source is target:
        return True
    if casting == "same_kind":
        return _KINDS.index(source.kind) <= _KINDS.index(target.kind)
    return casting == "safe" and promote(source, target) is target


def check_casting(op: str, casting: Any) -> None:
    """Raises ValueError for what is none of NumPy's rules."""
    if casting not in _CASTINGS:
        expected = f"casting {', '.join(map(repr, _CASTINGS))}"
        raise ValueError(explained(op, expected, repr(casting), "leave it out"))


def allow_cast(op: str, source: DType, target: DType, casting: str) -> None:
    """Raises DTypeError where `casting` forbids a conversion."""
    if not can_cast(source, target, casting):
        fix = "pass casting='unsafe', or convert it with .astype"
        raise DTypeError(explained(op, f"elements that {casting!r} casting converts to {target}", source, fix))
