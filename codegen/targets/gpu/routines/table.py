"""Who does a library routine on a GPU: a row per routine, its providers in the order in which they are asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from loopgrad.codegen.program import HOST, RoutineRow, RoutineStep
from loopgrad.codegen.steps import routine_row
from loopgrad.codegen.targets.gpu.routines import fourier, largest, radix_sort, sort_rows
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine

PROVIDERS: Final[dict[str, tuple[Provider, ...]]] = {
    "sort": (sort_rows.PROVIDER, radix_sort.PROVIDER),
    "argsort": (sort_rows.PROVIDER, radix_sort.PROVIDER),
    "top_positions": (largest.PROVIDER, largest.OF_ALL),
    "dft": fourier.PROVIDERS,
    "real_dft": fourier.PROVIDERS,
    "hermitian_dft": fourier.PROVIDERS,
}


def provided(step: RoutineStep, routine: Routine) -> tuple[RoutineStep, RoutineRow]:
    """The step with the launches of the first provider that does it, or as it is, for the host; what `plan` says."""
    refusals: list[str] = []
    for provider in PROVIDERS.get(step.name, ()):
        refusal = provider.refuses(routine)
        if refusal:
            refusals.append(f"{provider.name}: {refusal}")
            continue
        provider.make(routine)
        done = replace(step, scratch=tuple(routine.scratch_slots), launches=tuple(routine.launches))
        return done, routine_row(step, routine.slots, provider.name, "; ".join(refusals))
    return step, routine_row(step, routine.slots, HOST, "; ".join(refusals) or "this device has no kernels for it")
