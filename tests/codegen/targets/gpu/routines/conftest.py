"""Routines that need matrix units run where there are some."""

import pytest

from loopgrad.graph.primitives.attention import OF_ALL


def has_units(gpu: str) -> bool:
    kind = gpu.partition(":")[0]
    if kind == "vulkan":
        from loopgrad.runtime.devices import get_device  # late: few tests ask

        return len(get_device(gpu).gpu.features.factors) == len(OF_ALL)  # other floats than those have none
    return kind in ("simulator", "cuda")


@pytest.fixture
def units(gpu: str) -> str:
    """A GPU that has them."""
    if not has_units(gpu):
        pytest.skip(f"{gpu} has no matrix units that code is made for")
    return gpu


@pytest.fixture
def plain(gpu: str) -> str:
    """A GPU that has none."""
    if has_units(gpu):
        pytest.skip(f"{gpu} has matrix units")
    return gpu


@pytest.fixture
def warpgroups(units: str) -> str:
    """A GPU that has those of warpgroups."""
    from loopgrad.runtime.devices import get_device  # late: few tests ask

    if units.startswith("simulator"):
        return "simulator:2"
    if not getattr(get_device(units), "warpgroups", False):
        pytest.skip(f"{units} has no matrix units of warpgroups that code is made for")
    return units
