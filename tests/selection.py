"""Which of the collected tests run: samples, devices that share tests, and tests that take turns.

An emulator of AMD GPUs (emulator:0, see tests.emulator) runs machine code instruction by instruction, and takes
long: it gets a sample of the tests that run on devices, always the same one, by the hash of their names.
LOOPGRAD_TEST_EMULATED is its share; with 1 every test runs there. Of tests marked `costly` (large programs, which a
driver's compiler, or LLVM for a GPU, takes seconds for) other GPUs get a sample as well, LOOPGRAD_TEST_COSTLY of
them, and the emulator none. Where simulators of CUDA run beside Vulkan, they share tests: each runs on one of them,
and what has parameters besides, cases of one thing, on one of them or on the interpreter, in turn (see _on_others).
LOOPGRAD_TEST_SHARED=0 runs each on all. Real GPUs share nothing, nor does the CPU. Of a test that combines three
parameters or more, half of the combinations run, such that any two values still meet; with LOOPGRAD_TEST_COMBINATIONS=1
all. Tests of random programs that a parameter `seed` numbers run for the first of the seeds and for a sample of the
others, LOOPGRAD_TEST_SEEDS of them. LOOPGRAD_TEST_SHARE is the share of all tests with parameters that run.

Where LOOPGRAD_TEST_TURNS is 4, as `tests/run` has it, each commit runs a quarter of the cases of a test marked
`in_turns` on each device, at least one, and the next commit the next quarter: four commits in a row run all. Vulkan,
simulators and emulators, which take longest, run none in some commits where they have fewer than four. The mark is for
tests whose cases take seconds together: the same code with other data, sizes or dtypes, or long lists of functions, of
which a wrong one may be found three commits late. LOOPGRAD_TEST_TURN is the number whose turn it is, where it
isn't that of the commit. Without the variable all cases run.

The `device` of a test compiles every program, however small. Where there are turns, each whole program of the CPU
runs as users' do in every seventh commit instead: directly, until it is worth compiling. LOOPGRAD_TEST_DIRECT=1 has all
run so, 0 none.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from math import ceil
from pathlib import Path

import pytest

DEVICE_FIXTURES = ("device", "compiled_device", "gpu")
TURN_VARIABLE = "LOOPGRAD_TEST_TURN"
_EMULATED = float(os.environ.get("LOOPGRAD_TEST_EMULATED", 1 / 20))
_COSTLY = float(os.environ.get("LOOPGRAD_TEST_COSTLY", 1 / 5))
_SHARE = float(os.environ.get("LOOPGRAD_TEST_SHARE", 1))
_SEEDS = float(os.environ.get("LOOPGRAD_TEST_SEEDS", 1 / 3))
_DIRECT = os.environ.get("LOOPGRAD_TEST_DIRECT")
_DIRECT_TURNS = 7  # which the four turns of other cases don't divide: those come to it, too
_FIRST_SEEDS = 4
_COMBINED = os.environ.get("LOOPGRAD_TEST_COMBINATIONS", "0") != "1"
_SHARED = os.environ.get("LOOPGRAD_TEST_SHARED", "1") != "0"
_TURNS = int(os.environ.get("LOOPGRAD_TEST_TURNS", 1))
_STAND_INS = ("simulator:1", "vulkan:0")  # they share tests where both are chosen
_SLOW = (*_STAND_INS, "emulator:0")  # beside the CPU, which runs a case of each test in every commit
_CYCLE = ("simulator", "interpreter", "vulkan", "interpreter")  # who runs the cases that they share


def start(config: pytest.Config) -> None:
    """Tell what the marks mean, and whose turn it is; workers of pytest-xdist inherit the controller's."""
    config.addinivalue_line("markers", "costly: GPUs run a sample of these tests, LOOPGRAD_TEST_COSTLY of them")
    config.addinivalue_line("markers", "in_turns: each commit runs one of LOOPGRAD_TEST_TURNS parts of these cases")
    os.environ.setdefault(TURN_VARIABLE, str(_commits()))


