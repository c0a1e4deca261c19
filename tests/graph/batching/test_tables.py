"""Each primitive has a batched form in its record, or a row in the file of its family: one of them."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from loopgrad.graph.primitives import FAMILIES


@pytest.mark.parametrize(("family", "op"), [(family, op) for family, records in FAMILIES.items() for op in records])
def test_one_way_to_batch(family, op):
    name = f"loopgrad.graph.batching.{family}"
    rows = importlib.import_module(name).ROWS if importlib.util.find_spec(name) else {}
    assert (op in rows) != (FAMILIES[family][op].batched is not None)
    assert set(rows) <= set(FAMILIES[family])
