"""Every test of this folder runs on each GPU there is, and on the simulator of one; kernels are written as for
the CPU."""

import pytest

from loopgrad.runtime.devices import NUMBERED, devices
from tests.codegen.targets.gpu.gpu_harness import Choice
from tests.simulator.device import install


def gpus() -> list[str]:
    """The first device of every kind."""
    return ["simulator:0", *[s.name for s in devices() if s.available and s.kind in NUMBERED and s.name.endswith(":0")]]


@pytest.fixture(autouse=True, params=gpus())
def gpu(request, monkeypatch):
    monkeypatch.setitem(NUMBERED, "simulator", NUMBERED.get("simulator"))
    install()
    monkeypatch.setattr(Choice, "name", request.param)
    return request.param
