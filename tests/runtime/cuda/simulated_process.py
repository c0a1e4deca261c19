"""Tests of some files in a process of their own, in which CUDA is simulated."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from tests.emitted_kernels import outside_the_run

SIMULATED = "LOOPGRAD_TEST_SIMULATED_CUDA"
inside = pytest.mark.skipif(SIMULATED not in os.environ, reason="for a process in which CUDA is simulated")


def run_simulated(files: Sequence[str]) -> None:
    """Run the tests of these files of the folder, one after the other; skip where CUDA can't be simulated."""
    from tests.runtime.cuda.test_reasons import simulated  # late: it imports loopgrad

    if not simulated():
        pytest.skip("a CUDA driver, or no C compiler, or no cuda-bindings")
    paths = [str(Path(__file__).with_name(f"{name}.py")) for name in files]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "--timeout", "100", "-p", "no:cacheprovider", *paths],
        capture_output=True, text=True, timeout=280, env={**outside_the_run(), SIMULATED: "1"},
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr


def spent(sim: ModuleType, work: Callable[[], object]) -> dict[str, int]:
    """What one call of `work` adds to the driver's counters."""
    before = sim.counts()
    work()
    after = sim.counts()
    return {name: after[name] - before[name] for name in after}
