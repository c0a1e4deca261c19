"""Elementwise primitives: operands of equal shape and dtype, one result of that shape.

Edge cases, the same on every device:
  div, floordiv, rem, mod   integers: x/0 = 0; INT_MIN / -1 wraps. div truncates, floordiv floors and
                            satisfies x == floordiv(x, y) * y + mod(x, y) (NumPy's // and %) for floats too.
  pow                       integers wrap; a negative exponent gives the exact value truncated (0 ** -1 = 0).
  shl, shr                  amounts outside 0..bits-1 shift everything out (0, or -1 from a negative shr).
  min, max                  NaN if either operand is NaN; the second operand where they are equal (0.0 and -0.0).
  round                     half to even. sign(NaN) = NaN, sign(-0.0) = 0.
  lgamma, digamma           at -1, -2, ...: inf and NaN; at 0: inf, and -inf or (at -0.0) inf.
  cast                      float to integer truncates toward zero and saturates, NaN becomes 0; integer to
                            integer wraps; anything to bool is x != 0.
  bit_count                 how many bits are set, in the operand's dtype.
  signbit                   of -0.0 and of NaN as well.
  bitcast                   attrs dtype, as wide: the same bits. What NaN's bits are is the machine's choice.
  alias                     attrs bound, where True: see ops.upper_bound; kept: it is in memory; meets: of a loop in
                            which processes meet where there are several, and that is scheduled like theirs; gathered:
                            see ops.gathered, axes counted from the last.
  add, sub                  attrs contract, where True: see ops.accumulate; False: a sum of derivatives all the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from loopgrad.graph.errors import DTypeError, ShapeError
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import intervals
from loopgrad.graph.primitives.casting import cast_array
from loopgrad.graph.primitives.intervals import between, bounded, modular
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Infer,
    Kind,
    Primitive,
    Reference,
    Silent,
    Types,
    bool_type,
    dtype_error,
    exact_of,
    kinds_text,
    require_kinds,
    same_axes,
    shape_error,
    table,
    tensor_type,
    types_text,
)
from loopgrad.graph.types import DType, TensorType

Ufunc = Callable[..., Any]


# ---- inference (the hot path of tracing: no allocation beyond the result tuple)


def _infer_unary(op: str, kinds: str) -> Infer:
    def infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
        t: Any = operands[0].type
        try:
            if t.dtype.kind in kinds:
                return (t,)
        except AttributeError:
            tensor_type(op, operands[0])
        raise dtype_error(op, f"{kinds_text(kinds)} elements", t, "cast the operand first")

    return infer


def _infer_predicate(op: str, kinds: str) -> Infer:
    def infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
        t = tensor_type(op, operands[0])
        require_kinds(op, t, kinds)
        return (bool_type(t.shape),)

    return infer


def _infer_binary(op: str, kinds: str) -> Infer:
    def infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
        a, b = operands
        t: Any = a.type
        u: Any = b.type
        try:
            if (t is u or (t.dtype is u.dtype and t.shape == u.shape)) and t.dtype.kind in kinds:
                return (t,)
        except AttributeError:
            pass
        raise _mismatch(op, operands, kinds)

    return infer


def _infer_compare(op: str, kinds: str) -> Infer:
    def infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
        a, b = operands
        t: Any = a.type
        u: Any = b.type
        try:
            if (t is u or (t.dtype is u.dtype and t.shape == u.shape)) and t.dtype.kind in kinds:
                return (bool_type(t.shape),)
        except AttributeError:
            pass
        raise _mismatch(op, operands, kinds)

    return infer


def _mismatch(op: str, operands: tuple[Value, ...], kinds: str) -> ShapeError | DTypeError:
    a, b = tensor_type(op, operands[0]), tensor_type(op, operands[1])
    if a.dtype is not b.dtype:
        return dtype_error(op, "operands of one dtype", types_text(operands), "cast one of them first")
    if a.shape != b.shape:
        return shape_error(op, "operands of one shape", types_text(operands), "broadcast or reshape one of them first")
    return dtype_error(op, f"{kinds_text(kinds)} elements", types_text(operands), "cast the operands first")


def _infer_select(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    pred, a, b = operands
    p, t, u = tensor_type("select", pred), tensor_type("select", a), tensor_type("select", b)
    require_kinds("select", p, "b")
    if t.dtype is not u.dtype:
        raise dtype_error("select", "branches of one dtype", types_text((a, b)), "cast one of them first")
    if not p.shape == t.shape == u.shape:
        raise shape_error("select", "operands of one shape", types_text(operands), "broadcast them first")
    return (t,)


def _infer_cast(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    dtype: DType = attrs["dtype"]
    t = tensor_type("cast", operands[0])
    if (t.dtype.kind == "c") != (dtype.kind == "c"):
        raise dtype_error("cast", "real dtypes or complex ones", f"{t} to {dtype}", "take or join its parts")
    return (t if t.dtype is dtype else TensorType(t.shape, dtype),)


def _infer_bitcast(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    dtype: DType = attrs["dtype"]
    t = tensor_type("bitcast", operands[0])
    require_kinds("bitcast", t, "iuf")
    if dtype.kind not in NUMBERS or dtype.bits != t.dtype.bits:
        raise dtype_error("bitcast", f"another dtype of {t.dtype.bits} bits", f"{t} to {dtype}", "convert with .astype")
    return (t if t.dtype is dtype else TensorType(t.shape, dtype),)


# ---- references


def _bitcast(attrs: Attrs, x: Array) -> tuple[Array]:
    dtype: DType = attrs["dtype"]
    return (np.asarray(x).view(dtype.np),)


def _plain(function: Ufunc) -> Reference:
    """The reference that applies a NumPy function and keeps the first operand's dtype."""

    def reference(attrs: Attrs, x: Array, *rest: Array) -> tuple[Array]:
        return (np.asarray(function(x, *rest)).astype(x.dtype, copy=False),)

    return Silent(reference)


