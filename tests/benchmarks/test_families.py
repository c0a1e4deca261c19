"""Ordinary array programs and small calls: each of ours passes its oracle, and its table says how it did."""

from __future__ import annotations

import json
import subprocess
import sys
from inspect import ismodule
from pathlib import Path

import numpy as np
import pytest

from benchmarks.growth import exponent
from benchmarks.harness import Row
from benchmarks.registry import contenders_of, expanded, load
from benchmarks.tables import Tables, markdown, record, records
from benchmarks.workloads.programs import table as programs

ROOT = Path(__file__).parents[2]


@pytest.mark.in_turns
@pytest.mark.parametrize("part", range(8))
def test_own_programs_pass_their_oracles(part, tmp_path):
    results, names = tmp_path / "results.json", expanded("arrays,programs,calls")[part::8]
    command = [sys.executable, "-m", "benchmarks", "--workload", ",".join(names), "--quick", "--rounds", "1"]
    run = subprocess.run(
        [*command, "--peers", "none", "--out", str(results)], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert run.returncode == 0, run.stdout
    found = records(json.loads(results.read_text()))
    assert list(found) == names
    missing = {name: row["status"] for name, rows in found.items() for row in rows if row["status"] != "ok"}
    assert all(status.startswith("loopgrad has no ") for status in missing.values()), missing
    assert len(found) - len(missing) >= 12
    shown = markdown(json.loads(results.read_text()))
    assert all(f"| `{name.partition('.')[2]}` | " in shown for name in names)


@pytest.mark.parametrize("name", expanded("arrays,programs"))
def test_by_hand_in_numpy_agrees_with_float64(name):
    """The oracle's own code in float32: its derivatives are those of the losses by differences."""
    workload = load(name)
    arrays = workload.inputs(workload.size(quick=True))
    want = workload.oracle(arrays)
    if "numpy" not in workload.contenders:  # a loss, whose derivatives are NumPy's differences
        assert workload.name.startswith("programs.")
        return
    contender = workload.contenders["numpy"](arrays)
    got = contender.fetch(contender.run())
    assert got.keys() == want.keys()
    for key in want:
        assert got[key].shape == want[key].shape
        scale = np.max(np.abs(want[key].astype(np.float64)), initial=1e-30)
        assert np.max(np.abs(got[key] - want[key]), initial=0.0) <= 1e-2 * scale


def test_no_two_fields_have_a_program_of_one_name():
    assert len(programs.WORKLOADS) == sum(len(field.PROGRAMS) for field in vars(programs).values() if ismodule(field))


def test_a_family_has_a_line_for_each_member_and_a_geometric_mean():
    written = []
    tables = Tables(written.append)
    for name, times in {"arrays.sort": (1.0, 2.0), "arrays.cumsum": (1.0, 0.5), "arrays.top_k": (None, 1.0)}.items():
        rows = [
            Row(contender, times=[time] if time else [], status="ok" if time else "loopgrad has no top_k")
            for contender, time in zip(("loopgrad", "jax"), times, strict=True)
        ]
        tables.add(load(name), 10, [record(row) for row in rows])
    tables.close()
    head, *lines, last = written
    assert head.split() == ["arrays", "size", "loopgrad", "jax", "best/ours", "GB/s", "GFlop/s"]
    assert [line.split()[0] for line in lines] == ["sort", "cumsum", "top_k"]
    assert [line.split()[-1] for line in lines[:2]] == ["2.00", "0.50"]
    assert "loopgrad has no top_k" in lines[2]
    assert last == "cpu: geometric mean 1.00 of 2 members, 1 below 0.9"


def test_no_peer_is_asked_where_it_can_not_run():
    assert set(contenders_of(load("arrays.sort"), "cuda:0")) == {"loopgrad", "jax", "torch"}
    assert set(contenders_of(load("arrays.sort"), "vulkan:0")) == {"loopgrad"}


def test_unknown_names():
    with pytest.raises(ValueError, match="expected a member of arrays among"):
        load("arrays.sorted")
    with pytest.raises(ValueError, match="expected a workload among ragged"):
        load("array")


def test_the_exponent_of_what_grows():
    sizes = [1 << k for k in range(8, 22, 2)]
    assert exponent(sizes, [1e-6 + 1e-9 * n for n in sizes]) == pytest.approx(1.0, abs=0.1)
    assert exponent(sizes, [1e-12 * n * n for n in sizes]) == 2.0
    assert exponent(sizes, [1e-6 for _ in sizes]) is None


def test_growth_of_a_program():
    command = [sys.executable, "-m", "benchmarks.growth", "--workload", "arrays.cumsum", "--largest", "12"]
    run = subprocess.run([*command, "--rounds", "1"], cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[1].split()[:3] == ["arrays.cumsum", "cpu", "loopgrad"]
