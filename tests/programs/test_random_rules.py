"""Random programs of functions with rules of their own and policies (see random_rules).

`python tests/programs/random_rules.py --count N` runs as many as wanted.
"""

from __future__ import annotations

import pytest
from random_rules import check_rules
from rule_programs import KINDS, Draw

SEEDS = [1094, 1157, 1162, 1189, 1209]  # the last ones found something


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("seed", SEEDS)
def test_random_program(device, seed):
    assert check_rules(seed, device)


def test_the_programs_cover_what_they_should():
    programs = [Draw(seed).program() for seed in range(40)]
    assert set().union(*(p.kinds() for p in programs)) == set(KINDS)
    words = {part for p in programs for part in str(p.statements).split("'")}
    assert {"for", "lanes", "while", "while whole", "branch", "branch whole", "checkpoint", "scan", "batch"} <= words
    assert {p.order for p in programs} == {1, 2}
