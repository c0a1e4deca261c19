"""The benchmark harness: its checks refuse wrong results, its tables say what is missing."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import place
from benchmarks.contender import Unavailable
from benchmarks.harness import Row, Turns, compare
from benchmarks.oracles import relative_error
from benchmarks.process import Process
from benchmarks.registry import WORKLOADS, contenders_of, expanded, load
from benchmarks.tables import markdown, records
from tests.emitted_kernels import outside_the_run

ROOT = Path(__file__).parents[2]


def run_benchmarks(*arguments):
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)


COMPUTED = [name for name in WORKLOADS if name != "trace"]  # whose contenders are processes


def check(workload, own):
    """That contenders of a workload whose names begin so pass its oracle."""
    module = load(workload)
    arrays = module.inputs(module.size(quick=True))
    want = module.oracle(arrays)
    for name, build in module.contenders.items():
        if name.split(":")[0] == own:
            with contextlib.suppress(*[Unavailable] * (own == "limit")):
                contender = build(arrays)
                got = contender.fetch(contender.run())
                errors = {key: relative_error(got[key], np.asarray(want[key])) for key in got.keys() & want.keys()}
                assert errors or own == "limit"  # which may compute nothing that the oracle knows
                assert {key: error for key, error in errors.items() if not error <= module.tolerance[key]} == {}, name


@pytest.mark.in_turns
@pytest.mark.parametrize("workload", COMPUTED)
def test_own_contenders_pass_the_oracle(workload, monkeypatch):
    """In this process, whose imports they share."""
    monkeypatch.setenv(place.VARIABLE, "cpu")
    check(workload, "loopgrad")


def test_limits_pass_the_oracle(monkeypatch):
    """C, which not every machine can compile, in one process of its own: it is compiled with -ffast-math, and a library
    of that kind makes the thread that loads it take subnormal numbers for 0 from then on."""
    monkeypatch.setenv(place.VARIABLE, "cpu")
    code = f"from tests.benchmarks.test_harness import check\nfor name in {COMPUTED}: check(name, 'limit')"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stderr


def test_a_run_beside_peers(tmp_path):
    """Its table has a line for each contender; a peer that isn't installed is no win."""
    path = tmp_path / "results.json"
    run = run_benchmarks(
        "--workload", "ragged", "--quick", "--rounds", "1", "--peers", "numpy,quadrants", "--out", str(path)
    )
    assert run.returncode == 0, run.stderr
    assert "wrong" not in run.stdout
    assert "failed" not in run.stdout
    results = json.loads(path.read_text())
    rows = {row["name"]: row for row in records(results)["ragged"]}
    assert [rows[name]["status"] for name in ("loopgrad", "loopgrad:replay", "numpy")] == ["ok"] * 3
    quadrants = rows["quadrants"]
    assert (quadrants["median"] is None) == (quadrants["status"] != "ok")
    assert "quadrants" in run.stdout
    assert markdown(results).count("| loopgrad |") == 1


def test_gpu_contenders_run_on_what_computes_like_a_gpu(tmp_path):
    """The interpreter takes the GPU's way through the harness: its table of contenders, no limit in C."""
    results = tmp_path / "results.json"
    run = run_benchmarks(
        "--workload", "ragged", "--size", "30", "--rounds", "1", "--device", "interpreter", "--out", str(results)
    )
    assert run.returncode == 0, run.stderr
    rows = records(json.loads(results.read_text()))["ragged"]
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["device"] for row in rows} == {"interpreter"}
    assert "loopgrad:fast math" in {row["name"] for row in rows}


def test_what_does_not_fit_into_the_time_is_left_out(tmp_path):
    run = run_benchmarks("--workload", "newton", "--quick", "--limit", "0", "--out", str(tmp_path / "results.json"))
    assert run.returncode == 0, run.stderr
    assert "not run" in run.stdout


def test_pytest_compares_with_a_run_that_it_saved(tmp_path):
    command = [
        sys.executable, "-m", "pytest", "benchmarks", "-q", "-p", "no:cacheprovider", "--workload", "calls.compiled",
        "--peers", "numpy", "--rounds", "4", f"--benchmark-storage={tmp_path}",
    ]  # fmt: skip
    saved = subprocess.run(
        [*command, "--benchmark-autosave", "--benchmark-save-data"], cwd=ROOT, capture_output=True, text=True
    )
    assert saved.returncode == 0, saved.stdout
    (path,) = tmp_path.rglob("0001_*.json")
    bench = json.loads(path.read_text())["benchmarks"][0]
    assert bench["params"] == {"workload": "calls.compiled", "device": "cpu", "contender": "loopgrad"}
    assert bench["stats"]["rounds"] == len(bench["stats"]["data"]) == 4
    assert bench["stats"]["median"] == bench["extra_info"]["median"]
    compared = subprocess.run([*command, "--benchmark-compare"], cwd=ROOT, capture_output=True, text=True)
    assert compared.returncode == 0, compared.stdout
    assert "loopgrad] (NOW)" in compared.stdout
    assert "loopgrad] (0001" in compared.stdout


def test_a_plain_pytest_collects_no_benchmark():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    command += [f"--ignore-glob={ROOT}/tests/[!b]*", "-k", "contender"]  # what else there is takes a minute to collect
    listed = subprocess.run(command, cwd=ROOT, env=outside_the_run(), capture_output=True, text=True, timeout=250)
    assert "tests/benchmarks/test_harness.py" in listed.stdout
    assert "test_workloads" not in listed.stdout


class Answering(Process):
    """A process whose contender computed this."""

    def __init__(self, **outputs):
        self._outputs = outputs

    def send(self, command, *arguments):
        (path,) = arguments
        np.savez(path, **self._outputs)

    def answer(self, patience):
        return {}


@pytest.mark.parametrize(
    ("got", "status"),
    [
        (np.array([1.0, 2.0]), "ok"),
        (np.array([1.0, 2.1]), "wrong: value off by 5.0e-02"),
        (np.array([1.0, np.nan]), "wrong: value off by inf"),
        (np.array([1.0]), "wrong: value off by inf"),
    ],
)
def test_a_wrong_contender_is_not_timed(got, status):
    contender = Turns(Row("loopgrad"), Answering(value=got))
    compare(contender, {"value": np.array([1.0, 2.0])}, {"value": 1e-3}, 10.0)
    assert contender.row.status == status
    contender.row.times.append(1.0)
    assert (contender.row.median is None) == (status != "ok")


@pytest.mark.parametrize("workload", [*WORKLOADS, *expanded("arrays,programs,calls")])
def test_every_workload_says_what_runs_on_which_device(workload):
    module = load(workload)
    assert "loopgrad" in module.contenders
    for device in ("cuda:0", "hip:0", "vulkan:0"):
        names = contenders_of(module, device)
        assert "loopgrad" in names or not names
    assert all(name.split(":")[0] == "loopgrad" for name in contenders_of(module, "interpreter"))


def test_relative_error():
    assert relative_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == 0.5
    assert relative_error(np.zeros(2), np.zeros(3)) == float("inf")
    assert relative_error(np.array([np.nan]), np.array([1.0])) == float("inf")
