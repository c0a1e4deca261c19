"""The simulator of a GPU: `simulator:0` without graphs, `simulator:1` with graphs that have loops."""

import importlib.util
import sys
from pathlib import Path

import pytest

from loopgrad.runtime.devices import NUMBERED
from tests.simulator.device import install

_spec = importlib.util.spec_from_file_location("update_reference", Path(__file__).with_name("update_reference.py"))
sys.modules["update_reference"] = _module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)


@pytest.fixture(autouse=True)
def simulator(monkeypatch):
    monkeypatch.setitem(NUMBERED, "simulator", NUMBERED.get("simulator"))
    install()
