"""Fourier transforms on the host: in which passes over the numbers, and in which parts, they are done: along one axis
after the other by who does many rows at once (`Along`), else by pocketfft.

A pass is along some of the axes, in parts along another one, of which threads take one after the other. Where arrays
lie one behind the other there is one pass, along all axes, of some arrays a part; else one along all but the first of
the axes, in parts of that, and one along it, where numbers stay in the memory of the result. So a part is about as much
as a core has near. The shape alone says what the parts are, so no bit depends on how many threads there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby, pairwise
from math import prod
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from loopgrad.graph.primitives.fourier import as_complex
from loopgrad.runtime.pocketfft import NORMS, Array, Pocketfft, pocketfft

Attrs = tuple[tuple[str, Any], ...]
Shape = tuple[int, ...]
Each = Callable[[int, Callable[[int], None]], None]
"""Calls a function with every number below the first argument, by some threads at once."""

Call = Callable[[], object]
"""What does its work whenever it is called."""


class Along(Protocol):
    """Who transforms many rows at once."""

    def __call__(
        self, kind: str, axis: int, given: Array, result: Array, forward: bool, scale: float, /
    ) -> Call | None:
        """Transforms along one axis, to another array or in place, times a number; None where pocketfft should."""

    def together(self, parts: Sequence[Sequence[Call]], /) -> Call | None:
        """The calls of each part, one after the other, and parts by threads at once; None where others should."""


WORTH_A_PART: Final = 1 << 15  # numbers: a tenth of a millisecond
MOST_PARTS: Final = 64
MANY: Final = 8  # parts of arrays that lie one behind the other, which are enough
TOGETHER: Final = 64  # bytes of numbers of rows side by side that are transformed together
VECTOR: Final = 16  # of those of more numbers than
LONG: Final = 1 << 14
BESIDE: Final = 8  # vectors of transforms, of which the last may be part empty
NEAR: Final = 1 << 24  # bytes of rows that are transformed together, and of as much room, which a core has near
KEPT: Final = 256  # plans
SOURCE, TARGET, BETWEEN = 0, 1, 2


class HostPass(NamedTuple):
    """From one array to another: SOURCE, TARGET, BETWEEN. `parts`: of both."""

    kind: str
    axes: tuple[int, ...]
    given: int
    result: int
    parts: tuple[tuple[slice, ...], ...]


class HostPlan(NamedTuple):
    """`shapes`: of the source and the target, where neighbouring axes along which nothing is transformed are one."""

    shapes: tuple[Shape, Shape]
    passes: tuple[HostPass, ...]
    forward: bool
    norm: int


def transform(
    name: str, attrs: Attrs, source: Array, target: Array, each: Each, along: Along | None = None
) -> None:  # fmt: skip
    """The transforms of `source` in `target`, which is dense; along the last axis where `attrs` name no axes."""
    bound(name, attrs, source, target, each, along)()


def bound(
    name: str, attrs: Attrs, source: Array, target: Array, each: Each, along: Along | None = None
) -> Callable[[], object]:  # fmt: skip
    """What does that whenever it is called."""
    if not target.size:
        return lambda: None
    kind = name.removesuffix("_along")
    given = source if kind == "real_dft" else as_complex(source)
    result = target if kind == "hermitian_dft" else _numbers(target)
    plan = planned(kind, attrs, given.shape, result.shape, source.dtype.itemsize)
    arrays = given.reshape(plan.shapes[0]), result.reshape(plan.shapes[1])

    def calls(*held: Array) -> list[list[Callable[[], object]]]:
        return [_calls(step, plan, held[step.given], held[step.result], along) for step in plan.passes]

    if plan.passes[0].result == BETWEEN:
        return lambda: _done(calls(*arrays, np.empty_like(arrays[0])), each)
    kept = calls(*arrays)
    return kept[0][0] if len(kept) == len(kept[0]) == 1 else partial(_done, kept, each)


def _done(passes: list[list[Callable[[], object]]], each: Each) -> None:
    for calls in passes:
        if len(calls) == 1:
            calls[0]()
        else:
            each(len(calls), partial(_called, calls))


def _called(calls: list[Callable[[], object]], number: int) -> None:
    calls[number]()


def _calls(step: HostPass, plan: HostPlan, given: Array, result: Array, along: Along | None) -> list[Call]:
    """Of a pass, one for each part; or one that does all parts."""
    found = []
    for part in step.parts:
        to = result[part]
        given_part = to if given is result else given[part]
        calls = [] if along is None else _by_axes(step, plan, given_part, to, along)
        found.append(calls or [_call(step.kind, step.axes, plan, given_part, to, pocketfft())])
    together = along.together(found) if along is not None and len(found) > 1 else None
    if together is not None:
        return [together]
    return [calls[0] if len(calls) == 1 else partial(_one_after_the_other, calls) for calls in found]


def _call(
    kind: str, axes: Sequence[int], plan: HostPlan, given: Array, result: Array, library: Pocketfft
) -> Call:  # fmt: skip
    if kind == "real_dft":
        return partial(library.r2c, given, axes, True, plan.norm, result)
    if kind == "hermitian_dft":
        return partial(library.c2r, given, axes, result.shape[axes[-1]], False, plan.norm, result)
    return partial(library.c2c, given, axes, plan.forward, plan.norm, result)


def _by_axes(step: HostPass, plan: HostPlan, given: Array, result: Array, along: Along) -> list[Call]:
    """One axis after the other, the last one at the end of reals; none where pocketfft does all of them."""
    *others, last = step.axes
    numbers = given if step.kind == "hermitian_dft" else result
    if step.kind == "hermitian_dft" and others:
        numbers = np.empty_like(given)
    kinds = [("dft", axis) for axis in others]
    ways = [*kinds, (step.kind, last)] if step.kind == "hermitian_dft" else [(step.kind, last), *kinds]
    calls: list[Call] = []
    found, held = False, given
    for number, (kind, axis) in enumerate(ways):
        to = result if number == len(ways) - 1 else numbers
        extent = max(held.shape[axis], to.shape[axis])
        scale = {"none": 1.0, "ortho": extent**-0.5, "full": 1 / extent}[NORMS[plan.norm]]
        call = along(kind, axis, held, to, plan.forward, scale)
        found = found or call is not None
        calls.append(call or _call(kind, (axis,), plan, held, to, pocketfft()))
        held = to
    return calls if found else []


def _one_after_the_other(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _numbers(pairs: Array) -> Array:
    """As complex numbers, in the same memory."""
    assert pairs.flags.c_contiguous
    return as_complex(pairs)


# ---- plans


@lru_cache(maxsize=KEPT)
def planned(kind: str, attrs: Attrs, source: Shape, target: Shape, size: int) -> HostPlan:
    """Of arrays of these shapes; `size`: bytes of a part of a number."""
    named = dict(attrs)
    axes: tuple[int, ...] = named.get("axes", (len(source) - 1,))
    runs = [tuple(run) for _, run in groupby(range(len(source)), lambda d: d if d in axes else -1)]
    first, second = [tuple([prod([shape[d] for d in run]) for run in runs]) for shape in (source, target)]
    now = {run[0]: place for place, run in enumerate(runs)}
    spectrum = second if kind == "real_dft" else first
    found = _Passes(kind, spectrum, tuple([now[axis] for axis in axes]), size)
    forward = not named.get("inverse", kind == "hermitian_dft")
    return HostPlan((first, second), tuple(found.passes()), forward, NORMS.index(named["norm"]))


class _Passes:
    """For a spectrum of this shape, of which half may be there."""

    def __init__(self, kind: str, shape: Shape, axes: tuple[int, ...], size: int) -> None:
        self._kind, self._shape, self._axes, self._size = kind, shape, axes, size
        self._wanted = max(min(prod(shape) // WORTH_A_PART, MOST_PARTS), 1)

    def passes(self) -> Iterator[HostPass]:
        kind, axes = self._kind, self._axes
        arrays = self._parts(axes, self._others(*axes) if len(axes) == 1 else range(min(axes)))
        if len(axes) == 1 or len(arrays) >= min(self._wanted, MANY):
            yield HostPass(kind, axes, SOURCE, TARGET, arrays)
            return
        others, extent = sorted(axes if kind == "dft" else axes[:-1]), self._shape.__getitem__
        alone = next((d for d in others if extent(d) >= self._wanted), max(others, key=extent))
        rest = tuple([axis for axis in axes if axis != alone])
        slabs, columns = self._parts(rest, self._others(*rest)), self._parts((alone,), self._others(alone))
        if kind == "hermitian_dft":
            yield HostPass("dft", (alone,), SOURCE, BETWEEN, columns)
            yield HostPass(kind, rest, BETWEEN, TARGET, slabs)
        else:
            yield HostPass(kind, rest, SOURCE, TARGET, slabs)
            yield HostPass("dft", (alone,), TARGET, TARGET, columns)

    def _others(self, *axes: int) -> list[int]:
        return [d for d in range(len(self._shape)) if d not in axes]

    def _parts(self, axes: tuple[int, ...], cut: Sequence[int]) -> tuple[tuple[slice, ...], ...]:
        """Of transforms along `axes`, cut along the first of the others that are enough."""
        found: list[tuple[slice, ...]] = [()]
        left = self._wanted
        for axis in cut:
            if left == 1:
                break
            extent, unit = self._shape[axis], self._unit(axis, axes)
            most = -(-extent // unit)
            count = min(left, most)
            left = -(-left // count)
            bounds = [min(most * k // count * unit, extent) for k in range(count + 1)]
            whole = (slice(None),) * (axis - len(found[0]))
            found = [(*part, *whole, slice(a, b)) for part in found for a, b in pairwise(bounds)]
        return tuple(found)

    def _unit(self, axis: int, axes: tuple[int, ...]) -> int:
        """Of what lies along the axis, how many aren't parted: those of one vector, where transforms along `axes` have
        too few others beside them, and aren't so long that one at a time is faster."""
        shape, size, extent = self._shape, self._size, self._shape[axis]
        if axis == len(shape) - 1:
            return min(TOGETHER // size, extent)
        longest = max([shape[d] for d in axes])
        together = (TOGETHER if longest <= LONG else VECTOR) // size
        beside = prod(shape) // (extent * longest)
        far = beside == 1 and 4 * size * together * longest > NEAR
        return 1 if far or beside >= BESIDE * together or extent < together else together
