"""Second derivatives of random programs, and the script that takes those of every program of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import random_programs
import random_rows
from random_programs import Inputs
from second_derivatives import compare, gradient_of

import loopgrad as lg

FOLDER = Path(__file__).parent
SEEDS = range(8)
# of programs with rows: a loop in a branch that is computed again (61), tables in lanes (32)
ROW_SEEDS = (32, 61)


def outcome(loss: Any, inputs: Inputs) -> str:
    return compare(*gradient_of(lg.grad, loss, (0, 1), (inputs.x, inputs.table), False))


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", SEEDS)
def test_random_program(seed):
    program, inputs = random_programs.Generator(seed).program(seed), Inputs.drawn(seed)
    with lg.default_device("interpreter"):
        assert not outcome(random_programs.run_tensors(program, inputs), inputs).startswith("wrong"), program


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", ROW_SEEDS)
def test_random_program_with_rows(seed):
    program, inputs = random_rows.RowGenerator(seed).program(seed), Inputs.drawn(seed)
    with lg.default_device("interpreter"):
        assert not outcome(random_rows.run_tensors(program, inputs), inputs).startswith("wrong"), program


# a switch takes stacks that none of its branches reads
UNREAD = (("scan", True, (
    ("switch", -1,
     (("range", 2, 5, (("put", "set", 4, ("absolute", ("number", -0.497))),)),),
     (("scan", True, (("put", "add", 4, ("mul", ("row", -2), ("row", 0))),)),),
     (("put", "set", 2, ("quotient", ("integer",), ("row", 3))),)),
)),)  # fmt: skip


def test_stacks_pass_by_a_switch_that_does_not_read_them():
    program, inputs = random_programs.Program(seed=89, statements=UNREAD, mapped=True), Inputs.drawn(89)
    with lg.default_device("interpreter"):
        assert not outcome(random_rows.run_tensors(program, inputs), inputs).startswith("wrong")


BUDGETED = (("until", ("less", 1, 0.562), 4, (
    ("scan", True, (("put", "multiply", -1, ("number", 0.5)),)),
    ("switch", 0,
     (("until", ("less", 1, 0.106), 2, (("put", "add", 3, ("gather", 3)),)),),
     (("flag", ("less", 1, 0.3)),),
     (("scan", False, (("put", "set", 0, ("add", ("variable", 2), ("row", -1))),)),)),
)),)  # fmt: skip


def test_a_loop_with_branches_within_a_budget():
    inputs = Inputs.drawn(14)
    program = random_programs.Program(seed=14, statements=BUDGETED, mapped=True)
    with lg.default_device("interpreter"):
        assert not outcome(random_rows.run_tensors(program, inputs), inputs).startswith("wrong")


def test_the_script_looks_at_what_tests_differentiate():
    """One file of this folder; it prints how many calls were right, and fails where one was wrong."""
    script, tests = FOLDER / "second_derivatives.py", FOLDER / "test_g_integer_carries.py"
    command = [sys.executable, str(script), "--all", str(tests)]
    environment = {**os.environ, "LOOPGRAD_TEST_DEVICES": "interpreter"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "'right': " in run.stdout
