"""Variants of programs for GPUs: what a switch names exists, and is back afterwards."""

from __future__ import annotations

import pytest

from benchmarks.pieces import PIECES
from benchmarks.registry import WORKLOADS
from benchmarks.switches import SWITCHES, changed
from benchmarks.tuning import changes
from loopgrad.codegen.targets.gpu.lanes import plan


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_changes_what_is_there(name):
    for owner, attribute, value in SWITCHES[name].changes:
        usual = getattr(owner, attribute)
        assert usual is not value
        with changed(list(SWITCHES[name].changes)):
            assert getattr(owner, attribute) is value
        assert getattr(owner, attribute) is usual


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_names_workloads_and_pieces(name):
    assert SWITCHES[name].workloads
    assert set(SWITCHES[name].workloads) <= {*WORKLOADS, *PIECES}


def test_variants_are_constants_registers_and_switches():
    with changed(changes("FEW_LANES=3 minctasm=2 without=measured_lanes")):
        assert plan.FEW_LANES == 3
        assert plan.measured_tiles(None, None, None) is None
    assert plan.FEW_LANES == 8


@pytest.mark.parametrize("variant", ["NO_SUCH_NAME=1", "without=nothing"])
def test_unknown_names_are_refused(variant):
    with pytest.raises(SystemExit, match="expected the name of a constant, or without= one of sorted_lanes"):
        changes(variant)
