"""One contender of one workload in a process of its own, driven over a pipe.

Commands come as lines on standard input ("build", "run N", "fetch PATH", "notes"); each is answered by one
line of JSON. Libraries that print do so to standard error. What takes long to import is imported at once,
while other processes do the same.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import place
from benchmarks.contender import Contender, Unavailable
from benchmarks.registry import contenders_of, load

WARM_S = 0.03  # on a GPU: before each turn, so that its clocks are up
TURN_S = 1.0  # after which a slow contender's turn ends
MODULES = {"limit": "cuda.core", "hand": "cuda.core"}


class Session:
    """The contender, once it is built, and the last result."""

    def __init__(self, module: ModuleType, name: str, size: int) -> None:
        self._module, self._name = module, name
        self._arrays = module.inputs(size)
        self._contender: Contender | None = None
        self._result: Any = None

    def build(self) -> dict[str, Any]:
        began = time.perf_counter()
        try:
            contender = contenders_of(self._module, place.device())[self._name](self._arrays)
            built = time.perf_counter()
            self._result = contender.run()
        except ModuleNotFoundError as error:
            if (error.name or "").startswith(("loopgrad", "benchmarks")):
                raise
            return {"unavailable": f"not installed ({error.name or error})"}
        except Unavailable as error:
            return {"unavailable": str(error)}
        self._contender = contender
        ended = time.perf_counter()
        facts = {"clock": contender.clock, "moved": contender.moved}
        return {"build_s": built - began, "first_s": ended - built, **facts}

    def run(self, argument: str) -> dict[str, Any]:
        contender, repeats = self._ready(), int(argument)
        if place.on_gpu():
            end = time.perf_counter() + WARM_S
            while time.perf_counter() < end:
                contender.run()
        times: list[float] = []
        while len(times) < repeats and sum(times) < TURN_S:
            began = time.perf_counter()
            self._result = contender.run()
            times.append(time.perf_counter() - began)
        if contender.seconds_of is None:
            return {"times": times}
        return {"times": times, "device_times": [contender.seconds_of(len(times))]}

    def fetch(self, argument: str) -> dict[str, Any]:
        arrays = self._ready().fetch(self._result)
        np.savez(argument, **{k: np.asarray(v) for k, v in arrays.items()})
        return {"fetched": argument}

    def notes(self) -> dict[str, Any]:
        return {"notes": self._ready().notes()}

    def _ready(self) -> Contender:
        assert self._contender is not None
        return self._contender


def main() -> None:
    workload, name, size = sys.argv[1:4]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    system = name.split(":")[0]
    with contextlib.suppress(Exception):  # building says what is wrong
        importlib.import_module(MODULES.get(system, system))
    session = Session(load(workload), name, int(size))
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        answer = getattr(session, command)(*([argument] if argument else []))
        answers.write(json.dumps(answer, default=str) + "\n")


if __name__ == "__main__":
    main()
