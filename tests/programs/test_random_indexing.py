"""Random indices against NumPy. `python tests/programs/random_indexing.py --count N` tries as many as wanted."""

from __future__ import annotations

import numpy as np
import pytest
from random_indexing import WAYS, check_case, drawn

COUNT = 120


@pytest.mark.parametrize("name", ["interpreter", "cpu"])
def test_random_indices(name):
    for seed in range(COUNT):
        check_case(seed, name)


@pytest.mark.costly
def test_random_indices_on_devices(device):
    for seed in range(COUNT, COUNT + 2 * len(WAYS)):
        check_case(seed, device)


def test_the_indices_cover_what_they_should():
    """Every kind of part beside another one, repeated positions, results without elements, and values that stretch."""
    cases = [drawn(seed) for seed in range(COUNT)]
    kinds = [{type(part) for part in case.index} for case in cases]
    for kind in (int, slice, np.ndarray, type(None), type(Ellipsis)):
        assert sum(kind in found and len(found) > 1 for found in kinds) > 5, kind
    assert sum(case.masked for case in cases) > 3
    assert sum(case.x[case.index].size == 0 for case in cases) > 3
    assert sum(case.values.shape != case.x[case.index].shape for case in cases) > 20
    places = [p for case in cases for p in case.index if isinstance(p, np.ndarray) and p.dtype != bool]
    assert any(np.unique(p).size < p.size for p in places)
