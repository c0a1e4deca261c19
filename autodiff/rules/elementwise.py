"""Derivatives of the elementwise primitives.

The Jacobian of an elementwise primitive is diagonal, so one linear map per operand serves both modes:
`PARTIALS[op][i](t, node)` is `t` times the partial derivative by operand i; None where that is zero.

Choices at points without a derivative, the same in both modes: abs at 0 gives 0, and at NaN; min and max split a tie
in halves; sqrt and log at 0 give inf; pow(x, 0) gives 0 also at x = 0; atan2(0, 0) gives 0. A zero tangent
or cotangent never turns into NaN by meeting an infinite derivative (`guarded`): always so for singular
primitives, and for every primitive all of whose uses a select may discard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log as ln
from math import pi, prod, sqrt
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import PRIMITIVES

Partial = Callable[[Value, Node], Value]
Partials = tuple[Partial | None, ...]


def _in_operand(derive: Callable[[Value, Value], Value]) -> Partials:
    """A map written in terms of the tangent and the operand."""
    return (lambda t, node: derive(t, node.operands[0]),)


def _in_result(derive: Callable[[Value, Value], Value]) -> Partials:
    """A map written in terms of the tangent and the primal result, which need not be computed again."""
    return (lambda t, node: derive(t, node.results[0]),)


def _abs(t: Value, x: Value) -> Value:
    """Two comparisons are cheaper to save than sign(x)."""
    return ops.select(ops.gt(x, 0), t, ops.select(ops.lt(x, 0), ops.neg(t), 0))


def _cube_root(t: Value, y: Value) -> Value:
    """By the inverse root, of which the second derivative is right at 0 and infinity, too."""
    inverse = ops.div(1.0, y)
    return ops.mul(t, ops.mul(ops.mul(inverse, inverse), 1 / 3))


def _one_minus_square(x: Value) -> Value:
    return ops.mul(ops.sub(1, x), ops.add(1, x))


def _below_one(x: Value) -> Value:
    """1 - x * x, whose slope is one term at the ends: that of a product is two, of which one is 0, and would be NaN
    where what meets it is infinite."""
    at_end = ops.eq(ops.abs(x), 1)
    return ops.select(at_end, ops.sub(2, ops.mul(ops.mul(ops.stop_gradient(x), 2), x)), _one_minus_square(x))


def _above_one(x: Value) -> Value:
    """x * x - 1 for x of at least 1, likewise."""
    return ops.select(ops.eq(x, 1), ops.sub(ops.mul(x, 2), 2), ops.mul(ops.sub(x, 1), ops.add(x, 1)))


def _gaussian(x: Value, scale: float) -> Value:
    return ops.mul(ops.exp(ops.neg(ops.mul(x, x))), scale)


def _same(t: Value, node: Node) -> Value:
    return t


def _of_alias(t: Value, node: Node) -> Value:
    """Where lanes of several processes were brought together, so are their tangents; cotangents are already."""
    return emit("alias", (t,), node.attrs)[0] if node.attrs.get("gathered") else t


def _opposite(t: Value, node: Node) -> Value:
    return ops.neg(t)


def _cast(t: Value, node: Node) -> Value:
    """A cotangent arrives in the result's dtype, a tangent in the operand's: to the other one."""
    source, target = node.operands[0].dtype, node.results[0].dtype
    return ops.cast(t, source if t.dtype is target else target)


def trigamma(x: Value) -> Value:
    """The derivative of digamma: reflection for x < 1/2, ten steps of the recurrence, then the asymptotic
    series (Abramowitz and Stegun 6.4.7, 6.4.6, 6.4.12)."""
    reflected = ops.lt(x, 0.5)
    z = ops.select(reflected, ops.sub(1, x), x)
    total = ops.zeros_like(x)
    for step in range(10):
        shifted = ops.add(z, step)
        total = ops.add(total, ops.div(1, ops.mul(shifted, shifted)))
    r = ops.div(1, ops.add(z, 10))
    square = ops.mul(r, r)
    series = ops.sub(ops.mul(square, 5 / 66), 1 / 30)
    for coefficient in (1 / 42, -1 / 30, 1 / 6):
        series = ops.add(ops.mul(series, square), coefficient)
    tail = ops.mul(r, ops.add(1, ops.mul(r, ops.add(0.5, ops.mul(r, series)))))
    direct = ops.add(total, tail)
    sine = ops.sin(ops.mul(ops.sub(x, ops.round(x)), pi))  # squared below: its sign doesn't matter
    cosecant = ops.div(pi, sine)  # squared, not divided by a square: at the poles that would have no slope
    mirrored = ops.sub(ops.mul(cosecant, cosecant), direct)
    return ops.select(reflected, mirrored, direct)


UNARY: Final[dict[str, Partials]] = {
    "neg": (_opposite,),
    "abs": _in_operand(_abs),
    "sqrt": _in_result(lambda t, y: ops.div(ops.mul(t, 0.5), y)),
    "cbrt": _in_result(_cube_root),
    "rsqrt": _in_result(lambda t, y: ops.mul(ops.mul(t, -0.5), ops.mul(y, ops.mul(y, y)))),
    "exp": _in_result(ops.mul),
    "exp2": _in_result(lambda t, y: ops.mul(t, ops.mul(y, ln(2)))),
    "expm1": _in_result(lambda t, y: ops.mul(t, ops.add(y, 1))),
    "log": _in_operand(ops.div),
    "log2": _in_operand(lambda t, x: ops.div(ops.mul(t, 1 / ln(2)), x)),
    "log10": _in_operand(lambda t, x: ops.div(ops.mul(t, 1 / ln(10)), x)),
    "log1p": _in_operand(lambda t, x: ops.div(t, ops.add(x, 1))),
    "sin": _in_operand(lambda t, x: ops.mul(t, ops.cos(x))),
    "cos": _in_operand(lambda t, x: ops.mul(t, ops.neg(ops.sin(x)))),
    "tan": _in_result(lambda t, y: ops.mul(t, ops.add(ops.mul(y, y), 1))),
    "asin": _in_operand(lambda t, x: ops.mul(t, ops.rsqrt(_below_one(x)))),
    "acos": _in_operand(lambda t, x: ops.mul(t, ops.neg(ops.rsqrt(_below_one(x))))),
    "atan": _in_operand(lambda t, x: ops.div(t, ops.add(ops.mul(x, x), 1))),
    "sinh": _in_operand(lambda t, x: ops.mul(t, ops.cosh(x))),
    "cosh": _in_operand(lambda t, x: ops.mul(t, ops.sinh(x))),
    "tanh": _in_result(lambda t, y: ops.mul(t, _one_minus_square(y))),
    "asinh": _in_operand(lambda t, x: ops.mul(t, ops.rsqrt(ops.add(ops.mul(x, x), 1)))),
    "acosh": _in_operand(lambda t, x: ops.mul(t, ops.rsqrt(_above_one(x)))),
    "atanh": _in_operand(lambda t, x: ops.div(t, _below_one(x))),
    "erf": _in_operand(lambda t, x: ops.mul(t, _gaussian(x, 2 / sqrt(pi)))),
    "erfc": _in_operand(lambda t, x: ops.mul(t, _gaussian(x, -2 / sqrt(pi)))),
    "lgamma": _in_operand(lambda t, x: ops.mul(t, ops.digamma(x))),
    "digamma": _in_operand(lambda t, x: ops.mul(t, trigamma(x))),
    "alias": (_of_alias,),
    "cast": (_cast,),
}  # fmt: skip


def _winner(compare: Callable[[Value, Value], Value]) -> Partials:
    """All of `t` to the operand that wins, half of it to each where they are equal. Both sides ask the same
    two questions, so that two bools are all there is to save."""

    def first(t: Value, node: Node) -> Value:
        a, b = node.operands
        return ops.select(compare(a, b), t, ops.select(ops.eq(a, b), ops.mul(t, 0.5), 0))

    def second(t: Value, node: Node) -> Value:
        a, b = node.operands
        return ops.select(compare(a, b), 0, ops.select(ops.eq(a, b), ops.mul(t, 0.5), t))

    return first, second


def _constant(v: Value) -> float | None:
    """The number that all elements are known to be."""
    while v.node is not None and v.node.op == "broadcast":
        v = v.node.operands[0]
    return v.node.attrs["value"] if v.node is not None and v.node.op == "const" else None


def _base_of_pow(t: Value, node: Node) -> Value:
    x, n = node.operands
    exponent = _constant(n)
    if exponent is not None:
        if exponent == 0:
            return ops.zeros_like(t)
        if exponent == 1:
            return t
        if exponent == 2:
            return ops.mul(t, ops.mul(x, 2))
        return ops.mul(t, ops.mul(ops.pow(x, exponent - 1), exponent))
    # a guard for 0 ** -1 alone: x ** n has a derivative by n at n = 0, which a test for n = 0 would stop
    return ops.mul(t, guarded(n, ops.mul(n, ops.pow(x, ops.sub(n, 1)))))


def _exponent_of_pow(t: Value, node: Node) -> Value:
    """0 ** n is constant in n > 0: the logarithm of a zero base counts as 0 there, and by convention at n = 0."""
    x, n = node.operands
    logarithm = ops.log(ops.select(ops.and_(ops.eq(x, 0), ops.ge(n, 0)), 1, x))
    return ops.mul(t, ops.mul(node.results[0], logarithm))


def _over_square_radius(t: Value, position: int, node: Node) -> Value:
    """t * node.operands[position] / (y*y + x*x), scaled, since squares overflow and vanish early. The quotient doesn't
    depend on the scale, which so has no derivative; it is 0 at infinity, and by convention at the origin."""
    y, x = node.operands
    size = ops.stop_gradient(ops.max(ops.abs(y), ops.abs(x)))
    flat = ops.or_(ops.eq(size, 0), ops.is_inf(size))
    scale = ops.select(flat, 1, size)
    scaled = ops.div(y, scale), ops.div(x, scale)
    square = ops.select(flat, 1, ops.add(*[ops.mul(v, v) for v in scaled]))
    share = ops.div(ops.div(scaled[position], square), scale)
    return ops.mul(t, ops.select(flat, 0, share))


def _over(t: Value, y: Value) -> Value:
    """t / y; where many elements have one divisor, as those of a row that is normalised, by its inverse: a product for
    each takes a tenth of a quotient's instructions on GPUs. Halves have no inverses of their large numbers."""
    shared = y.node is not None and y.node.op == "broadcast" and y.dtype.kind == "f" and y.dtype.bits >= 32
    if y.node is None or not shared or _constant(y) is not None or prod(y.node.operands[0].shape) == prod(y.shape):
        return ops.div(t, y)
    for factor in _inverse(y.node.operands[0]):
        t = ops.mul(t, ops.broadcast(factor, y.shape, y.node.attrs["dims"]))
    return t


