"""Random loop programs against plain Python: a sample, and what the generator itself must be able to do.

`python tests/programs/random_loops.py --count N --jobs J` runs as many as wanted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from loop_generator import check, description, draw, minimise, source
from loop_generator.execute import Execution, Unsuitable
from loop_generator.tape import UNARY, Tape

import loopgrad as lg

SEEDS = (3, 4, 5, 7, 8, 9, 10, 20, 25, 27, 31, 32)
MANY = range(300)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("seed", SEEDS)
def test_random_loops(device, seed):
    program = draw.drawn(seed)
    try:
        subject = check.Subject(program)
    except Unsuitable:
        return
    for way in check.ways_of(seed, 2):
        error = check.error_of(subject, way, device)
        assert not error, f"seed {seed}, {way}: {error}\n{source.text_of(program)}"


def test_the_programs_cover_what_they_should():
    found = set()
    for seed in MANY:
        program = draw.drawn(seed)
        found |= {program.style, program.dtype, *program.dtypes, *description.words((program.body, program.loss))}
        found |= {c.how for c in program.accumulators} | {c.form for c in program.accumulators}
    wanted = {"lanes", "mapped", "single", "float32", "uint8", "for", "while", "scan", "if", "switch", "again"}
    wanted |= {"lane", "uniform", "update", "put", "swap", "pair", "cell", "total", "mean", "crossed", "stop", "row"}
    wanted |= {"add", "mul", "min", "max", "set", "any", "integer", "product", "read", "square", "dict", "nested"}
    assert wanted <= found


@pytest.mark.parametrize("name", UNARY)
def test_the_tape_knows_its_functions(name):
    """First and second derivative of each function, against differences."""
    function, slopes = UNARY[name]
    x, h = 0.37, 1e-5
    first, second = slopes(x, function(x))
    assert first == pytest.approx((function(x + h) - function(x - h)) / (2 * h), abs=1e-8)
    assert second == pytest.approx((function(x + h) - 2 * function(x) + function(x - h)) / h**2, abs=1e-4)


def suitable(seeds):
    for seed in seeds:
        try:
            yield check.Subject(draw.drawn(seed))
        except Unsuitable:
            continue


def test_the_oracle_agrees_with_differences():
    """The tape's gradient and Hessian product with differences of the plain run along a direction."""
    for subject in suitable(range(40, 50)):
        program, inputs, wanted = subject.program, subject.inputs[0], subject.wanted[0]
        if program.dtype != "float64":
            continue
        sides = []
        for step in (1e-6, -1e-6):
            moved = {n: inputs.arrays[n] + step * d for n, d in inputs.directions.items()}
            tape = Tape()
            run = Execution(program, type(inputs)({**inputs.arrays, **moved}, inputs.directions), tape)
            loss = run.run()
            leaves = [v for name in description.FLOATS for v in run.leaves[name]]
            sides.append((Tape.value(loss), np.array(tape.derivatives(loss, leaves)[1])))
        flat = lambda arrays: np.concatenate([a.ravel() for a in arrays])
        scale = 1 + np.abs(flat(wanted.gradient)).max() + np.abs(flat(wanted.curvature)).max()
        assert (sides[0][0] - sides[1][0]) / 2e-6 == pytest.approx(wanted.slope, abs=1e-5 * scale)
        assert wanted.slope == pytest.approx(flat(wanted.gradient) @ flat(inputs.along()), abs=1e-9 * scale)
        np.testing.assert_allclose((sides[0][1] - sides[1][1]) / 2e-6, flat(wanted.curvature), atol=1e-4 * scale)


def test_the_oracle_agrees_with_pytorch():
    pytest.importorskip("torch")
    for subject in suitable(range(60, 64)):
        check.compare_oracles(subject)


def test_a_failing_program_becomes_small(monkeypatch):
    """A planted defect is found, and what is left of the program fails by itself."""
    right = lg.tanh
    monkeypatch.setattr(lg, "tanh", lambda x: right(x) * 1.001)
    program = next(p for p in map(draw.drawn, MANY) if minimise.failure(p, "values", "interpreter") == "number")
    small = minimise.minimised(program, "values", "interpreter", seconds=5)
    assert minimise.failure(small, "values", "interpreter") == "number"
    assert minimise.size(small) < minimise.size(program)
    text = minimise.script(small, "values", "interpreter", "wrong")
    assert "tanh" in text
    compile(text, "script", "exec")


def test_a_campaign_counts_what_it_ran():
    script = Path(__file__).parent / "random_loops.py"
    command = [sys.executable, str(script), "--count", "3", "--ways", "values", "--devices", "interpreter"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 programs, 0 failures" in result.stdout
