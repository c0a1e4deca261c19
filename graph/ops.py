"""Emitting nodes: one function per primitive, and the few combinations everybody needs.

Operands are Values of matching shapes and dtypes, as the primitives demand; a Python number beside a
Value stands for a constant of the Value's type. Results are Values of the ambient scope. `for_loop`,
`while_loop`, `switch` and `call` come from `graph.region_ops`, which has their tracing forms too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from loopgrad.graph.build import at, emit, emit_each, user_location
from loopgrad.graph.nodes import NO_ATTRS, Value, is_zero, passing_node
from loopgrad.graph.primitives.primitive import dtype_error, shape_error, tensor_type
from loopgrad.graph.region_ops import call as call
from loopgrad.graph.region_ops import for_loop as for_loop
from loopgrad.graph.region_ops import switch as switch
from loopgrad.graph.region_ops import while_loop as while_loop
from loopgrad.graph.types import DType, TensorType, sum_dtype

CONTRACT: Final[Mapping[str, Any]] = MappingProxyType({"contract": True})
Number = bool | int | float | complex
Operand = Value | Number


# ---- creation


def full(value: Number, type: TensorType) -> Value:
    """A tensor of equal elements; complex ones are made of their parts, numbers that a script may change."""
    if type.dtype.kind == "c":
        number = complex(value)
        return join(full(number.real, type.part), full(number.imag, type.part))
    return emit("const", (), {"value": _as_scalar(value, type.dtype), "type": type})[0]


def zeros_like(v: Value) -> Value:
    return full(0, tensor_type("zeros_like", v))


def ones_like(v: Value) -> Value:
    return full(1, tensor_type("ones_like", v))


def literal(array: np.ndarray[Any, Any], dtype: DType) -> Value:
    """A small constant array whose elements become part of the graph."""
    data = np.ascontiguousarray(array, dtype=dtype.np).tobytes()
    return emit("literal", (), {"data": data, "type": TensorType(tuple(array.shape), dtype)})[0]


def iota(type: TensorType, axis: int) -> Value:
    """Each element is its index along `axis`."""
    return emit("iota", (), {"type": type, "axis": axis})[0]


def _as_scalar(value: Number, dtype: DType) -> Number:
    """`value` as the Python type that belongs to the dtype; refuses what would change its meaning."""
    kind = dtype.kind
    if kind == "f" and not isinstance(value, complex):
        return float(value)
    if kind == "b":
        if value in (0, 1):
            return bool(value)
        raise dtype_error("full", "True or False", value, "compare it with something")
    if not isinstance(value, int | float | complex):
        value = value.item()  # a NumPy scalar
    if isinstance(value, complex) or (isinstance(value, float) and not (isfinite(value) and value == int(value))):
        raise dtype_error("full", f"a whole number for {dtype}", value, "cast the tensor to a float dtype first")
    number = int(value)
    low = -(1 << (dtype.bits - 1)) if kind == "i" else 0
    if not low <= number < low + (1 << dtype.bits):
        raise dtype_error("full", f"a number in {dtype}'s range", value, "use a wider dtype")
    return number


# ---- elementwise


def _unary(op: str) -> Callable[[Value], Value]:
    def emitter(x: Value) -> Value:
        return emit(op, (x,))[0]

    return emitter


def _binary(op: str) -> Callable[[Operand, Operand], Value]:
    def emitter(a: Operand, b: Operand) -> Value:
        if not isinstance(a, Value):
            if not isinstance(b, Value):
                raise dtype_error(op, "at least one tensor", f"{a!r} and {b!r}", "make a tensor of one of them")
            a = full(a, tensor_type(op, b))
        elif not isinstance(b, Value):
            b = full(b, tensor_type(op, a))
        return emit(op, (a, b))[0]

    return emitter


neg = _unary("neg")
abs = _unary("abs")
sign = _unary("sign")
floor = _unary("floor")
ceil = _unary("ceil")
round = _unary("round")
trunc = _unary("trunc")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
cbrt = _unary("cbrt")
exp = _unary("exp")
exp2 = _unary("exp2")
expm1 = _unary("expm1")
log = _unary("log")
log2 = _unary("log2")
log10 = _unary("log10")
log1p = _unary("log1p")
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
sinh = _unary("sinh")
cosh = _unary("cosh")
tanh = _unary("tanh")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")
erf = _unary("erf")
erfc = _unary("erfc")
lgamma = _unary("lgamma")
digamma = _unary("digamma")
invert = _unary("invert")
bit_count = _unary("bit_count")
is_nan = _unary("is_nan")
is_inf = _unary("is_inf")
signbit = _unary("signbit")
stop_gradient = _unary("stop_gradient")
alias = _unary("alias")

add = _binary("add")
sub = _binary("sub")
mul = _binary("mul")
div = _binary("div")
floordiv = _binary("floordiv")
rem = _binary("rem")
mod = _binary("mod")
pow = _binary("pow")
atan2 = _binary("atan2")
min = _binary("min")
max = _binary("max")
and_ = _binary("and")
or_ = _binary("or")
xor = _binary("xor")
shl = _binary("shl")
shr = _binary("shr")
eq = _binary("eq")
ne = _binary("ne")
lt = _binary("lt")
le = _binary("le")
gt = _binary("gt")
ge = _binary("ge")


def accumulate(total: Value, term: Value) -> Value:
    """total + term of a derivative. Where one of the two is a product a target may round product and sum at once:
    how a derivative is rounded is written down nowhere, unlike what a NumPy program computes."""
    if total.dtype.kind == "c" and (_known_parts(total) or _known_parts(term)):
        re = _accumulated_part(real_part(total), real_part(term))
        return join(re, _accumulated_part(imaginary_part(total), imaginary_part(term)))
    return emit("add", (total, term), CONTRACT)[0]


def _accumulated_part(total: Value, term: Value) -> Value:
    if is_zero(total):
        return term
    return total if is_zero(term) else accumulate(total, term)


def gathered(x: Value, axes: Sequence[int] | None = None) -> Value:
    """x, of whose lanes each process has all (`graph.placement`); where `axes` are given, if lanes are along one."""
    along = True if axes is None else tuple([axis - len(x.shape) for axis in axes])  # the same where batches have more
    return emit("alias", (x,), {"gathered": along})[0]


def axis_gather(x: Value, attrs: Mapping[str, Any]) -> Value:
    """What all examples of a named axis have (`primitives.named_axes`): it exists once."""
    return emit("axis_gather", (x,), attrs)[0]


def axis_split(x: Value, attrs: Mapping[str, Any]) -> Value:
    """Each example's own row of what exists once."""
    return emit("axis_split", (x,), attrs)[0]