def _inverse(y: Value) -> tuple[Value, Value]:
    """Of two factors: the inverse of a subnormal number is beyond the range, that of the largest ones is subnormal, so
    both are brought nearer to 1 first, by a power of two."""
    smallest = -126 if y.dtype.bits == 32 else -1022
    nearer, size = 2.0 ** (-smallest // 2), ops.abs(y)
    far = ops.select(ops.gt(size, 2.0**-smallest), 1 / nearer, ops.ones_like(y))
    scale = ops.stop_gradient(ops.select(ops.lt(size, 2.0**smallest), nearer, far))
    return ops.div(1, ops.mul(y, scale)), scale


def _divisor(t: Value, node: Node) -> Value:
    return ops.neg(ops.mul(_over(t, node.operands[1]), node.results[0]))


def _quotient(t: Value, node: Node) -> Value:
    """The divisor of a remainder r = x - y * q. The whole number q comes from r, which is exact: x / y may be rounded
    to the next one."""
    x, y = node.operands
    return ops.neg(ops.mul(t, ops.round(ops.div(ops.sub(x, node.results[0]), y))))


BINARY: Final[dict[str, Partials]] = {
    "add": (_same, _same),
    "sub": (_same, _opposite),
    "mul": (lambda t, node: ops.mul(t, node.operands[1]), lambda t, node: ops.mul(t, node.operands[0])),
    "div": (lambda t, node: _over(t, node.operands[1]), _divisor),
    "rem": (_same, _quotient),
    "mod": (_same, _quotient),
    "pow": (_base_of_pow, _exponent_of_pow),
    "atan2": (
        lambda t, node: _over_square_radius(t, 1, node),
        lambda t, node: ops.neg(_over_square_radius(t, 0, node)),
    ),
    "min": _winner(ops.lt),
    "max": _winner(ops.gt),
}

SELECT: Final[dict[str, Partials]] = {
    "select": (
        None,
        lambda t, node: ops.select(node.operands[0], t, 0),
        lambda t, node: ops.select(node.operands[0], 0, t),
    ),
}

PARTIALS: Final[dict[str, Partials]] = {**UNARY, **BINARY, **SELECT}


def is_singular(node: Node) -> bool:
    """Whether a derivative of the node may be infinite at a finite argument."""
    if node.op == "div":
        return not _constant(node.operands[1])
    if node.op == "pow":
        exponent = _constant(node.operands[1])
        return exponent is None or exponent < 1
    return PRIMITIVES[node.op].singular


def guarded(t: Value, product: Value) -> Value:
    """`product` (t times a derivative), but 0 where t is 0 and the derivative isn't finite.

    The condition asks for NaN too, so that the result stays linear in t wherever the derivative is finite
    (second derivatives pass through a first cotangent that happens to be 0).
    """
    return ops.select(ops.and_(ops.eq(t, 0), ops.is_nan(product)), 0, product)


def pushed(node: Node, received: Sequence[Value | None], partials: Mapping[str, Partials] = PARTIALS) -> Value | None:
    """The tangent of an elementwise node's result, given those of its operands; None: zero."""
    if not node.results[0].dtype.differentiable:
        return None
    if node.op == "select":
        a, b = [ops.zeros_like(v) if t is None else t for v, t in zip(node.operands[1:], received[1:], strict=True)]
        return ops.select(node.operands[0], a, b)
    total: Value | None = None
    for t, partial in zip(received, partials[node.op], strict=True):
        if t is None or partial is None:
            continue
        product = partial(t, node)
        if is_singular(node):
            product = guarded(t, product)
        total = product if total is None else ops.accumulate(total, product)
    return total
