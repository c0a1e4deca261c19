"""Elementwise functions: names and semantics of the array API standard, NumPy's names beside them.

Operands broadcast and are promoted (`lazy.tensor.promotion`). A float function of integers computes in the
default float. Functions that repeat one pattern come from the small factories at the top.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.errors import explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import TensorType, bool_, float64, int8, int64
from loopgrad.lazy.numpy.indexing import nonzero
from loopgrad.lazy.numpy.integer_comparison import exact_comparison
from loopgrad.lazy.numpy.shapes_and_dtypes import finfo
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    TensorCore,
    as_tensor,
    broadcast_value,
    cast,
    cast_value,
    constant,
    copied,
    is_scalar,
    wrap,
)
from loopgrad.lazy.tensor.operands import as_bool, dtype_refused, joined_shape, meet, public_name
from loopgrad.lazy.tensor.promotion import as_dtype, float_dtype, promote_all
from loopgrad.lazy.tensor.trees import is_dynamic, map_leaves

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

Unary: TypeAlias = "Callable[[ArrayLike], Tensor]"
Binary: TypeAlias = "Callable[[ArrayLike, ArrayLike], Tensor]"


# ---- factories


def _named(function: Any, name: str, text: str) -> Any:
    function.__name__ = function.__qualname__ = public_name(name)
    function.__doc__ = text
    return function


def _operand(x: ArrayLike) -> Tensor:
    """The operand of a function of one; what is computed of a Python int is an int64, as in NumPy."""
    return as_tensor(x, int64) if type(x) is int else as_tensor(x)


def _float(op: str, text: str) -> Unary:
    """A float function: integers are converted first."""

    def function(x: ArrayLike, /) -> Tensor:
        t = as_tensor(x)
        value = t._value
        if value.dtype.kind not in "fc":
            value = cast_value(value, float_dtype(value.dtype))
        return wrap(emit(op, (value,))[0], t._weak)

    return _named(function, op, text)  # type: ignore[no-any-return]


def _whole(op: str, text: str) -> Unary:
    """A rounding: integers are whole already."""

    def function(x: ArrayLike, /) -> Tensor:
        t = _operand(x)
        return wrap(emit(op, (t._value,))[0], t._weak) if t._value.dtype.kind in "fc" else copied(t)

    return _named(function, op, text)  # type: ignore[no-any-return]


def _signed(op: str, text: str, kinds: str = "iufc") -> Unary:
    def function(x: ArrayLike, /) -> Tensor:
        t = _operand(x)
        if t._value.dtype.kind not in kinds:
            raise dtype_refused(op, kinds, t._value.dtype)
        return wrap(emit(op, (t._value,))[0], t._weak)

    return _named(function, op, text)  # type: ignore[no-any-return]


def _arithmetic(op: str, text: str, kinds: str = "iufc", on_bool: str | None = None) -> Binary:
    """Same dtype out; `on_bool` is the primitive that does it for two bools."""

    def function(x: ArrayLike, y: ArrayLike, /) -> Tensor:
        values, weak = meet(op, (x, y))
        kind = values[0].dtype.kind
        if kind == "b" and on_bool is not None:
            return wrap(emit(on_bool, values)[0])
        if kind not in kinds:
            raise dtype_refused(op, kinds, values[0].dtype)
        return wrap(emit(op, values)[0], weak)

    return _named(function, op, text)  # type: ignore[no-any-return]


def _divided(op: str, text: str) -> Binary:
    """A float function of two operands."""

    def function(x: ArrayLike, y: ArrayLike, /) -> Tensor:
        values, weak = meet(op, (x, y), floating=True)
        return wrap(emit(op, values)[0], weak)

    return _named(function, op, text)  # type: ignore[no-any-return]


def _comparison(op: str, text: str) -> Binary:
    def function(x: ArrayLike, y: ArrayLike, /) -> Tensor:
        special = exact_comparison(op, x, y)
        return wrap(emit(op, meet(op, (x, y))[0])[0]) if special is None else special

    return _named(function, op, text)  # type: ignore[no-any-return]


def _logical(op: str, text: str) -> Binary:
    def function(x: ArrayLike, y: ArrayLike, /) -> Tensor:
        return wrap(emit(op, meet(op, (as_bool(x), as_bool(y)))[0])[0])

    return _named(function, f"logical_{op}", text)  # type: ignore[no-any-return]


# ---- arithmetic

add = _arithmetic("add", "x + y.", on_bool="or")
multiply = _arithmetic("mul", "x * y.", on_bool="and")
subtract = _arithmetic("sub", "x - y.")
divide = _divided("div", "x / y; integers give the default float.")
minimum = _arithmetic("min", "The smaller of x and y; NaN where either is.", on_bool="and")
maximum = _arithmetic("max", "The larger of x and y; NaN where either is.", on_bool="or")
floor_divide = _arithmetic("floordiv", "floor(x / y); an integer divided by 0 gives 0.")
remainder = _arithmetic("mod", "The remainder with the sign of y (Python's %); 0 where an integer y is 0.")
fmod = _arithmetic("rem", "The remainder with the sign of x (C's fmod).")
atan2 = _divided("atan2", "The angle of the point (y, x), arguments in that order.")
negative = _signed("neg", "-x.")
sign = _signed("sign", "-1, 0 or 1.")

# ---- float functions

sqrt = _float("sqrt", "The square root.")
rsqrt = _float("rsqrt", "1 / sqrt(x).")
exp = _float("exp", "e to the power x.")
exp2 = _float("exp2", "2 to the power x.")
expm1 = _float("expm1", "exp(x) - 1, exact near 0.")
log = _float("log", "The natural logarithm.")
log2 = _float("log2", "The logarithm to base 2.")
log10 = _float("log10", "The logarithm to base 10.")
log1p = _float("log1p", "log(1 + x), exact near 0.")
sin = _float("sin", "The sine.")
cos = _float("cos", "The cosine.")
tan = _float("tan", "The tangent.")
asin = _float("asin", "The inverse sine.")
acos = _float("acos", "The inverse cosine.")
atan = _float("atan", "The inverse tangent.")
sinh = _float("sinh", "The hyperbolic sine.")
cosh = _float("cosh", "The hyperbolic cosine.")
tanh = _float("tanh", "The hyperbolic tangent.")
asinh = _float("asinh", "The inverse hyperbolic sine.")
acosh = _float("acosh", "The inverse hyperbolic cosine.")
atanh = _float("atanh", "The inverse hyperbolic tangent.")
erf = _float("erf", "The error function.")
erfc = _float("erfc", "1 - erf(x).")
lgamma = _float("lgamma", "The logarithm of the absolute value of the gamma function.")
digamma = _float("digamma", "The derivative of lgamma.")

# ---- rounding

floor = _whole("floor", "The largest whole number that is at most x.")
ceil = _whole("ceil", "The smallest whole number that is at least x.")
trunc = _whole("trunc", "x without its fraction.")
_rint = _whole("round", "The nearest whole number, half to even.")

# ---- comparison and logic

equal = _comparison("eq", "x == y.")
not_equal = _comparison("ne", "x != y.")
less = _comparison("lt", "x < y.")
less_equal = _comparison("le", "x <= y.")
greater = _comparison("gt", "x > y.")
greater_equal = _comparison("ge", "x >= y.")
logical_and = _logical("and", "Both are true (not 0).")
logical_or = _logical("or", "Either is true (not 0).")
logical_xor = _logical("xor", "Exactly one is true (not 0).")
bitwise_and = _arithmetic("and", "Bitwise and; of bools logical and.", "biu")
bitwise_or = _arithmetic("or", "Bitwise or; of bools logical or.", "biu")
bitwise_xor = _arithmetic("xor", "Bitwise exclusive or.", "biu")
bitwise_left_shift = _arithmetic("shl", "x shifted left by y bits.", "iu")
bitwise_right_shift = _arithmetic("shr", "x shifted right by y bits; the sign is kept.", "iu")
bitwise_invert = _signed("invert", "Every bit flipped; of bools logical not.", "biu")


def logical_not(x: ArrayLike, /) -> Tensor:
    """True where x is 0 or False."""
    return wrap(emit("invert", (as_bool(x)._value,))[0])


def absolute(x: ArrayLike, /) -> Tensor:
    """The absolute value."""
    t = _operand(x)
    return copied(t) if t._value.dtype.kind in "bu" else wrap(emit("abs", (t._value,))[0], t._weak)


def positive(x: ArrayLike, /) -> Tensor:
    """A copy of x."""
    return copied(_operand(x))


def square(x: ArrayLike, /) -> Tensor:
    """x * x; of bools an int8, as in NumPy."""
    t = _operand(x)
    return cast(t, int8) if t._value.dtype is bool_ else multiply(t, t)


def reciprocal(x: ArrayLike, /) -> Tensor:
    """1 / x."""
    return divide(1, x)


def round(x: ArrayLike, /, decimals: int = 0) -> Tensor:
    """x to `decimals` decimal places, half to even."""
    t = as_tensor(x)
    if decimals == 0 or t._value.dtype.kind not in "fc":
        return _rint(t) if decimals >= 0 else _round_integers(t, decimals)
    scale = 10.0 ** abs(decimals)
    return divide(_rint(multiply(t, scale)), scale) if decimals > 0 else multiply(_rint(divide(t, scale)), scale)


def _round_integers(t: Tensor, decimals: int) -> Tensor:
    scale = 10.0**-decimals
    return cast(multiply(_rint(divide(cast(t, float64), scale)), scale), t._value.dtype)


# Powers up to these are products; a product of three floats would be rounded twice.
_LARGEST_PRODUCT = {"i": 4, "u": 4, "f": 2}


def power(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """x to the power y; integers to a negative power are refused where y is a Python int."""
    if isinstance(x, TensorCore) and is_scalar(y) and not isinstance(y, complex):
        simple = _simple_power(x, y)
        if simple is not None:
            return simple
    values, weak = meet("pow", (x, y))
    if values[0].dtype.kind == "b":
        raise dtype_refused("pow", "iufc", bool_)
    return wrap(emit("pow", values)[0], weak)


def _simple_power(x: Tensor, y: Any) -> Tensor | None:
    """x to a Python number, where something cheaper than pow gives it."""
    kind = x._value.dtype.kind
    if kind in "iu" and type(y) is int and y < 0:
        raise ValueError(explained("power", "a non-negative int beside integers", y, "convert with .astype first"))
    if y in range(1, _LARGEST_PRODUCT.get(kind, 0) + 1) and (kind == "f" or type(y) is int):
        return _product(x, int(y))
    if kind == "f" and y == 0.5:
        return sqrt(x)
    return divide(1, x) if kind == "f" and y == -1 else None


def _product(x: Tensor, exponent: int) -> Tensor:
    value: Value = x._value
    result = value if exponent % 2 else None
    base = value
    while exponent > 1:
        base = ops.mul(base, base)
        exponent //= 2
        if exponent % 2:
            result = base if result is None else ops.mul(result, base)
    assert result is not None
    return wrap(result, x._weak)


# ---- choices


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Tensor: ...
@overload
def where(condition: ArrayLike, /) -> tuple[Tensor, ...]: ...
def where(condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None, /) -> Any:
    """x where the condition holds, y elsewhere; without them `nonzero(condition)`."""
    if x is None or y is None:
        if x is not None or y is not None:
            raise TypeError(explained("where", "both x and y, or neither", "one of them", "pass the other"))
        return nonzero(condition)
    predicate = as_bool(condition)
    (a, b), weak = meet("where", (x, y))
    shape = joined_shape("where", (predicate._value.shape, a.shape))
    chosen = [broadcast_value(v, shape) for v in (predicate._value, a, b)]
    return wrap(emit("select", chosen)[0], weak)


def clip(x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor:
    """x kept between `min` and `max`; None leaves that side open."""
    result = copied(_operand(x))
    if result._value.dtype.is_integer:  # a Python int beyond the end that is open anyway leaves it open
        low, high = limits(result._value.dtype)
        min = None if type(min) is int and min < low else min
        max = None if type(max) is int and max > high else max
    if min is not None:
        result = maximum(result, min)
    return result if max is None else minimum(result, max)


# ---- tests for special values


def _special(op: str, text: str) -> Unary:
    def function(x: ArrayLike, /) -> Tensor:
        value = as_tensor(x)._value
        if value.dtype.kind not in "fc":
            return wrap(constant(False, TensorType(value.shape, bool_)))
        return wrap(emit(op, (value,))[0])

    return _named(function, op.replace("_", ""), text)  # type: ignore[no-any-return]


isnan = _special("is_nan", "Whether x is NaN.")
isinf = _special("is_inf", "Whether x is infinite.")


def isfinite(x: ArrayLike, /) -> Tensor:
    """Whether x is neither infinite nor NaN."""
    return logical_not(logical_or(isnan(x), isinf(x)))


def signbit(x: ArrayLike, /) -> Tensor:
    """Whether the sign bit is set (True for -0.0, and for NaN with that bit)."""
    t = as_tensor(x)
    return wrap(ops.signbit(t._value)) if t._value.dtype.kind == "f" else less(t, 0)


# ---- compositions


def copysign(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The magnitude of x with the sign of y."""
    (a, b), weak = meet("copysign", (x, y), floating=True)
    size = absolute(wrap(a, weak))
    return where(signbit(wrap(b)), negative(size), size)


