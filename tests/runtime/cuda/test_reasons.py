"""Why CUDA can't be used, in one line, and what a refused image is blamed on."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from loopgrad.runtime.cuda.api import blamed

ROOT = Path(__file__).parents[3]


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def simulated() -> bool:
    return not has_driver() and shutil.which("cc") is not None and find_spec("cuda") is not None


needs_simulator = pytest.mark.skipif(not simulated(), reason="a CUDA driver, or no C compiler, or no cuda-bindings")

ASK = """
import loopgrad as lg
status = [d for d in lg.devices() if d.kind == "cuda"]
print(status[0])
try:
    lg.asarray([1.0], device="cuda:0")
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


def ask(before: str = "") -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", before + ASK], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    return run.stdout.splitlines()


@pytest.mark.skipif(has_driver(), reason="there is a CUDA driver")
def test_no_driver():
    listed, raised = ask()
    assert listed == "cuda:0: libcuda.so.1 (the NVIDIA driver) not found"
    assert raised.startswith("device 'cuda:0' can't be used: libcuda.so.1 (the NVIDIA driver) not found; use one of")


@pytest.mark.in_turns
@needs_simulator
@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (("devices", 0), "the NVIDIA driver finds no device"),
        (("version", 11080), "the NVIDIA driver is for CUDA 11.8; update it to 12.0 or later"),
        (("major", 7), "CUDA device 0 has compute capability 7.0, and 8.0 or later is needed"),
    ],
)
def test_an_old_driver_or_device(state, reason):
    listed, raised = ask(f"from tests.simulator.cuda.device import set_state\nset_state(*{state!r})")
    assert listed == f"cuda:0: {reason}"
    assert raised.startswith(f"device 'cuda:0' can't be used: {reason}; use one of")


@needs_simulator
def test_no_package():
    listed, _ = ask("""
import sys
from tests.simulator.cuda.device import library
library()
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "cuda":
            raise ImportError(name)
for name in [name for name in sys.modules if name.split(".")[0] == "cuda"]:
    del sys.modules[name]
sys.meta_path.insert(0, Missing())
""")
    assert listed == "cuda:0: the package 'cuda-bindings' is not installed (pip install loopgrad[cuda])"


@needs_simulator
def test_listing_devices_makes_no_context():
    lines = ask("""
from loopgrad.runtime.cuda import found
from tests.simulator.cuda.device import library
library()
print(found.device_count(), int(found.driver().cuCtxGetCurrent()[1]))
""")
    assert lines[0] == "(1, '') 0"
    assert lines[1] == "cuda:0: available"


def test_a_refused_image_names_the_kernel_around_the_line():
    image = b".version 8.0\n.visible .entry first(\n)\n{\n}\n.visible .entry second(\n)\n{\nwrong\n}\n"
    assert blamed(image, "ptxas application ptx input, line 9; error : wrong") == "second"
    assert blamed(image, "ptxas application ptx input, line 4; error : wrong") == "first"
    assert blamed(image, "no number") == ""
