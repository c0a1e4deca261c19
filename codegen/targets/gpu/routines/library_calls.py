"""What a library of the device does of a routine, and what own launches do before and after it.

Libraries of Fourier transforms multiply by nothing, so a launch scales the results. They may write to the half of a
spectrum that they transform back, and what they make of parts that count as 0 (`graph/primitives/fourier.py`) isn't
said: what they are given is a copy, scaled, of the spectrum of real numbers that is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, NamedTuple

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.program import RoutineCall, RoutineLaunch
from loopgrad.codegen.schedule.transforms import WORTH_A_CALL, of_library
from loopgrad.codegen.targets.gpu.routines.routine import Array, Routine
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.primitives import fourier
from loopgrad.graph.primitives.fourier import axes_of, factor_of, spectrum_shape, transform_length
from loopgrad.graph.types import DType, bool_, int64


def library_call(routine: Routine) -> RoutineCall | None:
    """The call, where it is worth one."""
    inputs, outputs = (tuple([a.slot for a in arrays]) for arrays in (routine.inputs, routine.outputs))
    if any(a.type.size == 0 for a in routine.inputs):
        return None
    return CALLS[routine.name](routine) if routine.name in CALLS else RoutineCall(inputs, outputs)


def _apart(routine: Routine, make: Callable[[], None]) -> tuple[RoutineLaunch, ...]:
    """Launches that aren't the routine's own."""
    kept, routine.launches = routine.launches, []
    make()
    made, routine.launches = tuple(routine.launches), kept
    return made


def _transforms(routine: Routine) -> RoutineCall | None:
    (source,), (target,) = routine.inputs, routine.outputs
    if max(source.type.size, target.type.size) < 2 * WORTH_A_CALL:
        return None
    length = transform_length(routine.name, routine.attrs, source.type)
    return _called(routine, _Spectrum((), length, 1), factor_of(str(routine.attrs["norm"]), length))


def _transforms_along(routine: Routine) -> RoutineCall | None:
    (source,), (target,) = routine.inputs, routine.outputs
    shape, axes = spectrum_shape(routine.name, source.type, target.type), axes_of(routine.attrs)
    if not of_library(shape, axes):
        return None
    norm, lengths = str(routine.attrs["norm"]), [shape[axis] for axis in axes]
    spectrum = _Spectrum(tuple(lengths[:-1]), lengths[-1], prod(shape[axes[-1] + 1 :]))
    return _called(routine, spectrum, prod(factor_of(norm, n) for n in lengths))


class _Spectrum(NamedTuple):
    """Lengths along all axes of a transform to reals, and how many of them lie side by side."""

    others: tuple[int, ...]
    last: int
    behind: int


def _called(routine: Routine, spectrum: _Spectrum, factor: float) -> RoutineCall:
    (source,), (target,) = routine.inputs, routine.outputs
    if routine.name.startswith("hermitian"):
        given = routine.scratch(source.type.size, source.type.dtype)
        before = _apart(routine, lambda: _copy_half(routine, spectrum, factor, given))
        return RoutineCall((given.slot,), (target.slot,), before)
    after = _apart(routine, lambda: _scale(routine, factor, target)) if factor != 1 else ()
    return RoutineCall((source.slot,), (target.slot,), (), after)


CALLS: Final[dict[str, Callable[[Routine], RoutineCall | None]]] = {
    **dict.fromkeys(fourier.ALONE, _transforms), **dict.fromkeys(fourier.TOGETHER, _transforms_along),
}  # fmt: skip


def _scale(routine: Routine, factor: float, array: Array) -> None:
    size, dtype = array.type.size, array.type.dtype
    lane, body = KValue(int64), Body()
    value = body.one("load", dtype, lane, param=0)
    body.store(1, lane, body.one("mul", dtype, value, body.const(factor, dtype)))
    routine.by_lanes(_kernel("scale", lane, body, dtype), size, array, array)


def _copy_half(routine: Routine, spectrum: _Spectrum, factor: float, target: Array) -> None:
    """Of each spectrum, times the factor. Along the last axis number 0, and the middle one of an even length, have real
    transforms along the other axes: the part of the numbers there that is so is half of each and of the conjugate of
    the opposite one. Without other axes that is the real part."""
    (source,) = routine.inputs
    size, dtype = source.type.size, source.type.dtype
    lane, body = KValue(int64), Body()
    part = body.integer("rem", lane, 2)
    rest = body.integer("div", lane, 2 * spectrum.behind)
    k = body.integer("rem", rest, spectrum.last // 2 + 1)
    real = body.one("eq", bool_, k, body.const(0))
    if spectrum.last % 2 == 0:
        real = body.either(real, body.one("eq", bool_, k, body.const(spectrum.last // 2)))
    value, imaginary = body.one("load", dtype, lane, param=0), body.one("eq", bool_, part, body.const(1))
    if spectrum.others:
        other = body.one("load", dtype, body.select(real, _opposite(body, lane, rest, spectrum), lane), param=0)
        half = body.const(0.5, dtype)
        value, other = body.one("mul", dtype, value, half), body.one("mul", dtype, other, half)
        whole = body.add(value, value)
        meant = body.select(imaginary, body.sub(value, other), body.add(value, other))
    else:
        whole, meant = value, body.select(imaginary, body.const(0.0, dtype), value)
    found = body.select(real, meant, whole)
    if factor != 1:
        found = body.one("mul", dtype, found, body.const(factor, dtype))
    body.store(1, lane, found)
    routine.by_lanes(_kernel("half_spectrum", lane, body, dtype), size, source, target)


def _opposite(body: Body, lane: KValue, rest: KValue, spectrum: _Spectrum) -> KValue:
    """The lane of the number at the negative places along the other axes; `rest`: places from the last axis on."""
    place = body.integer("div", rest, spectrum.last // 2 + 1)
    apart = 2 * spectrum.behind * (spectrum.last // 2 + 1)
    for n in reversed(spectrum.others):
        k = body.integer("rem", place, n)
        moved = body.integer("mul", body.one("sub", int64, body.const(n), body.integer("mul", k, 2)), apart)
        lane = body.select(body.one("eq", bool_, k, body.const(0)), lane, body.add(lane, moved))
        place, apart = body.integer("div", place, n), apart * n
    return lane


def _kernel(name: str, lane: KValue, body: Body, dtype: DType) -> Kernel:
    params = (BufferParam(dtype, 1, "read"), BufferParam(dtype, 1, "write"))
    return Kernel(name, (1,), params, Block((lane,), body.ops))
