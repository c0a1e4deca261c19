"""Filters of signals that feed back what they gave: one loop over the samples, one lane for each signal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.loops.scan import scan
from loopgrad.lazy.numpy.linalg.solving import solve
from loopgrad.lazy.numpy.movement import broadcast_to, concat, flip, moveaxis, stack
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.operands import as_float, meet_arrays, normal_axis, whole_number
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SIGNAL: Final = "filtfilt lfilter lfilter_zi sosfilt sosfilt_zi sosfiltfilt"


def _coefficients(op: str, b: ArrayLike, a: ArrayLike) -> tuple[Tensor, Tensor]:
    """Both as long as the longer one, over the first of `a`."""
    above, below = meet_arrays(as_float(b), as_float(a))
    if len(above.shape) > 1 or len(below.shape) > 1 or 0 in above.shape or 0 in below.shape:
        got = f"{above.shape} and {below.shape}"
        raise ShapeError(explained(op, "vectors of coefficients", got, "of cascades use sosfilt"))
    above, below = above.reshape((-1,)), below.reshape((-1,))
    count = max(above.shape[0], below.shape[0])
    wide = [concat([t, as_tensor(np.zeros(count - t.shape[0])).astype(t.dtype)]) for t in (above, below)]
    return wide[0] / below[0], wide[1] / below[0]


def _filtered(
    op: str, sections: list[tuple[Tensor, Tensor]], x: ArrayLike, axis: int, starts: list[Any]
) -> tuple[Tensor, list[list[Tensor]]]:
    """The signals along their first axis, passed through one section after the other (in direct form II, transposed),
    from the states of each; and the last states."""
    signal = moveaxis(x, axis, 0)
    nothing = signal[0] * 0.0 if signal.shape[0] else None
    if nothing is None:
        return signal, starts
    coefficients = [([b[k] for k in range(b.shape[0])], [a[k] for k in range(a.shape[0])]) for b, a in sections]
    filled = [
        [nothing + (0.0 if start is None else start[k]) for k in range(len(b) - 1)]
        for (b, _), start in zip(coefficients, starts, strict=True)
    ]

    def step(states: list[list[Tensor]], sample: Tensor) -> tuple[list[list[Tensor]], Tensor]:
        after = []
        for (b, a), state in zip(coefficients, states, strict=True):
            given = b[0] * sample + state[0] if state else b[0] * sample
            moved = [*state[1:], 0.0]
            after.append([m + p * sample - q * given for m, p, q in zip(moved, b[1:], a[1:], strict=False)])
            sample = given
        return after, sample

    last, filtered = scan(step, filled, signal)
    return moveaxis(filtered, 0, axis), last


def _in_one_dtype(x: ArrayLike, *others: Tensor) -> list[Tensor]:
    return meet_arrays(as_float(x), *others)


@repeated
def lfilter(b: ArrayLike, a: ArrayLike, x: ArrayLike, axis: int = -1, zi: ArrayLike | None = None) -> Any:
    """The signals x along an axis filtered: a[0] y[n] = b[0] x[n] + b[1] x[n - 1] + ... - a[1] y[n - 1] - ...

    The shape stays; dtypes are promoted to one float. With `zi`, of x's shape but for the axis, which has one less than
    the longer of `a` and `b`, it starts with these states, and there is a pair: then the last states. Derivatives flow
    to all arguments. Raises ShapeError for coefficients that aren't vectors, and states of another shape.

    >>> lg.signal.lfilter([1.0], [1.0, -0.5], [1.0, 0.0, 0.0])
    Tensor([1.  , 0.5 , 0.25], dtype=float64)
    """
    above, below = _coefficients("lfilter", b, a)
    signal, above, below = _in_one_dtype(x, above, below)
    d = normal_axis("lfilter", axis, len(signal.shape))
    order = above.shape[0] - 1
    start = None
    if zi is not None:
        state = cast(as_tensor(zi), signal._value.dtype)
        shape = [order if k == d else n for k, n in enumerate(signal.shape)]
        ones = len(state.shape) == len(shape) and all(m in (1, n) for m, n in zip(state.shape, shape, strict=True))
        if not ones:
            raise ShapeError(explained("lfilter", f"zi of shape {tuple(shape)}", state.shape, "lfilter_zi gives some"))
        start = moveaxis(broadcast_to(state, tuple(shape)), d, 0)
    filtered, last = _filtered("lfilter", [(above, below)], signal, d, [start])
    if zi is None:
        return filtered
    ends = moveaxis(stack(last[0]), 0, d) if order else state
    return filtered, ends


@repeated
def lfilter_zi(b: ArrayLike, a: ArrayLike) -> Tensor:
    """The states with which `lfilter` answers a step of 1 by what it tends to: a vector of one less than the
    longer of `a` and `b` has.

    >>> lg.signal.lfilter_zi([1.0], [1.0, -0.5])
    Tensor([1.], dtype=float64)
    """
    above, below = _coefficients("lfilter_zi", b, a)
    order = above.shape[0] - 1
    if not order:
        return above[1:]
    first = np.zeros((order, order))
    first[:, 0] = 1.0
    shifted = np.eye(order) - np.eye(order, k=1)
    matrix = below[1:, None] * first + shifted
    return solve(cast(matrix, above._value.dtype), above[1:] - below[1:] * above[0])


def _sections(op: str, sos: ArrayLike) -> Tensor:
    table = as_float(sos)
    if len(table.shape) != 2 or table.shape[1] != 6:
        fix = "scipy.signal.butter(..., output='sos') makes some"
        raise ShapeError(explained(op, "second-order sections of shape (count, 6)", table._value.type, fix))
    return table


@repeated
def sosfilt(sos: ArrayLike, x: ArrayLike, axis: int = -1, zi: ArrayLike | None = None) -> Any:
    """The signals x along an axis passed through second-order sections, whose rows are b0, b1, b2, 1, a1, a2.

    The shape stays; dtypes are promoted to one float. With `zi`, of shape (sections, ..., 2, ...) with 2 at the axis,
    it starts with these states, and there is a pair: then the last states. Derivatives flow to all arguments.
    Raises ShapeError for other shapes.

    >>> lg.signal.sosfilt([[1.0, 0.0, 0.0, 1.0, -0.5, 0.0]], [1.0, 0.0, 0.0])
    Tensor([1.  , 0.5 , 0.25], dtype=float64)
    """
    signal, table = _in_one_dtype(x, _sections("sosfilt", sos))
    d = normal_axis("sosfilt", axis, len(signal.shape))
    count = table.shape[0]
    starts: list[Any] = [None] * count
    if zi is not None:
        state = cast(as_tensor(zi), signal._value.dtype)
        shape = (count, *[2 if k == d else n for k, n in enumerate(signal.shape)])
        if state.shape != shape:
            raise ShapeError(explained("sosfilt", f"zi of shape {shape}", state.shape, "sosfilt_zi gives some"))
        moved = moveaxis(state, d + 1, 1)
        starts = [moved[k] for k in range(count)]
    sections = [(table[k, :3], table[k, 3:]) for k in range(count)]
    filtered, last = _filtered("sosfilt", sections, signal, d, starts)
    if zi is None:
        return filtered
    return filtered, moveaxis(stack([stack(section) for section in last]), 1, d + 1)


@repeated
def sosfilt_zi(sos: ArrayLike) -> Tensor:
    """The states with which `sosfilt` answers a step of 1 by what it tends to: shape (sections, 2).

    >>> lg.signal.sosfilt_zi([[1.0, 0.0, 0.0, 1.0, -0.5, 0.0]])
    Tensor([[1., 0.]], dtype=float64)
    """
    table = _sections("sosfilt_zi", sos)
    states, level = [], 1.0 * (table[0, 0] * 0.0 + 1.0)
    for k in range(table.shape[0]):
        b, a = table[k, :3], table[k, 3:]
        states.append(level * lfilter_zi(b, a))
        level = level * (total(b) / total(a))
    return stack(states)


def _there_and_back(
    op: str, run: Callable[[Tensor, Any], tuple[Tensor, Any]], x: Tensor, d: int, padtype: str | None, reach: int
) -> Tensor:
    """Filtered forwards and then backwards, with the signal going on at both ends as `padtype` says."""
    count = x.shape[d]
    if padtype not in ("odd", "even", "constant", None):
        fix = "pass one of them"
        raise ValueError(explained(op, "padtype 'odd', 'even', 'constant' or None", repr(padtype), fix))
    reach = 0 if padtype is None else max(whole_number(op, "an integer padlen", reach), 0)
    if count <= reach:
        raise ValueError(explained(op, f"more than padlen = {reach} samples", count, "pass a smaller padlen"))
    signal = moveaxis(x, d, 0)
    if reach:
        front, back = signal[reach:0:-1], signal[-2 : -reach - 2 : -1]
        first, last = signal[:1], signal[-1:]
        if padtype == "odd":
            front, back = 2.0 * first - front, 2.0 * last - back
        elif padtype == "constant":
            front, back = 0.0 * front + first, 0.0 * back + last
        signal = concat([front, signal, back])
    for _ in range(2):
        signal = flip(run(signal, signal[:1])[0], axis=0)
    return moveaxis(signal[reach : reach + count], 0, d)


@repeated
def filtfilt(
    b: ArrayLike, a: ArrayLike, x: ArrayLike, axis: int = -1, padtype: str | None = "odd", padlen: int | None = None
) -> Tensor:
    """The signals x along an axis filtered by `lfilter` forwards and then backwards, so that nothing is delayed.

    At both ends they are continued by `padlen` samples (3 times as many as coefficients): turned around the last one
    ("odd"), mirrored ("even"), or by the last one ("constant"). Dtypes and errors are those of `lfilter`; ValueError
    for signals that aren't longer, and another `padtype`.

    >>> lg.signal.filtfilt([0.5, 0.5], [1.0], [0.0, 0.0, 4.0, 0.0, 0.0], padlen=1)
    Tensor([0., 1., 2., 1., 0.], dtype=float64)
    """
    above, below = _coefficients("filtfilt", b, a)
    signal, above, below = _in_one_dtype(x, above, below)
    start = lfilter_zi(above, below)
    d = normal_axis("filtfilt", axis, len(signal.shape))
    ends = start.reshape((-1, *(1,) * (len(signal.shape) - 1)))

    def run(x: Tensor, first: Tensor) -> Any:
        return lfilter(above, below, x, 0, broadcast_to(ends * first, (*start.shape, *first.shape[1:])))

    reach = 3 * above.shape[0] if padlen is None else padlen
    return _there_and_back("filtfilt", run, signal, d, padtype, reach)


@repeated
def sosfiltfilt(
    sos: ArrayLike, x: ArrayLike, axis: int = -1, padtype: str | None = "odd", padlen: int | None = None
) -> Tensor:
    """The signals x along an axis filtered by `sosfilt` forwards and then backwards, as `filtfilt` does, with its ends
    and errors. Without `padlen` it looks which coefficients are 0: raises TracedValueError while tracing these.

    >>> lg.signal.sosfiltfilt([[0.5, 0.5, 0.0, 1.0, 0.0, 0.0]], [0.0, 0.0, 4.0, 0.0, 0.0], padlen=1)
    Tensor([0., 1., 2., 1., 0.], dtype=float64)
    """
    signal, table = _in_one_dtype(x, _sections("sosfiltfilt", sos))
    d = normal_axis("sosfiltfilt", axis, len(signal.shape))
    start = sosfilt_zi(table)
    ends = start.reshape((*start.shape, *(1,) * (len(signal.shape) - 1)))

    def run(x: Tensor, first: Tensor) -> Any:
        return sosfilt(table, x, 0, broadcast_to(ends * first, (*start.shape, *first.shape[1:])))

    reach = padlen
    if reach is None:  # three times as many as coefficients that aren't 0
        known = to_numpy(table, "index")
        reach = 3 * (2 * len(known) + 1 - int(min((known[:, 2] == 0).sum(), (known[:, 5] == 0).sum())))
    return _there_and_back("sosfiltfilt", run, signal, d, padtype, reach)
