"""`python -m benchmarks.scaling`: how a step on many processes takes its time, measured on few and simulated for many.

    python -m benchmarks.scaling                  measure on 1 and 2 processes of this machine, and reproduce that
    python -m benchmarks.scaling --extrapolate    from the numbers of a GPU and a network (--help) to 1,024 of them

A step is the value and gradient of a sum over lanes, each of which makes trips of its own (`benchmarks/workloads`,
`ragged`): every process does its lanes, then all meet once. The model:

    step = call + most over processes of (trip * trips of its lanes, or its longest lane alone)
                + levels * latency + bytes / bandwidth

`trip` and `call` come from one process with lanes of the uniform law; `latency` and `bandwidth` from collectives alone.
What is measured otherwise (other laws, lanes in order of their trips, two processes) isn't used to fit anything, so it
says how good the model is. Times are the least of some, since the machine may be busy. Checkpoints are made at Young's
interval, and Daly's of higher order.

Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974). Daly, A higher order estimate of
the optimum checkpoint interval for restart dumps, FGCS 22 (2006).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil, exp, log2, sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np

MESSAGE: Final = 1024  # bytes that a process brings to a collective, errors included
HEADER: Final = 40  # of them
LARGE: Final = 1 << 18  # bytes of all rows from which on each process combines a part of them
LANES: Final = (4_000, 40_000)
LAWS: Final = ("uniform", "zipf", "sorted")
ROUNDS: Final = (500, 100)  # so many that in some of them no other program has a core
REPEATS: Final = 200  # of the simulation
SAMPLED: Final = 1 << 16  # lanes of a process that are drawn one by one; more by the normal law of their sum
MOST_TRIPS: Final = 4096


@dataclass(frozen=True)
class Machine:
    """Seconds: of a `call` without lanes, of a `trip` of a lane where lanes fill the machine, of a trip of one lane
    alone, of one level of a collective's tree (`latency`), of each `message` where a process sends another one to every
    other; `bandwidth` in bytes a second, of one process."""

    call: float
    trip: float
    serial_trip: float
    latency: float
    bandwidth: float
    message: float = 1e-6


@dataclass(frozen=True)
class Job:
    """`lanes` in all, with trips of a law, on so many processes; `gradient` bytes of results, which travel with their
    rests."""

    lanes: int
    law: str
    processes: int
    gradient: int = 16


def trips(law: str, lanes: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Trip counts: 0 to 63, or a Zipf law's up to 4,096, or the former in order."""
    rng = np.random.default_rng(seed)
    if law == "zipf":
        return np.minimum(rng.zipf(1.5, lanes), MOST_TRIPS)
    drawn = rng.integers(0, 64, lanes)
    return np.sort(drawn) if law == "sorted" else drawn


# ---- the model


def collective(machine: Machine, processes: int, gradient: int) -> float:
    """The time in which all processes have a sum: they gather what each brings, or, from `LARGE` bytes on, combine a
    part each and gather those."""
    if processes == 1:
        return 0.0

    def gathered(each: float) -> float:
        return ceil(log2(processes)) * machine.latency + (processes - 1) * each / machine.bandwidth

    rows = 2 * gradient  # totals and rests
    if rows <= MESSAGE - HEADER:
        return gathered(MESSAGE)
    if processes * rows < LARGE:
        return gathered(MESSAGE) + gathered(rows)
    exchanged = machine.latency + (processes - 1) * (machine.message + rows / processes / machine.bandwidth)
    return 2.0 * gathered(MESSAGE) + exchanged + gathered(gradient / processes)


def step_of(machine: Machine, parts: Sequence[np.ndarray[Any, Any]], gradient: int = 16) -> float:
    """The time of a step whose processes have lanes of these trips."""
    slowest = max(
        max(machine.trip * float(part.sum()), machine.serial_trip * float(part.max(initial=0))) for part in parts
    )
    return machine.call + slowest + collective(machine, len(parts), gradient)


