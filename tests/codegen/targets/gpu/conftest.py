"""Every test of this folder runs on each GPU there is, and on the simulator of one.

Makes the test support modules importable by name; kernels are written as for the CPU.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

from loopgrad.runtime.devices import NUMBERED, devices
from tests.simulator.device import install

_here = Path(__file__).parent
for _name, _path in {
    "kernel_build": _here.parent / "cpu" / "kernel_build.py",
    "random_kernels": _here.parents[1] / "kernel" / "random_kernels.py",
    "gpu_harness": _here / "gpu_harness.py",
}.items():
    if _name not in sys.modules:
        _spec = importlib.util.spec_from_file_location(_name, _path)
        sys.modules[_name] = _module = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(_module)


def gpus() -> list[str]:
    """The first device of every kind."""
    return ["simulator:0", *[s.name for s in devices() if s.available and s.kind in NUMBERED and s.name.endswith(":0")]]


@pytest.fixture(autouse=True, params=gpus())
def gpu(request, monkeypatch):
    monkeypatch.setitem(NUMBERED, "simulator", NUMBERED.get("simulator"))
    install()
    monkeypatch.setattr(sys.modules["gpu_harness"].Choice, "name", request.param)
    return request.param
