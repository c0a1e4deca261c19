"""Random programs that write in place, against NumPy and its derivatives at complex numbers (see random_mutations).

`python tests/programs/random_mutations.py --count N` runs as many as wanted.
"""

from __future__ import annotations

import pytest
from mutation.checking import check_mutations
from mutation.drawing import CONTROL, DTYPES, MATRIX_VIEWS, VECTOR_VIEWS, Draw
from nested_programs import statements

WALKED = ("values", "gradient", "batched", "pushed", "twice", "pushed_twice", "afterwards", "exported")


@pytest.mark.costly
@pytest.mark.parametrize("seed", [3, 6])
def test_random_program(device, seed):
    assert check_mutations(Draw(seed).program(), device, ("gradient", "replayed"))


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(8, 20))
def test_derivatives_of_a_random_program(seed):
    """The graph's transforms alone: the interpreter compiles nothing."""
    check_mutations(Draw(seed).program(), "interpreter", WALKED)


def test_the_programs_cover_what_they_should():
    programs = [Draw(seed).program() for seed in range(400)]
    found = [s for program in programs for s in statements(program.block)]
    assert {s[0] for s in found} >= {*CONTROL, "let", "same", "swap", "line", "write", "places", "mask", "k", "j", "p"}
    assert {view for s in found if s[0] == "write" for view in s[2]} == {*VECTOR_VIEWS, *MATRIX_VIEWS}
    assert {dtype for program in programs for dtype in program.dtypes} == set(DTYPES)
