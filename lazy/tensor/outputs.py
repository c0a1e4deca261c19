"""Results that are written to an array: what `x += y`, `out=`, `where=` and `dtype=` of NumPy's functions do.

    add(x, y, out=z, where=m)    z is written to where m holds, and returned

Without `out`, elements that `where` leaves out are 0 (NumPy's are whatever the memory held).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from loopgrad.graph.build import emit
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.types import DType, TensorType
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    TensorCore,
    as_tensor,
    broadcast_value,
    cast,
    cast_value,
    constant,
    is_scalar,
    requested_dtype,
    wrap,
)
from loopgrad.lazy.tensor.operands import as_mask, joined_shape
from loopgrad.lazy.tensor.promotion import allow_cast, can_cast, check_casting
from loopgrad.lazy.tensor.repeated_calls import repeated
from loopgrad.lazy.tensor.storage import write, written_to

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

Out: TypeAlias = "Tensor | tuple[Tensor] | None"
_NUMBERS: Final = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}  # kinds of Python's numbers, in the order that casting goes
_METHODS: Final = ("reduce", "accumulate", "reduceat", "outer", "at")


class UfuncFunction(Protocol):
    """What methods of ufuncs need of a function; `identity` is what changes nothing, or None."""

    __name__: str
    nin: int
    nout: int
    nargs: int
    identity: Any

    def __call__(self, *operands: Any, **options: Any) -> Tensor: ...


class UfuncMethod:
    """`reduce` and its like of a function, as NumPy's ufuncs have them: the tensor's class knows how (NEP 13)."""

    __slots__ = ("_function", "_name")

    def __init__(self, function: UfuncFunction, name: str) -> None:
        self._function, self._name = function, name

    def __call__(self, x: ArrayLike, /, *operands: Any, **options: Any) -> Any:
        return as_tensor(x).__array_ufunc__(self._function, self._name, x, *operands, **options)

    def __repr__(self) -> str:
        return f"<method {self._name!r} of lg.{self._function.__name__}>"


class Ufunc(Protocol):
    """What NumPy's ufuncs have besides being called; only functions that are ufuncs in NumPy have it."""

    nin: int
    nout: int
    nargs: int
    identity: Any
    reduce: UfuncMethod
    accumulate: UfuncMethod
    reduceat: UfuncMethod
    outer: UfuncMethod
    at: UfuncMethod


class Unary(Ufunc, Protocol):
    """An elementwise function of one operand, with the options of NumPy's ufuncs."""

    def __call__(
        self, x: ArrayLike, /, out: Out = None, *, where: ArrayLike = True, dtype: Any = None,
        casting: str = "same_kind",
    ) -> Tensor: ...  # fmt: skip


class Binary(Ufunc, Protocol):
    """The same of two operands."""

    def __call__(
        self, x: ArrayLike, y: ArrayLike, /, out: Out = None, *, where: ArrayLike = True, dtype: Any = None,
        casting: str = "same_kind",
    ) -> Tensor: ...  # fmt: skip


def assign(what: str, x: Tensor, result: Tensor, casting: str = "same_kind") -> Tensor:
    """x, with the elements of `result` written to it: what `x += y` and `out=x` do."""
    written_to(what, x)
    value, base = result._value, x._value
    if value.shape != base.shape:
        sign = what.removesuffix("=")
        fix = "reshape it" if sign == what else f"write x = x {sign} y, which makes a new tensor"
        raise ShapeError(explained(what, f"a result of shape {base.shape}, that of the tensor", value.shape, fix))
    if value.dtype is not base.dtype:
        if x._weak and x._view is None:  # its dtype is open, as a Python number's
            write(x, value)
            x._weak = result._weak
            return x
        if not can_cast(value.dtype, base.dtype, casting):
            fix = "convert one of them with .astype"
            raise DTypeError(explained(what, f"a result that fits {base.dtype}", f"{value.dtype} elements", fix))
        value = cast_value(value, base.dtype)
    weak = x._weak
    write(x, value)
    x._weak = weak and result._weak
    return x


def given_out(op: str, out: Any) -> Tensor:
    """The array of `out`: a tensor, or a tuple of one. Raises TypeError for anything else."""
    target = out[0] if type(out) is tuple and len(out) == 1 else out
    if not isinstance(target, TensorCore):
        fix = "use the result, or make a tensor with lg.asarray"
        raise TypeError(explained(op, "a tensor as out=", type(target).__name__, fix))
    return as_tensor(target)


