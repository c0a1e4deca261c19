"""Each primitive has a batched form in its record, or a row in the file of its family: one of them."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from loopgrad.graph.primitives import FAMILIES

ALIKE = {"complex_parts": "elementwise", "random": "elementwise"}  # families whose rows are another's


def rows_of(family):
    name = f"loopgrad.graph.batching.{ALIKE.get(family, family)}"
    return importlib.import_module(name).ROWS if importlib.util.find_spec(name) else {}


@pytest.mark.parametrize("family", FAMILIES)
def test_one_way_to_batch(family):
    rows = rows_of(family)
    for op, record in FAMILIES[family].items():
        assert (op in rows) != (record.batched is not None), op
    assert set(rows) <= {op for other in FAMILIES if rows_of(other) is rows for op in FAMILIES[other]}
