"""Gradient transformations: pairs of functions that turn gradients into updates, and can be chained, as in Optax.

`init(params)` makes the state, `update(updates, state, params)` gives `(updates, state)`; `apply_updates` adds updates
to parameters. A transformation keeps the dtype of each leaf, whatever that of a schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from loopgrad.graph.errors import GradientError, explained
from loopgrad.lazy.numpy import elementwise, reduction
from loopgrad.lazy.numpy.complex_functions import conj, imag, real
from loopgrad.lazy.numpy.elementwise import maximum, minimum, sqrt
from loopgrad.lazy.numpy.elementwise import power as raised
from loopgrad.lazy.numpy.special_values import isfinite, where
from loopgrad.lazy.numpy.tree_functions import leaves
from loopgrad.lazy.numpy.tree_functions import map as map_trees
from loopgrad.lazy.optim.factories import picklable
from loopgrad.lazy.optim.states import (
    AdamState,
    EmptyState,
    RmsState,
    ScheduleState,
    TraceState,
    no_steps,
    zeros_like_floats,
)
from loopgrad.lazy.tensor.core import as_tensor, is_scalar
from loopgrad.lazy.tensor.repeated_calls import repeated
from loopgrad.lazy.tensor.trees import Tree, flatten, matching, spread, unflatten

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_OPTIM: Final = (
    "GradientTransformation add_decayed_weights apply_updates chain clip clip_by_global_norm global_norm identity "
    "scale scale_by_adam scale_by_learning_rate scale_by_rms scale_by_schedule trace"
)
Schedule: TypeAlias = Callable[[Any], Any]


class GradientTransformation(NamedTuple):
    """`init(params)` gives a state; `update(updates, state, params=None, **extra)` gives `(updates, state)`."""

    init: Callable[[Tree], Tree]
    update: Callable[..., tuple[Tree, Tree]]


def apply_updates(params: Tree, updates: Tree) -> Tree:
    """The parameters with updates added, in the parameters' dtypes. Raises StructureError where trees differ.

    >>> lg.optim.apply_updates({"w": lg.ones(2)}, {"w": lg.asarray([0.5, -0.5])})
    {'w': Tensor([1.5, 0.5], dtype=float64)}
    """

    def added(p: Any, u: Any) -> Tensor:
        tensor = as_tensor(p)
        return as_tensor(tensor + u).astype(tensor.dtype)

    return map_trees(added, params, updates)


def like(x: Tensor, factor: Any) -> Any:
    """A factor in the real dtype of what it multiplies: a float64 rate leaves float32 parameters as they are."""
    return factor if is_scalar(factor) else as_tensor(factor).astype(x._value.dtype.part)


def scaled(updates: Tree, factor: Any) -> Tree:
    """All leaves times a number or a tensor of shape ()."""
    return map_trees(lambda u: as_tensor(u) * like(as_tensor(u), factor), updates)


def _without_state(update: Callable[[Tree, Tree], Tree]) -> GradientTransformation:
    def updated(updates: Tree, state: Tree, params: Tree = None, **extra: Any) -> tuple[Tree, Tree]:
        return update(updates, params), state

    return GradientTransformation(lambda _: EmptyState(), updated)


@picklable
def identity() -> GradientTransformation:
    """Updates are the gradients themselves, of any shapes and dtypes.

    >>> lg.optim.identity().update(3.0, ())[0]
    3.0
    """
    return _without_state(lambda updates, _: updates)


@picklable
def chain(*transformations: GradientTransformation) -> GradientTransformation:
    """Transformations one after the other, of trees; the state is a tuple of theirs. Further keywords reach all.

    >>> double = lg.optim.chain(lg.optim.scale(2.0), lg.optim.clip(1.0))  # floats of any shape
    >>> double.update(lg.asarray([0.25, 3.0]), double.init(lg.zeros(2)))[0]
    Tensor([0.5, 1. ], dtype=float64)
    """

    def init(params: Tree) -> Tree:
        return tuple([t.init(params) for t in transformations])

    def update(updates: Tree, state: Tree, params: Tree = None, **extra: Any) -> tuple[Tree, Tree]:
        states = []
        for t, s in zip(transformations, state, strict=True):
            updates, s = t.update(updates, s, params, **extra)
            states.append(s)
        return updates, tuple(states)

    return GradientTransformation(init, update)


@picklable
def scale(step_size: Any) -> GradientTransformation:
    """Updates times a number, or a tensor of shape ().

    >>> lg.optim.scale(-0.5).update(lg.ones(2), ())[0]
    Tensor([-0.5, -0.5], dtype=float64)
    """
    return _without_state(lambda updates, _: scaled(updates, step_size))


@picklable
def scale_by_schedule(step_size_fn: Schedule) -> GradientTransformation:
    """Updates times a function of the number of steps that were made, an int64 tensor of shape ().

    >>> t = lg.optim.scale_by_schedule(lg.optim.linear_schedule(1.0, 0.0, 2))
    >>> updates, state = t.update(lg.ones(1), t.init(lg.ones(1)))
    >>> updates, t.update(lg.ones(1), state)[0]
    (Tensor([1.], dtype=float64), Tensor([0.5], dtype=float64))
    """

    def update(updates: Tree, state: Tree, params: Tree = None, **extra: Any) -> tuple[Tree, Tree]:
        return scaled(updates, step_size_fn(state.count)), ScheduleState(state.count + 1)

    return GradientTransformation(lambda _: ScheduleState(no_steps()), update)


@picklable
def scale_by_learning_rate(learning_rate: Any, *, flip_sign: bool = True) -> GradientTransformation:
    """Updates times minus the rate: a number, a tensor of shape (), or a schedule (a function of the step's number).

    >>> lg.optim.scale_by_learning_rate(0.1).update(lg.ones(1), ())[0]
    Tensor([-0.1], dtype=float64)
    """
    sign = -1 if flip_sign else 1
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * learning_rate(count))
    as_tensor(learning_rate)  # which refuses what is no number
    return scale(sign * learning_rate)


@picklable
def trace(decay: Any, nesterov: bool = False) -> GradientTransformation:
    """Momentum: a decaying sum of gradients of any shapes (Polyak, 1964); with `nesterov` looked ahead (Sutskever and
    others, 2013).

    >>> t = lg.optim.trace(0.5)
    >>> t.update(lg.ones(1), t.update(lg.ones(1), t.init(lg.ones(1)))[1])[0]
    Tensor([1.5], dtype=float64)
    """

    def update(updates: Tree, state: Tree, params: Tree = None, **extra: Any) -> tuple[Tree, Tree]:
        total = map_trees(lambda g, t: as_tensor(g) + like(t, decay) * t, updates, state.trace)
        ahead = map_trees(lambda g, t: as_tensor(g) + like(t, decay) * t, updates, total) if nesterov else total
        return ahead, TraceState(total)

    return GradientTransformation(lambda params: TraceState(zeros_like_floats(params)), update)


def _square(x: Tensor) -> Tensor:
    """Of the absolute value."""
    return real(x * conj(x)) if x._value.dtype.kind == "c" else x * x


def _mean(decay: Any, mean: Tensor, x: Tensor) -> Tensor:
    return as_tensor(like(x, decay) * mean + like(x, 1 - decay) * x)


@repeated
def _adam_step(
    g: Tensor, m: Tensor, v: Tensor, seen1: Any, seen2: Any, b1: Any, b2: Any, eps: Any, eps_root: Any
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The update of one leaf, and its means of gradients and of their squares; `seen1`, `seen2`: the weights that these
    have so far."""
    mu, nu = _mean(b1, m, g), _mean(b2, v, _square(g))
    ratio = as_tensor(mu / like(mu, seen1) / (sqrt(nu / like(nu, seen2) + eps_root) + eps))
    return ratio, mu, nu


@picklable
def scale_by_adam(b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8, eps_root: Any = 0.0) -> GradientTransformation:
    """Running means of gradients by the root of those of their squares, both without their bias towards zero (Kingma
    and Ba, Adam, 2015), for trees of floats. Complex leaves are scaled by their absolute value.

    >>> t = lg.optim.scale_by_adam()
    >>> t.update(lg.asarray([2.0, -5.0]), t.init(lg.zeros(2)))[0].round(6)
    Tensor([ 1., -1.], dtype=float64)
    """

    def update(updates: Tree, state: Tree, params: Tree = None, **extra: Any) -> tuple[Tree, Tree]:
        count = state.count + 1
        seen1, seen2 = 1 - raised(b1, count), 1 - raised(b2, count)
        given, structure = flatten(updates)
        means = [matching("scale_by_adam", structure, tree) for tree in (state.mu, state.nu)]
        steps = [
            _adam_step(as_tensor(g), m, v, seen1, seen2, b1, b2, eps, eps_root)
            for g, m, v in zip(given, *means, strict=True)
        ]
        ratio, mu, nu = [unflatten(structure, [step[i] for step in steps]) for i in range(3)]
        return ratio, AdamState(count, mu, nu)

    def init(params: Tree) -> Tree:
        return AdamState(no_steps(), zeros_like_floats(params), zeros_like_floats(params, real=True))

    return GradientTransformation(init, update)


@picklable
def scale_by_rms(
    decay: Any = 0.9, eps: Any = 1e-8, *, eps_in_sqrt: bool = True, centered: bool = False
) -> GradientTransformation:
    """Gradients by the root of the running mean of their squares (Tieleman and Hinton, 2012); `centered`: by that of
    their variance (Graves, 2013). For trees of floats.

    >>> t = lg.optim.scale_by_rms(0.75)  # floats of any shape
    >>> t.update(lg.asarray([4.0]), t.init(lg.zeros(1)))[0].round(6)
    Tensor([2.], dtype=float64)
    """

    def update(updates: Tree, state: Tree, params: Tree = None, **extra: Any) -> tuple[Tree, Tree]:
        nu = map_trees(lambda g, v: _mean(decay, v, _square(as_tensor(g))), updates, state.nu)
        mu = map_trees(lambda g, m: _mean(decay, m, as_tensor(g)), updates, state.mu) if centered else None
        spread_of = map_trees(lambda v, m: v - _square(m), nu, mu) if centered else nu

        def ratio(g: Any, v: Tensor) -> Tensor:
            return as_tensor(g) / (sqrt(v + eps) if eps_in_sqrt else sqrt(v) + eps)

        return map_trees(ratio, updates, spread_of), RmsState(nu, mu)

    def init(params: Tree) -> Tree:
        return RmsState(zeros_like_floats(params, real=True), zeros_like_floats(params) if centered else None)

    return GradientTransformation(init, update)


@picklable
def add_decayed_weights(weight_decay: Any = 0.0, mask: Any = None) -> GradientTransformation:
    """Updates plus the parameters times a number. `mask`: a tree of bools, or one for a subtree, or a function of the
    parameters that gives it; where it is False nothing is added. Raises GradientError without parameters.

    >>> lg.optim.add_decayed_weights(0.5).update(lg.zeros(1), (), lg.asarray([4.0]))[0]
    Tensor([2.], dtype=float64)
    """

    def decayed(u: Any, p: Any, chosen: bool) -> Any:
        return as_tensor(u) + like(as_tensor(u), weight_decay) * p if chosen else u

    def update(updates: Tree, params: Tree) -> Tree:
        if params is None:
            fix = "pass them to update, after the state"
            raise GradientError(explained("add_decayed_weights", "the parameters", "none", fix))
        chosen = True if mask is None else mask(params) if callable(mask) else mask
        return map_trees(decayed, updates, params, spread("add_decayed_weights mask", chosen, updates, None))

    return _without_state(update)


@picklable
def clip(max_delta: Any) -> GradientTransformation:
    """Each element between minus and plus a number.

    >>> lg.optim.clip(1.0).update(lg.asarray([0.5, -3.0]), ())[0]
    Tensor([ 0.5, -1. ], dtype=float64)
    """

    def clipped(u: Any) -> Tensor:
        bound = like(as_tensor(u), max_delta)
        return minimum(maximum(u, -bound), bound)

    return _without_state(lambda updates, _: map_trees(clipped, updates))


def global_norm(updates: Tree) -> Tensor:
    """The root of the sum of squares of all elements of a tree, as a float tensor of shape ().

    16-bit floats are added up as float32. Elements are divided by the largest before they are squared, so none
    overflows.

    >>> lg.optim.global_norm({"w": lg.asarray([3.0]), "b": 4.0})
    Tensor(5., dtype=float64)
    """
    sizes = [elementwise.absolute(_wide(part)) for u in leaves(updates) for part in _parts(as_tensor(u)) if part.size]
    if not sizes:
        return as_tensor(0.0)
    largest = reduction.max(sizes[0])
    for x in sizes[1:]:
        largest = maximum(largest, reduction.max(x))
    unit = where((largest > 0) & isfinite(largest), largest, 1.0)
    total = as_tensor(0.0)
    for x in sizes:
        total = total + reduction.sum(_square(x / like(x, unit)))
    return unit * sqrt(total)


def _parts(x: Tensor) -> list[Tensor]:
    return [real(x), imag(x)] if x._value.dtype.kind == "c" else [x]


def _wide(x: Tensor) -> Tensor:
    dtype = x._value.dtype
    return x.astype("float32") if dtype.is_float and dtype.bits < 32 else x


@picklable
def clip_by_global_norm(max_norm: Any) -> GradientTransformation:
    """All updates scaled down together where their norm, `lg.optim.global_norm`, is above a number (Pascanu and
    others, 2013), for trees of floats. NaN in one of them makes all NaN.

    >>> lg.optim.clip_by_global_norm(1.0).update(lg.asarray([3.0, 4.0]), ())[0]
    Tensor([0.6, 0.8], dtype=float64)
    """

    def update(updates: Tree, params: Tree) -> Tree:
        norm = global_norm(updates)
        return scaled(updates, where(norm < max_norm, 1.0, max_norm / norm))

    return _without_state(update)
