"""Real processes, by the launcher that is there: the same bits on any number of them, errors on all, no hang.

One launch for each number of processes, which runs many programs (`programs.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.mesh.start import StartError, environment, launcher
from tests.architecture.sources import ROOT
from tests.runtime.mesh import killed_fit
from tests.started_programs import around

pytest.importorskip("mpi4py")
LONGEST = 150  # seconds; a launch takes a few
try:
    launcher(1)
except StartError as missing:
    pytest.skip(str(missing), allow_module_level=True)


def started(*command: str, launch: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*launch, sys.executable, *command], capture_output=True, text=True, timeout=LONGEST, check=False, cwd=ROOT,
        env=environment(2, around()),
    )  # fmt: skip


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process finds, without a launcher, of what is large or usual."""

    @cache
    def found(what):
        folder = tmp_path_factory.mktemp("alone")
        lg.save(folder.parent / "one.npz", lg.shard(np.linspace(0.0, 1.0, 101), lg.mesh()))
        ran = started("tests/runtime/mesh/programs.py", str(folder), what)
        assert ran.returncode == 0, ran.stderr
        return json.loads((folder / "0.json").read_text())

    return found


def found_by(count, what, folder):
    """What each of so many processes finds."""
    ran = started("-m", "loopgrad", "run", "-n", str(count), "tests/runtime/mesh/programs.py", str(folder), what)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


@pytest.mark.in_turns
@pytest.mark.parametrize(("count", "what"), [(2, "usual"), (3, "differ"), (2, "large")])
def test_bits_and_errors_are_the_same_on_all_processes(count, what, alone, tmp_path):
    """Large results of three processes are test_partition's. Three end with calls that differ."""
    expected = alone("large" if what == "large" else "usual")  # first: it leaves a file for the others
    found = found_by(count, what, tmp_path)
    if what == "large":
        assert found == [expected] * count
        return
    expected = {**expected, "another program": "DeviceError"}
    check_errors(expected)
    if what == "differ":
        del expected["broken off"]
        check_differing([each.pop("differing") for each in found])
    for each in found:
        assert each == expected


def check_errors(found):
    assert found["a loop without end in one lane"] == "LoopLimitError"
    assert found["where nobody meets"] == found["in a replay"] == "LoopLimitError"
    assert found["an index in one lane"] == "IndexRangeError"
    assert {raised for name, raised in found.items() if name.startswith("no memory")} == {"MemoryError"}
    assert found["lanes that can't be read"] == found["a disk that is full"] == "OSError"
    assert found["no such file"] == "FileNotFoundError"
    assert found["moved lanes"] == found["elements of lanes"] == "DeviceError"


def check_differing(found):
    """All are told who called what."""
    for each in found:
        assert (each["before"], each["afterwards"], each["again"], each["in step"]) == (56.0, 56.0, 8.0, 56.0)
        for name in ("once more", "another function", "given up"):
            assert each[name] == found[0][name]
            assert each[name].startswith("DeviceError: mesh: expected all processes to call the same programs")
    text = found[0]["once more"]
    assert "processes 0, 2, call " in text
    assert "process 1, call " in text
    assert "lambda: (total(x), total(x))" in text  # the user's line
    assert "gives float64[]" in text
    assert "lg.shard" in found[1]["another function"]
    for each in (found[0], found[2]):
        assert "process 1 of 3 has ended its program" in each["ended"]
        assert "process 1 of 3 has ended its program" in each["ended, again"]
        assert "total(x)" in each["ended"]
        assert each["nobody meets"] == 3.0


@pytest.mark.in_turns
@pytest.mark.parametrize("command", ["loopgrad run", "plain python"])
def test_an_exception_on_one_process_ends_all(command, tmp_path):
    program = tmp_path / "fails.py"
    program.write_text(
        "import numpy as np, loopgrad as lg\n"
        "mesh = lg.mesh()\n"
        "x = lg.shard(np.ones(8), mesh)\n"
        "if mesh.rank == 1:\n"
        "    raise KeyError('only here')\n"
        "print(float(lg.sum(x)))\n"
    )
    start = time.monotonic()
    if command == "loopgrad run":
        ran = started("-m", "loopgrad", "run", "-n", "2", str(program))
    else:
        ran = started(str(program), launch=launcher(2))
    assert ran.returncode != 0
    assert "only here" in ran.stderr
    assert time.monotonic() - start < LONGEST / 2


@pytest.mark.in_turns
@pytest.mark.parametrize("count", [1, 3])
def test_a_fit_whose_process_is_killed_goes_on_to_the_same_bits(count, tmp_path):
    """The example, on two processes of which one is killed; then on three, or here, on a mesh of one."""
    checkpoint = tmp_path / "fit.npz"
    start = time.monotonic()
    ran = started("-m", "loopgrad", "run", "-n", "2", "tests/runtime/mesh/killed_fit.py", str(checkpoint))
    assert ran.returncode != 0
    assert time.monotonic() - start < LONGEST / 2
    assert lg.load(checkpoint)[0] == 6  # the last one before
    (parts,) = {name.split("-")[0] for name in os.listdir(f"{checkpoint}.parts")}
    if count == 1:
        again = lg.tree.leaves(killed_fit.fitted(lg.mesh(), str(checkpoint)))
    else:
        program, result = "tests/runtime/mesh/killed_fit.py", str(tmp_path / "result.npz")
        ran = started("-m", "loopgrad", "run", "-n", str(count), program, str(checkpoint), result)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        again = lg.load(result)
    for x, y in zip(again, lg.tree.leaves(killed_fit.fitted(None)), strict=True):
        np.testing.assert_array_equal(x, y)
    assert lg.load(checkpoint)[0] == killed_fit.ITERATIONS
    assert not any(name.startswith(parts) for name in os.listdir(f"{checkpoint}.parts"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-n", "0", "fit.py"), "at least 1 process"),
        (("-n", "2", "missing.py"), "there is none at missing.py"),
    ],
)
def test_the_command_says_what_it_needs(arguments, said):
    ran = started("-m", "loopgrad", "run", *arguments)
    assert ran.returncode == 2
    assert said in ran.stderr
