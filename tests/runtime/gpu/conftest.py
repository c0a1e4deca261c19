"""The simulator of a GPU: `simulator:0` without graphs, `simulator:1` with graphs that have loops."""

import pytest

from loopgrad.codegen.targets.gpu.routines.table import PROVIDERS
from loopgrad.runtime.devices import NUMBERED
from loopgrad.runtime.gpu import region_recorder
from tests.simulator.device import install


@pytest.fixture(autouse=True)
def simulator(monkeypatch):
    monkeypatch.setitem(NUMBERED, "simulator", NUMBERED.get("simulator"))
    install()


@pytest.fixture
def sorted_by_host(monkeypatch, tmp_path):
    """Programs that sort are driven by the host, as if GPUs had no kernels for that."""
    monkeypatch.setenv("LOOPGRAD_CACHE_DIR", str(tmp_path))
    for name in ("sort", "argsort", "top_positions"):
        monkeypatch.setitem(PROVIDERS, name, ())


@pytest.fixture
def recordings(monkeypatch):
    """The recordings that are made."""
    made = []
    original = region_recorder.tidy

    def watched(block, first):
        made.append(original(block, first))
        return made[-1]

    monkeypatch.setattr("loopgrad.runtime.gpu.device_decided.tidy", watched)
    return made
