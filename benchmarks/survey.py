"""Many workloads in little time: `python -m benchmarks.survey --workload programs --device cuda:0 --processes 12`.

Several processes build the contenders of their workloads and compare what these give; one process at a time has the
device and times them in turns. Compiling, which takes most of the time, is so shared by all cores. Sorted by the
best peer's time over loopgrad's. For numbers to publish there is `python -m benchmarks`, one contender a process.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing as mp
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any, Final

import numpy as np

from benchmarks import place
from benchmarks.arguments import OPTIONS
from benchmarks.contender import Arrays, Contender, Unavailable
from benchmarks.oracles import relative_error
from benchmarks.registry import contenders_of, expanded, load

BATCH_S: Final = 0.004  # of calls in a row
MOST_CALLS: Final = 50
SLOW: Final = 0.9  # of the best peer's speed: counted


@dataclass
class Line:
    """One workload: seconds of a call by system, the least of the rounds, and what went wrong."""

    name: str
    times: dict[str, float] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)
    first_s: float = 0.0  # until loopgrad's first result

    @property
    def ratio(self) -> float:
        """The best peer's time over ours; NaN where one of the two is missing."""
        peers = [seconds for system, seconds in self.times.items() if system != "loopgrad"]
        own = self.times.get("loopgrad")
        return min(peers) / own if peers and own else math.nan

    def text(self) -> str:
        shown = "".join(f" {system} {1e6 * seconds:9.1f}" for system, seconds in self.times.items())
        return f"{self.ratio:6.2f} {self.name:34}{shown}  first {self.first_s:5.2f} s  {'; '.join(self.trouble)}"


def surveyed(name: str, device: str, systems: Sequence[str], rounds: int, quick: bool, turn: Any) -> Line:
    """Builds, compares and, with the device to itself, times the contenders of a workload."""
    line, workload = Line(name), load(name)
    arrays = workload.inputs(workload.size(quick=quick, gpu=place.on_gpu()))
    built: dict[str, Contender] = {}
    results: dict[str, Arrays] = {}
    for system, build in contenders_of(workload, device).items():
        if system not in systems:
            continue
        began = time.perf_counter()
        try:
            contender = build(arrays)
            results[system] = {k: np.asarray(v) for k, v in contender.fetch(contender.run()).items()}
            built[system] = contender
        except (Unavailable, ModuleNotFoundError) as error:
            line.trouble.append(f"{system}: {error}")
        except Exception as error:  # the others' times count all the same
            line.trouble.append(f"{system} FAILED: {type(error).__name__}: {(str(error) or '-').splitlines()[0]}")
        if system == "loopgrad":
            line.first_s = time.perf_counter() - began
    line.trouble += _differences(results, workload.tolerance)
    with turn:
        samples: dict[str, list[float]] = {system: [] for system in built}
        for _ in range(rounds):
            for system, contender in built.items():
                samples[system].append(_batch(contender))
    line.times = {system: min(found) for system, found in samples.items()}
    return line


def _differences(results: Mapping[str, Arrays], tolerance: Mapping[str, float]) -> list[str]:
    """Where loopgrad's results are others than those of all peers."""
    own, found = results.get("loopgrad"), []
    for system, arrays in results.items():
        if own is None or system == "loopgrad":
            continue
        for key, want in arrays.items():
            error = relative_error(own[key], want) if key in own else math.inf
            if not error <= 10 * tolerance.get(key, 1e-4):  # the peer's error counts as well
                found.append(f"{key} DIFFERS from {system} by {error:.1e}")
    return found


def _batch(contender: Contender) -> float:
    """Seconds of a call, of as many in a row as take some milliseconds."""
    began = time.perf_counter()
    contender.run()
    calls = max(2, min(MOST_CALLS, int(BATCH_S / max(time.perf_counter() - began, 1e-9))))
    if contender.seconds_of is not None:
        return contender.seconds_of(calls)
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        contender.run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _work(names: Any, lines: Any, turn: Any, chosen: argparse.Namespace, deadline: float) -> None:
    """A process: one workload after the other until there is none left, or no time."""
    os.environ[place.VARIABLE] = chosen.device
    while time.time() < deadline:
        name = names.get()
        if name is None:
            break
        systems = ("loopgrad", *chosen.peers.split(","))
        lines.put(surveyed(name, chosen.device, systems, chosen.rounds, chosen.quick, turn))
    lines.put(None)


def collected(names: Sequence[str], chosen: argparse.Namespace) -> list[Line]:
    """The lines in the order of their workloads' ends."""
    context = mp.get_context("spawn")
    waiting, lines, turn = context.Queue(), context.Queue(), context.Lock()
    for name in [*names, *[None] * chosen.processes]:
        waiting.put(name)
    deadline = time.time() + chosen.limit
    arguments = (waiting, lines, turn, chosen, deadline)
    workers = [context.Process(target=_work, args=arguments, daemon=True) for _ in range(chosen.processes)]
    for worker in workers:
        worker.start()
    found, working = [], len(workers)
    while working and any(worker.is_alive() for worker in workers) and time.time() < deadline + 60:
        try:
            line = lines.get(timeout=2)
        except Empty:  # all are compiling, or one died, which says nothing
            continue
        if line is None:
            working -= 1
        else:
            found.append(line)
            print(line.text(), file=sys.stderr, flush=True)
    return found


def summary(lines: Sequence[Line]) -> str:
    ratios = [line.ratio for line in lines if line.ratio == line.ratio]
    if not ratios:
        return f"{len(lines)} workloads, none beside a peer"
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    slow = sum(ratio < SLOW for ratio in ratios)
    return f"{len(lines)} workloads, {len(ratios)} beside a peer: geometric mean {mean:.2f}, {slow} below {SLOW}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survey", description=__doc__)
    for flag in ("--workload", "--device"):
        parser.add_argument(flag, **OPTIONS[flag])
    parser.add_argument("--peers", default="jax", metavar="NAMES", help="contenders beside loopgrad, joined by commas")
    parser.add_argument("--processes", type=int, default=2, help="that build side by side")
    parser.add_argument("--rounds", type=int, default=6, help="batches of calls, of which the least counts")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which no workload is begun")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--out", type=Path, help="the lines as JSON")
    chosen = parser.parse_args()
    lines = sorted(
        collected(expanded(chosen.workload), chosen), key=lambda line: (line.ratio != line.ratio, line.ratio)
    )
    print("\n".join(line.text() for line in lines))
    print(summary(lines))
    if chosen.out:
        chosen.out.write_text(json.dumps([asdict(line) for line in lines], indent=1))
    return int(any("FAILED" in text or "DIFFERS" in text for line in lines for text in line.trouble))


if __name__ == "__main__":
    sys.exit(main())
