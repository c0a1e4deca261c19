"""Fixtures every test may ask for: the devices of this machine, dtypes, and derivative modes.

The on-disk cache of a test run lives in a folder of its own that goes when the run ends; the
workers of one parallel run share it. LOOPGRAD_TEST_DEVICES selects devices: names joined by commas, or
"all" for every one that can be used here; without it the interpreter and the CPU.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

_CACHE_VARIABLE = "LOOPGRAD_CACHE_DIR"
_owned_cache: str | None = None


def pytest_configure() -> None:
    """Point the cache at a temporary folder; workers of pytest-xdist inherit the controller's."""
    global _owned_cache
    if _CACHE_VARIABLE not in os.environ:
        _owned_cache = tempfile.mkdtemp(prefix="loopgrad-tests-")
        os.environ[_CACHE_VARIABLE] = _owned_cache


def pytest_unconfigure() -> None:
    if _owned_cache is not None:
        os.environ.pop(_CACHE_VARIABLE, None)
        shutil.rmtree(_owned_cache, ignore_errors=True)


def selected_devices() -> list[str]:
    """The devices of this run."""
    chosen = os.environ.get("LOOPGRAD_TEST_DEVICES", "interpreter,cpu")
    if chosen != "all":
        return chosen.split(",")
    import loopgrad as lg  # late: tests of single layers must collect without the public package

    return [status.name for status in lg.devices() if status.available]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", selected_devices(), indirect=True)
    if "compiled_device" in metafunc.fixturenames:
        compiled = [name for name in selected_devices() if name != "interpreter"]
        metafunc.parametrize("compiled_device", compiled, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test on each device; tensors without a device go there."""
    import loopgrad as lg

    with lg.default_device(request.param):
        yield request.param


@pytest.fixture
def compiled_device(request: pytest.FixtureRequest) -> Iterator[str]:
    """As `device`, without the interpreter: for what only compiled code has, or can do in time."""
    import loopgrad as lg

    with lg.default_device(request.param):
        yield request.param


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> object:
    """The two floating-point types that every device computes in."""
    import loopgrad as lg

    return getattr(lg, request.param)


@pytest.fixture(params=["reverse", "forward"])
def mode(request: pytest.FixtureRequest) -> str:
    """How a derivative is taken; `oracles.check_gradient` understands both."""
    return str(request.param)
