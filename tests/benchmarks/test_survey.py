"""A survey of workloads: its lines are sorted by the peer's time over ours, and say what differs or failed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks import place, survey
from benchmarks.contender import Contender
from benchmarks.workload import Workload

ROOT = Path(__file__).parents[2]


def made(own, theirs):
    """A workload whose contenders give these functions' results."""

    def builder(function):
        return lambda arrays: Contender(lambda: function(arrays["x"]), lambda result: {"output 0": result})

    return Workload(
        "made", "", {"full": 8, "quick": 4}, lambda n: {"x": np.arange(n, dtype=float)}, dict, {"output 0": 1e-6},
        {"loopgrad": builder(own), "jax": builder(theirs)}, {},
    )  # fmt: skip


def line_of(monkeypatch, own, theirs):
    monkeypatch.setenv(place.VARIABLE, "cpu")
    monkeypatch.setattr(survey, "load", {"made": made(own, theirs)}.__getitem__)
    return survey.surveyed("made", "cpu", ("loopgrad", "jax"), 2, True, contextlib.nullcontext())


def test_a_line_has_both_times(monkeypatch):
    line = line_of(monkeypatch, np.sin, np.sin)
    assert set(line.times) == {"loopgrad", "jax"}
    assert line.trouble == []
    assert line.ratio > 0


def test_other_results_are_named(monkeypatch):
    line = line_of(monkeypatch, np.sin, np.cos)
    assert len(line.trouble) == 1
    assert line.trouble[0].startswith("output 0 DIFFERS from jax")


def test_what_fails_is_named_and_the_others_are_timed(monkeypatch):
    def failing(x):
        raise ValueError("no such thing")

    line = line_of(monkeypatch, failing, np.sin)
    assert line.trouble == ["loopgrad FAILED: ValueError: no such thing"]
    assert set(line.times) == {"jax"}
    assert line.ratio != line.ratio


def test_the_mean_is_geometric():
    lines = [survey.Line("a", {"loopgrad": 1.0, "jax": 4.0}), survey.Line("b", {"loopgrad": 2.0, "jax": 1.0})]
    assert survey.summary(lines) == "2 workloads, 2 beside a peer: geometric mean 1.41, 1 below 0.9"


def test_as_a_user_runs_it(tmp_path):
    out = tmp_path / "lines.json"
    command = [sys.executable, "-m", "benchmarks.survey", "--workload", "arrays.small,arrays.copy", "--quick"]
    command += ["--peers", "numpy", "--rounds", "1", "--out", str(out)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert ended.returncode == 0, ended.stderr
    assert {line["name"] for line in json.loads(out.read_text())} == {"arrays.small", "arrays.copy"}
    assert "2 workloads" in ended.stdout
