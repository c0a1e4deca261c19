"""Which cases of a test devices share and commits take turns at, and which combinations of parameters are left out."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tests import selection
from tests.selection import _odd_combinations, _on_others

DEVICES = ("interpreter", "cpu", "vulkan:0", "simulator:1")
AXES = {"a": range(2), "b": "xyz", "c": (1.5, 2.5, 3.5, 4.5)}


class Case(SimpleNamespace):
    """What selection asks of a pytest.Item."""

    def iter_markers(self, name):
        return [pytest.mark.parametrize(axis, []).mark for axis in self.axes]

    marks = ()

    def get_closest_marker(self, name):
        return name if name in self.marks else None

    __hash__ = object.__hash__


def cases(function, axes, devices=DEVICES):
    return [
        Case(nodeid=f"{function}[{device}-{values}]", name=f"[{device}-{values}]", axes=axes, device=device,
             values=values,
             callspec=SimpleNamespace(params={"device": device, **dict(zip(axes, values, strict=True))}))
        for device, *values in itertools.product(devices, *axes.values())
    ]  # fmt: skip


@pytest.mark.parametrize("function", ["tests/a.py::test_one", "tests/a.py::test_other", "tests/b.py::test_third"])
def test_any_two_values_meet_in_the_combinations_that_are_left(function):
    items = cases(function, AXES)
    left = [item for item in items if item not in _odd_combinations(function, items)]
    assert len(left) == len(items) / 2
    for device, (i, j) in itertools.product(DEVICES, itertools.combinations(range(3), 2)):
        met = {(item.values[i], item.values[j]) for item in left if item.device == device}
        assert met == {*itertools.product(*[list(AXES.values())[k] for k in (i, j)])}


def test_two_parameters_are_combined_in_full():
    items = cases("tests/a.py::test_two", {"a": range(3), "b": range(4)})
    assert _odd_combinations("tests/a.py::test_two", items) == set()


def test_a_case_runs_on_the_cpu_and_on_one_of_the_others():
    function = "tests/a.py::test_shared"
    items = cases(function, {"a": range(8)})
    left = [item for item in items if item not in _on_others(function, items)]
    counts = {device: sum(item.device == device for item in left) for device in DEVICES}
    assert counts == {"interpreter": 4, "cpu": 8, "vulkan:0": 2, "simulator:1": 2}
    assert len({item.values[0] for item in left if item.device != "cpu"}) == 8


def test_without_parameters_one_gpu_is_left():
    items = cases("tests/a.py::test_alone", {})
    left = {item.device for item in items if item not in _on_others("tests/a.py::test_alone", items)}
    assert left in ({"interpreter", "cpu", "vulkan:0"}, {"interpreter", "cpu", "simulator:1"})


@pytest.mark.parametrize("count", [1, 2, 4, 7, 24])
def test_four_commits_in_a_row_run_all_cases_on_each_device(count, monkeypatch):
    monkeypatch.setattr(selection, "_TURNS", 4)
    items = cases("tests/a.py::test_long", {"a": range(count)}, ("cpu", "vulkan:0"))
    met, on_vulkan = set(), []
    for commit in range(100, 104):
        monkeypatch.setenv(selection.TURN_VARIABLE, str(commit))
        run = {*items} - selection._whose_turn_it_is_not(items)
        assert sum(item.device == "cpu" for item in run) == -(-count // 4)
        on_vulkan += [item for item in run if item.device != "cpu"]
        met |= run
    assert met == {*items}
    assert len(on_vulkan) == count  # each once, where the CPU has some case in every commit


def test_only_marked_tests_take_turns(monkeypatch):
    monkeypatch.setattr(selection, "_TURNS", 4)
    items = cases("tests/a.py::test_short", {"a": range(9)}, ("cpu",))
    assert selection.left_out(items, ["cpu"]) == set()
    monkeypatch.setattr(Case, "marks", ("in_turns",))
    assert len(selection.left_out(items, ["cpu"])) == 6


def test_each_whole_program_runs_directly_in_one_of_seven_commits(monkeypatch):
    monkeypatch.setattr(selection, "_TURNS", 3)
    monkeypatch.setattr(selection, "_DIRECT", None)
    of_programs, elsewhere, on_a_gpu = (
        Case(nodeid=f"tests/{folder}/a.py::test_one[{device}]", callspec=SimpleNamespace(params={"device": device}))
        for folder, device in (("programs", "cpu"), ("lazy", "cpu"), ("programs", "vulkan:0"))
    )
    direct = []
    for commit in range(70, 77):
        monkeypatch.setenv(selection.TURN_VARIABLE, str(commit))
        direct.append(selection.runs_directly(of_programs))
        assert not selection.runs_directly(elsewhere)
        assert not selection.runs_directly(on_a_gpu)
    assert sum(direct) == 1
    monkeypatch.setattr(selection, "_TURNS", 1)
    assert not selection.runs_directly(of_programs)
