"""Who does a library routine on a GPU: a row per routine, its providers in the order in which they are asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from loopgrad.codegen.program import HOST, RoutineRow, RoutineStep
from loopgrad.codegen.steps import routine_row
from loopgrad.codegen.targets.gpu.routines import (
    associative_scan,
    attention,
    channel_windows,
    column_elimination,
    column_reflections,
    exchanges,
    fourier,
    largest,
    narrow_windows,
    radix_sort,
    segment_sums,
    selected,
    sort_rows,
    window_panels,
    window_products,
    window_sums,
    window_tiles,
)
from loopgrad.codegen.targets.gpu.routines.library_calls import library_call
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine
from loopgrad.graph.primitives.fourier import TOGETHER

PROVIDERS: Final[dict[str, tuple[Provider, ...]]] = {
    "sort": (sort_rows.PROVIDER, selected.PROVIDER, radix_sort.PROVIDER),
    "argsort": (sort_rows.PROVIDER, radix_sort.PROVIDER),
    "top_positions": (largest.FEW, largest.PROVIDER, largest.OF_ALL),
    "dft": fourier.PROVIDERS,
    "real_dft": fourier.PROVIDERS,
    "hermitian_dft": fourier.PROVIDERS,
    **dict.fromkeys(TOGETHER, (fourier.COLUMNS,)),
    "exchanged": exchanges.PROVIDERS,
    "associative_scan": (associative_scan.PROVIDER,),
    "segment_sum": (segment_sums.PROVIDER,),
    "attention": (attention.PROVIDER,),
    "attention_gradient": (attention.GRADIENT,),
    "window_products": (
        channel_windows.PROVIDER,
        narrow_windows.PROVIDER,
        window_panels.PROVIDER,
        window_products.PROVIDER,
        window_tiles.PROVIDER,
    ),
    "window_sums": (window_sums.PROVIDER,),
    "qr": (column_reflections.QR,),
    "cholesky": (column_elimination.CHOLESKY,),
    "lu": (column_elimination.LU,),
    "solve_factored": (column_elimination.SOLVE,),
}


def provided(step: RoutineStep, routine: Routine, library: str, loops: bool) -> tuple[RoutineStep, RoutineRow]:
    """The step with the launches of the first provider that does it and the call of the library of that name, if there
    is one; with neither it is the host's. And what `plan` says. `loops`: the program has some between its steps."""
    done, own = _own(step, routine)
    call = library_call(routine) if library else None
    if call is None:
        return done, own
    done = replace(done, scratch=tuple(routine.scratch_slots), call=call)
    if done.launches is None:
        return done, replace(own, provider=library, reason="")
    reason = f"where the device decides on loops: {own.provider}" if loops else ""
    return done, replace(own, provider=library, reason=reason)


def _own(step: RoutineStep, routine: Routine) -> tuple[RoutineStep, RoutineRow]:
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
