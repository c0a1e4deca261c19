"""Routines that need matrix units run where there are some."""

import pytest


def has_units(gpu: str, narrow: bool = True) -> bool:
    """`narrow`: for 16-bit floats alone."""
    kind = gpu.partition(":")[0]
    if kind == "vulkan":
        from loopgrad.runtime.devices import get_device  # late: few tests ask

        return narrow and bool(get_device(gpu).gpu.features.fragments)
    return kind in ("simulator", "cuda")


@pytest.fixture
def units(gpu: str, request: pytest.FixtureRequest) -> str:
    """A GPU that has them, for the dtype among the test's parameters."""
    if not has_units(gpu, "float16" in str(request.node.callspec.params)):
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
