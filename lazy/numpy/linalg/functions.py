"""Functions of matrices, and systems of equations between tensors of more axes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.errors import LinAlgError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import float64, int64
from loopgrad.lazy.numpy.linalg.operands import float_values, is_empty, square
from loopgrad.lazy.numpy.linalg.solving import inv, solution, solve
from loopgrad.lazy.numpy.movement import moveaxis, reshape
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, wrap
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = "expm tensorinv tensorsolve"

# of the diagonal Pade approximants to exp, and the norms up to which they are exact to rounding (Higham, table 2.3)
ORDER_7: Final = (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0)
ORDER_13: Final = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
NORM_7: Final = 3.925724783138660
NORM_13: Final = 5.371920351148152
MOST_SQUARINGS: Final = 1100  # more overflow


@repeated
def expm(x: ArrayLike, /) -> Tensor:
    """The exponentials of square matrices: shape (..., n, n) stays.

    Integers give the default float. Raises LinAlgError for matrices that aren't square. By a Pade approximant of the
    matrix divided by a power of 2, and squaring (N. Higham, "The scaling and squaring method for the matrix exponential
    revisited", 2005); the derivative goes through both.

    >>> lg.linalg.expm(lg.asarray([[0.0, 1.0], [0.0, 0.0]]))
    Tensor([[1., 1.],
            [0., 1.]], dtype=float64)
    """
    (a,) = float_values("expm", x)
    square("expm", a)
    if is_empty(a):
        return wrap(a)
    wide = a.dtype.part is float64
    squarings = _squarings(a, NORM_13 if wide else NORM_7)
    scale = ops.exp2(ops.neg(ops.cast(squarings, a.dtype.part)))
    scaled = mx.mul(a, ops.broadcast_leading(scale, a.shape))
    odd, even = _pade(scaled, ORDER_13 if wide else ORDER_7)
    result = solution(ops.sub(even, odd), ops.add(even, odd))

    def squared(k: Value, power: Value) -> tuple[Value]:
        wanted = ops.lt(ops.broadcast(k, squarings.shape, ()), squarings)
        return (ops.select(ops.broadcast_leading(wanted, a.shape), ops.matmul(power, power), power),)

    most = ops.reduce_max(squarings, range(len(squarings.shape)))
    return wrap(traced_for(most, [result], squared)[0])


def _squarings(a: Value, largest: float) -> Value:
    """How often each matrix is halved until its norm is small enough."""
    rank = len(a.shape)
    norm = ops.reduce_max(ops.reduce_sum(mx.absolute(ops.stop_gradient(a)), (rank - 2,)), (rank - 2,))
    halvings = ops.ceil(ops.log2(ops.div(norm, largest)))
    known = ops.select(ops.is_nan(halvings), 0, halvings)
    return ops.cast(ops.min(ops.max(known, 0), MOST_SQUARINGS), int64)


def _pade(a: Value, coefficients: tuple[float, ...]) -> tuple[Value, Value]:
    """The odd and the even part of the numerator."""
    eye = mx.identity(a.shape[:-2], a.shape[-1], a.dtype)
    squared = ops.matmul(a, a)
    odd, even = (_polynomial(coefficients[start::2], squared, eye) for start in (1, 0))
    return ops.matmul(a, odd), even


def _polynomial(coefficients: tuple[float, ...], x: Value, eye: Value) -> Value:
    """By powers up to the third, as in M. Paterson and L. Stockmeyer (1973): three products for seven coefficients."""
    powers = [eye, x]
    while len(powers) < min(4, len(coefficients)):
        powers.append(ops.matmul(powers[-1], x))

    def combined(some: tuple[float, ...]) -> Value:
        total = mx.mul(powers[0], some[0])
        for coefficient, power in zip(some[1:], powers[1:], strict=False):
            total = ops.add(total, mx.mul(power, coefficient))
        return total

    if len(coefficients) <= 4:
        return combined(coefficients)
    high = (0.0, *coefficients[4:])  # times x cubed
    return ops.add(combined(coefficients[:4]), ops.matmul(powers[3], combined(high)))


@repeated
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: tuple[int, ...] | None = None) -> Tensor:
    """The x with `tensordot(a, x, x.ndim) = b`: shape b.shape + s and b.shape give s, where both have as many elements.

    `axes` of `a` go last first. Raises LinAlgError where the numbers of elements differ.

    >>> lg.linalg.tensorsolve(lg.reshape(2 * lg.eye(4), (2, 2, 4)), lg.ones((2, 2)))
    Tensor([0.5, 0.5, 0.5, 0.5], dtype=float64)
    """
    left, right = as_tensor(a), as_tensor(b)
    if axes is not None:
        left = moveaxis(left, tuple(axes), tuple(range(-len(axes), 0)))
    shape = left._value.shape[len(right._value.shape) :]
    count = prod(shape)
    if count * count != prod(left._value.shape) or count != prod(right._value.shape):
        got = f"{left._value.type} and {right._value.type}"
        fix = "the axes of a are those of b, then as many elements"
        raise LinAlgError(explained("tensorsolve", "as many equations as unknowns", got, fix))
    x = solve(reshape(left, (count, count)), reshape(right, (count,)))
    return reshape(x, shape)


@repeated
def tensorinv(a: ArrayLike, ind: int = 2) -> Tensor:
    """The inverse for `tensordot(tensorinv(a), a, ind)`: the first `ind` axes of `a` go last.

    Raises LinAlgError where they haven't as many elements as the others, ValueError for `ind` below 1.

    >>> lg.linalg.tensorinv(lg.reshape(2 * lg.eye(4), (4, 2, 2)), ind=1).shape
    (2, 2, 4)
    """
    t = as_tensor(a)
    if ind <= 0:
        raise ValueError(explained("tensorinv", "ind of at least 1", ind, "it counts the first axes"))
    shape = t._value.shape
    rows, columns = shape[:ind], shape[ind:]
    if prod(rows) != prod(columns):
        fix = "the first axes and the others have as many elements"
        raise LinAlgError(explained("tensorinv", "a square matrix", f"{prod(rows)} by {prod(columns)}", fix))
    return reshape(inv(reshape(t, (prod(rows), -1))), (*columns, *rows))
