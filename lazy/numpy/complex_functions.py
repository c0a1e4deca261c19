"""Complex numbers: their parts, conjugates and angles, and which arrays and elements are complex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.arithmetic import conjugate
from loopgrad.lazy.numpy.elementwise import unary_operand
from loopgrad.lazy.tensor.core import ArrayLike, copied, wrap

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "conj conjugate=conj imag real"


def real(x: ArrayLike, /) -> Tensor:
    """The real part: float32 of complex64, float64 of complex128, in x's shape; of real numbers a copy.

    >>> lg.real([1.0 + 2.0j, -3.0j])
    Tensor([ 1., -0.], dtype=float64)
    """
    t = unary_operand(x)
    return wrap(ops.real(t._value), t._weak) if t._value.dtype.kind == "c" else copied(t)


def imag(x: ArrayLike, /) -> Tensor:
    """The imaginary part, with shape and dtype as `real` has; of real numbers zeros.

    >>> lg.imag([1.0 + 2.0j, -3.0j])
    Tensor([ 2., -3.], dtype=float64)
    """
    t = unary_operand(x)
    return wrap(ops.imag(t._value) if t._value.dtype.kind == "c" else ops.zeros_like(t._value), t._weak)


def conj(x: ArrayLike, /) -> Tensor:
    """The complex conjugate: the sign of the imaginary part changes, shape and dtype stay; of real numbers a copy.

    >>> lg.conj([1.0 + 2.0j, -3.0j])
    Tensor([ 1.-2.j, -0.+3.j], dtype=complex128)
    """
    t = unary_operand(x)
    return wrap(conjugate(t._value), t._weak) if t._value.dtype.kind == "c" else copied(t)
