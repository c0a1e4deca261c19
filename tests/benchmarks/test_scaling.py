"""The model of steps on many processes: its parts against what they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.scaling import Job, Machine, collective, daly, lost, simulated, step_of, trips, young

MACHINE = Machine(call=1e-5, trip=1e-9, serial_trip=1e-7, latency=1e-5, bandwidth=1e9)


def test_steps_wait_for_the_slowest_process() -> None:
    parts = [np.full(1000, 3), np.full(2000, 3), np.array([500])]
    assert step_of(MACHINE, parts[:1]) == pytest.approx(1e-5 + 3e-6)
    assert step_of(MACHINE, parts) == pytest.approx(1e-5 + 5e-5 + collective(MACHINE, 3, 16))  # one long lane
    assert collective(MACHINE, 1, 1 << 20) == 0.0
    assert collective(MACHINE, 1024, 16) == pytest.approx(10e-5 + 1023 * 1024 / 1e9)


@pytest.mark.parametrize("law", ["uniform", "zipf"])
def test_the_simulation_is_that_of_drawn_lanes(law: str) -> None:
    """Also where sums of many lanes come from the normal law, against lanes drawn one by one."""
    lanes, processes = 8 * 70_000, 8
    time, _ = simulated(MACHINE, Job(lanes, law, processes), repeats=20)
    drawn = [step_of(MACHINE, np.split(trips(law, lanes, seed), processes)) for seed in range(1, 8)]
    assert time == pytest.approx(np.mean(drawn), rel=0.1)


def test_checkpoints_at_these_intervals_lose_least() -> None:
    for write, between in ((40.0, 178_000.0), (60.0, 3600.0), (300.0, 3600.0)):
        intervals = np.geomspace(write / 10, between, 20_000)
        least = min(lost(x, write, between) for x in intervals)
        assert lost(daly(write, between), write, between) == pytest.approx(least, rel=2e-3)
        assert least <= lost(young(write, between), write, between) < 1.05 * least
    assert daly(100.0, 40.0) == 40.0
