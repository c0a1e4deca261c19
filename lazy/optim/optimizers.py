"""Optimisers of first order, each a chain of gradient transformations, by Optax's names and defaults."""

from __future__ import annotations

from typing import Any, Final

from loopgrad.lazy.optim.transformations import (
    GradientTransformation,
    add_decayed_weights,
    chain,
    identity,
    scale_by_adam,
    scale_by_learning_rate,
    scale_by_rms,
    trace,
)

PUBLIC_OPTIM: Final = "adam adamw momentum rmsprop sgd"


def sgd(learning_rate: Any, momentum: Any | None = None, nesterov: bool = False) -> GradientTransformation:
    """Gradient descent, with momentum where that is given: a decaying sum of gradients, with `nesterov` looked ahead.

    The rate is a float, a tensor of shape (), or a schedule. Parameters are trees of floats.

    >>> optimizer = lg.optim.sgd(0.1)
    >>> params = lg.asarray([1.0, 2.0])
    >>> updates, state = optimizer.update(2 * params, optimizer.init(params), params)
    >>> lg.optim.apply_updates(params, updates)
    Tensor([0.8, 1.6], dtype=float64)
    """
    before = identity() if momentum is None else trace(momentum, nesterov)
    return chain(before, scale_by_learning_rate(learning_rate))


def momentum(learning_rate: Any, decay: Any = 0.9, nesterov: bool = False) -> GradientTransformation:
    """`lg.optim.sgd` with momentum, for trees of floats.

    >>> optimizer = lg.optim.momentum(0.1)
    >>> optimizer.update(lg.ones(1), optimizer.init(lg.ones(1)))[0]
    Tensor([-0.1], dtype=float64)
    """
    return sgd(learning_rate, decay, nesterov)


def adam(
    learning_rate: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8, eps_root: Any = 0.0
) -> GradientTransformation:
    """Adam (Kingma and Ba, 2015), for trees of floats: steps of about the rate in each element.

    The rate is a float, a tensor of shape (), or a schedule.

    >>> optimizer = lg.optim.adam(0.1)
    >>> params = {"w": lg.asarray([1.0, -2.0])}
    >>> updates, state = optimizer.update({"w": lg.asarray([3.0, -1.0])}, optimizer.init(params), params)
    >>> lg.optim.apply_updates(params, updates)["w"].round(6)
    Tensor([ 0.9, -1.9], dtype=float64)
    """
    return chain(scale_by_adam(b1, b2, eps, eps_root), scale_by_learning_rate(learning_rate))


def adamw(
    learning_rate: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8, eps_root: Any = 0.0,
    weight_decay: Any = 1e-4, mask: Any = None,
) -> GradientTransformation:  # fmt: skip
    """Adam with weights that decay beside it (Loshchilov and Hutter, 2019), for trees of floats.

    `mask`: a tree of bools, or a function that makes it of the parameters: where it is False nothing decays. `update`
    needs the parameters: GradientError without them.

    >>> optimizer = lg.optim.adamw(0.1, weight_decay=0.5)
    >>> optimizer.update(lg.zeros(1), optimizer.init(lg.ones(1)), lg.ones(1))[0]
    Tensor([-0.05], dtype=float64)
    """
    decay = add_decayed_weights(weight_decay, mask)
    return chain(scale_by_adam(b1, b2, eps, eps_root), decay, scale_by_learning_rate(learning_rate))


def rmsprop(
    learning_rate: Any, decay: Any = 0.9, eps: Any = 1e-8, *, eps_in_sqrt: bool = True, centered: bool = False,
    momentum: Any | None = None, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Gradients by the root of the running mean of their squares (Tieleman and Hinton, 2012), for trees of floats.

    >>> optimizer = lg.optim.rmsprop(0.1, decay=0.75)
    >>> optimizer.update(lg.asarray([4.0]), optimizer.init(lg.zeros(1)))[0].round(6)
    Tensor([-0.2], dtype=float64)
    """
    scaled = scale_by_rms(decay, eps, eps_in_sqrt=eps_in_sqrt, centered=centered)
    after = identity() if momentum is None else trace(momentum, nesterov)
    return chain(scaled, scale_by_learning_rate(learning_rate), after)
