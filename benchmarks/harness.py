"""Times the contenders of a workload in alternation, each in its own process, after checking them.

Every contender's outputs are compared with the workload's oracle before its time counts. Then the
processes take turns, round after round, so that what else happens on the machine meets all of them:
ratios are of medians over the same rounds. On a GPU each turn gives two times: of calls that each wait for
their result, and of one call as the device sees it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np

from benchmarks import place
from benchmarks.oracles import relative_error
from benchmarks.registry import contenders_of, load

ROOT = Path(__file__).parents[1]
PAUSE = 0.05  # seconds between turns: thread pools of the previous contender go to sleep
PATIENCE = 200.0  # seconds that one answer may take
LOG_LINES = 40


@dataclass
class Row:
    """One contender's outcome. Times in seconds; `status` is ok, or why there are none."""

    name: str
    device: str = "cpu"
    status: str = "ok"
    build_s: float | None = None
    first_s: float | None = None
    times: list[float] = field(default_factory=list)
    device_times: list[float] = field(default_factory=list)
    clock: str = ""
    moved: int | None = None
    error: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    log: str = ""

    @property
    def median(self) -> float | None:
        """Of calls that wait for their result."""
        return statistics.median(self.times) if self.times else None

    @property
    def device_median(self) -> float | None:
        return statistics.median(self.device_times) if self.device_times else None


class Worker:
    """A contender's process."""

    def __init__(self, workload: str, name: str, size: int, device: str, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", workload, name, str(size)]
        self.row = Row(name, device)
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed with the process
        source = str(ROOT / "src")
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, **environment, place.VARIABLE: device, "PYTHONPATH": path},
        )  # fmt: skip
        assert self._process.stdout is not None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_forward, args=(self._process.stdout, self._lines), daemon=True).start()

    @property
    def usable(self) -> bool:
        return self.row.status == "ok"

    def build(self, patience: float) -> None:
        answer = self.ask("build", patience)
        if self.usable:
            self.row.status = answer.get("unavailable", "ok")
            for key in ("build_s", "first_s", "moved"):
                setattr(self.row, key, answer.get(key))
            self.row.clock = answer.get("clock", "")

    def ask(self, command: str, patience: float = PATIENCE) -> dict[str, Any]:
        """The answer; {} and a status where the process failed or took too long."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=max(patience, 0.1))
        except queue.Empty:
            self._process.kill()
            self.row.status = f"{command.split()[0]} took more than {max(patience, 0.0):.0f} s"
            return {}
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process.wait(timeout=60)
        self._log.seek(0)
        lines = self._log.read().strip().splitlines() or [f"the process ended with {self._process.returncode}"]
        self.row.log = "\n".join(lines[-LOG_LINES:])
        self.row.status = f"failed: {lines[-1]}"
        return {}

    def close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=60)
        self._log.close()


def _forward(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    """Every line, then an empty one for the end."""
    for line in stream:
        lines.put(line)
    lines.put("")


@dataclass(frozen=True)
class Settings:
    """`contenders`: names or systems, all where empty. `deadline` is a time of `time.monotonic`."""

    contenders: Sequence[str] = ()
    devices: Sequence[str] = ("cpu",)
    quick: bool = False
    rounds: int = 11
    size: int | None = None
    deadline: float = float("inf")

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def size_of(self, module: ModuleType) -> int:
        sizes, gpu = module.SIZES, any(place.kind(d) in ("cuda", "hip", "vulkan") for d in self.devices)
        full = sizes.get("gpu", sizes["full"]) if gpu else sizes["full"]
        return self.size or (sizes["quick"] if self.quick else full)


def run_workload(name: str, settings: Settings) -> list[Row]:
    """Check and time the chosen contenders on each device."""
    module = load(name)
    size = settings.size_of(module)
    environment = getattr(module, "ENVIRONMENT", {})
    workers = [Worker(name, c, size, d, environment) for d in settings.devices for c in _chosen(module, d, settings)]
    try:
        want = module.oracle(module.inputs(size))
        for worker in workers:
            if settings.left <= 0:
                worker.row.status = "not run: the time was used up"
                continue
            worker.build(min(PATIENCE, settings.left))
            if worker.usable:
                _check(worker, want, module)
        _time(workers, settings, getattr(module, "REPEATS", 1))
        for worker in workers:
            if worker.usable:
                worker.row.notes = worker.ask("notes", min(PATIENCE, settings.left)).get("notes", {})
    finally:
        for worker in workers:
            worker.close()
    return [worker.row for worker in workers]


def _chosen(module: ModuleType, device: str, settings: Settings) -> list[str]:
    wanted = settings.contenders
    names = contenders_of(module, device)
    return [c for c in names if not wanted or c in wanted or c.split(":")[0] in wanted]


def _check(worker: Worker, want: dict[str, np.ndarray], module: ModuleType) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outputs.npz"
        worker.ask(f"fetch {path}")
        if not worker.usable:
            return
        with np.load(path) as got:
            errors = {key: relative_error(got[key], np.asarray(want[key])) for key in got.files if key in want}
    worker.row.error = max(errors.values(), default=None)
    for key, error in errors.items():
        if not error <= module.TOLERANCE[key]:
            worker.row.status = f"wrong: {key} off by {error:.1e}"


def _time(workers: list[Worker], settings: Settings, repeats: int) -> None:
    gpu = any(place.kind(worker.row.device) != "cpu" for worker in workers)
    for worker in workers:
        if worker.usable:
            worker.ask("run 2", min(PATIENCE, settings.left))
    for _ in range(settings.rounds):
        for worker in workers:
            if worker.usable and settings.left > 0:
                time.sleep(0.0 if gpu else PAUSE)
                answer = worker.ask(f"run {repeats * 3 if gpu else repeats}")
                worker.row.times.extend(answer.get("times", []))
                worker.row.device_times.extend(answer.get("device_times", []))
    for worker in workers:
        if worker.usable and not worker.row.times:
            worker.row.status = "not timed: the time was used up"


def as_json(rows: list[Row]) -> list[dict[str, Any]]:
    return [{**asdict(row), "median": row.median, "device_median": row.device_median} for row in rows]
