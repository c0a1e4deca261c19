"""Random loop programs against an oracle from outside: plain Python on a tape of its own, and PyTorch where asked.

    python tests/programs/random_loops.py --count 1000 --seed 0 --devices cpu,vulkan:0 --jobs 4 --seconds 600

Each program runs in several ways (see loop_generator/check.py). A failing one is made small and printed as a script;
a process that dies or hangs is reported with its seed, and another takes its place. `--program SEED` prints a program.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

PROGRAMS_OF_A_PROCESS = 300  # then its memory goes back
Report = tuple[str, str, str, str]  # way, device, outcome, script


@dataclass(frozen=True)
class Plan:
    """What each process is told: devices, ways of a program (or those named), share checked with PyTorch, whether to
    minimise and for how many seconds."""

    devices: tuple[str, ...]
    ways: int
    named: tuple[str, ...]
    torch: int
    minimise: float


def run_seed(seed: int, plan: Plan) -> Iterator[Report]:
    """Every way of one program on every device, and the oracle against PyTorch."""
    from loop_generator import check, draw, minimise  # late: a process sets its environment first

    program = draw.drawn(seed)
    try:
        subject = check.Subject(program)
    except check.Unsuitable as reason:
        yield "unsuitable", "", str(reason), ""
        return
    if plan.torch and seed % plan.torch == 0:
        try:
            check.compare_oracles(subject)
            yield "oracle", "torch", "", ""
        except check.Mismatch as error:
            yield "oracle", "torch", str(error), repr(program)
    for way in plan.named or check.ways_of(seed, plan.ways):
        for device in plan.devices:
            error = check.error_of(subject, way, device)
            if not error:
                yield way, device, "", ""
                continue
            yield way, device, error, minimise.report(program, way, device, error, plan.minimise)


def work(pipe: Connection, plan: Plan) -> None:
    """A process: seeds come, reports go; the empty report ends a seed."""
    os.environ.setdefault("LOOPGRAD_CACHE_DIR", "")
    os.environ.setdefault("LP_NUM_THREADS", "1")
    if any(d.startswith("simulator") for d in plan.devices):
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from tests.simulator.device import install  # late: only where it is asked for

        install()
    while (seed := pipe.recv()) is not None:
        try:
            for report in run_seed(seed, plan):
                pipe.send(report)
        except Exception:  # of the generator itself
            pipe.send(("generator", "", traceback.format_exc(), ""))
        pipe.send(None)


class Worker:
    """A process and the seed it has."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, plan), daemon=True)
        self.process.start()
        other.close()
        self.seed: int | None = None
        self.since, self.done = 0.0, 0

    def give(self, seed: int) -> None:
        self.seed, self.since = seed, time.monotonic()
        self.pipe.send(seed)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Campaign:
    """Hands out seeds and counts what comes back."""

    def __init__(self, plan: Plan, seeds: Iterator[int], chosen: Any) -> None:
        self.plan, self.seeds, self.limit = plan, seeds, chosen.limit
        self.end = time.monotonic() + chosen.seconds
        self.workers = [Worker(plan) for _ in range(chosen.jobs)]
        self.counts: Counter[str] = Counter()
        self.programs = self.failures = 0

    def next_seed(self, worker: Worker) -> bool:
        seed = next(self.seeds, None) if time.monotonic() < self.end else None
        if seed is None:
            return False
        worker.give(seed)
        return True

    def run(self) -> None:
        active = [w for w in self.workers if self.next_seed(w)]
        while active:
            ready = wait([w.pipe for w in active], timeout=5.0)
            for worker in list(active):
                if worker.pipe in ready:
                    going = self.received(worker)
                elif time.monotonic() - worker.since > self.limit:
                    self.failed("", "", f"no end within {self.limit} s", "", worker.seed)
                    going = False
                else:
                    continue
                if going and worker.seed is not None:
                    continue
                active.remove(worker)
                if not going or worker.done >= PROGRAMS_OF_A_PROCESS:
                    worker.end()
                    worker = Worker(self.plan)
                if self.next_seed(worker):
                    active.append(worker)
                else:
                    worker.end()

    def received(self, worker: Worker) -> bool:
        """Take one report; False where the process died."""
        try:
            report = worker.pipe.recv()
        except (EOFError, ConnectionError):
            worker.process.join()
            self.failed("", "", f"the process died: {worker.process.exitcode}", "", worker.seed)
            return False
        if report is None:
            self.programs, worker.done, worker.seed = self.programs + 1, worker.done + 1, None
            return True
        way, device, error, text = report
        if way == "unsuitable":
            self.counts[way] += 1
        elif error:
            self.failed(way, device, error, text, worker.seed)
        else:
            self.counts[f"{way} {device}"] += 1
        return True

    def failed(self, way: str, device: str, error: str, text: str, seed: int | None) -> None:
        self.failures += 1
        self.counts[f"{way} {device} FAILED"] += 1
        print(f"==== seed {seed}, {way}, {device}: {error.splitlines()[0][:200]}\n{text or error}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="check random loop programs")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no program after that")
    parser.add_argument("--limit", type=float, default=300, help="seconds of one program")
    parser.add_argument("--ways", default="4", help="how many ways a program, or names joined by commas")
    parser.add_argument("--torch", type=int, default=0, help="compare the oracle of every Nth program with PyTorch's")
    parser.add_argument("--minimise", type=float, default=60, help="seconds; 0: print programs as they are")
    parser.add_argument("--program", type=int, help="print the program of this seed and stop")
    chosen = parser.parse_args()
    if chosen.program is not None:
        from loop_generator import draw, source  # late: no library for --help

        print(source.text_of(draw.drawn(chosen.program)))
        return
    named = () if chosen.ways.isdigit() else tuple(chosen.ways.split(","))
    ways = 0 if named else int(chosen.ways)
    plan = Plan(tuple(chosen.devices.split(",")), ways, named, chosen.torch, chosen.minimise)
    start = time.monotonic()
    campaign = Campaign(plan, iter(range(chosen.seed, chosen.seed + chosen.count)), chosen)
    campaign.run()
    for what, count in sorted(campaign.counts.items()):
        print(f"{count:8} {what}")
    print(f"{campaign.programs} programs, {campaign.failures} failures, {time.monotonic() - start:.0f} s")
    raise SystemExit(bool(campaign.failures))


if __name__ == "__main__":
    main()
