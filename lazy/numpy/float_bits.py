"""What the bits of floats say: neighbours, distances, exponents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.types import DTYPES, float32, int32
from loopgrad.lazy.numpy.constants import inf
from loopgrad.lazy.numpy.creation import ones_like
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    add,
    bitwise_and,
    bitwise_right_shift,
    equal,
    less,
    multiply,
    negative,
    not_equal,
    stop_gradient,
    subtract,
)
from loopgrad.lazy.numpy.elementwise_compositions import ldexp
from loopgrad.lazy.numpy.special_values import copysign, isfinite, isnan, where
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, wrap
from loopgrad.lazy.tensor.operands import as_float, dtype_refused, meet
from loopgrad.lazy.tensor.outputs import binary, unary
from loopgrad.lazy.tensor.promotion import as_dtype
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "bitcast_convert_type frexp nextafter spacing"

# the bits below the exponent, and its bias
_FORM: Final = {"float16": (10, 15), "bfloat16": (7, 127), "float32": (23, 127), "float64": (52, 1023)}


@repeated
def bitcast_convert_type(x: ArrayLike, dtype: Any, /) -> Tensor:
    """The bits of x as elements of another dtype that is as wide: a copy (JAX's name; NumPy's `x.view(dtype)`).

    Integers and floats; the shape stays. Its derivative is 0. Raises DTypeError for other dtypes.

    >>> lg.bitcast_convert_type(lg.asarray([1.0, -0.0], dtype=lg.float32), lg.uint32)
    Tensor([1065353216, 2147483648], dtype=uint32)
    """
    return wrap(ops.bitcast(as_tensor(x)._value, as_dtype(dtype)))


def _bits(x: Tensor) -> Tensor:
    return bitcast_convert_type(x, DTYPES[f"int{x._value.dtype.bits}"])


@binary
def nextafter(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The next number after x on the way to y; y where both are equal, NaN where one is.

    Operands broadcast, and are promoted to one float dtype, the result's; integers give the default float. The
    derivative by x is 1, by y 0.

    >>> lg.nextafter(1.0, [0.0, 2.0]) - 1.0
    Tensor([-1.11022302e-16,  2.22044605e-16], dtype=float64)
    """
    (a, b), weak = meet("nextafter", (x, y), floating=True, kinds="f")
    t, target = wrap(a, weak), wrap(b, weak)
    here = stop_gradient(t)
    away = equal(less(here, target), less(0.0, here))  # farther from 0: one more
    bits = _bits(here)
    found = bitcast_convert_type(where(away, add(bits, 1), subtract(bits, 1)), a.dtype)
    smallest = copysign(bitcast_convert_type(ones_like(bits), a.dtype), target)
    found = where(equal(here, 0.0), smallest, found)
    found = where(equal(here, target), stop_gradient(target), found)
    found = where(isnan(here), here, where(isnan(target), stop_gradient(target), found))
    # -0.0 changes no number, not even -0.0
    return add(found, where(isfinite(here), negative(subtract(here, t)), -0.0))


@unary
def spacing(x: ArrayLike, /) -> Tensor:
    """The distance from x to the next number away from 0, with x's sign; NaN for infinities and NaN.

    The shape stays, integers give the default float. Its derivative is 0.

    >>> lg.spacing([1.0, -1.0])
    Tensor([ 2.22044605e-16, -2.22044605e-16], dtype=float64)
    """
    t = stop_gradient(_as_real(x))
    return subtract(nextafter(t, where(less(t, 0.0), -inf, inf)), t)


def _as_real(x: ArrayLike) -> Tensor:
    t = as_float(x)
    if t._value.dtype.kind == "c":
        raise dtype_refused("frexp or spacing", "biuf", t._value.dtype)
    return t


@repeated
def frexp(x: ArrayLike, /) -> tuple[Tensor, Tensor]:
    """(fraction, exponent), so that x = fraction * 2**exponent and 1/2 <= |fraction| < 1.

    0, infinities and NaN are their own fractions, with exponent 0.

    The fraction has x's float dtype (of integers the default float), the exponent is int32. Both have x's shape.

    >>> lg.frexp([8.0, -0.75])
    (Tensor([ 0.5 , -0.75], dtype=float64), Tensor([4, 0], dtype=int32))
    """
    t = _as_real(x)
    if t._value.dtype.bits == 16:
        fraction, exponent = frexp(cast(t, float32))
        return cast(fraction, t._value.dtype), exponent
    here = stop_gradient(t)
    size = absolute(here)
    digits, bias = _FORM[t._value.dtype.name]
    small = less(size, 2.0 ** (2 - bias))  # with room for what is subnormal
    larger = where(small, multiply(here, 2.0 ** (digits + 2)), here)
    field = bitwise_and(bitwise_right_shift(_bits(larger), digits), 2 * bias + 1)
    exponent = subtract(cast(field, int32), where(small, bias - 1 + digits + 2, bias - 1))
    ordinary = isfinite(here) & not_equal(here, 0.0)
    exponent = cast(where(ordinary, exponent, 0), int32)
    return where(ordinary, ldexp(t, negative(exponent)), t), exponent
