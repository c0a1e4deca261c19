"""Routines that need matrix units run where there are some."""

import pytest


@pytest.fixture
def units(gpu: str) -> str:
    """A GPU that has them."""
    if gpu.partition(":")[0] not in ("simulator", "cuda"):
        pytest.skip(f"{gpu} has no matrix units that code is made for")
    return gpu
