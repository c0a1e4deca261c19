"""L-BFGS (Liu and Nocedal, 1989) with a line search for the strong Wolfe conditions.

The product of the approximate inverse Hessian with a gradient is taken in the compact form of Byrd, Nocedal and
Schnabel (Representations of quasi-Newton matrices, 1994): a few products with the matrices of latest steps and changes.
Of the triangular matrix in it the inverse is kept, of which another pair changes one column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loopgrad.graph.errors import GradientError, explained
from loopgrad.lazy.loops.while_loop import while_loop
from loopgrad.lazy.numpy.creation import zeros, zeros_like
from loopgrad.lazy.numpy.elementwise import absolute, maximum, minimum, sqrt, stop_gradient
from loopgrad.lazy.numpy.linalg.solving import solve
from loopgrad.lazy.numpy.movement import concat
from loopgrad.lazy.numpy.reduction import max as largest
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.numpy.shapes_and_dtypes import finfo
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.numpy.tree_functions import map as map_trees
from loopgrad.lazy.numpy.tree_functions import ravel
from loopgrad.lazy.optim.factories import picklable
from loopgrad.lazy.optim.states import LbfgsState, OptimizeResult, check_numbers, no_steps
from loopgrad.lazy.optim.strong_wolfe import search
from loopgrad.lazy.optim.transformations import GradientTransformation
from loopgrad.lazy.tensor.core import as_tensor
from loopgrad.lazy.tensor.operands import as_float
from loopgrad.lazy.tensor.trees import Tree, check_function
from loopgrad.lazy.transforms.derivatives import grad, jacfwd, value_and_grad

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_OPTIM: Final = "implicit_minimum lbfgs minimize"
Function = Callable[..., Any]
LINE_STEPS: Final = 30


class _Point(NamedTuple):
    """Where the search is; `ended`: by a tolerance, or because no lower point was found."""

    x: Tensor
    value: Tensor
    gradient: Tensor
    memory: LbfgsState
    iterations: Tensor
    converged: Tensor
    ended: Tensor


def flat_parameters(what: str, tree: Tree) -> tuple[Tensor, Callable[[Any], Tree]]:
    """The parameters as one vector, and the way back; GradientError for what isn't real floats, DTypeError for what
    isn't numbers."""
    check_numbers(what, tree)
    vector, unravel = ravel(tree)
    if not vector._value.dtype.is_float:
        fix = "convert integers with .astype(lg.float64); write complex parameters as two real ones"
        raise GradientError(explained(what, "parameters of real float dtypes", vector._value.type, fix))
    return vector, unravel


def start_parameters(what: str, tree: Tree) -> tuple[Tensor, Callable[[Any], Tree]]:
    """`flat_parameters` of where a search starts: integers stand for floats there, of the default dtype."""
    check_numbers(what, tree)
    return flat_parameters(what, map_trees(lambda x: _as_start(as_tensor(x)), tree))


def _as_start(t: Tensor) -> Tensor:
    return as_float(t) if t._value.dtype.is_integer else t


def largest_size(x: Tensor) -> Tensor:
    """The largest absolute value, 0 of none."""
    return largest(absolute(x)) if x.size else total(x)


def no_memory(size: int, like: Tensor) -> LbfgsState:
    """Of no steps yet."""
    if size < 1:
        raise ValueError(explained("lbfgs", "a memory_size of 1 or more", size, "10 is usual"))
    n, dtype = like.size, like.dtype
    shapes = ((size, n), (size, n), (size,), (size, size), (size, size))
    return LbfgsState(no_steps(), *[zeros(shape, dtype=dtype) for shape in shapes])


def descent(memory: LbfgsState, g: Tensor) -> Tensor:
    """Minus the approximate inverse Hessian times the gradient; minus the gradient where that isn't downhill."""
    _, s, y, curvature, inverse, yy = memory
    newest = yy[-1, -1]
    scale = where(newest > 0.0, curvature[-1] / where(newest > 0.0, newest, 1.0), 1.0)
    a = inverse @ (s @ g)
    b = inverse.T @ (curvature * a + scale * (yy @ a - y @ g))
    direction = -(scale * (g - a @ y) + b @ s)
    return where(total(direction * g) < 0.0, direction, -g)


