"""A test for each contender of each workload; `conftest.py` says what runs when."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.clock import Clock
from benchmarks.conftest import Runs
from benchmarks.tables import record


class ContenderError(Exception):
    """A contender failed, or its outputs are wrong."""


@pytest.mark.timeout(0)  # the harness has its own
def test_contender(workload: str, device: str, contender: str, runs: Runs, clock: Clock, benchmark: Any) -> None:
    row = runs.row(workload, device, contender)
    if row.status != "ok" and not row.status.startswith(("wrong", "failed")):
        pytest.skip(row.status)
    rounds = iter(row.samples)

    def replayed() -> None:
        if row.status != "ok":
            raise ContenderError(f"{row.status}\n{row.log}")
        clock.set(next(rounds))

    benchmark.extra_info.update(record(row))
    benchmark.pedantic(replayed, setup=clock.set, rounds=max(len(row.samples), 1))
