"""Routines that need matrix units run where there are some."""

import pytest


@pytest.fixture
def units(gpu: str) -> str:
    """A GPU that has them."""
    if gpu.partition(":")[0] not in ("simulator", "cuda"):
        pytest.skip(f"{gpu} has no matrix units that code is made for")
    return gpu


@pytest.fixture
def plain(gpu: str) -> str:
    """A GPU that has none."""
    if gpu.partition(":")[0] in ("simulator", "cuda"):
        pytest.skip(f"{gpu} has matrix units")
    return gpu


@pytest.fixture
def warpgroups(units: str) -> str:
    """A GPU that has those of warpgroups."""
    from loopgrad.runtime.devices import get_device  # late: few tests ask

    if units.startswith("simulator"):
        return "simulator:2"
    if not get_device(units).warpgroups:
        pytest.skip(f"{units} has no matrix units of warpgroups that code is made for")
    return units
