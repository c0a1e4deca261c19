"""Fixtures every test may ask for: the devices of this machine, dtypes, and derivative modes.

The on-disk cache of a test run lives in a folder of its own that goes when the run ends; the
workers of one parallel run share it. LOOPGRAD_TEST_DEVICES selects devices: names joined by commas, or
"all" for the first of every kind that can be used here; without it the interpreter and the CPU. A run with
Vulkan among them is checked by spirv-val and by the validation layer too (see vulkan_checks).

Most tests' programs of the CPU are compiled without LLVM's optimisations (see code_levels); selection says which tests
run where, and which take turns.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests import amdgpu_checks, code_levels, emitted_kernels, ptx_checks, selection, vulkan_checks

_CACHE_VARIABLE = "LOOPGRAD_CACHE_DIR"
_TESTS_PER_COLLECTION = 100  # after which the garbage collector need not look again at what is alive
_TESTS_PER_FULL_COLLECTION = 4000
_YOUNG = 10_000  # new objects that it looks through at once: most are gone by then
_PROGRAM_BYTES = 1 << 27  # of a worker: few programs of one test run in another one
_owned_cache: str | None = None


def pytest_configure(config: pytest.Config) -> None:
    """Point the cache at a temporary folder; workers of pytest-xdist inherit the controller's."""
    global _owned_cache
    selection.start(config)
    os.environ.setdefault("LP_NUM_THREADS", "1")  # lavapipe would run a thread per core in every worker
    os.environ.setdefault("GALLIVM_PERF", "nopt")  # nor is its code worth optimising: most of it runs once
    os.environ.setdefault("LOOPGRAD_PROGRAM_BYTES", str(_PROGRAM_BYTES))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # programs that tests start would compile our sources each time
    if _CACHE_VARIABLE not in os.environ:
        _owned_cache = tempfile.mkdtemp(prefix="loopgrad-tests-")
        os.environ[_CACHE_VARIABLE] = _owned_cache
    code_levels.start(config, selection.share)
    chosen = chosen_devices()
    if "all" in chosen or any(name.startswith("vulkan") for name in chosen):
        vulkan_checks.start(config)
    if any(name.startswith("simulator") for name in chosen):
        from tests.simulator.device import install  # late: it needs the whole library

        install()
    if any(name.startswith("emulator") for name in chosen):
        from tests.emulator.device import install as install_emulator  # late, as above

        install_emulator()
    if "LOOPGRAD_TEST_SIMULATED_CUDA" in os.environ:
        from tests.simulator.cuda.device import install as simulate_cuda  # late, as above

        simulate_cuda()
    gpus = any(name.partition(":")[0] not in ("interpreter", "cpu", "emulator") for name in chosen)
    if gpus and os.environ.get(emitted_kernels.JUDGED_VARIABLE) == "1":
        ptxas = ptx_checks.assembler()
        judges = [amdgpu_checks.AmdCompiler(), *([ptx_checks.PtxAssembler(ptxas)] if ptxas is not None else [])]
        emitted_kernels.start(config, judges)


def pytest_unconfigure() -> None:
    if _owned_cache is not None:
        os.environ.pop(_CACHE_VARIABLE, None)
        shutil.rmtree(_owned_cache, ignore_errors=True)


def chosen_devices() -> list[str]:
    return os.environ.get("LOOPGRAD_TEST_DEVICES", "interpreter,cpu").split(",")


def selected_devices() -> list[str]:
    """The devices of this run."""
    chosen = chosen_devices()
    if chosen != ["all"]:
        return chosen
    import loopgrad as lg  # late: tests of single layers must collect without the public package

    first: dict[str, str] = {}
    for status in lg.devices():
        if status.available:
            first.setdefault(status.kind, status.name)
    return list(first.values())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", selected_devices(), indirect=True)
    if "compiled_device" in metafunc.fixturenames:
        compiled = [name for name in selected_devices() if name != "interpreter"]
        metafunc.parametrize("compiled_device", compiled, indirect=True)


@pytest.hookimpl(tryfirst=True)  # so that pytest sorts those that are left by their fixtures, and not all
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the samples, for each of the devices that share tests its own, and of what takes turns whose turn it is."""
    if dropped := selection.left_out(items, chosen_devices()):
        config.hook.pytest_deselected(items=list(dropped))
        items[:] = [item for item in items if item not in dropped]


def pytest_collection() -> None:
    """Twenty thousand tests are millions of objects, which the garbage collector needn't look through."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
    _, middle, _ = gc.get_threshold()
    gc.set_threshold(_YOUNG, middle, 1000)  # of the rest, pytest_runtest_logfinish takes care


_finished = itertools.count(1)


def pytest_runtest_logfinish() -> None:
    """So are the programs that stay in memory: looking through them again and again took a third of the time."""
    finished = next(_finished)
    if finished % _TESTS_PER_COLLECTION == 0:
        if finished % _TESTS_PER_FULL_COLLECTION == 0:  # of programs that were set aside and have gone since
            gc.unfreeze()
        gc.collect()
        gc.freeze()


@pytest.fixture
def young_heap() -> None:
    """For tests that collect garbage often: they needn't look through what the tests before them left."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test on each device; tensors without a device go there. What the device compiles is tested: small
    programs don't run without it, but for those whose turn it is to (see selection.runs_directly)."""
    import loopgrad as lg

    with lg.default_device(request.param), lg.options(direct=selection.runs_directly(request.node)):
        yield request.param


@pytest.fixture
def compiled_device(request: pytest.FixtureRequest) -> Iterator[str]:
    """As `device`, without the interpreter: for what only compiled code has, or can do in time."""
    import loopgrad as lg

    with lg.default_device(request.param), lg.options(direct=False):
        yield request.param


@pytest.fixture
def process_device(compiled_device: str) -> str:
    """As `compiled_device`, for tests that start processes: they don't know the simulator."""
    if compiled_device.startswith(("simulator", "emulator")) or "LOOPGRAD_TEST_SIMULATED_CUDA" in os.environ:
        pytest.skip("only the process of the tests has a simulator")
    return compiled_device


@pytest.fixture
def formulas_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is asked is what formulas are, not how a device computes them: but for tests that name devices, the
    interpreter runs them, which compiles nothing."""
    import loopgrad as lg

    if "device" in request.fixturenames:
        yield
    else:
        with lg.default_device("interpreter"):
            yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> object:
    """The two floating-point types that every device computes in."""
    import loopgrad as lg

    return getattr(lg, request.param)


@pytest.fixture(params=["reverse", "forward"])
def mode(request: pytest.FixtureRequest) -> str:
    """How a derivative is taken; `oracles.check_gradient` understands both."""
    return str(request.param)