def _predicate(function: Ufunc) -> Reference:
    def reference(attrs: Attrs, *arrays: Array) -> tuple[Array]:
        return (np.asarray(function(*arrays), dtype=np.bool_),)

    return Silent(reference)


def _scalar(function: Callable[[float], float]) -> Ufunc:
    """A function of one Python float, applied to each element in float64."""

    def apply(x: Array) -> Array:
        values = [function(float(v)) for v in x.ravel()]
        return np.array(values, dtype=np.float64).reshape(x.shape)

    return apply


def _lgamma(x: float) -> float:
    if x == -math.inf or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


def _digamma(x: float) -> float:
    """Reflection for x < 1/2, recurrence up to 12, then the asymptotic series (Abramowitz and Stegun 6.3.18)."""
    if x == 0:
        return -math.copysign(math.inf, x)
    if math.isnan(x) or x == -math.inf or (x <= 0 and x == math.floor(x)):
        return math.nan
    if x == math.inf:
        return math.inf
    if x < 0.5:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * (x - round(x)))
    shift = 0.0
    while x < 12:
        shift -= 1 / x
        x += 1
    r = 1 / (x * x)
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * 691 / 32760)))))
    return shift + math.log(x) - 0.5 / x - series


def _div(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.asarray(np.true_divide(x, y))
    quotient = _floordiv(x, y)
    inexact = (quotient * y != x) & (y != 0)
    return np.asarray(quotient + (inexact & ((x < 0) != (y < 0))).astype(x.dtype))


def _floordiv(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.asarray(np.floor_divide(x, y))
    return np.asarray(np.where(y == 0, x.dtype.type(0), np.floor_divide(x, np.where(y == 0, y.dtype.type(1), y))))


def _remainder(function: Ufunc) -> Ufunc:
    def remainder(x: Array, y: Array) -> Array:
        if x.dtype.kind not in "iu":
            return np.asarray(function(x, y))
        return np.asarray(np.where(y == 0, x.dtype.type(0), function(x, np.where(y == 0, y.dtype.type(1), y))))

    return remainder


def _pow(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu" or not (y < 0).any():
        return np.asarray(np.power(x, y))
    one, zero = x.dtype.type(1), x.dtype.type(0)
    odd_sign = np.where(y & one, x, one)  # x ** y for x = 1 and x = -1
    return np.where(y >= 0, np.power(x, np.maximum(y, zero)), np.where(np.abs(x) == 1, odd_sign, zero))


def _cast(attrs: Attrs, x: Array) -> tuple[Array]:
    return (cast_array(x, attrs["dtype"]),)


def _select(attrs: Attrs, pred: Array, a: Array, b: Array) -> tuple[Array]:
    return (np.where(pred, a, b),)


def _identity(attrs: Attrs, x: Array) -> tuple[Array]:
    return (x,)


def _inverse_root(x: Array) -> Array:
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x  # a half is rounded once
    return np.asarray(1 / np.sqrt(wide)).astype(x.dtype, copy=False)


def _extreme(ordered: Ufunc, of_integers: Ufunc) -> Ufunc:
    """Of floats that are equal the second: NumPy's choice between 0.0 and -0.0 depends on the dtype."""

    def extreme(x: Array, y: Array) -> Array:
        if x.dtype.kind in "iu":
            return np.asarray(of_integers(x, y))
        return np.where(ordered(x, y) | np.isnan(x), x, y)

    return extreme


def _bit_count(x: Array) -> Array:
    return np.asarray(np.bitwise_count(x).astype(x.dtype))


def _sign(x: Array) -> Array:
    return np.asarray(np.sign(x) + x.dtype.type(0))  # + 0 turns -0.0 into 0.0


# ---- the rows


def _rounded_alone(node: Node) -> bool:
    """Not contracted with a product, which depends on what else is computed."""
    return not node.attrs.get("contract")


_REAL: Final = exact_of("biuf")


def _row(name: str, kinds: str, infer: Infer, reference: Reference, **traits: Any) -> Primitive:
    rule = traits.pop("exact", _REAL)
    return Primitive(
        name=name, kind=Kind.ELEMENTWISE, kinds=kinds, infer=infer, reference=reference, axes=same_axes, exact=rule,
        **traits,
    )  # fmt: skip


def _unary(name: str, kinds: str, function: Ufunc, **traits: Any) -> Primitive:
    return _row(name, kinds, _infer_unary(name, kinds), _plain(function), function=function, **traits)


def _expanded(name: str, function: Ufunc, **traits: Any) -> Primitive:
    """A function of floats that targets compute by a recipe of `codegen.math`."""
    return _unary(name, "f", function, exact=None, **traits)


def _binary(name: str, kinds: str, function: Ufunc, **traits: Any) -> Primitive:
    return _row(name, kinds, _infer_binary(name, kinds), _plain(function), function=function, **traits)


def _bitwise(name: str, kinds: str, function: Ufunc, **traits: Any) -> Primitive:
    return _binary(name, kinds, function, not_differentiable=WHOLE, **traits)


def _compare(name: str, kinds: str, function: Ufunc, **traits: Any) -> Primitive:
    return _row(name, kinds, _infer_compare(name, kinds), _predicate(function), function=function, **_TEST, **traits)


def _property(name: str, kinds: str, function: Ufunc, **traits: Any) -> Primitive:
    return _row(name, kinds, _infer_predicate(name, kinds), _predicate(function), function=function, **_TEST, **traits)


STEPS: Final = "piecewise constant"
WHOLE: Final = "integers and bools only"
BITS: Final = "the bits of a number have no slope"
_TEST: Final[dict[str, Any]] = {"gives_bool": True, "not_differentiable": "gives a bool"}
ANY: Final = "biufc"
NUMBERS: Final = "iuf"

UNARY: Final = table(
    _unary(
        "neg", "iufc", np.negative, public="negative", linear=True, unrounded=True, interval=modular(intervals.neg),
        python=operator.neg,
    ),
    _unary(
        "abs", "iuf", np.abs, linear=True, unrounded=True, interval=bounded(intervals.magnitude), python=operator.abs,
    ),
    _unary("sign", "iuf", _sign, not_differentiable=STEPS, unrounded=True, interval=bounded(intervals.sign)),
    _unary("floor", "f", np.floor, not_differentiable=STEPS, unrounded=True, cost=4.0),
    _unary("ceil", "f", np.ceil, not_differentiable=STEPS, unrounded=True, cost=4.0),
    _unary("round", "f", np.rint, not_differentiable=STEPS, unrounded=True, cost=4.0),
    _unary("trunc", "f", np.trunc, not_differentiable=STEPS, unrounded=True, cost=4.0),
    _unary("sqrt", "f", np.sqrt, singular=True, cost=4.0),
    _unary("rsqrt", "f", _inverse_root, singular=True, cost=4.0),
    _expanded("cbrt", np.cbrt, singular=True, cost=10.0, weight=20),
    _expanded("exp", np.exp, cost=10.0, weight=20),
    _expanded("exp2", np.exp2, cost=10.0, weight=20),
    _expanded("expm1", np.expm1, cost=16.0, weight=20),
    _expanded("log", np.log, singular=True, cost=10.0, weight=20),
    _expanded("log2", np.log2, singular=True, cost=10.0, weight=20),
    _expanded("log10", np.log10, singular=True, cost=16.0, weight=20),
    _expanded("log1p", np.log1p, singular=True, cost=16.0, weight=20),
    _expanded("sin", np.sin, cost=10.0, weight=60),
    _expanded("cos", np.cos, cost=10.0, weight=60),
    _expanded("tan", np.tan, cost=16.0, weight=60),
    _expanded("asin", np.arcsin, singular=True, cost=16.0, weight=20),
    _expanded("acos", np.arccos, singular=True, cost=16.0, weight=20),
    _expanded("atan", np.arctan, cost=16.0, weight=20),
    _expanded("sinh", np.sinh, cost=24.0, weight=20),
    _expanded("cosh", np.cosh, cost=24.0, weight=20),
    _expanded("tanh", np.tanh, cost=16.0, weight=20),
    _expanded("asinh", np.arcsinh, cost=24.0, weight=20),
    _expanded("acosh", np.arccosh, singular=True, cost=24.0, weight=20),
    _expanded("atanh", np.arctanh, singular=True, cost=24.0, weight=20),
    _expanded("erf", _scalar(math.erf), cost=16.0, weight=20),
    _expanded("erfc", _scalar(math.erfc), cost=24.0, weight=20),
    _expanded("lgamma", _scalar(_lgamma), singular=True, cost=50.0, weight=250),
    _expanded("digamma", _scalar(_digamma), singular=True, cost=50.0, weight=60),
    _unary(
        "invert", "biu", np.invert, public="bitwise_invert", not_differentiable=WHOLE,
        interval=modular(intervals.invert), python=operator.invert,
    ),
    _unary(
        "bit_count", "u", _bit_count, public="bitwise_count", not_differentiable=WHOLE, interval=intervals.bit_count,
    ),
)  # fmt: skip

BINARY: Final = table(
    _binary(
        "add", "iufc", np.add, neutral=0, linear=True, commutes=ANY, interval=modular(intervals.add),
        exact=_rounded_alone, python=operator.add,
    ),
    _binary(
        "sub", "iufc", np.subtract, public="subtract", neutral=0, linear=True, interval=modular(intervals.sub),
        exact=_rounded_alone, python=operator.sub,
    ),
    _binary(
        "mul", "iuf", np.multiply, public="multiply", neutral=1, commutes=ANY, interval=modular(intervals.mul),
        python=operator.mul,
    ),
    _binary(
        "div", "iuf", _div, public="divide", neutral=1, singular=True, cost=4.0, interval=bounded(intervals.div),
        python=operator.truediv,
    ),
    _binary(
        "floordiv", "iuf", _floordiv, public="floor_divide", neutral=1, not_differentiable=STEPS, cost=6.0,
        interval=bounded(intervals.floordiv), python=operator.floordiv,
    ),
    _binary("rem", "iuf", _remainder(np.fmod), public="fmod", cost=6.0, weight=60, interval=bounded(intervals.rem)),
    _binary(
        "mod", "iuf", _remainder(np.remainder), public="remainder", cost=6.0, weight=60,
        interval=bounded(intervals.mod), python=operator.mod,
    ),
    _binary(
        "pow", "iuf", _pow, public="power", singular=True, cost=24.0, weight=20, interval=bounded(intervals.power),
        exact=exact_of("iu"), python=operator.pow,
    ),
    _binary("atan2", "f", np.arctan2, exact=None, cost=24.0, weight=20),
    _binary(
        "min", "iuf", _extreme(np.less, np.minimum), public="minimum", linear=True, commutes="iu", unrounded=True,
        interval=bounded(intervals.smallest), python=min,
    ),
    _binary(
        "max", "iuf", _extreme(np.greater, np.maximum), public="maximum", linear=True, commutes="iu", unrounded=True,
        interval=bounded(intervals.largest), python=max,
    ),
    _bitwise(
        "and", "biu", np.bitwise_and, public="bitwise_and", commutes=ANY, interval=bounded(intervals.bits_and),
        python=operator.and_,
    ),
    _bitwise(
        "or", "biu", np.bitwise_or, public="bitwise_or", neutral=0, commutes=ANY,
        interval=bounded(intervals.bits_or), python=operator.or_,
    ),
    _bitwise(
        "xor", "biu", np.bitwise_xor, public="bitwise_xor", neutral=0, commutes=ANY,
        interval=bounded(intervals.bits_xor), python=operator.xor,
    ),
    _bitwise(
        "shl", "iu", np.left_shift, public="bitwise_left_shift", neutral=0, interval=intervals.shl,
        python=operator.lshift,
    ),
    _bitwise(
        "shr", "iu", np.right_shift, public="bitwise_right_shift", neutral=0, interval=intervals.shr,
        python=operator.rshift,
    ),
)  # fmt: skip

COMPARE: Final = table(
    _compare(
        "eq", ANY, np.equal, public="equal", commutes=ANY, combine_parts="and", mirrored="eq",
        negated="ne", python=operator.eq,
    ),
    _compare(
        "ne", ANY, np.not_equal, public="not_equal", commutes=ANY, combine_parts="or", mirrored="ne",
        negated="eq", python=operator.ne,
    ),
    _compare("lt", "biuf", np.less, public="less", mirrored="gt", negated="ge", python=operator.lt),
    _compare("le", "biuf", np.less_equal, public="less_equal", mirrored="ge", negated="gt", python=operator.le),
    _compare("gt", "biuf", np.greater, public="greater", mirrored="lt", negated="le", python=operator.gt),
    _compare("ge", "biuf", np.greater_equal, public="greater_equal", mirrored="le", negated="lt", python=operator.ge),
)  # fmt: skip

PREDICATE: Final = table(
    _property("is_nan", "fc", np.isnan, public="isnan", combine_parts="or"),
    _property("is_inf", "fc", np.isinf, public="isinf", combine_parts="or"),
    _property("signbit", "f", np.signbit),
)

_IDENTITY: Final[dict[str, Any]] = {"keeps_splats": True, "interval": intervals.moved, "cost": 0.0}

ROWS: Final[dict[str, Primitive]] = {
    **UNARY,
    **BINARY,
    **COMPARE,
    **PREDICATE,
    **table(
        _row("select", ANY, _infer_select, _select, function=np.where, linear=True, interval=between(1)),
        _row("cast", ANY, _infer_cast, _cast, public="astype", linear=True, interval=intervals.cast),
        _row("bitcast", NUMBERS, _infer_bitcast, _bitcast, public="bitcast_convert_type", not_differentiable=BITS),
        _row("alias", ANY, _infer_unary("alias", ANY), _identity, public=None, linear=True, **_IDENTITY),
        _row(
            "stop_gradient", ANY, _infer_unary("stop_gradient", ANY), _identity,
            not_differentiable="blocks derivatives on purpose", **_IDENTITY,
        ),
    ),
}  # fmt: skip
