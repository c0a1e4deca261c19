"""Nonlinear least squares by the method of Levenberg (1944) and Marquardt (1963).

Damping follows Nielsen (Damping parameter in Marquardt's method, 1999); parameters are scaled by the largest columns of
the Jacobian met so far (More, The Levenberg-Marquardt algorithm, 1978). The normal equations are solved densely, or
without a matrix by conjugate gradients, from products with the Jacobian and its transpose.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loopgrad.graph.errors import explained
from loopgrad.lazy.loops.while_loop import while_loop
from loopgrad.lazy.numpy.creation import eye, ones_like, zeros_like
from loopgrad.lazy.numpy.elementwise import maximum, sqrt
from loopgrad.lazy.numpy.linalg.solving import solve
from loopgrad.lazy.numpy.matrix_products import diagonal
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.numpy.shapes_and_dtypes import finfo
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.numpy.tree_functions import map as map_trees
from loopgrad.lazy.optim.lbfgs import flat_parameters, largest_size, start_parameters
from loopgrad.lazy.optim.states import OptimizeResult, no_steps
from loopgrad.lazy.tensor.core import as_tensor
from loopgrad.lazy.tensor.trees import Tree, check_function
from loopgrad.lazy.transforms.derivatives import jacfwd, jacrev, jvp, vjp
from loopgrad.lazy.transforms.shape_evaluation import eval_shape

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_OPTIM: Final = "levenberg_marquardt"
Function = Callable[..., Any]
SOLVERS: Final = ("dense", "cg")
FIRST_DAMPING: Final = 1e-3
CG_TOLERANCE: Final = 1e-4  # of the right side


class _Model(NamedTuple):
    """Around `x`: half the sum of squares, its gradient, and (where it is made) the matrix of normal equations."""

    x: Tensor
    value: Tensor
    gradient: Tensor
    normal: Tensor | None


class _Search(NamedTuple):
    model: _Model
    scale: Tensor  # of each parameter, squared
    damping: Tensor
    growth: Tensor  # of the damping, after the next failure
    iterations: Tensor
    converged: Tensor
    ended: Tensor


def levenberg_marquardt(
    residuals: Function, x0: Tree, args: tuple[Any, ...] = (), *, max_iterations: int = 200, gtol: float | None = None,
    xtol: float | None = None, solver: str = "dense",
) -> OptimizeResult:  # fmt: skip
    """The search for the x, from `x0`, with the least sum of squares of `residuals(x, *args)`; one loop.

    `x0` and the residuals are trees of real floats; integers in `x0` stand for the default float. The result has `x`,
    half the sum of squares as `value`, its gradient `grad`, `iterations` and `converged`: whether the search ended by a
    tolerance. That is where no element of the gradient is beyond `gtol` (else eps), or a step is shorter than `xtol` of
    x (else the dtype's eps to the power 3/4). `solver`: "dense" for normal equations with a matrix, "cg" for many
    parameters: conjugate gradients with `lg.jvp` and `lg.vjp`. The whole search is part of a graph: it compiles, and
    `lg.vmap` fits many data sets at once, each with its own number of steps.

    Raises GradientError for parameters or residuals that aren't real floats, DTypeError for a leaf that isn't numbers,
    ValueError for another solver.

    >>> t = lg.linspace(0.0, 4.0, 9)
    >>> model = lambda p: p["a"] * lg.exp(-p["rate"] * t)
    >>> data = model({"a": 2.0, "rate": 0.7})
    >>> fit = lg.optim.levenberg_marquardt(lambda p: model(p) - data, {"a": 1.0, "rate": 0.0})
    >>> fit.x["rate"].round(6), fit.converged
    (Tensor(0.7, dtype=float64), Tensor(True, dtype=bool))
    """
    check_function("levenberg_marquardt", residuals)
    if solver not in SOLVERS:
        fix = "leave it out where a matrix of parameters times parameters fits"
        raise ValueError(explained("levenberg_marquardt", "solver 'dense' or 'cg'", repr(solver), fix))
    start, unravel = start_parameters("levenberg_marquardt", x0)

    def flat(v: Tensor) -> Tensor:
        return flat_parameters("levenberg_marquardt", residuals(unravel(v), *args))[0].astype(v.dtype)

    modelled = _modelled(flat, start, solver)
    eps = finfo(start).eps
    small = eps if gtol is None else gtol
    short = eps**0.75 if xtol is None else xtol

    search = _begun(flat, modelled(start), solver, small)
    end = while_loop(
        lambda s: ~s.ended & (s.iterations < max_iterations),
        lambda s: _advanced(flat, modelled, s, small, short),
        search,
        name="levenberg_marquardt",
    )
    found = end.model
    return OptimizeResult(unravel(found.x), found.value, unravel(found.gradient), end.iterations, end.converged)


def _begun(flat: Function, model: _Model, solver: str, small: float) -> _Search:
    x = model.x
    done = largest_size(model.gradient) <= small
    factor = as_tensor(FIRST_DAMPING).astype(x.dtype)
    damping = factor if solver == "dense" else factor * _stiffness(flat, model)
    growth = as_tensor(2.0).astype(x.dtype)
    scale = _scale(zeros_like(x), model)
    return _Search(model, scale, damping, growth, no_steps(), done, done | (model.value != model.value))


def _advanced(flat: Function, modelled: Function, s: _Search, small: float, short: float) -> _Search:
    """After another step, which is taken where it leads down."""
    here = s.model
    step = _step(flat, s)
    trial = modelled(here.x + step)
    promised = 0.5 * total(step * (s.damping * s.scale * step - here.gradient))
    gain = (here.value - trial.value) / where(promised > 0.0, promised, 1.0)
    better = (gain > 0.0) & (promised > 0.0)
    model: _Model = map_trees(lambda new, old: where(better, new, old), trial, here)
    eased = s.damping * maximum(1.0 / 3.0, 1.0 - (2.0 * gain - 1.0) ** 3)
    length, size = sqrt(total(step * step)), sqrt(total(here.x * here.x))
    done = (largest_size(model.gradient) <= small) | (length <= short * (size + short))
    return _Search(
        model,
        _scale(s.scale, model),
        where(better, eased, s.damping * s.growth),
        where(better, 2.0, 2.0 * s.growth).astype(here.x.dtype),
        s.iterations + 1,
        done,
        done | (s.growth > 1e15),  # fifty failures in a row: nothing is lower
    )


def _modelled(flat: Function, start: Tensor, solver: str) -> Callable[[Tensor], _Model]:
    tall = prod(eval_shape(flat, start).shape) >= start.size
    jacobian = jacfwd(flat) if tall else jacrev(flat)

    def modelled(x: Tensor) -> _Model:
        if solver == "cg":
            r, pull = vjp(flat, x)
            return _Model(x, 0.5 * total(r * r), pull(r)[0], None)
        r, j = flat(x), jacobian(x)
        return _Model(x, 0.5 * total(r * r), r @ j, j.T @ j)

    return modelled


def _scale(before: Tensor, model: _Model) -> Tensor:
    if model.normal is None:
        return ones_like(before)
    columns = maximum(before, diagonal(model.normal))
    return where(columns > 0.0, columns, 1.0)


def _stiffness(flat: Function, model: _Model) -> Tensor:
    """How much the gradient changes along itself: where no matrix says how large damping is to be."""
    along = jvp(flat, (model.x,), (model.gradient,))[1]
    size = total(model.gradient * model.gradient)
    return total(along * along) / where(size > 0.0, size, 1.0)


def _step(flat: Function, s: _Search) -> Tensor:
    model, damped = s.model, s.damping * s.scale
    if model.normal is not None:
        n = model.x.size
        return solve(model.normal + damped * eye(n, dtype=model.x.dtype), -model.gradient)

    def product(v: Tensor) -> Tensor:
        along = jvp(flat, (model.x,), (v,))[1]
        return vjp(flat, model.x)[1](along)[0] + damped * v  # type: ignore[no-any-return]

    return conjugate_gradients(product, -model.gradient)


class _Conjugate(NamedTuple):
    x: Tensor
    rest: Tensor
    direction: Tensor
    size: Tensor
    trips: Tensor


def conjugate_gradients(product: Callable[[Tensor], Tensor], right: Tensor) -> Tensor:
    """The x for which `product(x)`, by a symmetric positive definite matrix, is about the right side (Hestenes and
    Stiefel, 1952)."""
    wanted = CG_TOLERANCE**2 * total(right * right)

    def trip(s: _Conjugate) -> _Conjugate:
        image = product(s.direction)
        curvature = total(s.direction * image)
        share = s.size / where(curvature > 0.0, curvature, 1.0)
        rest = s.rest - share * image
        size = total(rest * rest)
        direction = rest + size / where(s.size > 0.0, s.size, 1.0) * s.direction
        return _Conjugate(s.x + share * s.direction, rest, direction, size, s.trips + 1)

    begin = _Conjugate(zeros_like(right), right, right, total(right * right), no_steps())
    end = while_loop(lambda s: (s.size > wanted) & (s.trips < 2 * right.size), trip, begin, name="conjugate gradients")
    return end.x  # type: ignore[no-any-return]
