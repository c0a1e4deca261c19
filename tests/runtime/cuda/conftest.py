"""The simulated CUDA device."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

import loopgrad as lg


@pytest.fixture
def sim() -> Iterator[ModuleType]:
    from tests.simulator.cuda import device  # late: it needs the whole library

    with lg.default_device("cuda:0"):
        yield device
    device.set_state("capacity", 1 << 32)