def axis_share(x: Value, attrs: Mapping[str, Any]) -> Value:
    """What exists once, as each example's own."""
    return emit("axis_share", (x,), attrs)[0]


def upper_bound(x: Value) -> Value:
    """`x`, where anything larger would do as well: vmap takes the largest of the batch, so that what depends
    on the bound alone (a schedule) stays the same for all batch elements."""
    return emit("alias", (x,), {"bound": True})[0]


def select(pred: Value, a: Operand, b: Operand) -> Value:
    """`a` where `pred`, else `b`; all of one shape."""
    if not isinstance(a, Value):
        if not isinstance(b, Value):
            raise dtype_error("select", "at least one tensor", f"{a!r} and {b!r}", "make a tensor of one of them")
        a = full(a, tensor_type("select", b))
    elif not isinstance(b, Value):
        b = full(b, tensor_type("select", a))
    return emit("select", (pred, a, b))[0]


def cast(v: Value, dtype: DType) -> Value:
    """`v` with another element type; `v` itself where it has that type already."""
    source = tensor_type("cast", v).dtype
    if source is dtype:
        return v
    if dtype.kind == "c" and source.kind != "c":
        re = cast(v, dtype.part)
        return join(re, zeros_like(re))
    if dtype.kind == "b" and source.kind == "c":
        return ne(v, 0)
    return emit("cast", (v,), {"dtype": dtype})[0]