def _commits() -> int:
    """How many commits there are up to this one; 0 outside of a repository."""
    count = ["git", "rev-list", "--count", "HEAD"]
    try:
        counted = subprocess.run(count, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    except OSError:  # no git
        return 0
    return 0 if counted.returncode else int(counted.stdout)


def left_out(items: Sequence[pytest.Item], devices: Sequence[str]) -> set[pytest.Item]:
    """Those that don't run here and now, of a run on `devices`."""
    sharing = _SHARED and set(_STAND_INS) <= set(devices)
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    dropped = {item for item in items if share(item.nodeid) >= _sampled(item)}
    for function, cases in functions.items():
        dropped |= _numbered_beyond(cases)
        if _COMBINED:
            dropped |= (odd := _odd_combinations(function, cases))
            cases = [case for case in cases if case not in odd]
        if sharing and cases and not function.startswith("tests/runtime/"):  # each device has a runtime of its own
            dropped |= _on_others(function, cases)
        if cases and _TURNS > 1 and cases[0].get_closest_marker("in_turns") is not None:
            dropped |= _whose_turn_it_is_not([case for case in cases if case not in dropped])
    return dropped


def runs_directly(item: pytest.Item) -> bool:
    """Whether small programs of this test may run without being compiled."""
    if _DIRECT is not None:
        return _DIRECT == "1"
    if _TURNS == 1 or _device(item) != "cpu" or not item.nodeid.startswith("tests/programs/"):
        return False  # only the CPU runs programs directly
    return (int(_DIRECT_TURNS * share(item.nodeid)) + int(os.environ[TURN_VARIABLE])) % _DIRECT_TURNS == 0


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
    return {case for case in cases if share(case.nodeid) >= _SEEDS and str(_parameters(case).get("seed")) not in first}


def _names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0]
    return names.replace(" ", "").split(",") if isinstance(names, str) else list(names)


def _odd_combinations(function: str, items: list[pytest.Item]) -> set[pytest.Item]:
    """Every second of the combinations of three parameters or more: those whose values' numbers, each counted as it
    first comes, add up to odd numbers (in half of the functions even ones). Names of one `parametrize` are one."""
    together = [_names(mark) for mark in items[0].iter_markers("parametrize")]
    alone = {*_parameters(items[0])} - {name for names in together for name in names} - {*DEVICE_FIXTURES}
    axes = [*together, *([name] for name in sorted(alone))]
    values = {item: [tuple(id(_parameters(item).get(name)) for name in names) for names in axes] for item in items}
    numbers = [{value: k for k, value in enumerate(dict.fromkeys(axis))} for axis in zip(*values.values(), strict=True)]
    if sum(len(axis) > 1 for axis in numbers) < 3:
        return set()
    start = int(2 * share(function))
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
    turns = _CYCLE[::2] if gpus_alone or len(set(cases.values())) < 2 else _CYCLE
    start = int(len(turns) * share(function))
    turn = {case: turns[k % len(turns)] for k, case in enumerate(sorted(set(cases.values()), key=share), start)}
    shared = {*turns} & kinds
    return {item for item, case in cases.items() if devices[item].partition(":")[0] in shared - {turn[case]}}


def _whose_turn_it_is_not(cases: list[pytest.Item]) -> set[pytest.Item]:
    """What other commits run of a test's cases: each device has its own, in the order of their hashes."""
    turn = int(os.environ.get(TURN_VARIABLE, 0)) % _TURNS
    first = int(_TURNS * share(cases[0].nodeid.partition("[")[0])) if cases else 0
    devices: dict[str, list[pytest.Item]] = {}
    for case in sorted(cases, key=lambda case: share(case.nodeid)):
        devices.setdefault(_device(case), []).append(case)
    run: set[pytest.Item] = set()
    for device, own in devices.items():
        if device in _SLOW and len(devices) > 1:
            run.update(own[(turn + first) % _TURNS :: _TURNS])
            continue
        part = ceil(len(own) / _TURNS)  # of two cases, say, each turn has one
        run.update(own[place % len(own)] for place in range(turn * part, (turn + 1) * part))
    return {case for case in cases if case not in run}


def _shared_device(item: pytest.Item) -> str:
    """The device of a test, "" where it shares none."""
    name = _device(item)
    return name if name.partition(":")[0] in _CYCLE else ""


def _device(item: pytest.Item) -> str:
    """The device that a test names as a parameter, or ""."""
    parameters = _parameters(item)
    return next((str(parameters[name]) for name in DEVICE_FIXTURES if name in parameters), "")


def share(name: str) -> float:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest()) / 2**32
