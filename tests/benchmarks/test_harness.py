"""The benchmark harness: its checks refuse wrong results, its tables say what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.harness import relative_error

ROOT = Path(__file__).parents[2]


def run_benchmarks(*arguments):
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)


@pytest.mark.parametrize("workload", ["ragged", "newton", "stream", "sphere_trace", "ode", "wave", "small"])
def test_own_contenders_pass_the_oracle(tmp_path, workload):
    run = run_benchmarks("--workload", workload, "--quick", "--rounds", "1", "--peers", "none", "--out", str(tmp_path))
    assert run.returncode == 0, run.stderr
    assert "wrong" not in run.stdout
    assert "failed" not in run.stdout
    assert (tmp_path / f"{workload}.json").exists()


def test_a_peer_that_is_not_installed_is_no_win(tmp_path):
    run = run_benchmarks(
        "--workload", "ragged", "--quick", "--rounds", "1", "--peers", "numpy,quadrants", "--out", str(tmp_path)
    )
    assert run.returncode == 0, run.stderr
    rows = {line.split()[0]: line for line in run.stdout.splitlines()[2:] if line.strip()}
    assert "numpy" in rows
    assert "quadrants" in rows


def test_relative_error():
    assert relative_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == 0.5
    assert relative_error(np.zeros(2), np.zeros(3)) == float("inf")