def delivered(op: str, result: Tensor, out: Any) -> Tensor:
    """`result`, or where `out` was given that array, with the result written to it; its shape must be the result's."""
    return result if out is None else assign(f"{op}(out=)", given_out(op, out), result)


def unary(function: Callable[[Any], Tensor]) -> Unary:
    """An elementwise function of one operand with the options of NumPy's ufuncs."""

    def with_options(
        x: ArrayLike, /, out: Out = None, *, where: ArrayLike = True, dtype: Any = None, casting: str = "same_kind"
    ) -> Tensor:
        if out is None and where is True and dtype is None:
            return function(x)
        return _computed(function, (x,), out, where, dtype, casting)

    return repeated(_known_as(function, with_options))  # type: ignore[no-any-return]


def binary(function: Callable[[Any, Any], Tensor]) -> Binary:
    """The same of two operands."""

    def with_options(
        x: ArrayLike, y: ArrayLike, /, out: Out = None, *, where: ArrayLike = True, dtype: Any = None,
        casting: str = "same_kind",
    ) -> Tensor:  # fmt: skip
        if out is None and where is True and dtype is None:
            return function(x, y)
        return _computed(function, (x, y), out, where, dtype, casting)

    return repeated(_known_as(function, with_options))  # type: ignore[no-any-return]


def _known_as(function: Any, with_options: Any) -> Any:
    """By the name and with the text of the function; the signature stays that of the options. What is a ufunc in NumPy
    has its methods."""
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(with_options, attribute, getattr(function, attribute))
    theirs = getattr(np, with_options.__name__, None)
    if isinstance(theirs, np.ufunc):
        for attribute in ("nin", "nout", "nargs", "identity"):
            setattr(with_options, attribute, getattr(theirs, attribute))
        for method in _METHODS:
            setattr(with_options, method, UfuncMethod(with_options, method))
    return with_options


def _computed(
    function: Callable[..., Tensor], operands: tuple[Any, ...], out: Any, where: Any, dtype: Any, casting: str
) -> Tensor:
    op = function.__name__
    check_casting(op, casting)
    target, wanted = None if out is None else given_out(op, out), requested_dtype(dtype)
    if wanted is None:
        result = function(*operands)
    else:
        result = function(*[in_dtype(op, x, wanted, casting) for x in operands])
        if result._value.dtype is not wanted:
            fix = "convert the result with .astype"
            raise DTypeError(explained(op, "a dtype that it has results of", str(wanted), fix))
        result = wrap(result._value)
    if where is not True:
        result = _chosen(op, result, where, target)
    return result if target is None else assign(f"{op}(out=)", target, _stretched(result, target), casting)


def in_dtype(op: str, x: Any, wanted: DType, casting: str) -> Tensor:
    """The operand converted to a dtype that was asked for, where `casting` allows that. A Python number has no size,
    but a kind."""
    t = as_tensor(x)
    lossy = _NUMBERS[t._value.dtype.kind] > _NUMBERS[wanted.kind]
    if not t._weak or lossy:
        allow_cast(op, t._value.dtype, wanted, casting)
    return as_tensor(x, wanted) if is_scalar(x) and not lossy else cast(t, wanted)  # which doesn't ask what fits


def _stretched(result: Tensor, target: Tensor) -> Tensor:
    """The result in the target's shape, where it broadcasts to that; `assign` refuses others."""
    shape, given = target._value.shape, result._value.shape
    ending = shape[len(shape) - len(given) :]
    fits = len(given) <= len(shape) and all(a in (1, b) for a, b in zip(given, ending, strict=True))
    return wrap(broadcast_value(result._value, shape), result._weak) if fits else result


def _chosen(op: str, result: Tensor, where: Any, out: Tensor | None) -> Tensor:
    """The result where the mask holds, else what is in `out`, or 0."""
    mask, value = as_mask(op, where)._value, result._value
    rest = constant(0, TensorType((), value.dtype)) if out is None else cast_value(out._value, value.dtype)
    shape = joined_shape(op, (mask.shape, value.shape, rest.shape))
    return wrap(emit("select", [broadcast_value(v, shape) for v in (mask, value, rest)])[0], result._weak)
