"""Constants of the GPU targets, tried out: one workload of ours, once per variant, in turns.

    python -m benchmarks.tuning ragged "" "SORTED_LANES=16" "FEWEST=1024 CACHE_SHARE=0.5" minctasm=2

A variant sets names of `PLACES`, or for how many workgroups on a multiprocessor CUDA's assembler leaves registers:
`minctasm` of kernels that sort lanes, `summed` of those with many sums beside loops. It is compiled anew, without the
disk cache. Environment: LOOPGRAD_BENCHMARK_DEVICE (cuda:0 where it isn't set), LOOPGRAD_TUNING_SIZE (else the
workload's for GPUs), LOOPGRAD_TUNING_CONTENDER (else loopgrad).
"""

from __future__ import annotations

import ast
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

os.environ["LOOPGRAD_CACHE_DIR"] = ""
os.environ.setdefault("LOOPGRAD_BENCHMARK_DEVICE", "cuda:0")

from benchmarks import place
from benchmarks.contender import Contender
from benchmarks.registry import contenders_of, load
from loopgrad.codegen.targets.gpu.emit import accumulate
from loopgrad.codegen.targets.gpu.lanes import layout, measured_order, plan
from loopgrad.codegen.targets.nvptx import flavour, target
from loopgrad.runtime.gpu.streams import driver
from loopgrad.runtime.session import SESSION

PLACES: Final[tuple[Any, ...]] = (plan, layout, measured_order, accumulate, driver, target)
REGISTERS: Final = {"minctasm": "sorted_attributes", "summed": "summed_attributes"}
TURNS: Final = 7
CALLS: Final = 5


def settings(variant: str) -> dict[str, Any]:
    return {name: ast.literal_eval(value) for name, _, value in (part.partition("=") for part in variant.split())}


@contextmanager
def constants(values: dict[str, Any]) -> Iterator[None]:
    """The constants have these values inside."""
    kept = [(module, name, getattr(module, name)) for module in PLACES for name in values if hasattr(module, name)]
    missing = set(values) - {name for _, name, _ in kept} - REGISTERS.keys()
    if missing:
        raise SystemExit(f"expected names of constants, got {', '.join(sorted(missing))}")
    machine_code = flavour.NVPTX
    for name in REGISTERS.keys() & values.keys():
        changed: dict[str, Any] = {REGISTERS[name]: f'"nvvm.minctasm"="{values[name]}"'}
        machine_code = replace(machine_code, **changed)
    vars(target)["NVPTX"] = machine_code
    for module, name, _ in kept:
        setattr(module, name, values[name])
    yield
    for module, name, value in kept:
        setattr(module, name, value)
    vars(target)["NVPTX"] = flavour.NVPTX


def built(workload: Any, arrays: Any, variant: str) -> Contender:
    """Our contender, compiled under the variant."""
    with constants(settings(variant)):
        name = os.environ.get("LOOPGRAD_TUNING_CONTENDER", "loopgrad")
        contender: Contender = contenders_of(workload, place.device())[name](arrays)
        contender.run()
        contender.run()
    SESSION.clear()
    return contender


def milliseconds(contender: Contender) -> float:
    if contender.seconds_of is not None:
        return 1e3 * contender.seconds_of(CALLS)
    began = time.perf_counter()
    for _ in range(CALLS):
        contender.run()
    return 1e3 * (time.perf_counter() - began) / CALLS


def main() -> None:
    workload = load(sys.argv[1])
    size = os.environ.get("LOOPGRAD_TUNING_SIZE") or workload.SIZES.get("gpu", workload.SIZES["full"])
    arrays = workload.inputs(int(size))
    variants = sys.argv[2:] or [""]
    contenders = [built(workload, arrays, variant) for variant in variants]
    times: list[list[float]] = [[] for _ in variants]
    for _ in range(TURNS):
        for contender, row in zip(contenders, times, strict=True):
            row.append(milliseconds(contender))
    for variant, row in zip(variants, times, strict=True):
        print(f"{statistics.median(row):10.3f} ms  ({min(row):.3f} .. {max(row):.3f})  {variant or 'as it is'}")


if __name__ == "__main__":
    main()
