"""Reductions.

`axis` is None (all), an int or a tuple; a result is written to `out` where that is given, which is returned. Sums of
bools and integers are 64-bit, as in NumPy; `mean`, `var` and `std` of integers compute in the default float. Reducing
no elements: sum 0, prod 1, all True, any False; min, max, argmin and argmax refuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod as product_of
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import DType, TensorType, bool_, float32
from loopgrad.lazy.numpy.complex_functions import real, square_of_size
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    add,
    divide,
    exp,
    less,
    log,
    logical_or,
    maximum,
    minimum,
    multiply,
    not_equal,
    sign,
    subtract,
)
from loopgrad.lazy.numpy.movement import broadcast_to, concat, ravel, reshape
from loopgrad.lazy.numpy.shapes_and_dtypes import finfo
from loopgrad.lazy.numpy.smooth_functions import root_of_squares
from loopgrad.lazy.numpy.special_values import isinf, where
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    as_tensor,
    broadcast_value,
    cast,
    cast_value,
    constant,
    is_scalar,
    requested_dtype,
    wrap,
)
from loopgrad.lazy.tensor.operands import (
    as_bool,
    as_first,
    as_mask,
    joined_shape,
    meet,
    normal_axes,
    normal_axis,
    whole_number,
)
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.promotion import float_dtype, sum_dtype
from loopgrad.lazy.tensor.repeated_calls import repeated
from loopgrad.lazy.tensor.storage import whole

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "all any argmax argmin count_nonzero diff logsumexp max amax=max mean min amin=min prod std sum var"


def _reduced(op: str, value: Value, axis: Any, keepdims: bool) -> Value:
    axes = normal_axes(op, axis, len(value.shape))
    if not axes:
        return value
    result = computed(op, value, axes=axes)
    if keepdims:
        result = ops.reshape(result, [1 if d in axes else n for d, n in enumerate(value.shape)])
    return result


def _kept(op: str, value: Value, where: ArrayLike | None, identity: Any) -> Value:
    """The value, with what `where` leaves out replaced by what changes nothing."""
    if where is None:
        return value
    chosen = as_mask(op, where)._value
    shape = joined_shape("where", (value.shape, chosen.shape))
    if shape != value.shape:
        fix = "give `where` a shape that stretches to the array's"
        raise ShapeError(explained("where", f"a mask for {value.shape}", chosen.shape, fix))
    rest = constant(identity, TensorType(shape, value.dtype))
    return emit("select", (broadcast_value(chosen, shape), value, rest))[0]


@repeated
def sum(
    x: ArrayLike, /, axis: Any = None, dtype: Any = None, out: Out = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """The sum over `axis` (None: all; an int or several), of those elements where `where` holds, plus `initial`.

    Bools and integers are added up in 64 bits, floats in their own dtype, unless `dtype` is given (bool: whether any
    is true); 0 of no elements. `keepdims` keeps reduced axes with extent 1.

    Raises ShapeError for a mask that doesn't stretch to x and for an `initial` with axes, DTypeError for a mask that
    isn't of bools.

    >>> lg.sum(lg.asarray([[1, 2], [3, 4]]), axis=0)
    Tensor([4, 6], dtype=int64)
    """
    value = as_tensor(x)._value
    wide = _kept("sum", cast_value(value, summed_dtype(value, dtype)), where, 0)
    truth = wide.dtype is bool_  # asked for as dtype: 1 + 1 is true
    result = wrap(_reduced("reduce_or" if truth else "reduce_sum", wide, axis, keepdims))
    if initial is not None:
        result = add(result, first_element("sum", initial, wide.dtype))
    return delivered("sum", result, out)


@repeated
def prod(
    x: ArrayLike, /, axis: Any = None, dtype: Any = None, out: Out = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """The product over `axis`, of those elements where `where` holds, times `initial`; 1 of no elements.

    Shapes, dtypes and errors are those of `sum`.

    >>> lg.prod(lg.asarray([2.0, 3.0, 4.0]))
    Tensor(24., dtype=float64)
    """
    value = as_tensor(x)._value
    wide = _kept("prod", cast_value(value, summed_dtype(value, dtype)), where, 1)
    truth = wide.dtype is bool_
    result = wrap(_reduced("reduce_and" if truth else "reduce_prod", wide, axis, keepdims))
    if initial is not None:
        result = multiply(result, first_element("prod", initial, wide.dtype))
    return delivered("prod", result, out)


def summed_dtype(value: Value, dtype: Any) -> DType:
    """What sums and products of these elements are made in."""
    return requested_dtype(dtype) or sum_dtype(value.dtype)


_EXTREMUM = """The {which} element over `axis` (None: all; an int or several); NaN where any is NaN.

