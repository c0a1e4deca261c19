"""Real processes, by the launcher that is there: the same bits on any number of them, errors on all, no hang.

One launch for each number of processes, which runs all programs (`programs.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from loopgrad.runtime.mesh.start import StartError, launcher
from tests.architecture.sources import ROOT

pytest.importorskip("mpi4py")
LONGEST = 150  # seconds; a launch takes a few
try:
    launcher(1)
except StartError as missing:
    pytest.skip(str(missing), allow_module_level=True)


def started(*command: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=LONGEST, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process finds, without a launcher."""
    folder = tmp_path_factory.mktemp("alone")
    ran = started("tests/runtime/mesh/programs.py", str(folder))
    assert ran.returncode == 0, ran.stderr
    return json.loads((folder / "0.json").read_text())


@pytest.mark.parametrize("count", [2, 3, 4])
def test_bits_and_errors_are_the_same_on_all_processes(count, alone, tmp_path):
    ran = started("-m", "loopgrad", "run", "-n", str(count), "tests/runtime/mesh/programs.py", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(count)]
    expected = {**alone, "another program": "DeviceError"}
    for each in found:
        assert each == expected
    assert alone["a loop without end in one lane"] == "LoopLimitError"
    assert alone["no memory on one process"] == "MemoryError"
    assert alone["moved lanes"] == alone["elements of lanes"] == "DeviceError"


def test_an_exception_on_one_process_ends_all(tmp_path):
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
    ran = started("-m", "loopgrad", "run", "-n", "2", str(program))
    assert ran.returncode != 0
    assert "only here" in ran.stderr
    assert time.monotonic() - start < LONGEST / 2


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