def root_of_squares(total: Tensor) -> Tensor:
    """The square root of a sum of squares: a norm, whose derivatives at 0 are 0, as those of `absolute` are."""
    zero = equal(total, 0.0)
    return where(zero, 0.0, sqrt(where(zero, 1.0, total)))


# A smooth function that is computed in pieces chooses between formulas that are the function on both sides of the
# border. Then derivatives of every order are right there too; those of abs, maximum and minimum have kinks.


def hypot(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """sqrt(x*x + y*y) without overflow."""
    (a, b), weak = meet("hypot", (x, y), floating=True)
    s, t = wrap(a, weak), wrap(b, weak)
    first = logical_or(greater_equal(absolute(s), absolute(t)), isinf(s))
    large, small = where(first, s, t), where(first, t, s)
    plain = logical_or(logical_and(equal(large, 0), equal(small, 0)), isinf(large))  # the small one may be NaN
    ratio = divide(small, where(plain, 1.0, large))
    size = absolute(large)
    return where(plain, size, multiply(size, sqrt(add(1.0, multiply(ratio, ratio)))))


def logaddexp(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """log(exp(x) + exp(y)) without overflow."""
    (a, b), weak = meet("logaddexp", (x, y), floating=True)
    p, q = wrap(a, weak), wrap(b, weak)
    first = greater_equal(p, q)
    top, low = where(first, p, q), where(first, q, p)
    finite = add(top, log1p(exp(subtract(low, top))))
    return where(isinf(top), maximum(p, q), finite)  # infinities of one sign: their difference is NaN


def cbrt(x: ArrayLike, /) -> Tensor:
    """The real cube root."""
    t = as_tensor(x)
    value = cast_value(t._value, float_dtype(t._value.dtype))
    f = wrap(value, t._weak)
    below = signbit(f)
    size = where(below, negative(f), f)  # abs would have no slope at 0
    root = power(size, 1.0 / 3.0)
    # 1/3 isn't exact, which costs large and small numbers digits: one step of Newton gives them back
    exact = logical_or(isinf(f), equal(f, 0.0))
    safe = where(exact, 1.0, root)
    residue = divide(subtract(safe, divide(divide(size, safe), safe)), 3.0)
    root = where(exact, root, subtract(root, stop_gradient(residue)))
    return where(below, negative(root), root)


def sigmoid(x: ArrayLike, /) -> Tensor:
    """1 / (1 + exp(-x)), computed from exp(-|x|), which can't overflow."""
    t = as_tensor(x)
    f = wrap(cast_value(t._value, float_dtype(t._value.dtype)), t._weak)
    below = less(f, 0.0)
    small = exp(where(below, f, negative(f)))  # abs would have no slope at 0
    return divide(where(below, small, 1.0), add(1.0, small))


def nan_to_num(
    x: ArrayLike, /, nan: float = 0.0, *, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with NaN and infinities replaced, by the largest finite numbers of the dtype unless told."""
    t = as_tensor(x)
    if t._value.dtype.kind != "f":
        return copied(t)
    largest = finfo(t._value.dtype).max
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf
    infinite = where(isinf(t), where(greater(t, 0.0), high, low), t)
    return where(isnan(t), nan, infinite)


def stop_gradient(x: Any, /) -> Any:
    """x (a tensor, or a tree of them), treated as a constant by every derivative."""
    if not is_dynamic(x):
        return map_leaves(stop_gradient, x)
    t = as_tensor(x)
    return wrap(emit("stop_gradient", (t._value,))[0], t._weak)


def result_type(*operands: Any) -> Any:
    """The dtype that an operation on these tensors, dtypes and Python scalars has."""
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
