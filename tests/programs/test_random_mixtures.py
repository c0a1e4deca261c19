"""Random programs that mix what loopgrad has, against NumPy and differences (see random_mixtures).

`python tests/programs/random_mixtures.py --count N` runs as many as wanted, `--oracle jax` against JAX's derivatives.
"""

from __future__ import annotations

import pytest
from mixture.checking import check_mixture
from mixture.drawing import CONTROL, Draw, Mixture
from mixture.operations import TABLES

WALKED = ("values", "gradient", "batched", "pushed", "twice", "pushed_twice")
SEEDS = (1006, 1007, 1008, 1009, 1010, 1011)


@pytest.mark.costly
@pytest.mark.parametrize("seed", [1008, 1010])
def test_random_program(device, seed):
    assert check_mixture(Draw(seed).program(), device, ("gradient", "replayed"))


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives_of_a_random_program(seed):
    """The graph's transforms alone: the interpreter compiles nothing."""
    check_mixture(Draw(seed).program(), "interpreter", WALKED)


@pytest.mark.in_turns
@pytest.mark.parametrize("slot", ["v", "z", "m", "k"])
def test_each_operation_in_a_batch(slot):
    for name in TABLES[slot]:
        block = (("op", slot, name, 0.43), ("op", "v", "positions", 0.3))
        program = Mixture(5, 3, (("batch", 2, "vwzmk", -1, 1, block),))
        assert check_mixture(program, "interpreter", ("values", "gradient")), name


def test_the_programs_cover_what_they_should():
    names = set().union(*(Draw(seed).program().names() for seed in range(600)))
    assert names >= set(CONTROL)
    assert names >= set().union(*TABLES.values())