`where` chooses among the elements, `initial` is one more. The dtype stays, `keepdims` keeps reduced axes with extent 1.
Raises ShapeError for no elements without `initial` and an `initial` that isn't one number, ValueError for `where`
without it.

>>> lg.{name}(lg.asarray([[3, 1], [2, 5]]), axis=1)
Tensor({result}, dtype=int64)
"""


def _extremum(op: str, on_bool: str, name: str, result: str) -> Callable[..., Tensor]:
    def function(
        x: ArrayLike, /, axis: Any = None, out: Out = None, keepdims: bool = False,
        initial: ArrayLike | None = None, where: ArrayLike | None = None,
    ) -> Tensor:  # fmt: skip
        value = as_tensor(x)._value
        if initial is not None:
            initial = first_element(name, initial, value.dtype)
        if where is not None and initial is None:
            fix = "pass what to give where the mask leaves nothing"
            raise ValueError(explained(name, "`initial` beside `where`", "none", fix))
        value = _kept(name, value, where, _limit(value.dtype, name))
        if initial is not None and product_of(value.shape) == 0:  # there is nothing to compare `initial` with
            value = _nothing(value, axis, _limit(value.dtype, name))
        if value.dtype is bool_ and 0 in [value.shape[d] for d in normal_axes(name, axis, len(value.shape))]:
            raise ShapeError(explained(name, "at least one element to reduce", value.type, "handle the empty case"))
        result = wrap(_reduced(on_bool if value.dtype is bool_ else op, value, axis, keepdims))
        if initial is not None:
            result = minimum(result, initial) if name == "min" else maximum(result, initial)
        return delivered(name, result, out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _EXTREMUM.format(name=name, which="smallest" if name == "min" else "largest", result=result)
    return repeated(function)


def first_element(op: str, initial: ArrayLike, dtype: DType) -> ArrayLike:
    """`initial` in this dtype of a reduction, which stays: integers of 64 bits with and without a sign would meet in
    floats, that have 53. What would lose by that (2.5 beside integers, 300 as the largest of int8) widens the result,
    where NumPy cuts it down."""
    first = as_first(op, initial)
    if dtype is bool_:
        return as_bool(first)
    if is_scalar(first):
        return first
    first = as_tensor(first)
    kinds = "biu" if dtype.is_integer and op not in ("max", "min") else dtype.kind if dtype.kind in "fc" else ""
    return cast(first, dtype) if first._value.dtype.kind in kinds else first


def _limit(dtype: DType, name: str) -> complex:
    """What loses every comparison."""
    if dtype.kind == "b":
        return name == "min"
    if dtype.kind == "f":
        return math.inf if name == "min" else -math.inf
    if dtype.kind == "c":
        return complex(math.inf, math.inf) if name == "min" else complex(-math.inf, -math.inf)
    return limits(dtype)[name == "min"]


def _nothing(value: Value, axis: Any, limit: complex) -> Value:
    """An array without elements, its reduced axes replaced by ones of extent 1."""
    axes = normal_axes("initial", axis, len(value.shape))
    shape = tuple([1 if d in axes else n for d, n in enumerate(value.shape)])
    return constant(limit, TensorType(shape, value.dtype))


min = _extremum("reduce_min", "reduce_and", "min", "[1, 2]")
max = _extremum("reduce_max", "reduce_or", "max", "[3, 5]")


@repeated
def all(
    x: ArrayLike, /, axis: Any = None, out: Out = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Tensor:
    """Whether every element over `axis` is true (not 0), among those where `where` holds: bools; True of no elements.

    >>> lg.all(lg.asarray([[1, 0], [1, 1]]), axis=1)
    Tensor([False,  True], dtype=bool)
    """
    result = wrap(_reduced("reduce_and", _kept("all", as_bool(x)._value, where, True), axis, keepdims))
    return delivered("all", result, out)


@repeated
def any(
    x: ArrayLike, /, axis: Any = None, out: Out = None, keepdims: bool = False, *, where: ArrayLike | None = None
) -> Tensor:
    """Whether some element over `axis` is true (not 0), among those where `where` holds: bools; False of no elements.

    >>> lg.any(lg.asarray([[1, 0], [0, 0]]), axis=1)
    Tensor([ True, False], dtype=bool)
    """
    result = wrap(_reduced("reduce_or", _kept("any", as_bool(x)._value, where, False), axis, keepdims))
    return delivered("any", result, out)


@repeated
def count_nonzero(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """How many elements over `axis` are true (not 0), as int64.

    >>> lg.count_nonzero(lg.asarray([0, 3, 0, 5]))
    Tensor(2, dtype=int64)
    """
    return sum(as_bool(x), axis=axis, keepdims=keepdims)


def _count(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool, where: ArrayLike | None) -> Tensor | float:
    """How many elements are reduced into one."""
    if where is None:
        return float(product_of(shape[d] for d in axes))
    return sum(broadcast_to(as_mask("mean", where), shape), axis=axes, keepdims=keepdims)


@repeated
def mean(
    x: ArrayLike, /, axis: Any = None, dtype: Any = None, out: Out = None, keepdims: bool = False, *,
    where: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """The mean over `axis`, of those elements where `where` holds; NaN of no elements.

    A float keeps its dtype (16-bit ones are added up in float32), integers give the default float.

    >>> lg.mean(lg.asarray([[1, 2], [3, 6]]), axis=1)
    Tensor([1.5, 4.5], dtype=float64)
    """
    value = as_tensor(x)._value
    work = requested_dtype(dtype) or float_dtype(value.dtype)
    axes = normal_axes("mean", axis, len(value.shape))
    total = sum(cast(wrap(value), _accumulator(work)), axis=axes, keepdims=keepdims, where=where)
    return delivered("mean", cast(divide(total, _count(value.shape, axes, keepdims, where)), work), out)


def _accumulator(dtype: DType) -> DType:
    """The dtype to add up in: 16-bit floats run out of digits."""
    return float32 if dtype.kind == "f" and dtype.bits == 16 else dtype


@repeated
def var(
    x: ArrayLike, /, axis: Any = None, dtype: Any = None, out: Out = None, ddof: float | None = None,
    keepdims: bool = False, *, where: ArrayLike | None = None, mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Tensor:  # fmt: skip
    """The variance over `axis`, of those elements where `where` holds.

    The sum of squares is divided by the count less `correction` (NumPy: `ddof`). `mean`, with the reduced axes kept, is
    taken for theirs. Dtypes are those of `mean`; of complex numbers it is that of the distances, a float, unless
    a complex `dtype` is asked for.
    Raises DTypeError for an integer `dtype`, ValueError for `correction` beside a `ddof` that isn't 0.

    >>> lg.var(lg.asarray([1.0, 2.0, 3.0])), lg.var(lg.asarray([1.0, 2.0, 3.0]), correction=1)
    (Tensor(0.66666667, dtype=float64), Tensor(1., dtype=float64))
    """
    value = as_tensor(x)._value
    axes = normal_axes("var", axis, len(value.shape))
    work = requested_dtype(dtype) or float_dtype(value.dtype)
    if work.kind not in "fc":  # distances from a mean are fractions
        fix = "leave dtype out, and convert the result with .astype"
        raise DTypeError(explained("var", "a float or complex dtype to compute in", work, fix))
    t = cast(wrap(value), work)
    middle = _mean(t, axis=axes, keepdims=True, where=where) if mean is None else cast(as_tensor(mean), work)
    gap = subtract(t, middle)
    squares = sum(square_of_size(gap), axis=axes, keepdims=keepdims, where=where)
    taken = degrees_taken("var", ddof, correction)
    count = _count(value.shape, axes, keepdims, where)
    if isinstance(count, float):
        divisor: Any = count - taken if count > taken else 0.0
    else:
        divisor = cast(maximum(subtract(count, taken), 0), squares._value.dtype)
    spread = divide(squares, divisor)
    return delivered("var", spread if dtype is None else cast(spread, work), out)


_mean: Final = mean


def degrees_taken(op: str, ddof: float | None, correction: float | None) -> float:
    """What a variance takes from the count, by either name: two that differ would leave one unread."""
    if correction is not None and ddof:
        fix = "leave one out, they mean the same"
        raise ValueError(explained(op, "ddof or correction", f"ddof={ddof!r} and correction={correction!r}", fix))
    return correction if correction is not None else ddof or 0.0


@repeated
def std(
    x: ArrayLike, /, axis: Any = None, dtype: Any = None, out: Out = None, ddof: float | None = None,
    keepdims: bool = False, *, where: ArrayLike | None = None, mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation, the root of `var`, with its options, shapes and dtypes; of equal elements its derivative
    is 0.

    >>> lg.std(lg.asarray([1.0, 3.0]))
    Tensor(1., dtype=float64)
    """
    how: dict[str, Any] = {"correction": correction, "keepdims": keepdims, "ddof": ddof, "where": where, "mean": mean}
    return delivered("std", root_of_squares(var(x, axis, dtype, **how)), out)


