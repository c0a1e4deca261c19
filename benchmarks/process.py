"""A contender's process, as the harness sees it: questions as lines of JSON, answers with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from benchmarks import place

ROOT = Path(__file__).parents[1]
LOG_LINES = 40


class ProcessError(Exception):
    """No answer: the message says why in a line; `log` is the end of what the process printed."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class Process:
    """Runs `benchmarks.worker` for one system on one device. After a ProcessError it is gone."""

    def __init__(self, system: str, device: str, environment: Mapping[str, str]) -> None:
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed with the process
        path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", system], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, **environment, place.VARIABLE: device, "PYTHONPATH": path},
        )  # fmt: skip
        assert self._process.stdout is not None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=_forward, args=(self._process.stdout, self._lines), daemon=True)
        self._reader.start()
        self._asked = ""

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, patience: float, command: str, *arguments: Any) -> dict[str, Any]:
        """The answer; ProcessError where the process failed or took longer than `patience` seconds."""
        self.send(command, *arguments)
        return self.answer(patience)

    def send(self, command: str, *arguments: Any) -> None:
        """The question alone, so that several processes can work on theirs at once."""
        assert self._process.stdin is not None
        self._asked = command
        with contextlib.suppress(BrokenPipeError):  # `answer` says what happened
            self._process.stdin.write(json.dumps([command, *arguments]) + "\n")
            self._process.stdin.flush()

    def answer(self, patience: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=max(patience, 0.1))
        except queue.Empty:
            self._process.kill()
            self._process.wait(timeout=60)
            raise ProcessError(f"{self._asked} took more than {max(patience, 0.0):.0f} s") from None
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process.wait(timeout=60)
        self._log.seek(0)
        lines = self._log.read().strip().splitlines() or [f"the process ended with {self._process.returncode}"]
        raise ProcessError(f"failed: {lines[-1]}", "\n".join(lines[-LOG_LINES:]))

    def close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=60)
        self._reader.join(timeout=60)
        self._log.close()


def _forward(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    """Every line, then an empty one for the end."""
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")
