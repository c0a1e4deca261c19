"""Complex numbers: their parts, conjugates and angles, and which arrays and elements are complex."""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers import roots
from loopgrad.graph.complex_numbers.arithmetic import conjugate
from loopgrad.graph.types import TensorType, bool_, int8
from loopgrad.lazy.numpy.elementwise import add, equal, less, multiply, not_equal, unary_operand
from loopgrad.lazy.numpy.shapes_and_dtypes import finfo
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, cast_value, constant, copied, wrap
from loopgrad.lazy.tensor.outputs import unary
from loopgrad.lazy.tensor.promotion import as_dtype, float_dtype
from loopgrad.lazy.tensor.repeated_calls import repeated
from loopgrad.lazy.tensor.storage import viewed, whole
from loopgrad.lazy.tensor.view_steps import ComplexPart, Zeros

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "angle conj conjugate=conj imag iscomplex iscomplexobj isreal isrealobj real real_if_close"


@repeated
def real(x: ArrayLike, /) -> Tensor:
    """The real parts: float32 of complex64, float64 of complex128, in x's shape, in the memory of x; of a real tensor
    its elements, in its memory.

    >>> lg.real([1.0 + 2.0j, -3.0j])
    Tensor([ 1., -0.], dtype=float64)
    """
    t = unary_operand(x)
    return _part(t, False) if t._value.dtype.kind == "c" else whole(t)


@repeated
def imag(x: ArrayLike, /) -> Tensor:
    """The imaginary parts, with shape, dtype and memory as `real` has; of a real tensor zeros that can't be written to.

    >>> lg.imag([1.0 + 2.0j, -3.0j])
    Tensor([ 2., -3.], dtype=float64)
    """
    t = unary_operand(x)
    if t._value.dtype.kind == "c":
        return _part(t, True)
    return viewed(t, Zeros(), ops.zeros_like(t._value))


def _part(t: Tensor, imaginary: bool) -> Tensor:
    step = ComplexPart(imaginary)
    return viewed(t, step, step.forward(t._value))


@unary
def conj(x: ArrayLike, /) -> Tensor:
    """The complex conjugate: the sign of the imaginary part changes, shape and dtype stay; of real numbers a
    copy, of bools an int8, as in NumPy.

    >>> lg.conj([1.0 + 2.0j, -3.0j])
    Tensor([ 1.-2.j, -0.+3.j], dtype=complex128)
    """
    t = unary_operand(x)
    if t._value.dtype.kind == "c":
        return wrap(conjugate(t._value), t._weak)
    return cast(t, int8) if t._value.dtype is bool_ else copied(t)


@repeated
def angle(z: ArrayLike, deg: bool = False) -> Tensor:
    """The angle from -pi to pi, in degrees where `deg`: a float in z's shape; of real numbers 0 or pi.

    >>> lg.angle([1.0, 1.0j, -1.0])
    Tensor([0.        , 1.57079633, 3.14159265], dtype=float64)
    """
    t = as_tensor(z)
    value = cast_value(t._value, float_dtype(t._value.dtype))
    turned = roots.angle(value) if value.dtype.kind == "c" else ops.atan2(ops.zeros_like(value), value)
    result = wrap(turned, t._weak)
    return multiply(result, 180 / pi) if deg else result


@repeated
def iscomplex(x: ArrayLike) -> Tensor:
    """Whether an element has an imaginary part that isn't 0; bools in x's shape.

    >>> lg.iscomplex([1.0 + 1.0j, 1.0 + 0.0j])
    Tensor([ True, False], dtype=bool)
    """
    t = as_tensor(x)
    if t._value.dtype.kind != "c":
        return wrap(constant(False, TensorType(t._value.shape, bool_)))
    return not_equal(wrap(ops.imag(t._value)), 0)


@repeated
def isreal(x: ArrayLike) -> Tensor:
    """Whether an element has no imaginary part, or one that is 0; bools in x's shape.

    >>> lg.isreal([1.0 + 1.0j, 1.0 + 0.0j])
    Tensor([False,  True], dtype=bool)
    """
    t = as_tensor(x)
    if t._value.dtype.kind != "c":
        return wrap(constant(True, TensorType(t._value.shape, bool_)))
    return equal(wrap(ops.imag(t._value)), 0)


def iscomplexobj(x: Any) -> bool:
    """Whether x (an array, a number or a dtype) is of a complex dtype, whatever its elements are.

    >>> lg.iscomplexobj(lg.zeros(2, dtype=lg.complex64)), lg.iscomplexobj(1.0)
    (True, False)
    """
    dtype = getattr(x, "dtype", None)
    return (as_tensor(x)._value.dtype if dtype is None else as_dtype(dtype)).kind == "c"


def isrealobj(x: Any) -> bool:
    """Whether x isn't of a complex dtype.

    >>> lg.isrealobj([1.0, 2.0])
    True
    """
    return not iscomplexobj(x)


@repeated
def real_if_close(x: ArrayLike, /, tol: float = 100.0) -> Tensor:
    """The real part where no imaginary part is larger than `tol` times the dtype's epsilon (than `tol` where that is at
    most 1), else x: so it evaluates, and raises TracedValueError while a function is traced.

    >>> lg.real_if_close([2.1 + 4e-14j, 5.2 + 3e-15j], tol=1000)
    Tensor([2.1, 5.2], dtype=float64)
    """
    t = as_tensor(x)
    if t._value.dtype.kind != "c":
        return whole(t)
    shape = t._value.shape
    bound = tol * finfo(t._value.dtype).eps if tol > 1 else tol
    if 0 in shape:
        return real(t)
    largest = wrap(ops.reduce_max(ops.abs(ops.imag(t._value)), range(len(shape))))
    return real(t) if bool(less(largest, bound)) else whole(t)


def conjugated(x: ArrayLike) -> Tensor:
    """The conjugates of complex numbers; what isn't complex stays as it is."""
    t = as_tensor(x)
    return conj(t) if t._value.dtype.kind == "c" else t


def square_of_size(x: Tensor) -> Tensor:
    """|x|**2, without a root: of real numbers x * x."""
    if x._value.dtype.kind != "c":
        return multiply(x, x)
    re, im = wrap(ops.real(x._value)), wrap(ops.imag(x._value))
    return add(multiply(re, re), multiply(im, im))
