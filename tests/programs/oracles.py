"""What whole-program tests compare with: closed forms, central differences, tolerances.

Nothing here calls the code under test to produce an expected number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import loopgrad as lg


def tolerance(dtype: Any, single: float = 1e-5, double: float = 1e-12) -> float:
    """The relative tolerance for results in `dtype`."""
    return single if dtype is lg.float32 else double


def check(got: Any, want: Any, rtol: float = 1e-12, atol: float = 0.0) -> None:
    """Compare as arrays; an expected zero must be an exact zero unless `atol` says otherwise."""
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=rtol, atol=atol)


def check_gradient(
    loss: Callable[..., Any],
    arguments: Sequence[Any],
    want: Any,
    *,
    wrt: int = 0,
    mode: str = "reverse",
    rtol: float = 1e-12,
    atol: float = 0.0,
) -> None:
    """The gradient of a scalar `loss` with respect to one argument is `want`.

    reverse: `lg.grad` is compared element by element. forward: `lg.jvp` along a direction whose
    components all differ must equal the dot product of that direction with `want`.
    """
    want = np.asarray(want)
    if mode == "reverse":
        check(lg.grad(loss, argnums=wrt)(*arguments), want, rtol, atol)
        return
    chosen = arguments[wrt]

    def of_chosen(value: Any) -> Any:
        return loss(*arguments[:wrt], value, *arguments[wrt + 1 :])

    along = direction(want.shape).astype(np.asarray(chosen).dtype)
    _, tangent = lg.jvp(of_chosen, (chosen,), (lg.asarray(along),))
    scale = float(np.sum(np.abs(want * along)))
    check(tangent, np.sum(want * along), rtol=0.0, atol=max(atol, rtol * scale))


def direction(shape: tuple[int, ...]) -> np.ndarray:
    """A fixed direction with components of both signs, none equal."""
    size = int(np.prod(shape, dtype=np.int64))
    steps = np.arange(size, dtype=np.float64)
    return (np.where(steps % 2 == 0, 1.0, -1.0) * (0.5 + 1.0 / (steps + 2.0))).reshape(shape)


def central_difference(function: Callable[[np.ndarray], float], point: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """The gradient of a NumPy `function` of one array, one element at a time."""
    point = np.array(point, dtype=np.float64)
    gradient = np.zeros_like(point)
    for index in np.ndindex(*point.shape):
        upper, lower = point.copy(), point.copy()
        upper[index] += step
        lower[index] -= step
        gradient[index] = (function(upper) - function(lower)) / (2.0 * step)
    return gradient
