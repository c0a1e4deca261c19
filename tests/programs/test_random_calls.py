"""Random calls against NumPy. `python tests/programs/random_calls.py --count N` tries as many as wanted."""

from __future__ import annotations

from collections import Counter

import pytest
from random_calls import FUNCTIONS, Draw, check_call

COUNT = 250


@pytest.mark.parametrize("name", ["interpreter", "cpu"])
def test_random_calls(name):
    outcomes = Counter([check_call(seed, name) for seed in range(COUNT)])
    assert outcomes["same"] > COUNT // 2, outcomes
    assert COUNT - outcomes["same"] - outcomes["refused by NumPy"] < COUNT // 50, outcomes


@pytest.mark.costly
def test_random_calls_on_devices(device):
    for seed in range(COUNT, COUNT + 100):
        check_call(seed, device)


def test_the_calls_cover_what_they_should():
    calls = [Draw(seed).call() for seed in range(COUNT)]
    assert len(FUNCTIONS) > 300
    assert len({call.name for call in calls}) > COUNT // 2
    assert sum(bool(call.options) for call in calls) > COUNT // 3
    assert {x.dtype.kind for call in calls for x in call.arguments if hasattr(x, "dtype")} >= set("biufc")
    assert sum(getattr(x, "size", 1) == 0 for call in calls for x in call.arguments) > 20
