"""Times the contenders of workloads in alternation, each in a process of its own, after checking them.

Every contender's outputs are compared with the workload's oracle before its time counts. Then the
processes take turns, round after round, so that what else happens on the machine meets all of them:
ratios are of medians over the same rounds. On a GPU each turn gives two times: of calls that each wait for
their result, and of one call as the device sees it. What the rounds were goes to pytest-benchmark (`conftest.py`),
which has the statistics, the storage and the comparison.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import place
from benchmarks.oracles import relative_error
from benchmarks.process import Process, ProcessError
from benchmarks.registry import contenders_of
from benchmarks.workload import Workload

PAUSE = 0.05  # seconds between turns: thread pools of the previous contender go to sleep
PATIENCE = 200.0  # seconds that one answer may take
WARM_S = 0.03  # on a GPU: before each turn, so that its clocks are up
TURN_S = 0.01  # a contender of a family is called for as long in each turn
GPU_CALLS = 3


@dataclass
class Row:
    """One contender's outcome. Times in seconds, one a round; `status` is ok, or why there are none."""

    name: str
    device: str = "cpu"
    status: str = "ok"
    build_s: float | None = None
    first_s: float | None = None
    times: list[float] = field(default_factory=list)
    device_times: list[float] = field(default_factory=list)
    clock: str = ""
    moved: int | None = None
    flops: int | None = None
    error: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    log: str = ""

    @property
    def samples(self) -> list[float]:
        """What contenders are compared by: the device's times where there are any."""
        return self.device_times or self.times

    @property
    def median(self) -> float | None:
        return statistics.median(self.samples) if self.samples and self.status == "ok" else None

    @property
    def waited_for(self) -> float | None:
        """The median of calls that wait for their result."""
        return statistics.median(self.times) if self.times else None


@dataclass(frozen=True)
class Settings:
    """`contenders`: names or systems, all where empty. `deadline` is a time of `time.monotonic`."""

    contenders: Sequence[str] = ()
    devices: Sequence[str] = ("cpu",)
    quick: bool = False
    rounds: int = 11
    size: int | None = None
    deadline: float = float("inf")
    checked: bool = True

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    @property
    def patience(self) -> float:
        """Seconds that one answer may take."""
        return min(PATIENCE, self.left)

    def size_of(self, workload: Workload) -> int:
        gpu = any(place.kind(d) in ("cuda", "hip", "vulkan") for d in self.devices)
        return self.size or workload.size(quick=self.quick, gpu=gpu)

    def chosen(self, workload: Workload) -> list[tuple[str, str]]:
        """Devices and names of the contenders that are wanted."""
        wanted = self.contenders
        return [
            (device, name)
            for device in self.devices
            for name in contenders_of(workload, device)
            if not wanted or name in wanted or name.split(":")[0] in wanted
        ]


class Turns:
    """A contender: its row, and its process."""

    def __init__(self, row: Row, process: Process) -> None:
        self.row, self.process = row, process

    @property
    def usable(self) -> bool:
        return self.row.status == "ok"

    def ask(self, patience: float, command: str, *arguments: Any) -> dict[str, Any]:
        """The answer; {} and a status where there is none."""
        self.process.send(command, *arguments)
        return self.answer(patience)

    def answer(self, patience: float) -> dict[str, Any]:
        try:
            return self.process.answer(patience)
        except ProcessError as error:
            self.row.status, self.row.log = str(error), error.log
            return {}

    def built(self, patience: float) -> None:
        """Waits for the answer to "build"."""
        answer = self.answer(patience)
        if self.usable:
            self.row.status = answer.get("unavailable", "ok")
            self.row.log = answer.get("log", "")
            for key in ("build_s", "first_s", "moved"):
                setattr(self.row, key, answer.get(key))
            self.row.clock = answer.get("clock", "")


