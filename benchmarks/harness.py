"""Times the contenders of a workload in alternation, each in its own process, after checking them.

Every contender's outputs are compared with the workload's oracle before its time counts. Then the
processes take turns, round after round, so that what else happens on the machine meets all of them:
ratios are of medians over the same rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.registry import load

ROOT = Path(__file__).parents[1]
PAUSE = 0.05  # seconds between turns: thread pools of the previous contender go to sleep


@dataclass
class Row:
    """One contender's outcome. Times in seconds; `status` is ok, or why there are none."""

    name: str
    status: str = "ok"
    build_s: float | None = None
    first_s: float | None = None
    times: list[float] = field(default_factory=list)
    error: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float | None:
        return statistics.median(self.times) if self.times else None


class Worker:
    """A contender's process."""

    def __init__(self, workload: str, name: str, size: int, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", workload, name, str(size)]
        self.row = Row(name)
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process, closed with it
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        answer = self._answer()
        self.row.status = answer.get("unavailable", answer.get("failed", "ok"))
        self.row.build_s, self.row.first_s = answer.get("build_s"), answer.get("first_s")

    @property
    def usable(self) -> bool:
        return self.row.status == "ok"

    def ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._log.seek(0)
        lines = self._log.read().strip().splitlines() or ["the process ended"]
        self.row.status = f"failed: {lines[-1]}"
        return {"failed": self.row.status}

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)
        self._log.close()


def run_workload(name: str, contenders: list[str], *, quick: bool, rounds: int, size: int | None = None) -> list[Row]:
    """Check and time `contenders` (all of the workload's where empty)."""
    module = load(name)
    size = size or module.SIZES["quick" if quick else "full"]
    chosen = [c for c in module.CONTENDERS if not contenders or c in contenders or c.split(":")[0] in contenders]
    want = module.oracle(module.inputs(size))
    workers = [Worker(name, contender, size, getattr(module, "ENVIRONMENT", {})) for contender in chosen]
    try:
        for worker in workers:
            if worker.usable:
                _check(worker, want, module)
        _time(workers, rounds, getattr(module, "REPEATS", 1))
        for worker in workers:
            if worker.usable:
                worker.row.notes = worker.ask("notes").get("notes", {})
    finally:
        for worker in workers:
            worker.close()
    return [worker.row for worker in workers]


def _check(worker: Worker, want: dict[str, np.ndarray], module: ModuleType) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outputs.npz"
        worker.ask(f"fetch {path}")
        if not worker.usable:
            return
        with np.load(path) as got:
            errors = {key: relative_error(got[key], want[key]) for key in got.files if key in want}
    worker.row.error = max(errors.values(), default=None)
    for key, error in errors.items():
        if not error <= module.TOLERANCE[key]:
            worker.row.status = f"wrong: {key} off by {error:.1e}"


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference relative to the largest expected magnitude."""
    if got.shape != want.shape:
        return float("inf")
    scale = max(float(np.max(np.abs(want), initial=0.0)), 1e-30)
    return float(np.max(np.abs(got.astype(np.float64) - want), initial=0.0)) / scale


def _time(workers: list[Worker], rounds: int, repeats: int) -> None:
    for worker in workers:
        if worker.usable:
            worker.ask("run 2")
    for _ in range(rounds):
        for worker in workers:
            if worker.usable:
                time.sleep(PAUSE)
                worker.row.times.extend(worker.ask(f"run {repeats}").get("times", []))


def table(title: str, rows: list[Row]) -> str:
    """The rows for people, fastest first; ratios against loopgrad's median."""
    own = next((row.median for row in rows if row.name == "loopgrad" and row.times), None)
    ordered = sorted(rows, key=lambda row: row.median if row.median is not None else float("inf"))
    header = f"  {'contender':<22}{'first call':>12}{'median':>12}{'fastest':>12}{'/ loopgrad':>12}{'error':>10}"
    lines = [title, header]
    for row in ordered:
        if row.median is None or row.status != "ok":
            lines.append(f"  {row.name:<22}  {row.status}")
            continue
        ratio = f"{row.median / own:>11.2f}x" if own else f"{'':>12}"
        first = (row.build_s or 0.0) + (row.first_s or 0.0)
        error = f"{row.error:.0e}" if row.error is not None else ""
        times = f"{duration(first):>12}{duration(row.median):>12}{duration(min(row.times)):>12}"
        lines.append(f"  {row.name:<22}{times}{ratio}{error:>10}")
        lines.extend(f"      {key}: {value}" for key, value in row.notes.items())
    return "\n".join(lines)


def duration(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def as_json(rows: list[Row]) -> list[dict[str, Any]]:
    return [{**asdict(row), "median": row.median} for row in rows]
