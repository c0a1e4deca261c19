"""What a library of the device does of a routine, and what own launches do before and after it.

Libraries of Fourier transforms multiply by nothing, and may write to the half of a spectrum that they transform back,
of which they take parts that count as 0 (`graph/primitives/fourier.py`): a launch scales the results, and another one
copies the spectrum without these parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.program import RoutineCall, RoutineLaunch
from loopgrad.codegen.schedule.transforms import WORTH_A_CALL
from loopgrad.codegen.targets.gpu.routines.routine import Array, Routine
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.primitives import fourier
from loopgrad.graph.primitives.fourier import factor_of, transform_length
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
    factor = factor_of(str(routine.attrs["norm"]), length)
    before: tuple[RoutineLaunch, ...] = ()
    given = source
    if routine.name == "hermitian_dft":
        given = routine.scratch(source.type.size, source.type.dtype)
        before = _apart(routine, lambda: _copy_half(routine, length, source, given))
    after = _apart(routine, lambda: _scale(routine, factor, target)) if factor != 1 else ()
    return RoutineCall((given.slot,), (target.slot,), before, after)


CALLS: Final[dict[str, Callable[[Routine], RoutineCall | None]]] = dict.fromkeys(fourier.ALONE, _transforms)


def _scale(routine: Routine, factor: float, array: Array) -> None:
    size, dtype = array.type.size, array.type.dtype
    lane, body = KValue(int64), Body()
    value = body.one("load", dtype, lane, param=0)
    body.store(1, lane, body.one("mul", dtype, value, body.const(factor, dtype)))
    routine.by_lanes(_kernel("scale", lane, body, dtype), size, array, array)


def _copy_half(routine: Routine, length: int, source: Array, target: Array) -> None:
    """Of each spectrum, whose first number is real, and so is the last one of an even length."""
    size, dtype, half = source.type.size, source.type.dtype, length // 2 + 1
    lane, body = KValue(int64), Body()
    place = body.integer("rem", lane, 2 * half)
    real = body.one("eq", bool_, place, body.const(1))
    if length % 2 == 0:
        real = body.either(real, body.one("eq", bool_, place, body.const(2 * half - 1)))
    value = body.one("load", dtype, lane, param=0)
    body.store(1, lane, body.select(real, body.const(0.0, dtype), value))
    routine.by_lanes(_kernel("half_spectrum", lane, body, dtype), size, source, target)


def _kernel(name: str, lane: KValue, body: Body, dtype: DType) -> Kernel:
    params = (BufferParam(dtype, 1, "read"), BufferParam(dtype, 1, "write"))
    return Kernel(name, (1,), params, Block((lane,), body.ops))
