"""Batching rows are in the files of their families. That there is one each is tests/architecture/test_tables.py's."""

from __future__ import annotations

import importlib

import pytest

from loopgrad.graph.primitives import FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_in_their_family(family):
    module = importlib.import_module(f"loopgrad.graph.batching.{family}")
    assert set(module.ROWS) == set(FAMILIES[family])
