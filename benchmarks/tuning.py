"""Constants and optimisations of the GPU targets, tried out: one workload of ours, once per variant, in turns.

    python -m benchmarks.tuning ragged "" "SORTED_LANES=16" "FEWEST=1024 CACHE_SHARE=0.5" minctasm=2
    python -m benchmarks.tuning newton "" without=joint_quotients
    python -m benchmarks.tuning --each newton value

A variant sets names of `PLACES`; or for how many workgroups on a multiprocessor CUDA's assembler leaves registers,
`minctasm` of kernels that sort lanes, `summed` of those with many sums beside loops; or it switches an optimisation
off (`benchmarks.switches`). `--each`: every optimisation that could matter for these workloads and pieces
(`benchmarks.pieces`; all where none is named), against the program as it is. Programs are compiled anew, without the
disk cache. Environment: LOOPGRAD_BENCHMARK_DEVICE (cuda:0 where it isn't set), LOOPGRAD_TUNING_SIZE (else the
workload's for GPUs), LOOPGRAD_TUNING_CONTENDER (else loopgrad).
"""

from __future__ import annotations

import ast
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

os.environ["LOOPGRAD_CACHE_DIR"] = ""
os.environ.setdefault("LOOPGRAD_BENCHMARK_DEVICE", "cuda:0")

from benchmarks import place
from benchmarks.contender import Arrays, Contender
from benchmarks.pieces import PIECES
from benchmarks.registry import contenders_of, load
from benchmarks.switches import SWITCHES, Change, changed, machine_code
from benchmarks.workload import Workload
from loopgrad.codegen.targets.gpu.emit import accumulate
from loopgrad.codegen.targets.gpu.lanes import layout, measured_order, plan
from loopgrad.codegen.targets.nvptx import target
from loopgrad.runtime.gpu.streams import driver
from loopgrad.runtime.session import SESSION

PLACES: Final[tuple[Any, ...]] = (plan, layout, measured_order, accumulate, driver, target)
REGISTERS: Final = {"minctasm": "sorted_attributes", "summed": "summed_attributes"}
WITHOUT: Final = "without"
TURNS: Final = 7
CALLS: Final = 5


def changes(variant: str) -> list[Change]:
    """What a variant says."""
    return [change for part in variant.split() for change in _change(*part.split("=", 1))]


def _change(name: str, text: str = "") -> Sequence[Change]:
    if name == WITHOUT and text in SWITCHES:
        return SWITCHES[text].changes
    if name in REGISTERS:
        return [machine_code(**{REGISTERS[name]: f'"nvvm.minctasm"="{text}"'})]
    found = [(module, name, ast.literal_eval(text)) for module in PLACES if hasattr(module, name)]
    if not found:
        raise SystemExit(f"expected the name of a constant, or {WITHOUT}= one of {', '.join(SWITCHES)}, got {name}")
    return found


def built(workload: Workload, arrays: Arrays, variant: str) -> Contender:
    """Our contender, compiled under the variant."""
    with changed(changes(variant)):
        name = os.environ.get("LOOPGRAD_TUNING_CONTENDER", "loopgrad")
        contender: Contender = contenders_of(workload, place.device())[name](arrays)
        contender.run()
        contender.run()
    SESSION.clear()
    return contender


def milliseconds(contender: Contender, variant: str) -> float:
    with changed(changes(variant)):
        if contender.seconds_of is not None:
            return 1e3 * contender.seconds_of(CALLS)
        began = time.perf_counter()
        for _ in range(CALLS):
            contender.run()
        return 1e3 * (time.perf_counter() - began) / CALLS


def in_turns(contenders: Sequence[Contender], variants: Sequence[str]) -> list[list[float]]:
    """The times of each, in milliseconds."""
    times: list[list[float]] = [[] for _ in variants]
    for _ in range(TURNS):
        for contender, variant, row in zip(contenders, variants, times, strict=True):
            row.append(milliseconds(contender, variant))
    return times


def prepared(name: str, size: int | None = None) -> tuple[Workload, Arrays]:
    """A workload or piece, and its inputs."""
    workload = PIECES[name].workload(name) if name in PIECES else load(name)
    given = size or os.environ.get("LOOPGRAD_TUNING_SIZE") or workload.size(gpu=True)
    return workload, workload.inputs(int(given))


def compare(name: str, variants: Sequence[str]) -> None:
    """A line for each variant."""
    workload, arrays = prepared(name)
    contenders = [built(workload, arrays, variant) for variant in variants]
    for variant, row in zip(variants, in_turns(contenders, variants), strict=True):
        print(f"{statistics.median(row):10.3f} ms  ({min(row):.3f} .. {max(row):.3f})  {variant or 'as it is'}")


def switch_off(name: str, switches: Sequence[str] | None = None, size: int | None = None) -> None:
    """A line for each optimisation that could matter: how many times longer it takes without."""
    workload, arrays = prepared(name, size)
    usual = built(workload, arrays, "")
    for switch in [s for s in SWITCHES if name in SWITCHES[s].workloads] if switches is None else switches:
        variant = f"{WITHOUT}={switch}"
        with_it, without = in_turns([usual, built(workload, arrays, variant)], ["", variant])
        ratio = statistics.median(y / x for x, y in zip(with_it, without, strict=True))
        times = f"{statistics.median(with_it):10.4f} ms {statistics.median(without):10.4f} ms"
        print(f"{switch:30} {name:16} {times}  without: x {ratio:.3f}", flush=True)


def main() -> None:
    name, *rest = sys.argv[1:]
    if name == "--each":
        for each in rest or sorted({w for switch in SWITCHES.values() for w in switch.workloads}):
            switch_off(each)
    else:
        compare(name, rest or [""])


if __name__ == "__main__":
    main()
