"""Schedules: functions of the number of steps made, a tensor or an int, by Optax's names.

They give float tensors of shape (), in the default dtype; what they scale keeps its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from loopgrad.graph.errors import explained
from loopgrad.lazy.numpy.elementwise import cos, floor, maximum, minimum, power
from loopgrad.lazy.numpy.special_values import clip, where
from loopgrad.lazy.optim.factories import picklable
from loopgrad.lazy.tensor.core import as_tensor

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_OPTIM: Final = (
    "constant_schedule cosine_decay_schedule exponential_decay join_schedules linear_schedule "
    "piecewise_constant_schedule warmup_cosine_decay_schedule"
)
Schedule: TypeAlias = Callable[[Any], Any]


@picklable
def constant_schedule(value: Any) -> Schedule:
    """The same float at every step.

    >>> lg.optim.constant_schedule(0.1)(7)
    Tensor(0.1, dtype=float64)
    """
    return lambda count: as_tensor(value) + 0 * as_tensor(count)


@picklable
def linear_schedule(init_value: Any, end_value: Any, transition_steps: int, transition_begin: int = 0) -> Schedule:
    """A straight line between two floats, which starts at step `transition_begin`. Raises ValueError where it takes no
    step.

    >>> [lg.optim.linear_schedule(1.0, 0.0, 4)(k).item() for k in (0, 1, 4, 9)]
    [1.0, 0.75, 0.0, 0.0]
    """
    _positive("linear_schedule", "transition_steps", transition_steps)

    def rate(count: Any) -> Tensor:
        done = clip(as_tensor(count) - transition_begin, 0, transition_steps) / transition_steps
        return as_tensor(init_value + (end_value - init_value) * done)

    return rate


@picklable
def exponential_decay(
    init_value: Any, transition_steps: int, decay_rate: Any, transition_begin: int = 0, staircase: bool = False,
    end_value: Any | None = None,
) -> Schedule:  # fmt: skip
    """A float times `decay_rate` for every `transition_steps` steps, in jumps with `staircase`; never beyond
    `end_value`. Raises ValueError where a transition takes no step.

    >>> [lg.optim.exponential_decay(1.0, 2, 0.25)(k).item() for k in (0, 1, 2)]
    [1.0, 0.5, 0.25]
    """
    _positive("exponential_decay", "transition_steps", transition_steps)

    def rate(count: Any) -> Tensor:
        since = as_tensor(count) - transition_begin
        transitions = since / transition_steps
        decayed = init_value * power(decay_rate, floor(transitions) if staircase else transitions)
        result = where(since <= 0, init_value, decayed)
        if end_value is None:
            return result
        return where(as_tensor(decay_rate) < 1, maximum(result, end_value), minimum(result, end_value))

    return rate


@picklable
def cosine_decay_schedule(init_value: Any, decay_steps: int, alpha: Any = 0.0, exponent: Any = 1.0) -> Schedule:
    """Half a wave of a cosine from a float down to `alpha` times it (Loshchilov and Hutter, SGDR, 2017). Raises
    ValueError where it takes no step.

    >>> [round(lg.optim.cosine_decay_schedule(1.0, 4)(k).item(), 6) for k in (0, 2, 4, 9)]
    [1.0, 0.5, 0.0, 0.0]
    """
    _positive("cosine_decay_schedule", "decay_steps", decay_steps)

    def rate(count: Any) -> Tensor:
        wave = 0.5 * (1 + cos(minimum(as_tensor(count), decay_steps) * (math.pi / decay_steps)))
        return as_tensor(init_value * ((1 - alpha) * power(wave, exponent) + alpha))

    return rate


@picklable
def warmup_cosine_decay_schedule(
    init_value: Any, peak_value: Any, warmup_steps: int, decay_steps: int, end_value: Any = 0.0, exponent: Any = 1.0
) -> Schedule:
    """A straight line up to a float in `warmup_steps` steps, then a cosine down, at `end_value` after `decay_steps`
    steps in all. Raises ValueError where one of both takes no step.

    >>> rate = lg.optim.warmup_cosine_decay_schedule(0.0, 1.0, 2, 6)
    >>> [round(rate(k).item(), 6) for k in (0, 1, 2, 4, 6)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    up = linear_schedule(init_value, peak_value, warmup_steps)
    alpha = end_value / peak_value if peak_value else 0.0
    down = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return join_schedules([up, down], [warmup_steps])


@picklable
def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """Schedules one after the other: each after the first starts at its boundary, an int, and counts from there.
    Raises ValueError unless there is a boundary between any two.

    >>> rate = lg.optim.join_schedules([lg.optim.constant_schedule(1.0), lg.optim.constant_schedule(0.5)], [2])
    >>> [rate(k).item() for k in (1, 2)]
    [1.0, 0.5]
    """
    if len(boundaries) != len(schedules) - 1:
        got = f"{len(schedules)} schedules and {len(boundaries)} boundaries"
        raise ValueError(explained("join_schedules", "one boundary between any two", got, "give all of them"))

    def rate(count: Any) -> Tensor:
        step = as_tensor(count)
        value = as_tensor(schedules[0](step))
        for boundary, schedule in zip(boundaries, schedules[1:], strict=True):
            value = where(step < boundary, value, schedule(step - boundary))
        return value

    return rate


@picklable
def piecewise_constant_schedule(init_value: Any, boundaries_and_scales: Mapping[int, Any] | None = None) -> Schedule:
    """A float that is multiplied by a scale once the steps that were made exceed each boundary, an int.

    >>> rate = lg.optim.piecewise_constant_schedule(1.0, {2: 0.5, 4: 0.1})
    >>> [rate(k).item() for k in (2, 3, 5)]
    [1.0, 0.5, 0.05]
    """

    def rate(count: Any) -> Tensor:
        value = as_tensor(init_value)
        for boundary, factor in sorted((boundaries_and_scales or {}).items()):
            value = value * where(as_tensor(count) > boundary, factor, 1.0)
        return value

    return rate


def _positive(what: str, name: str, steps: int) -> None:
    if steps < 1:
        raise ValueError(explained(what, f"{name} of 1 or more", steps, "use constant_schedule for none"))
