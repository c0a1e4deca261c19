"""The benchmark harness: its checks refuse wrong results, its tables say what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.oracles import relative_error
from benchmarks.registry import WORKLOADS, contenders_of, load
from benchmarks.tables import markdown

ROOT = Path(__file__).parents[2]


def run_benchmarks(*arguments):
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)


@pytest.mark.parametrize("workload", ["ragged", "newton", "stream", "sphere_trace", "ode", "wave", "small", "big_axis"])
def test_own_contenders_pass_the_oracle(tmp_path, workload):
    results = tmp_path / "results.json"
    run = run_benchmarks("--workload", workload, "--quick", "--rounds", "1", "--peers", "none", "--out", str(results))
    assert run.returncode == 0, run.stderr
    assert "wrong" not in run.stdout
    assert "failed" not in run.stdout
    record = json.loads(results.read_text())
    assert [row["status"] for row in record["workloads"][workload]["rows"] if row["name"] == "loopgrad"] == ["ok"]
    assert "| loopgrad |" in markdown(record)


def test_a_peer_that_is_not_installed_is_no_win(tmp_path):
    run = run_benchmarks(
        "--workload", "ragged", "--quick", "--rounds", "1", "--peers", "numpy,quadrants",
        "--out", str(tmp_path / "results.json"),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows = {line.split()[0]: line for line in run.stdout.splitlines()[2:] if line.strip()}
    assert "numpy" in rows
    assert "quadrants" in rows


def test_gpu_contenders_run_on_what_computes_like_a_gpu(tmp_path):
    """The interpreter takes the GPU's way through the harness: its table of contenders, no limit in C."""
    results = tmp_path / "results.json"
    run = run_benchmarks(
        "--workload",
        "ragged-skewed",
        "--size",
        "200",
        "--rounds",
        "1",
        "--device",
        "interpreter",
        "--out",
        str(results),
    )
    assert run.returncode == 0, run.stderr
    rows = json.loads(results.read_text())["workloads"]["ragged_skewed"]["rows"]
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["device"] for row in rows} == {"interpreter"}
    assert "loopgrad:fast math" in {row["name"] for row in rows}


def test_what_does_not_fit_into_the_time_is_left_out(tmp_path):
    run = run_benchmarks("--workload", "newton", "--quick", "--limit", "0", "--out", str(tmp_path / "results.json"))
    assert run.returncode == 0, run.stderr
    assert "not run" in run.stdout


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_says_what_runs_on_which_device(workload):
    module = load(workload)
    assert "loopgrad" in module.CONTENDERS
    for device in ("cuda:0", "hip:0", "vulkan:0"):
        names = contenders_of(module, device)
        assert "loopgrad" in names or not names
    assert all(name.split(":")[0] == "loopgrad" for name in contenders_of(module, "interpreter"))


def test_relative_error():
    assert relative_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == 0.5
    assert relative_error(np.zeros(2), np.zeros(3)) == float("inf")
    assert relative_error(np.array([np.nan]), np.array([1.0])) == float("inf")
