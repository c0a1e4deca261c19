"""Elementwise functions: names and semantics of the array API standard, NumPy's names beside them.

Operands broadcast and are promoted (`lazy.tensor.promotion`). A float function of integers computes in the
default float. Functions that repeat one pattern come from the small factories at the top. All take the options of
NumPy's ufuncs (`lazy.tensor.outputs`): `out`, `where`, `dtype`.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.complex_numbers.arithmetic import reciprocal as reciprocal_of
from loopgrad.graph.complex_numbers.parts import joined, parts
from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.errors import explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.python_numbers import require, stands_for_number
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import DType, bool_, float64, int8, int64
from loopgrad.lazy.numpy.integer_comparison import exact_comparison
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    TensorCore,
    as_tensor,
    cast,
    cast_value,
    copied,
    is_scalar,
    wrap,
)
from loopgrad.lazy.tensor.operands import as_bool, dtype_refused, meet, public_name, whole_number
from loopgrad.lazy.tensor.outputs import Binary, Out, Unary, binary, delivered, unary
from loopgrad.lazy.tensor.promotion import float_dtype
from loopgrad.lazy.tensor.repeated_calls import repeated
from loopgrad.lazy.tensor.trees import is_dynamic, map_leaves

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = (
    "absolute abs=absolute acos arccos=acos acosh arccosh=acosh add asin arcsin=asin asinh arcsinh=asinh atan "
    "arctan=atan atan2 arctan2=atan2 atanh arctanh=atanh bitwise_and bitwise_invert bitwise_not=bitwise_invert "
    "invert=bitwise_invert bitwise_left_shift left_shift=bitwise_left_shift bitwise_or bitwise_right_shift "
    "right_shift=bitwise_right_shift bitwise_xor cbrt ceil cos cosh digamma divide true_divide=divide equal erf erfc "
    "exp exp2 expm1 floor floor_divide fmod greater greater_equal less less_equal lgamma log log10 log1p log2 "
    "logical_and logical_not logical_or logical_xor maximum minimum multiply negative not_equal positive power "
    "pow=power reciprocal remainder mod=remainder round around=round rsqrt sign sin sinh sqrt square stop_gradient "
    "subtract tan tanh trunc fix=trunc"
)


# ---- factories

_MEET = "Operands broadcast and are promoted"
_APART = "Raises ShapeError where they don't broadcast"
_REFUSED = {"iufc": "bools", "biu": "floats", "iu": "bools and floats"}  # by the kinds that are taken


def named(function: Any, op: str, text: str, rule: str, call: str, result: str) -> Any:
    """The function under its public name, with a docstring: what it gives, `rule` for shapes and dtypes, an example."""
    name = public_name(op)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text}\n\n{rule}\n\n>>> lg.{name}({call})\nTensor({result})\n"
    return function


def unary_operand(x: ArrayLike) -> Tensor:
    """The operand of a function of one; what is computed of a Python int is an int64, as in NumPy."""
    if type(x) is int:
        return as_tensor(x, int64)
    t = as_tensor(x)
    settled = t._weak and t._value.dtype is int64 and stands_for_number(t._value)
    return wrap(t._value) if settled else t


def _float(op: str, text: str, call: str, result: str) -> Unary:
    """A float function: integers are converted first."""

    def function(x: ArrayLike, /) -> Tensor:
        t = as_tensor(x)
        value = t._value
        if value.dtype.kind not in "fc":
            value = cast_value(value, float_dtype(value.dtype))
        return wrap(computed(op, value), t._weak)

    rule = "The shape stays; a float keeps its dtype, bools and integers give the default float."
    return unary(named(function, op, text, rule, call, f"{result}, dtype=float64"))


def _whole(op: str, text: str, call: str, result: str) -> Unary:
    """A rounding: integers are whole already."""

    def function(x: ArrayLike, /) -> Tensor:
        t = unary_operand(x)
        return wrap(computed(op, t._value), t._weak) if t._value.dtype.kind in "fc" else copied(t)

    rule = "Shape and dtype stay; bools and integers are copied."
    return unary(named(function, op, text, rule, call, f"{result}, dtype=float64"))


def _signed(op: str, text: str, call: str, result: str, kinds: str = "iufc") -> Unary:
    def function(x: ArrayLike, /) -> Tensor:
        t = unary_operand(x)
        if t._value.dtype.kind not in kinds:
            raise dtype_refused(op, kinds, t._value.dtype)
        return wrap(computed(op, t._value), t._weak)

    rule = f"Shape and dtype stay. Raises DTypeError for {_REFUSED[kinds]}."
    return unary(named(function, op, text, rule, call, f"{result}, dtype=int64"))


def _arithmetic(op: str, text: str, call: str, result: str, kinds: str = "iufc", on_bool: str | None = None) -> Binary:
    """Same dtype out; `on_bool` is the primitive that does it for two bools."""

    def function(x: ArrayLike, y: ArrayLike, /) -> Tensor:
        values, weak = meet(op, (x, y))
        kind = values[0].dtype.kind
        if kind == "b" and on_bool is not None:
            return wrap(emit(on_bool, values)[0])
        if kind not in kinds:
            raise dtype_refused(op, kinds, values[0].dtype)
        return wrap(computed(op, *values), weak)

    refused = "" if on_bool is not None else f", DTypeError for {_REFUSED[kinds]}"
    rule = f"{_MEET} to one dtype, the result's.\n{_APART}{refused}."
    return binary(named(function, op, text, rule, call, f"{result}, dtype=int64"))


def _divided(op: str, text: str, call: str, result: str) -> Binary:
    """A float function of two operands."""

    def function(x: ArrayLike, y: ArrayLike, /) -> Tensor:
        values, weak = meet(op, (x, y), floating=True)
        return wrap(computed(op, *values), weak)

    rule = f"{_MEET} to one float dtype, the result's; integers to the default float.\n{_APART}."
    return binary(named(function, op, text, rule, call, f"{result}, dtype=float64"))


def _comparison(op: str, text: str, call: str, result: str) -> Binary:
    def function(x: ArrayLike, y: ArrayLike, /) -> Tensor:
        special = exact_comparison(op, x, y)
        return wrap(computed(op, *meet(op, (x, y))[0])) if special is None else special

    rule = f"Operands broadcast; integers of different dtypes compare as numbers. The result is bool.\n{_APART}."
    return binary(named(function, op, text, rule, call, f"{result}, dtype=bool"))


def _logical(op: str, text: str, call: str, result: str) -> Binary:
    def function(x: ArrayLike, y: ArrayLike, /) -> Tensor:
        return wrap(emit(op, meet(op, (as_bool(x), as_bool(y)))[0])[0])

    rule = "Operands broadcast, or ShapeError is raised; the result is bool."
    return binary(named(function, f"logical_{op}", text, rule, call, f"{result}, dtype=bool"))


# ---- arithmetic

add = _arithmetic("add", "x + y.", "[1, 2], [3, 4]", "[4, 6]", on_bool="or")
multiply = _arithmetic("mul", "x * y.", "[1, 2], 3", "[3, 6]", on_bool="and")
subtract = _arithmetic("sub", "x - y.", "[1, 2], 3", "[-2, -1]")
divide = _divided("div", "x / y.", "[1, 2], 4", "[0.25, 0.5 ]")
minimum = _arithmetic("min", "The smaller of x and y; NaN where either is.", "[1, 5], [3, 4]", "[1, 4]", on_bool="and")
maximum = _arithmetic("max", "The larger of x and y; NaN where either is.", "[1, 5], [3, 4]", "[3, 5]", on_bool="or")
floor_divide = _arithmetic("floordiv", "floor(x / y); an integer divided by 0 gives 0.", "[7, -7], 2", "[ 3, -4]")
remainder = _arithmetic(
    "mod", "The remainder with the sign of y (Python's %); 0 where an integer y is 0.", "[7, -7], 3", "[1, 2]"
)
fmod = _arithmetic("rem", "The remainder with the sign of x (C's fmod).", "[7, -7], 3", "[ 1, -1]")
atan2 = _divided(
    "atan2",
    "The angle of the point (y, x), arguments in that order, from -pi to pi.",
    "[0.0, 1.0], [1.0, 0.0]",
    "[0.        , 1.57079633]",
)
negative = _signed("neg", "-x.", "[1, -2]", "[-1,  2]")
sign = _signed("sign", "-1, 0 or 1; NaN of NaN.", "[-2, 0, 3]", "[-1,  0,  1]")

# ---- float functions

sqrt = _float("sqrt", "The square root; NaN below 0.", "[4.0, 9.0]", "[2., 3.]")
rsqrt = _float("rsqrt", "1 / sqrt(x); infinite at 0, NaN below.", "[4.0, 16.0]", "[0.5 , 0.25]")
cbrt = _float("cbrt", "The real cube root, also of negative numbers.", "[8.0, -27.0]", "[ 2., -3.]")
exp = _float("exp", "e to the power x.", "[0.0, 1.0]", "[1.        , 2.71828183]")
exp2 = _float("exp2", "2 to the power x.", "[0.0, 3.0]", "[1., 8.]")
expm1 = _float("expm1", "exp(x) - 1, exact near 0.", "[0.0, 1e-12]", "[0.e+00, 1.e-12]")
log = _float("log", "The natural logarithm; minus infinity at 0, NaN below.", "[1.0, 10.0]", "[0.        , 2.30258509]")
log2 = _float("log2", "The logarithm to base 2.", "[1.0, 8.0]", "[0., 3.]")
log10 = _float("log10", "The logarithm to base 10.", "[1.0, 1000.0]", "[0., 3.]")
log1p = _float("log1p", "log(1 + x), exact near 0.", "[0.0, 1e-12]", "[0.e+00, 1.e-12]")
sin = _float("sin", "The sine of an angle in radians.", "[0.0, 1.0]", "[0.        , 0.84147098]")
cos = _float("cos", "The cosine of an angle in radians.", "[0.0, 1.0]", "[1.        , 0.54030231]")
tan = _float("tan", "The tangent of an angle in radians.", "[0.0, 1.0]", "[0.        , 1.55740772]")
asin = _float(
    "asin", "The inverse sine, from -pi/2 to pi/2; NaN beyond -1 and 1.", "[0.0, 1.0]", "[0.        , 1.57079633]"
)
acos = _float(
    "acos", "The inverse cosine, from 0 to pi; NaN beyond -1 and 1.", "[0.0, 1.0]", "[1.57079633, 0.        ]"
)
atan = _float("atan", "The inverse tangent, from -pi/2 to pi/2.", "[0.0, 1.0]", "[0.        , 0.78539816]")
sinh = _float("sinh", "The hyperbolic sine.", "[0.0, 1.0]", "[0.        , 1.17520119]")
cosh = _float("cosh", "The hyperbolic cosine.", "[0.0, 1.0]", "[1.        , 1.54308063]")
tanh = _float("tanh", "The hyperbolic tangent.", "[0.0, 1.0]", "[0.        , 0.76159416]")
asinh = _float("asinh", "The inverse hyperbolic sine.", "[0.0, 1.0]", "[0.        , 0.88137359]")
acosh = _float("acosh", "The inverse hyperbolic cosine; NaN below 1.", "[1.0, 2.0]", "[0.       , 1.3169579]")
atanh = _float(
    "atanh", "The inverse hyperbolic tangent; NaN beyond -1 and 1.", "[0.0, 0.5]", "[0.        , 0.54930614]"
)
erf = _float("erf", "The error function.", "[0.0, 1.0]", "[0.        , 0.84270079]")
erfc = _float("erfc", "1 - erf(x).", "[0.0, 1.0]", "[1.        , 0.15729921]")
lgamma = _float(
    "lgamma", "The logarithm of the absolute value of the gamma function.", "[1.0, 5.0]", "[0.        , 3.17805383]"
)
digamma = _float("digamma", "The derivative of lgamma.", "[1.0, 2.0]", "[-0.57721566,  0.42278434]")

# ---- rounding

floor = _whole("floor", "The largest whole number that is at most x.", "[1.5, -1.5]", "[ 1., -2.]")
ceil = _whole("ceil", "The smallest whole number that is at least x.", "[1.5, -1.5]", "[ 2., -1.]")
trunc = _whole("trunc", "x without its fraction.", "[1.5, -1.5]", "[ 1., -1.]")
_rint = _whole("round", "The nearest whole number, half to even.", "[0.5, 1.5]", "[0., 2.]")

# ---- comparison and logic

equal = _comparison("eq", "x == y.", "[1, 2], [1, 3]", "[ True, False]")
not_equal = _comparison("ne", "x != y.", "[1, 2], [1, 3]", "[False,  True]")
less = _comparison("lt", "x < y.", "[1, 2], 2", "[ True, False]")
less_equal = _comparison("le", "x <= y.", "[1, 2], 2", "[ True,  True]")
greater = _comparison("gt", "x > y.", "[1, 2], 1", "[False,  True]")
greater_equal = _comparison("ge", "x >= y.", "[1, 2], 2", "[False,  True]")
logical_and = _logical("and", "Both are true (not 0).", "[0, 1, 2], [1, 0, 3]", "[False, False,  True]")
logical_or = _logical("or", "Either is true (not 0).", "[0, 1, 0], [1, 0, 0]", "[ True,  True, False]")
logical_xor = _logical("xor", "Exactly one is true (not 0).", "[0, 1, 2], [1, 0, 3]", "[ True,  True, False]")
bitwise_and = _arithmetic("and", "Bitwise and; of bools logical and.", "[6, 5], 3", "[2, 1]", "biu")
bitwise_or = _arithmetic("or", "Bitwise or; of bools logical or.", "[6, 5], 3", "[7, 7]", "biu")
bitwise_xor = _arithmetic("xor", "Bitwise exclusive or.", "[6, 5], 3", "[5, 6]", "biu")
bitwise_left_shift = _arithmetic("shl", "x shifted left by y bits.", "[1, 3], 2", "[ 4, 12]", "iu")
bitwise_right_shift = _arithmetic("shr", "x shifted right by y bits; the sign is kept.", "[8, -8], 1", "[ 4, -4]", "iu")
bitwise_invert = _signed("invert", "Every bit flipped; of bools logical not.", "[0, 5]", "[-1, -6]", "biu")


@unary
def logical_not(x: ArrayLike, /) -> Tensor:
    """True where x is 0 or False; the shape stays, the result is bool.

    >>> lg.logical_not([0, 2])
    Tensor([ True, False], dtype=bool)
    """
    return wrap(emit("invert", (as_bool(x)._value,))[0])


@unary
def absolute(x: ArrayLike, /) -> Tensor:
    """The absolute value; shape and dtype stay, bools are copied. The derivative at 0 is 0.

    >>> lg.absolute([-1.5, 2.0])
    Tensor([1.5, 2. ], dtype=float64)
    """
    t = unary_operand(x)
    return copied(t) if t._value.dtype.kind in "bu" else wrap(computed("abs", t._value), t._weak)


@unary
def positive(x: ArrayLike, /) -> Tensor:
    """A copy of x: its elements, shape and dtype.

    >>> lg.positive([-1.5, 2.0])
    Tensor([-1.5,  2. ], dtype=float64)
    """
    return copied(unary_operand(x))


@unary
def square(x: ArrayLike, /) -> Tensor:
    """x * x; shape and dtype stay, of bools an int8, as in NumPy.

    >>> lg.square([-3, 2])
    Tensor([9, 4], dtype=int64)
    """
    t = unary_operand(x)
    return cast(t, int8) if t._value.dtype is bool_ else multiply(t, t)


@unary
def reciprocal(x: ArrayLike, /) -> Tensor:
    """1 / x; the shape stays, integers give the default float (in NumPy an integer).

    >>> lg.reciprocal([2, 4])
    Tensor([0.5 , 0.25], dtype=float64)
    """
    t = as_tensor(x)
    return wrap(reciprocal_of(t._value), t._weak) if t._value.dtype.kind == "c" else divide(1, t)


@repeated
def round(x: ArrayLike, /, decimals: int = 0, out: Out = None) -> Tensor:
    """x to `decimals` decimal places, half to even; shape and dtype stay. With `out` written to that, and returned.

    Integers are rounded to tens and so on where `decimals` is negative, and saturate; bools stay bools. Numbers that
    have no such decimals, or with them more digits than the dtype's largest, stay (in NumPy infinite or NaN). Raises
    DTypeError for `decimals` that aren't an integer.

    >>> lg.round([2.5, 3.14159]), lg.round([3.14159], decimals=2)
    (Tensor([2., 3.], dtype=float64), Tensor([3.14], dtype=float64))
    """
    places = whole_number("round", "an integer as decimals", decimals)
    return delivered("round", _rounded(as_tensor(x), places), out)


# Of the largest power of ten; float32 and bfloat16 have one of 38.
_DIGITS: Final = {"float16": 4, "float64": 308}


def _rounded(t: Tensor, decimals: int) -> Tensor:
    if t._value.dtype.kind == "c" and decimals != 0:  # a product with the scale would mix parts, one infinite or NaN
        real, imaginary = [_rounded(wrap(part), decimals)._value for part in parts(t._value)]
        return wrap(joined((real, imaginary)))
    if decimals == 0 or not t._value.dtype.is_float:
        return _rint(t) if decimals >= 0 else _round_integers(t, decimals)
    scales = _scales(t._value.dtype, abs(decimals))
    if decimals < 0:
        return reduce(multiply, scales, _rint(reduce(divide, scales, t)))
    large = reduce(multiply, scales, t)
    found = reduce(divide, scales[::-1], _rint(large))
    unchanged = ops.stop_gradient(t._value)  # where the product is beyond the largest number
    return wrap(ops.select(ops.is_inf(large._value), unchanged, found._value), t._weak)


def _scales(dtype: DType, decimals: int) -> list[float]:
    """Powers of ten that a dtype has, with the product 10**decimals, or one that takes all numbers but 0 beyond the
    largest, or below a half."""
    most = _DIGITS.get(dtype.name, 38)
    whole, rest = divmod(min(decimals, 2 * most + 20), most)
    return [10.0**most] * whole + [10.0**rest] * (rest > 0)


def _round_integers(t: Tensor, decimals: int) -> Tensor:
    scale = 10.0 ** min(-decimals, 20)  # of which half is more than any integer
    return cast(multiply(_rint(divide(cast(t, float64), scale)), scale), t._value.dtype)


# Powers up to these are products; a product of three floats would be rounded twice.
_LARGEST_PRODUCT = {"i": 4, "u": 4, "f": 2}


@binary
def power(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """x to the power y; operands broadcast and are promoted to one dtype, the result's.

    Raises ValueError for an integer tensor to a negative Python int (OverflowError where that is an argument of a
    compiled function), DTypeError for bools, ShapeError where shapes don't broadcast. By y the derivative counts the
    logarithm of 0 as 0.

    >>> lg.power([1, 2, 3], 2), lg.power(2.0, [0.5, -1.0])
    (Tensor([1, 4, 9], dtype=int64), Tensor([1.41421356, 0.5       ], dtype=float64))
    """
    if isinstance(x, TensorCore) and is_scalar(y) and not isinstance(y, complex):
        simple = _simple_power(x, y)
        if simple is not None:
            return simple
    values, weak = meet("pow", (x, y))
    if values[0].dtype.kind == "b":
        raise dtype_refused("pow", "iufc", bool_)
    if values[0].dtype.is_integer and isinstance(y, TensorCore) and y._weak:
        require(y._value, 0, limits(int64)[1])
    return wrap(computed("pow", *values), weak)


def _simple_power(x: Tensor, y: Any) -> Tensor | None:
    """x to a Python number, where something cheaper than pow gives it."""
    kind = x._value.dtype.kind
    if kind in "biu" and type(y) is int and y < 0:
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


def stop_gradient(x: Any, /) -> Any:
    """x (a tensor, or a tree of them), treated as a constant by every derivative; shapes and dtypes stay.

    >>> lg.grad(lambda x: x * lg.stop_gradient(x))(3.0)
    Tensor(3., dtype=float64)
    """
    if not is_dynamic(x):
        return map_leaves(stop_gradient, x)
    t = as_tensor(x)
    return wrap(emit("stop_gradient", (t._value,))[0], t._weak)
