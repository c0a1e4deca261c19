"""Fourier transforms on the host: in which passes over the numbers, and in which parts, pocketfft does them.

A pass is along some of the axes, in parts along another one, of which threads take one after the other. Where arrays
lie one behind the other there is one pass, along all axes, of some arrays a part; else one along all but the first of
the axes, in parts of that, and one along it, where numbers stay in the memory of the result. So a part is about as much
as a core has near. The shape alone says what the parts are, so no bit depends on how many threads there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import groupby, pairwise
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.graph.primitives.fourier import as_complex
from loopgrad.runtime.pocketfft import NORMS, Array, Pocketfft, pocketfft

Attrs = tuple[tuple[str, Any], ...]
Shape = tuple[int, ...]
Each = Callable[[int, Callable[[int], None]], None]
"""Calls a function with every number below the first argument, by some threads at once."""

WORTH_A_PART: Final = 1 << 15  # numbers: a tenth of a millisecond
MOST_PARTS: Final = 64
MANY: Final = 16  # parts of arrays that lie one behind the other, which are enough
VECTOR, LINE = 16, 64  # bytes of numbers of rows side by side that are transformed together, and that memory hands out
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


def transform(name: str, attrs: Attrs, source: Array, target: Array, each: Each) -> None:
    """The transforms of `source` in `target`, which is dense; along the last axis where `attrs` name no axes."""
    bound(name, attrs, source, target, each)()


def bound(name: str, attrs: Attrs, source: Array, target: Array, each: Each) -> Callable[[], object]:
    """What does that whenever it is called."""
    if not target.size:
        return lambda: None
    kind = name.removesuffix("_along")
    given = source if kind == "real_dft" else as_complex(source)
    result = target if kind == "hermitian_dft" else _numbers(target)
    library = pocketfft()
    plan = planned(kind, attrs, given.shape, result.shape, source.dtype.itemsize)
    arrays = given.reshape(plan.shapes[0]), result.reshape(plan.shapes[1])
    first, *others = plan.passes
    if not others and len(first.parts) == 1:
        return _call(first, plan, *arrays, library)

    def passes() -> None:
        held = (*arrays, np.empty_like(arrays[0])) if first.result == BETWEEN else arrays
        for step in plan.passes:
            _done(step, plan, held[step.given], held[step.result], library, each)

    return passes


def _done(step: HostPass, plan: HostPlan, given: Array, result: Array, library: Pocketfft, each: Each) -> None:
    def part(number: int) -> None:
        place = step.parts[number]
        to = result[place]
        _call(step, plan, to if given is result else given[place], to, library)()

    if len(step.parts) == 1:
        part(0)
    else:
        each(len(step.parts), part)


def _call(step: HostPass, plan: HostPlan, given: Array, result: Array, library: Pocketfft) -> Callable[[], object]:
    if step.kind == "real_dft":
        return partial(library.r2c, given, step.axes, True, plan.norm, result)
    if step.kind == "hermitian_dft":
        return partial(library.c2r, given, step.axes, result.shape[step.axes[-1]], False, plan.norm, result)
    return partial(library.c2c, given, step.axes, plan.forward, plan.norm, result)


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
        self._kind, self._shape, self._axes = kind, shape, axes
        self._together, self._line = VECTOR // size, LINE // (2 * size)
        self._wanted = max(min(prod(shape) // WORTH_A_PART, MOST_PARTS), 1)

    def passes(self) -> Iterator[HostPass]:
        kind, axes = self._kind, self._axes
        arrays = self._parts(set(range(len(self._shape))) - {*axes})
        if len(axes) == 1 or len(arrays) >= min(self._wanted, MANY):
            yield HostPass(kind, axes, SOURCE, TARGET, arrays)
            return
        others = sorted(axes if kind == "dft" else axes[:-1])
        alone = next((d for d in others if self._most(d) >= self._wanted), max(others, key=self._most))
        rest = tuple([axis for axis in axes if axis != alone])
        slabs, columns = self._parts({alone}), self._parts(set(range(len(self._shape))) - {alone})
        if kind == "hermitian_dft":
            yield HostPass("dft", (alone,), SOURCE, BETWEEN, columns)
            yield HostPass(kind, rest, BETWEEN, TARGET, slabs)
        else:
            yield HostPass(kind, rest, SOURCE, TARGET, slabs)
            yield HostPass("dft", (alone,), TARGET, TARGET, columns)

    def _unit(self, axis: int) -> int:
        """Of what lies along the axis, how many aren't parted: those of one line of memory, or of one vector."""
        extent = self._shape[axis]
        if axis == len(self._shape) - 1:
            return min(self._line, extent)
        return self._together if extent >= self._together else 1

    def _most(self, axis: int) -> int:
        """Parts along the axis, at most."""
        return -(-self._shape[axis] // self._unit(axis))

    def _parts(self, usable: set[int]) -> tuple[tuple[slice, ...], ...]:
        """Along the first of these axes that has enough, or the one that has most."""
        if self._wanted == 1 or not usable:
            return ((),)
        axes = sorted(usable)
        across = next((d for d in axes if self._most(d) >= self._wanted), max(axes, key=self._most))
        count, unit, extent = min(self._wanted, self._most(across)), self._unit(across), self._shape[across]
        bounds = [min(self._most(across) * k // count * unit, extent) for k in range(count + 1)]
        before = (slice(None),) * across
        return tuple([(*before, slice(a, b)) for a, b in pairwise(bounds)])