def simulated(machine: Machine, job: Job, repeats: int = REPEATS, seed: int = 0) -> tuple[float, float]:
    """The mean time of a step of a job, and the part of it in which processes wait for the slowest."""
    rng = np.random.default_rng(seed)
    own = job.lanes / job.processes
    sample = trips(job.law, SAMPLED, seed)
    mean, deviation, longest = float(sample.mean()), float(sample.std()), float(sample.max())
    times, waits = [], []
    for _ in range(repeats):
        if own <= SAMPLED:
            drawn = rng.choice(sample, (job.processes, max(int(own), 1)))
            totals, tops = drawn.sum(axis=1).astype(float), drawn.max(axis=1).astype(float)
        else:
            totals = rng.normal(own * mean, sqrt(own) * deviation, job.processes)
            tops = np.full(job.processes, longest)
        each = np.maximum(machine.trip * totals, machine.serial_trip * tops)
        times.append(machine.call + each.max() + collective(machine, job.processes, job.gradient))
        waits.append(each.max() - each.mean())
    return float(np.mean(times)), float(np.mean(waits) / np.mean(times))


def young(write: float, between: float) -> float:
    """Seconds of work between checkpoints that take `write` seconds, where failures come every `between` on average."""
    return sqrt(2.0 * write * between)


def daly(write: float, between: float) -> float:
    """As `young`, of higher order; `between` where writing takes longer than half of it."""
    if write >= 2.0 * between:
        return between
    root = sqrt(write / (2.0 * between))
    return sqrt(2.0 * write * between) * (1.0 + root / 3.0 + root * root / 9.0) - write


def lost(interval: float, write: float, between: float, restart: float = 0.0) -> float:
    """The part of a job's time that checkpoints, work done again and restarts take (Daly's complete model)."""
    total = between * exp(restart / between) * (exp((interval + write) / between) - 1.0) / interval
    return 1.0 - 1.0 / total


# ---- measuring: this file is also what each process runs


def best(call: Callable[[], Any], rounds: int) -> float:
    """The least time of a call. Of several processes each has its own, which differ by little."""
    call()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def process(out: Path) -> None:
    """What is measured on one process of a mesh."""
    import loopgrad as lg  # late: who simulates needs none

    mesh = lg.mesh()
    step = lg.compile(
        lg.value_and_grad(lambda p, x, k: lg.sum(lg.fori_loop(0, k, lambda _, v: lg.sin(v) * p[0] + p[1], x)))
    )
    found: dict[str, float] = {}
    p = lg.asarray([0.9, 0.1])
    for law in LAWS:
        for n, rounds in zip(LANES, ROUNDS, strict=True):
            k = lg.shard(trips(law, n), mesh)
            x = lg.shard(np.linspace(0.0, 1.0, n), mesh)
            found[f"{law} {n}"] = best(lambda k=k, x=x: lg.eval(step(p, x, k)), rounds)
    one = lg.shard(np.full(mesh.size, 100_000), mesh)
    start = lg.shard(np.zeros(mesh.size), mesh)
    found["serial"] = best(lambda: lg.eval(step(p, start, one)), 5)
    gather = lg.compile(lambda x: lg.gather_all(x * 2.0))
    for count, rounds in zip((mesh.size, 1 << 20), ROUNDS, strict=True):
        x = lg.shard(np.zeros(count), mesh)
        found[f"gather {count if count > mesh.size else 1}"] = best(lambda x=x: lg.eval(gather(x)), rounds)
    if mesh.rank == 0:
        out.write_text(json.dumps(found))


