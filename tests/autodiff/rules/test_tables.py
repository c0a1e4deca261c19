"""Every primitive has exactly one handler per mode, or a reason to have none."""

from __future__ import annotations

import pytest

from loopgrad.autodiff.forward import REGION_JVP
from loopgrad.autodiff.reverse import REGION_VJP
from loopgrad.autodiff.rules import ACCUMULATE, JVP, NONDIFFERENTIABLE, PARTIALS, VJP
from loopgrad.graph.primitives import FAMILIES, PRIMITIVES


@pytest.mark.parametrize("op", PRIMITIVES)
def test_one_handler_per_mode(op):
    reverse = [op in table for table in (PARTIALS, VJP, ACCUMULATE, REGION_VJP, NONDIFFERENTIABLE)]
    forward = [op in table for table in (PARTIALS, JVP, REGION_JVP, NONDIFFERENTIABLE)]
    assert sum(reverse) == 1
    assert sum(forward) == 1


def test_no_handler_without_a_primitive():
    handled = {*PARTIALS, *VJP, *ACCUMULATE, *JVP, *REGION_VJP, *REGION_JVP, *NONDIFFERENTIABLE}
    assert handled == set(PRIMITIVES)


def test_elementwise_partials_name_each_operand():
    assert set(FAMILIES["elementwise"]) == set(PARTIALS) | (set(NONDIFFERENTIABLE) & set(FAMILIES["elementwise"]))
    assert all(len(PARTIALS[op]) in (1, 2, 3) for op in PARTIALS)
    assert not any(row.linear and row.singular for row in PRIMITIVES.values())
    assert not any(row.not_differentiable and (row.linear or row.singular) for row in PRIMITIVES.values())
