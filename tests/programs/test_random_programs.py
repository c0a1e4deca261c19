"""Random structured programs: values against Python, gradients against central differences.

`python tests/programs/random_programs.py --count N` runs as many as wanted.
"""

from __future__ import annotations

import pytest
from random_programs import SIZES, Generator, Inputs, check_program, run_python

COUNT = 100
LARGE = 6
FOUND = (447, 5237)  # seeds beyond those that once failed
NESTED = ("for", "while", "if")


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("seed", [*range(COUNT), *FOUND])
def test_random_program(device, seed):
    check_program(seed, device)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("size", ["wide", "many"])
@pytest.mark.parametrize("seed", range(COUNT, COUNT + LARGE))
def test_random_program_on_larger_arrays(device, seed, size):
    """Tables and cells that no lane can hold in registers; more lanes than vectors have."""
    check_program(seed, device, SIZES[size])


def test_the_programs_cover_what_they_should():
    """Nests to depth 4 and every statement appear among a few of them."""
    programs = [Generator(seed).program(seed) for seed in range(200)]

    def depth(block):
        blocks = [part for s in block if s[0] in NESTED for part in s if isinstance(part, tuple) and part]
        inner = [depth(b) for b in blocks if isinstance(b[0], tuple)]
        return 1 + max(inner) if inner else 0

    kinds = {part for p in programs for part in str(p.statements).split("'")}
    assert {"float", "integer", "flag", "scatter", "if", "while", "for", "gather", "where", "lane"} <= kinds
    assert max(depth(p.statements) for p in programs) >= 4
    assert {p.mapped for p in programs} == {True, False}


def test_the_python_run_is_repeatable():
    program, inputs = Generator(3).program(3), Inputs.drawn(3)
    assert run_python(program, inputs) == run_python(program, inputs)
