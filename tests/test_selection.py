"""Which cases of a test the devices share, and which combinations of parameters are left out (tests/conftest.py)."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tests.conftest import _odd_combinations, _on_others

DEVICES = ("interpreter", "cpu", "vulkan:0", "simulator:1")
AXES = {"a": range(2), "b": "xyz", "c": (1.5, 2.5, 3.5, 4.5)}


class Case(SimpleNamespace):
    """What selection asks of a pytest.Item."""

    def iter_markers(self, name):
        return [pytest.mark.parametrize(axis, []).mark for axis in self.axes]

    def get_closest_marker(self, name):
        return None

    __hash__ = object.__hash__


def cases(function, axes, devices=DEVICES):
    return [
        Case(nodeid=f"{function}[{device}-{values}]", axes=axes, device=device, values=values,
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
