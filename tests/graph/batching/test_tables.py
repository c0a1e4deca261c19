"""Every primitive has exactly one batching row, in the family it belongs to."""

from __future__ import annotations

import importlib

import pytest

from loopgrad.graph.batching import ROWS
from loopgrad.graph.primitives import FAMILIES, PRIMITIVES


def test_every_primitive_has_a_row():
    assert set(ROWS) == set(PRIMITIVES)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_in_their_family(family):
    module = importlib.import_module(f"loopgrad.graph.batching.{family}")
    assert set(module.ROWS) == set(FAMILIES[family])