# ---- complex numbers


def join(re: Value, im: Value) -> Value:
    """re + i im."""
    return emit("complex", (re, im))[0]


real = _unary("real")
imag = _unary("imag")
pairs = _unary("pairs")
from_pairs = _unary("from_pairs")


def real_part(v: Value) -> Value:
    """The real part of a tangent or cotangent, by what it was joined from where that is known. (Of any other value
    somebody may ask for the derivative, which wouldn't find the way back to it.)"""
    return real(v) if (known := _known_parts(v)) is None else known[0]


def imaginary_part(v: Value) -> Value:
    """As `real_part`."""
    return imag(v) if (known := _known_parts(v)) is None else known[1]


def _known_parts(v: Value) -> tuple[Value, ...] | None:
    node = passing_node(v)
    return node.operands if node is not None and node.op == "complex" else None


# ---- movement


def bitcast(v: Value, dtype: DType) -> Value:
    """The same bits as elements of another dtype, as wide."""
    return emit("bitcast", (v,), {"dtype": dtype})[0]


def broadcast(v: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
    """Operand dim j becomes result dim dims[j]."""
    return emit("broadcast", (v,), {"shape": tuple(shape), "dims": tuple(dims)})[0]


def broadcast_to(v: Value, shape: Sequence[int]) -> Value:
    """NumPy's rule: align the trailing dims. `v` itself where it has that shape already."""
    shape = tuple(shape)
    if v.shape == shape:
        return v
    offset = len(shape) - len(v.shape)
    if offset < 0:
        raise shape_error("broadcast_to", f"at least rank {len(v.shape)} for {v.type}", shape, "reshape the operand")
    return broadcast(v, shape, range(offset, len(shape)))


def broadcast_leading(v: Value, shape: Sequence[int]) -> Value:
    """Align the leading dims: a lane value beside values that carry more per lane."""
    shape = tuple(shape)
    return v if v.shape == shape else broadcast(v, shape, range(len(v.shape)))


def reshape(v: Value, shape: Sequence[int]) -> Value:
    """`v` itself where it has that shape already."""
    shape = tuple(shape)
    return v if v.shape == shape else emit("reshape", (v,), {"shape": shape})[0]


def transpose(v: Value, perm: Sequence[int]) -> Value:
    """Result dim j is operand dim perm[j]; `v` itself for the identity."""
    perm = tuple(perm)
    return v if perm == tuple(range(len(v.shape))) else emit("transpose", (v,), {"perm": perm})[0]


def slice(v: Value, start: Sequence[int], stop: Sequence[int | None], step: Sequence[int] | None = None) -> Value:
    """As `v[start:stop:step]` in each dim, without negative positions."""
    steps = (1,) * len(v.shape) if step is None else tuple(step)
    return emit("slice", (v,), {"start": tuple(start), "stop": tuple(stop), "step": steps})[0]


def pad(v: Value, low: Sequence[int], high: Sequence[int], value: Operand = 0) -> Value:
    """`low` and `high` elements of `value` before and after each dim; `v` itself for none."""
    low, high = tuple(low), tuple(high)
    if not any(low) and not any(high):
        return v
    if not isinstance(value, Value):
        value = full(value, TensorType((), v.dtype))
    return emit("pad", (v, value), {"low": low, "high": high})[0]


def stacked(values: Sequence[Value], axis: int) -> Value:
    """Values of one type along a new axis."""
    attrs = {shape: {"shape": (*shape[:axis], 1, *shape[axis:])} for shape in {v.shape for v in values}}
    with at(user_location()):  # looked up once, however many there are
        return concat(emit_each("reshape", values, [attrs[v.shape] for v in values]), axis)


def concat(values: Sequence[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else emit("concat", values, {"axis": axis})[0]


def flip(v: Value, axes: Sequence[int]) -> Value:
    axes = tuple(axes)
    return emit("flip", (v,), {"axes": axes})[0] if axes else v


# ---- reduction


def _reduce(op: str) -> Callable[[Value, Sequence[int]], Value]:
    def emitter(v: Value, axes: Sequence[int]) -> Value:
        axes = tuple(sorted(axes))
        return emit(op, (v,), {"axes": axes})[0] if axes else v

    return emitter


def _accumulate(op: str) -> Callable[..., Value]:
    def emitter(v: Value, axis: int, reverse: bool = False) -> Value:
        return emit(op, (v,), {"axis": axis, "reverse": reverse})[0]

    return emitter


def _along(op: str) -> Callable[[Value, int], Value]:
    def emitter(v: Value, axis: int) -> Value:
        return emit(op, (v,), {"axis": axis})[0]

    return emitter


reduce_sum = _reduce("reduce_sum")
reduce_prod = _reduce("reduce_prod")
reduce_min = _reduce("reduce_min")
reduce_max = _reduce("reduce_max")
reduce_and = _reduce("reduce_and")
reduce_or = _reduce("reduce_or")
cumsum = _accumulate("cumsum")
cumprod = _accumulate("cumprod")
logcumsumexp = _accumulate("logcumsumexp")
cummax = _accumulate("cummax")
cummin = _accumulate("cummin")
argmin = _along("argmin")
argmax = _along("argmax")
sort = _along("sort")
argsort = _along("argsort")


def top_positions(v: Value, k: int, axis: int) -> Value:
    """Where the k largest elements along an axis are, the largest first."""
    return emit("top_positions", (v,), {"axis": axis, "k": k})[0]


# ---- indexing and linear algebra


def gather(table: Value, *indices: Value) -> Value:
    """Index j addresses dim j of the table; out of range clamps."""
    return emit("gather", (table, *indices))[0]


def scatter(kind: str, table: Value, indices: Sequence[Value], updates: Value) -> Value:
    """kind: add, mul, min, max or set; out of range drops."""
    return emit("scatter", (table, *indices, updates), {"kind": kind})[0]


def matmul(a: Value, b: Value, dtype: DType | None = None) -> Value:
    """Products of one row and one column are sums, which are rounded better than a chain (see docs/numpy.md). `dtype`:
    float32 where 16-bit floats aren't to be rounded to theirs."""
    one = len(b.shape) > 1 and b.shape[-1] == 1 and a.shape == (*b.shape[:-2], 1, b.shape[-2])
    if one and a.dtype.is_float and a.dtype is b.dtype:
        return _row_by_column(a, b, dtype or a.dtype)
    if a.dtype.kind == "c":
        (p, q), (r, s) = (real(a), imag(a)), (real(b), imag(b))
        return join(sub(matmul(p, r), matmul(q, s)), add(matmul(p, s), matmul(q, r)))
    return emit("matmul", (a, b), NO_ATTRS if dtype in (None, a.dtype) else {"dtype": dtype})[0]


def _row_by_column(a: Value, b: Value, dtype: DType) -> Value:
    wide = sum_dtype(a.dtype)
    row = cast(a, wide)
    column = cast(reshape(b, a.shape), wide)
    total = reduce_sum(mul(row, column), (len(a.shape) - 1,))
    return cast(reshape(total, (*a.shape[:-1], 1)), dtype)


# ---- stacks


def stack_new(element: TensorType, depth: Value | None = None, name: str | None = None) -> Value:
    """An empty stack; `depth` (an int64 scalar) bounds how many pushes will be live."""
    return emit("stack_new", () if depth is None else (depth,), {"element": element, "name": name})[0]


def push(stack: Value, value: Value) -> Value:
    return emit("push", (stack, value))[0]


def pop(stack: Value) -> tuple[Value, Value]:
    """The remaining stack and the value that was on top."""
    rest, value = emit("pop", (stack,))
    return rest, value