@repeated
def logsumexp(
    x: ArrayLike, /, axis: Any = None, b: ArrayLike | None = None, keepdims: bool = False, return_sign: bool = False, *,
    where: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """log(sum(b * exp(x))) over `axis` without overflow, of those elements where `where` holds; minus infinity of none.
    Integers give the default float.

    x, `b` (1 unless given) and `where` broadcast together. Where the sum is negative the logarithm is NaN, unless
    `return_sign` asks for a tuple: the logarithm of the sum's size, which is real, and its sign, a complex number of
    size 1 for complex x.

    >>> lg.logsumexp(lg.asarray([1000.0, 1000.0]))
    Tensor(1000.69314718, dtype=float64)
    """
    t, factor = _terms_of_logsumexp(x, b, where)
    largest = _real(t) if factor is None else _choose(not_equal(factor, 0), _real(t), -math.inf)
    axes = normal_axes("logsumexp", axis, len(t._value.shape))
    found = max(largest, axis=axes, keepdims=True, initial=None if product_of(t._value.shape) else -math.inf)
    top = wrap(emit("stop_gradient", (found._value,))[0])
    top = _choose(isinf(top), 0.0, top)
    gap = subtract(t, top)
    if factor is not None:  # what counts 0 times may be larger by far: it must not overflow
        fits = less(_real(gap), math.log(finfo(found._value.dtype).max) / 2)
        gap = _choose(logical_or(fits, not_equal(factor, 0)), gap, 0.0)
    terms = exp(gap)
    total = sum(terms if factor is None else multiply(factor, terms), axis=axes, keepdims=True)
    shape = tuple([n for d, n in enumerate(t._value.shape) if d not in axes]) if not keepdims else top._value.shape
    if not return_sign:
        return reshape(add(log(total), top), shape)
    return reshape(add(log(absolute(total)), top), shape), reshape(sign(total), shape)


def _terms_of_logsumexp(x: ArrayLike, b: ArrayLike | None, where: ArrayLike | None) -> tuple[Tensor, Tensor | None]:
    """x and the factors as floats of one dtype and shape; minus infinity where the mask doesn't hold."""
    given = (x,) if b is None else (x, b)
    values, _ = meet("logsumexp", given, floating=True)
    t, *factors = map(wrap, values)
    if where is not None:
        mask = as_mask("logsumexp", where)
        shape = joined_shape("logsumexp", (t._value.shape, mask._value.shape))
        t, *factors = [broadcast_to(v, shape) for v in (t, *factors)]
        t = _choose(broadcast_to(mask, shape), t, -math.inf)
    return t, factors[0] if factors else None


def _real(t: Tensor) -> Tensor:
    """What decides how large exp(t) is."""
    return real(t) if t._value.dtype.kind == "c" else t


_choose: Final = where


# ---- positions


_POSITION = """The index (int64) of the {which} element along an axis (None: of x raveled); the first of equals.

NaN counts as the {which}. Raises ShapeError for no elements.

>>> lg.{name}(lg.asarray([3.0, 1.0, 2.0]))
Tensor({result}, dtype=int64)
"""


def _position(op: str, which: str, result: int) -> Callable[..., Tensor]:
    def function(x: ArrayLike, /, axis: int | None = None, out: Out = None, *, keepdims: bool = False) -> Tensor:
        t = as_tensor(x)
        shape = t._value.shape
        if axis is None:
            result, kept = wrap(computed(op, ravel(t)._value, axis=0)), (1,) * len(shape)
        else:
            d = normal_axis(op, axis, len(shape))
            result, kept = wrap(computed(op, t._value, axis=d)), (*shape[:d], 1, *shape[d + 1 :])
        return delivered(op, reshape(result, kept) if keepdims else result, out)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = _POSITION.format(name=op, which=which, result=result)
    return repeated(function)


argmin = _position("argmin", "smallest", 1)
argmax = _position("argmax", "largest", 0)


# ---- along an axis


@repeated
def diff(
    x: ArrayLike, /, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Tensor:
    """Differences of neighbours along an axis, `n` times; `prepend` and `append` are put around x first.

    The axis is shorter by `n`; the dtype is x's, and of bools `!=`. `n` of 0 gives x alone, as in NumPy. Raises
    ValueError for a negative `n`.

    >>> lg.diff(lg.asarray([1, 4, 9, 16]))
    Tensor([3, 5, 7], dtype=int64)
    """
    t = as_tensor(x)
    n = whole_number("diff", "an integer n", n)
    if n < 0:
        raise ValueError(explained("diff", "n of at least 0", n, "use cumsum for sums"))
    d = normal_axis("diff", axis, len(t._value.shape))
    if not n:
        return whole(t)
    if prepend is not None or append is not None:
        edge = (*t._value.shape[:d], 1, *t._value.shape[d + 1 :])
        around = [None if p is None else as_tensor(p) for p in (prepend, append)]
        parts = [p if p is None or p._value.shape else broadcast_to(p, edge) for p in (around[0], t, around[1])]
        t = concat([p for p in parts if p is not None], axis=d)
    for _ in range(sorted((n, t._value.shape[d]))[0]):  # after which none is left
        shape = t._value.shape
        low, high = [0] * len(shape), list(shape)
        first, last = low.copy(), high.copy()
        first[d], last[d] = 1, shape[d] - 1
        later, earlier = wrap(ops.slice(t._value, first, high)), wrap(ops.slice(t._value, low, last))
        t = (not_equal if t._value.dtype is bool_ else subtract)(later, earlier)
    return t
