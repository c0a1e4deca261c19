"""Weak sets that threads add to and list."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

from loopgrad.runtime.alive import Alive


class Member:
    """Something to refer to."""


def test_members_are_those_that_somebody_holds_in_order(young_heap: None) -> None:
    alive: Alive[Member] = Alive()
    held = [Member() for _ in range(5)]
    for member in held:
        alive.add(member)
    alive.add(Member())
    gc.collect()
    assert alive.members() == held
    del held[1:4], member
    assert alive.members() == held
    assert len(alive._found) == 2


def test_threads_may_add_and_list() -> None:
    alive: Alive[Member] = Alive()
    failures: list[Any] = []

    def work() -> None:
        try:
            held = []
            for _ in range(300):
                held.append(Member())
                alive.add(held[-1])
                assert held[-1] in alive.members()
                del held[:-5]
        except Exception as failure:
            failures.append(failure)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failures == []