def remembered(memory: LbfgsState, step: Tensor, change: Tensor) -> LbfgsState:
    """With another pair in place of the oldest; as it was where the curvature isn't positive."""
    curvature = total(step * change)
    good = curvature > finfo(step).eps * total(change * change)
    divisor = where(good, curvature, 1.0)
    s, y = concat([memory.s[1:], step[None]]), concat([memory.y[1:], change[None]])
    inverse = memory.inverse[1:, 1:]  # of a triangle's lower right, which is what is left of its inverse
    column = -(inverse @ (memory.s[1:] @ change)) / divisor
    products = y @ change
    new = (
        minimum(memory.count + 1, s.shape[0]),
        s,
        y,
        concat([memory.curvature[1:], curvature[None]]),
        _bordered(inverse, column, concat([zeros_like(column), 1.0 / divisor[None]])),
        _bordered(memory.yy[1:, 1:], products[:-1], products),
    )
    return LbfgsState(*[where(good, a, b) for a, b in zip(new, memory, strict=True)])


def _bordered(matrix: Tensor, column: Tensor, row: Tensor) -> Tensor:
    """With a further column, and then a further row."""
    return concat([concat([matrix, column[:, None]], axis=1), row[None]])


def advanced(function: Function, point: _Point) -> tuple[_Point, Tensor]:
    """One step, and whether it went anywhere."""
    direction = descent(point.memory, point.gradient)
    length = sqrt(total(direction * direction))
    cautious = minimum(1.0, 1.0 / where(length > 0.0, length, 1.0))
    first = where(point.memory.count > 0, 1.0, cautious).astype(point.x.dtype)
    found = search(function, point.x, point.value, point.gradient, direction, first, LINE_STEPS)
    step = found.low * direction
    memory = remembered(point.memory, step, found.low_gradient - point.gradient)
    moved = point._replace(x=point.x + step, value=found.low_value, gradient=found.low_gradient, memory=memory)
    return moved._replace(iterations=point.iterations + 1), found.low > 0.0


