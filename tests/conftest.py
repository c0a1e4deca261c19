"""Fixtures every test may ask for: the devices of this machine, dtypes, and derivative modes.

The on-disk cache of a test run lives in a folder of its own that goes when the run ends; the
workers of one parallel run share it. LOOPGRAD_TEST_DEVICES selects devices: names joined by commas, or
"all" for the first of every kind that can be used here; without it the interpreter and the CPU. A run with
Vulkan among them is checked by spirv-val and by the validation layer too (see vulkan_checks).

An emulator of AMD GPUs (emulator:0, see tests.emulator) runs machine code instruction by instruction, and takes
long: it gets a sample of the tests that run on devices, always the same one, by the hash of their names.
LOOPGRAD_TEST_EMULATED is its share; with 1 every test runs there. Of tests marked `costly` (large programs, which a
driver's compiler, or LLVM for a GPU, takes seconds for) other GPUs get a sample as well, LOOPGRAD_TEST_COSTLY of
them, and the emulator none. Where simulators of CUDA run beside Vulkan, they share tests: each runs on one of them,
and what has parameters besides, cases of one thing, on one of them or on the interpreter, in turn (see _on_others).
LOOPGRAD_TEST_SHARED=0 runs each on all. Real GPUs share nothing, nor does the CPU. Of a test that combines three
parameters or more, half of the combinations run, such that any two values still meet; with LOOPGRAD_TEST_COMBINATIONS=1
all. Most tests' programs of the CPU are compiled without LLVM's optimisations (see code_levels). Tests of random
programs that a parameter `seed` numbers run for the first of the seeds and for a sample of the others,
LOOPGRAD_TEST_SEEDS of them. LOOPGRAD_TEST_SHARE is the share of all tests with parameters that run.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests import amdgpu_checks, code_levels, emitted_kernels, ptx_checks, vulkan_checks

_CACHE_VARIABLE = "LOOPGRAD_CACHE_DIR"
_EMULATED = float(os.environ.get("LOOPGRAD_TEST_EMULATED", 1 / 20))
_COSTLY = float(os.environ.get("LOOPGRAD_TEST_COSTLY", 1 / 5))
_SHARE = float(os.environ.get("LOOPGRAD_TEST_SHARE", 1))
_SEEDS = float(os.environ.get("LOOPGRAD_TEST_SEEDS", 1 / 3))
_FIRST_SEEDS = 4
_COMBINED = os.environ.get("LOOPGRAD_TEST_COMBINATIONS", "0") != "1"
_SHARED = os.environ.get("LOOPGRAD_TEST_SHARED", "1") != "0"
_STAND_INS = ("simulator:1", "vulkan:0")  # they share tests where both are chosen
_TURNS = ("simulator", "interpreter", "vulkan", "interpreter")
_DEVICE_FIXTURES = ("device", "compiled_device", "gpu")
_TESTS_PER_COLLECTION = 100  # after which the garbage collector need not look again at what is alive
_TESTS_PER_FULL_COLLECTION = 4000
_YOUNG = 10_000  # new objects that it looks through at once: most are gone by then
_PROGRAM_BYTES = 1 << 27  # of a worker: few programs of one test run in another one
_owned_cache: str | None = None


def pytest_configure(config: pytest.Config) -> None:
    """Point the cache at a temporary folder; workers of pytest-xdist inherit the controller's."""
    global _owned_cache
    config.addinivalue_line("markers", "costly: GPUs run a sample of these tests, LOOPGRAD_TEST_COSTLY of them")
    os.environ.setdefault("LP_NUM_THREADS", "1")  # lavapipe would run a thread per core in every worker
    os.environ.setdefault("GALLIVM_PERF", "nopt")  # nor is its code worth optimising: most of it runs once
    os.environ.setdefault("LOOPGRAD_PROGRAM_BYTES", str(_PROGRAM_BYTES))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # programs that tests start would compile our sources each time
    if _CACHE_VARIABLE not in os.environ:
        _owned_cache = tempfile.mkdtemp(prefix="loopgrad-tests-")
        os.environ[_CACHE_VARIABLE] = _owned_cache
    code_levels.start(config, _share)
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the samples, and for each of the devices that share tests its own."""
    sharing = _SHARED and set(_STAND_INS) <= set(chosen_devices())
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    dropped = {item for item in items if _share(item.nodeid) >= _sampled(item)}
    for function, cases in functions.items():
        dropped |= _numbered_beyond(cases)
        if _COMBINED:
            dropped |= (odd := _odd_combinations(function, cases))
            cases = [case for case in cases if case not in odd]
        if sharing and cases and not function.startswith("tests/runtime/"):  # each device has a runtime of its own
            dropped |= _on_others(function, cases)
    if dropped:
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


def _sampled(item: pytest.Item) -> float:
    """The share of tests like this one that run."""
    gpu = any(f"{kind}:" in item.name for kind in ("cuda", "emulator", "simulator", "vulkan"))
    costly = gpu and item.get_closest_marker("costly") is not None
    if "[" in item.name and _SHARE < 1:
        return _SHARE
    if "emulator:" in item.name:
        return 0.0 if costly and _EMULATED < 1 else _EMULATED
    return _COSTLY if costly else 1.0


def _parameters(item: pytest.Item) -> dict[str, object]:
    case = getattr(item, "callspec", None)
    return {} if case is None else case.params


def _numbered_beyond(cases: list[pytest.Item]) -> set[pytest.Item]:
    """What the sample of seeds leaves out of the cases of one test."""
    seeds = list(dict.fromkeys(str(_parameters(case).get("seed")) for case in cases))
    first = seeds[:_FIRST_SEEDS]
    return {case for case in cases if _share(case.nodeid) >= _SEEDS and str(_parameters(case).get("seed")) not in first}


def _names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0]
    return names.replace(" ", "").split(",") if isinstance(names, str) else list(names)


def _odd_combinations(function: str, items: list[pytest.Item]) -> set[pytest.Item]:
    """Every second of the combinations of three parameters or more: those whose values' numbers, each counted as it
    first comes, add up to odd numbers (in half of the functions even ones). Names of one `parametrize` are one."""
    together = [_names(mark) for mark in items[0].iter_markers("parametrize")]
    alone = {*_parameters(items[0])} - {name for names in together for name in names} - {*_DEVICE_FIXTURES}
    axes = [*together, *([name] for name in sorted(alone))]
    values = {item: [tuple(id(_parameters(item).get(name)) for name in names) for names in axes] for item in items}
    numbers = [{value: k for k, value in enumerate(dict.fromkeys(axis))} for axis in zip(*values.values(), strict=True)]
    if sum(len(axis) > 1 for axis in numbers) < 3:
        return set()
    start = int(2 * _share(function))
    placed = {item: sum(n[value] for n, value in zip(numbers, values[item], strict=True)) for item in items}
    return {item for item, place in placed.items() if (place + start) % 2}


def _on_others(function: str, items: list[pytest.Item]) -> set[pytest.Item]:
    """Those that others of the devices that share tests run. A case of emitted code, one that is costly, of which GPUs
    run few, or a test without parameters but the device runs on one GPU, other cases on one GPU or the interpreter.
    Cases take turns in the order of their hashes: each device has its share of them, whatever their parameters are."""
    devices = {item: _shared_device(item) for item in items}
    cases = {item: item.nodeid.replace(device, "") for item, device in devices.items() if device}
    kinds = {devices[item].partition(":")[0] for item in cases}
    gpus_alone = "gpu" in _parameters(items[0]) or items[0].get_closest_marker("costly") is not None
    turns = _TURNS[::2] if gpus_alone or len(set(cases.values())) < 2 else _TURNS
    start = int(len(turns) * _share(function))
    turn = {case: turns[k % len(turns)] for k, case in enumerate(sorted(set(cases.values()), key=_share), start)}
    shared = {*turns} & kinds
    return {item for item, case in cases.items() if devices[item].partition(":")[0] in shared - {turn[case]}}


def _shared_device(item: pytest.Item) -> str:
    """The device of a test, "" where it shares none."""
    parameters = _parameters(item)
    name = next((str(parameters[name]) for name in _DEVICE_FIXTURES if name in parameters), "")
    return name if name.partition(":")[0] in _TURNS else ""


def _share(name: str) -> float:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest()) / 2**32


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test on each device; tensors without a device go there. What the device compiles is tested: small
    programs don't run without it."""
    import loopgrad as lg

    with lg.default_device(request.param), lg.options(direct=False):
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
