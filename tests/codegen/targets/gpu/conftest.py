"""Every test of this folder runs on each GPU there is, on the simulator of one, and on the emulators that
LOOPGRAD_TEST_DEVICES names; kernels are written as for the CPU."""

import os

import pytest

from loopgrad.runtime.devices import NUMBERED, devices
from tests.codegen.targets.gpu.gpu_harness import Choice
from tests.emulator.device import install as install_emulator
from tests.simulator.device import install


def gpus() -> list[str]:
    """The first device of every kind."""
    first = [s.name for s in devices() if s.available and s.kind in NUMBERED and s.name.endswith(":0")]
    chosen = os.environ.get("LOOPGRAD_TEST_DEVICES", "").split(",")
    emulators = [name for name in chosen if name.startswith("emulator")]
    return list(dict.fromkeys(["simulator:0", *first, *emulators]))  # simulators are devices too where they are chosen


@pytest.fixture(autouse=True, params=gpus())
def gpu(request, monkeypatch):
    for kind in ("simulator", "emulator"):
        monkeypatch.setitem(NUMBERED, kind, NUMBERED.get(kind))
    install()
    install_emulator()
    monkeypatch.setattr(Choice, "name", request.param)
    return request.param