def measured(processes: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found.json")
        command = [sys.executable, "-m", "loopgrad", "run", "-n", str(processes), __file__, "--process", str(out)]
        subprocess.run(command, check=True)
        found: dict[str, float] = json.loads(out.read_text())
    return found


def least(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: min(each[name] for each in found) for name in found[0]}


def machine_of(one: dict[str, float], two: dict[str, float]) -> Machine:
    """The model's numbers: by the uniform law on one process, and by collectives alone."""
    few, many = (float(trips("uniform", n).sum()) for n in LANES)
    trip = (one[f"uniform {LANES[1]}"] - one[f"uniform {LANES[0]}"]) / (many - few)
    call = max(one[f"uniform {LANES[0]}"] - trip * few, 0.0)
    latency = max(two["gather 1"] - one["gather 1"], 1e-7)
    large = 8.0 * (1 << 20)
    bandwidth = large / 2.0 / max(two[f"gather {1 << 20}"] - one[f"gather {1 << 20}"] / 2.0 - 2.0 * latency, 1e-7)
    return Machine(call, trip, one["serial"] / 100_000, latency, bandwidth)


def reproduced(one: dict[str, float], two: dict[str, float]) -> list[str]:
    """What was measured beside what the model says: rows of a table."""
    machine = machine_of(one, two)
    rows = ["| lanes | processes | measured | model | ratio |", "|---|---|---|---|---|"]
    for processes, found in ((1, one), (2, two)):
        for law in LAWS:
            for n in LANES:
                parts = np.array_split(trips(law, n), processes)
                model, seen = step_of(machine, parts), found[f"{law} {n}"]
                fitted = " (fitted)" if processes == 1 and law == "uniform" else ""
                rows.append(
                    f"| {n:,}, {law} | {processes} | {1e3 * seen:.2f} ms{fitted} | {1e3 * model:.2f} ms "
                    f"| {model / seen:.2f} |"
                )
    return rows


def extrapolated(machine: Machine, lanes: int, law: str, gradient: int) -> list[str]:
    rows = [
        "| GPUs | a step | lanes in a second | of as many times one's speed | waiting for the slowest | collective |",
        "|---|---|---|---|---|---|",
    ]
    alone = simulated(machine, Job(lanes, law, 1, gradient), 1)[0]
    for processes in (1, 8, 64, 256, 1024):
        time_, waiting = simulated(machine, Job(lanes, law, processes, gradient))
        meeting = collective(machine, processes, gradient)
        rows.append(
            f"| {processes:,} | {1e3 * time_:,.2f} ms | {lanes / time_:.2e} | {100 * alone / time_ / processes:.1f} % "
            f"| {100 * waiting:.2f} % | {1e6 * meeting:,.0f} us |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--process", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--extrapolate", action="store_true")
    parser.add_argument("--runs", type=int, default=1, help="of which the least times are taken")
    parser.add_argument("--lanes", type=lambda text: int(float(text)), default=10**12)
    parser.add_argument("--law", choices=LAWS[:2], default="uniform")
    parser.add_argument("--gradient", type=int, default=16, help="bytes of results")
    parser.add_argument("--call", type=float, default=100e-6, help="seconds")
    parser.add_argument("--trip", type=float, default=1.97e-12, help="seconds of a lane's trip: 1.04 ms, 16.7e6 lanes")
    parser.add_argument("--serial-trip", type=float, default=2e-7, help="seconds of a trip of one lane alone")
    parser.add_argument("--latency", type=float, default=10e-6, help="seconds of a level of a collective")
    parser.add_argument("--message", type=float, default=1e-6, help="seconds of each of many messages")
    parser.add_argument("--bandwidth", type=float, default=25e9, help="bytes a second to a GPU")
    chosen = parser.parse_args()
    if chosen.process:
        process(chosen.process)
    elif chosen.extrapolate:
        machine = Machine(
            chosen.call, chosen.trip, chosen.serial_trip, chosen.latency, chosen.bandwidth, chosen.message
        )  # fmt: skip
        print("\n".join(extrapolated(machine, chosen.lanes, chosen.law, chosen.gradient)))
    else:
        one, two = (least([measured(count) for _ in range(chosen.runs)]) for count in (1, 2))
        print(json.dumps(asdict(machine_of(one, two)), indent=1))
        print("\n".join(reproduced(one, two)))


if __name__ == "__main__":
    main()
