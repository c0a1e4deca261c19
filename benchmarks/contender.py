"""One way of computing a workload, as the harness runs it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks import place

Arrays = dict[str, np.ndarray]


class Unavailable(Exception):
    """This contender cannot run here; the message says why."""


@dataclass(frozen=True)
class Contender:
    """`run` computes once and returns when the result exists; `fetch` turns its result into arrays to
    check; `notes` may report numbers of its own (bytes, counts) after the runs.

    `seconds_of(n)` is the time of one call as the device sees it, over n calls in a row; `clock` says how it
    is taken. `moved` are the bytes that one call has to move.
    """

    run: Callable[[], Any]
    fetch: Callable[[Any], Arrays]
    notes: Callable[[], dict[str, Any]] = field(default=dict)
    seconds_of: Callable[[int], float] | None = None
    clock: str = ""
    moved: int | None = None


def asynchronous(
    launch: Callable[[], Any],
    wait: Callable[[Any], Any],
    fetch: Callable[[Any], Arrays],
    notes: Callable[[], dict[str, Any]] = dict,
    *,
    seconds_of: Callable[[int], float] | None = None,
    moved: int | None = None,
) -> Contender:
    """`launch` starts the work and `wait` returns when its result exists.

    Without a clock of the device, calls are started one after the other and waited for once: as long as the
    device is the slower of the two, that is its time; where it isn't, the host's share is what a user pays.
    On a CPU only calls that wait are timed.
    """

    def run() -> Any:
        result = launch()
        wait(result)
        return result

    if not place.on_gpu():  # there, one clock for all
        return Contender(run, fetch, notes, moved=moved)

    def back_to_back(calls: int) -> float:
        run()
        began = time.perf_counter()
        for _ in range(calls):
            result = launch()
        wait(result)
        return (time.perf_counter() - began) / calls

    clock = "events" if seconds_of else "back to back"
    return Contender(run, fetch, notes, seconds_of or back_to_back, clock, moved)