def _flat(what: str, fun: Function, unravel: Callable[[Any], Tree], args: Any) -> Function:
    """Value and gradient of a vector, in its dtype."""
    both = value_and_grad(lambda v: fun(unravel(v), *args))

    def function(v: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = both(v)
        return value.astype(v.dtype), gradient

    return function


def minimize(
    fun: Function, x0: Tree, args: tuple[Any, ...] = (), *, max_iterations: int = 500, gtol: float | None = None,
    ftol: float | None = None, memory_size: int = 10,
) -> OptimizeResult:  # fmt: skip
    """The search for a minimum of `fun(x, *args)`, a float of shape (), from `x0` by L-BFGS; one loop, no knobs.

    `x0` is a tree of real floats, or of integers, which stand for the default float (a list is a tree of numbers, not
    an array); real floats are `x` and `grad` of the result, which has `value`, `iterations` and `converged` besides. It
    ends where no element of the gradient is beyond `gtol` (else the square root of the dtype's eps), or where the value
    falls by less than `ftol` of itself (else 4 eps), and then `converged` is true; or after `max_iterations`, or where
    no lower point is found. NaN at the start ends it there. The whole search is part of a graph: it compiles, `lg.vmap`
    makes searches of many starts, each with its own number of steps.

    Derivatives through the search are those of its steps, which lag behind those of the minimum:
    `lg.optim.implicit_minimum` has these.

    Raises GradientError for parameters that aren't real numbers and values that aren't one float, DTypeError for a leaf
    that isn't numbers.

    >>> rosenbrock = lambda p: (1 - p["x"]) ** 2 + 100 * (p["y"] - p["x"] ** 2) ** 2
    >>> found = lg.optim.minimize(rosenbrock, {"x": -1.2, "y": 1.0})
    >>> found.x["y"].round(6), found.converged
    (Tensor(1., dtype=float64), Tensor(True, dtype=bool))
    """
    check_function("minimize", fun)
    start, unravel = start_parameters("minimize", x0)
    function = _flat("minimize", fun, unravel, args)
    eps = finfo(start).eps
    small = eps**0.5 if gtol is None else gtol
    still = 4.0 * eps if ftol is None else ftol

    def trip(point: _Point) -> _Point:
        new, moved = advanced(function, point)
        fallen = point.value - new.value
        flat = (largest_size(new.gradient) <= small) | (
            moved & (fallen <= still * maximum(absolute(point.value), absolute(new.value)))
        )
        return new._replace(converged=flat, ended=flat | ~moved)

    value, gradient = function(start)
    flat = largest_size(gradient) <= small
    point = _Point(start, value, gradient, no_memory(memory_size, start), no_steps(), flat, flat | (value != value))
    end = while_loop(lambda p: ~p.ended & (p.iterations < max_iterations), trip, point, name="minimize")
    return OptimizeResult(unravel(end.x), end.value, unravel(end.gradient), end.iterations, end.converged)


def implicit_minimum(fun: Function, x: Tree, args: tuple[Any, ...] = (), *, order: int = 1) -> Tree:
    """A minimum of `fun(x, *args)` that was found, as a function of what `fun` depends on besides `x`.

    `x` is a tree of real floats. The result is about equal to it, a Newton step away, and its derivatives are the
    minimum's, by the implicit function theorem, whatever search found it: up to `order`. They need a Hessian that isn't
    singular, and its memory, (n, n) for n parameters. Raises GradientError for parameters that aren't real floats,
    ValueError for an order below 1.

    >>> def root(a):  # where x**3 / 3 - a * x is least
    ...     fun = lambda x: x**3 / 3 - a * x
    ...     return lg.optim.implicit_minimum(fun, lg.optim.minimize(fun, 1.0).x)
    >>> lg.grad(root)(4.0).round(6)
    Tensor(0.25, dtype=float64)
    """
    check_function("implicit_minimum", fun)
    if order < 1:
        raise ValueError(explained("implicit_minimum", "an order of 1 or more", order, "leave the function out"))
    v, unravel = flat_parameters("implicit_minimum", x)
    v = stop_gradient(v)
    slope = grad(lambda v: fun(unravel(v), *args))
    for _ in range(order):  # each makes one further derivative right
        v = v - solve(jacfwd(slope)(v), slope(v))
    return unravel(v)


@picklable
def lbfgs(memory_size: int = 10) -> GradientTransformation:
    """Steps of L-BFGS with a line search, one an update, for trees of real floats.

    `update(grads, state, params, value=value, value_fn=fun)` needs the value at the parameters, and the function, whose
    values and gradients along the direction it asks for. Raises GradientError without them. `lg.optim.minimize` has
    the whole search.

    >>> fun = lambda x: lg.sum(lg.cosh(x - lg.asarray([3.0, 1.0])))
    >>> optimizer, x = lg.optim.lbfgs(), lg.zeros(2)
    >>> state = optimizer.init(x)
    >>> for _ in range(10):
    ...     value, grads = lg.value_and_grad(fun)(x)
    ...     updates, state = optimizer.update(grads, state, x, value=value, value_fn=fun)
    ...     x = lg.optim.apply_updates(x, updates)
    >>> x.round(6)
    Tensor([3., 1.], dtype=float64)
    """

    def init(params: Tree) -> LbfgsState:
        return no_memory(memory_size, flat_parameters("lbfgs", params)[0])

    def update(
        updates: Tree, state: LbfgsState, params: Tree = None, *, value: Any = None, value_fn: Function | None = None,
        **extra: Any,
    ) -> tuple[Tree, LbfgsState]:  # fmt: skip
        if params is None or value is None or value_fn is None:
            fix = "call update(grads, state, params, value=value, value_fn=fun)"
            raise GradientError(explained("lbfgs", "parameters, value and value_fn", "not all of them", fix))
        x, unravel = flat_parameters("lbfgs", params)
        gradient, _ = flat_parameters("lbfgs", updates)
        no = as_tensor(False)
        here = _Point(x, as_tensor(value).astype(x.dtype), gradient, state, no_steps(), no, no)
        there, _ = advanced(_flat("lbfgs", value_fn, unravel, ()), here)
        return unravel(there.x - x), there.memory

    return GradientTransformation(init, update)