class Harness:
    """Runs workloads. Used as a context: at its end the processes that families share are ended."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._shared: dict[tuple[str, str, str], Process] = {}

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._shared.values():
            process.close()
        self._shared.clear()

    def run(self, workload: Workload, chosen: Sequence[tuple[str, str]] | None = None) -> list[Row]:
        """Check and time contenders, given as device and name; without them those of the settings."""
        settings, size = self.settings, self.settings.size_of(workload)
        flops = workload.flops(size) if workload.flops else None
        contenders = [
            Turns(Row(name, device, flops=flops), self._process(workload, name, device))
            for device, name in chosen or settings.chosen(workload)
        ]
        try:
            self._build(workload, size, contenders)
            self._check(workload, size, contenders)
            self._time(workload, contenders)
            for each in contenders:
                if each.usable:
                    each.row.notes = each.ask(settings.patience, "notes").get("notes", {})
        finally:
            for each in contenders:
                self._leave(workload, each)
        return [each.row for each in contenders]

    def _process(self, workload: Workload, name: str, device: str) -> Process:
        system = name.split(":")[0]
        if not workload.family:
            return Process(system, device, workload.environment)
        key = (workload.family, name, device)
        process = self._shared.get(key)
        if process is None or not process.alive:
            if process is not None:
                process.close()
            process = self._shared[key] = Process(system, device, workload.environment)
        return process

    def _leave(self, workload: Workload, each: Turns) -> None:
        if not workload.family:
            each.process.close()
        elif each.process.alive:
            each.ask(PATIENCE, "drop")

    def _build(self, workload: Workload, size: int, contenders: Sequence[Turns]) -> None:
        """One after the other; those of a family at once, since compiling takes them most of their time."""
        settings = self.settings
        for each in contenders:
            if settings.left <= 0:
                each.row.status = "not run: the time was used up"
                continue
            each.process.send("build", workload.name, each.row.name, size)
            if not workload.family:
                each.built(settings.patience)
        if workload.family:
            for each in contenders:
                if each.usable:
                    each.built(settings.patience)

    def _check(self, workload: Workload, size: int, contenders: Sequence[Turns]) -> None:
        if not self.settings.checked or not any(each.usable for each in contenders):
            return
        want = workload.oracle(workload.inputs(size))
        for each in contenders:
            if each.usable:
                compare(each, want, workload.tolerance, self.settings.patience)

    def _time(self, workload: Workload, contenders: Sequence[Turns]) -> None:
        settings = self.settings
        gpu = any(place.kind(each.row.device) != "cpu" for each in contenders)
        calls = workload.repeats * (GPU_CALLS if gpu else 1)
        least_s, warm_s = (TURN_S, TURN_S) if workload.family else (0.0, WARM_S)
        pause = 0.0 if gpu else PAUSE
        if settings.quick:  # whether it runs is the question
            least_s = warm_s = pause = 0.0
        for each in contenders:
            if each.usable:
                each.ask(settings.patience, "turn", 2, 0.0, 0.0)
        for _ in range(settings.rounds):
            for each in contenders:
                if each.usable and settings.left > 0:
                    time.sleep(pause)
                    answer = each.ask(PATIENCE, "turn", calls, least_s, warm_s if gpu else 0.0)
                    each.row.times += [answer[key] for key in ("time",) if key in answer]
                    each.row.device_times += [answer[key] for key in ("device_time",) if key in answer]
        for each in contenders:
            if each.usable and not each.row.times:
                each.row.status = "not timed: the time was used up"


def compare(each: Turns, want: Mapping[str, np.ndarray], tolerance: Mapping[str, float], patience: float) -> None:
    """Fetches the contender's outputs; a status says which is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outputs.npz"
        each.ask(patience, "fetch", str(path))
        if not each.usable:
            return
        with np.load(path) as got:
            errors = {key: relative_error(got[key], np.asarray(want[key])) for key in got.files if key in want}
    each.row.error = max(errors.values(), default=None)
    for key, error in errors.items():
        if not error <= tolerance[key]:
            each.row.status = f"wrong: {key} off by {error:.1e}"
