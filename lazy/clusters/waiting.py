"""Waiting for what workers compute, as long as they do something.

Dask waits for ever where no worker is left, since another one may come; and a task whose worker died in a bad moment
may wait although others are free. Here both end: `gathered` says so after some seconds, and `persistent` does such work
again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final, TypeVar

from loopgrad.graph.errors import explained

LOOKS: Final = 0.5  # seconds between two looks at what workers do
PATIENCE: Final = 300.0
T = TypeVar("T")


class StalledError(RuntimeError):
    """Nothing was done for too long. `workers`: how many there are."""

    def __init__(self, text: str, workers: int) -> None:
        super().__init__(text)
        self.workers = workers


def gathered(client: Any, futures: Sequence[Any], what: str, patience: float) -> list[Any]:
    """The results of tasks. RuntimeError where nothing was done for `patience` seconds: then they are given up."""
    found = aside(lambda: client.gather(list(futures)))
    changed, done = time.monotonic(), -1
    while not wait([found], LOOKS).done:
        now_done = sum(future.done() for future in futures)
        if now_done != done or _computes(client, futures):
            changed, done = time.monotonic(), now_done
        if time.monotonic() - changed > patience:
            client.cancel(list(futures), force=True)
            workers = len(client.nthreads())
            doing = f"{workers} that do nothing" if workers else "none"
            got = f"{doing} for {patience:g} s, with {len(futures) - done} of {len(futures)} results missing"
            fix = "start workers, or pass patience= for how many seconds to wait for them"
            raise StalledError(explained(what, "workers that compute", got, fix), workers)
    results: list[Any] = found.result()
    return results


def _computes(client: Any, futures: Sequence[Any]) -> bool:
    """Whether a worker is inside a task that results wait for: what a worker was only given may wait for data that a
    dead one had."""
    with suppress(OSError):  # that worker is gone
        return any(client.call_stack(list(futures)).values())
    return False


def aside(do: Callable[[], Any]) -> Future[Any]:
    """What `do` gives, from a thread that nobody waits for at the end."""
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(do())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True, name="loopgrad-gather").start()
    return found


def persistent(do: Callable[[], T], retries: int) -> T:
    """What `do` gives; where workers are there and nothing was done, it is done again, so many times."""
    if retries < 0:
        raise ValueError(explained("retries", "a number of at least 0", retries, "pass 0 to try once"))
    for left in reversed(range(retries + 1)):
        try:
            return do()
        except StalledError as stalled:
            if not left or not stalled.workers:
                raise
    raise AssertionError("the last try returns or raises")
