"""The simulator of a GPU: `simulator:0` without graphs, `simulator:1` with graphs that have loops."""

import pytest

from loopgrad.runtime.devices import NUMBERED
from tests.simulator.device import install


@pytest.fixture(autouse=True)
def simulator(monkeypatch):
    monkeypatch.setitem(NUMBERED, "simulator", NUMBERED.get("simulator"))
    install()
