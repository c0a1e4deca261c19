"""Random programs with rows, early exits and functions computed again (see random_rows).

`python tests/programs/random_rows.py --count N` runs as many as wanted.
"""

from __future__ import annotations

import pytest
from random_rows import RowGenerator, check_rows

SEEDS = [6, 12]  # one on all lanes with every kind of statement, one mapped; neither is large


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("seed", SEEDS)
def test_random_program(device, seed):
    check_rows(seed, device)


def test_the_programs_cover_what_they_should():
    programs = [RowGenerator(seed).program(seed) for seed in SEEDS]
    kinds = {part for p in programs for part in str(p.statements).split("'")}
    assert {"put", "set", "multiply", "until", "range", "scan", "switch", "again", "row", "quotient", "bell"} <= kinds
    assert {p.mapped for p in programs} == {True, False}
