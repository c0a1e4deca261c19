"""Runs contenders in alternation, each in its own process, and tabulates medians and ratios."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.workload import Workload

_ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Row:
    """One contender's figures, in seconds and MiB; `status` says why there are none."""

    contender: str
    status: str = "ok"
    first: float | None = None
    median: float | None = None
    best: float | None = None
    worst: float | None = None
    error: float | None = None
    peak_mib: float | None = None
    seconds: list[float] = field(default_factory=list)


class _Worker:
    def __init__(self, workload: Workload, contender: str, size: int, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", workload.name, contender, str(size)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=_ROOT,
            env=environment,
        )  # fmt: skip

    def receive(self) -> dict[str, float] | None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, what: str) -> dict[str, float] | None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        return self.receive()

    def last_words(self) -> str:
        assert self.process.stderr is not None
        self.process.kill()
        lines = [line for line in self.process.stderr.read().splitlines() if line.strip()]
        return lines[-1][:100] if lines else "no output"


def measure(workload: Workload, contenders: list[str], size: int, rounds: int) -> list[Row]:
    """One row per contender. A contender whose result misses the oracle shows its error, not a time."""
    rows = {name: Row(name) for name in contenders}
    workers: dict[str, _Worker] = {}
    environment = {**os.environ, "DRJIT_LIBLLVM_PATH": os.environ.get("DRJIT_LIBLLVM_PATH", _find_libllvm())}
    for name, row in rows.items():
        missing = workload.missing(name)
        if missing:
            row.status = missing
            continue
        worker = _Worker(workload, name, size, environment)
        ready = worker.receive()
        if ready is None:
            row.status = f"failed: {worker.last_words()}"
            continue
        row.first = ready["first"]
        workers[name] = worker
    for _ in range(rounds):
        for name, worker in workers.items():
            reply = worker.ask("run")
            if reply is not None:
                rows[name].seconds.append(reply["seconds"])
    for name, worker in workers.items():
        _conclude(rows[name], worker, workload)
    return list(rows.values())


def _conclude(row: Row, worker: _Worker, workload: Workload) -> None:
    reply = worker.ask("check")
    if reply is None:
        row.status = f"failed: {worker.last_words()}"
        return
    row.error, row.peak_mib = reply["error"], reply["peak_mib"]
    if not row.error <= workload.rtol:
        row.status = f"wrong: relative error {row.error:.1e}"
        worker.process.kill()
        return
    row.median = statistics.median(row.seconds)
    row.best, row.worst = min(row.seconds), max(row.seconds)
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    worker.process.wait(timeout=30)


def _find_libllvm() -> str:
    found = sorted(Path("/usr/lib/x86_64-linux-gnu").glob("libLLVM*.so*"))
    return str(found[-1]) if found else ""


def table(workload: Workload, rows: list[Row], size: int, rounds: int) -> str:
    """Aligned text; ratios are to our own median in the same run."""
    ours = next((r.median for r in rows if r.contender == "loopgrad"), None)
    lines = [f"{workload.name}: {workload.what} (size {size}, median of {rounds} alternating runs)"]
    lines.append(f"  {'':12}{'first call':>12}{'median':>12}{'min':>12}{'max':>12}{'/ ours':>9}{'peak MiB':>10}  error")
    for row in rows:
        if row.median is None:
            lines.append(f"  {row.contender:12}{row.status}")
            continue
        ratio = f"{row.median / ours:8.2f}x" if ours else ""
        lines.append(
            f"  {row.contender:12}{row.first:11.3f}s{_ms(row.median)}{_ms(row.best)}{_ms(row.worst)}{ratio:>9}"
            f"{row.peak_mib:10.0f}  {row.error:.1e}"
        )
    return "\n".join(lines)


def _ms(seconds: float | None) -> str:
    return f"{(seconds or 0) * 1e3:10.3f}ms"


def as_json(workload: Workload, rows: list[Row], size: int) -> dict[str, object]:
    """The same figures for machines."""
    return {"workload": workload.name, "size": size, "rows": [asdict(r) for r in rows]}
