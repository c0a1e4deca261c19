"""Contenders of one system, one at a time, in a process of their own, driven over a pipe.

Questions come as lines of JSON on standard input, `["turn", 3, 0.01]`: a method of `Session` and its arguments. Each is
answered by one line of JSON. Libraries that print do so to standard error. What takes long to import is imported at
once, while other processes do the same.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import statistics
import sys
import time
import traceback
from typing import Any

import numpy as np

from benchmarks import place
from benchmarks.contender import Contender, Unavailable
from benchmarks.registry import contenders_of, load

TURN_S = 1.0  # after which a slow contender's turn ends
MOST_CALLS = 1000  # of a fast contender in a turn
MODULES = {"limit": "cuda.core", "hand": "cuda.core"}


class Session:
    """The contender that the process has now, once it is built, and its last result."""

    def __init__(self) -> None:
        self._contender: Contender | None = None
        self._result: Any = None

    def build(self, workload: str, name: str, size: int) -> dict[str, Any]:
        """Replaces the contender by this one, called once: how long that took, or why it can't be."""
        self._contender = self._result = None
        chosen = load(workload)
        arrays = chosen.inputs(size)
        began = time.perf_counter()
        try:
            contender = contenders_of(chosen, place.device())[name](arrays)
            built = time.perf_counter()
            self._result = contender.run()
        except ModuleNotFoundError as error:
            if (error.name or "").startswith(("loopgrad", "benchmarks")):
                raise
            return {"unavailable": f"not installed ({error.name or error})"}
        except Unavailable as error:
            return {"unavailable": str(error)}
        except Exception as error:
            if not chosen.family:
                raise
            return self._failure(error)
        self._contender = contender
        ended = time.perf_counter()
        facts = {"clock": contender.clock, "moved": contender.moved}
        return {"build_s": built - began, "first_s": ended - built, **facts}

    def _failure(self, error: Exception) -> dict[str, Any]:
        """Where others of the family will have this process, what went wrong doesn't end it."""
        text = f"failed: {type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"
        return {"unavailable": text, "log": traceback.format_exc()}

    def turn(self, calls: int, least_s: float, warm_s: float) -> dict[str, Any]:
        """The median time of that many calls, or of more in `least_s` seconds, after `warm_s` seconds of others (which
        bring up a GPU's clocks); and what one of as many calls in a row takes the device, where it has a clock."""
        contender = self._ready()
        end = time.perf_counter() + warm_s
        while time.perf_counter() < end:
            contender.run()
        times: list[float] = []
        while (len(times) < calls or sum(times) < least_s) and sum(times) < TURN_S and len(times) < MOST_CALLS:
            began = time.perf_counter()
            self._result = contender.run()
            times.append(time.perf_counter() - began)
        answer = {"time": statistics.median(times)}
        if contender.seconds_of is not None:
            answer["device_time"] = contender.seconds_of(len(times))
        return answer

    def fetch(self, path: str) -> dict[str, Any]:
        """The last result's arrays, written to a file."""
        arrays = self._ready().fetch(self._result)
        np.savez(path, **{k: np.asarray(v) for k, v in arrays.items()})
        return {"fetched": path}

    def notes(self) -> dict[str, Any]:
        return {"notes": self._ready().notes()}

    def drop(self) -> dict[str, Any]:
        """Forget the contender and its arrays, before another takes memory."""
        self._contender = self._result = None
        return {}

    def _ready(self) -> Contender:
        assert self._contender is not None
        return self._contender


def main() -> None:
    system = sys.argv[1]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with contextlib.suppress(Exception):  # building says what is wrong
        importlib.import_module(MODULES.get(system, system))
    session = Session()
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        answer = getattr(session, command)(*arguments)
        answers.write(json.dumps(answer, default=str) + "\n")


if __name__ == "__main__":
    main()
