"""Tables that start as one number everywhere are neither filled nor read: who rounds the sums starts with it."""

from dataclasses import replace

import numpy as np
import pytest

from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Initial
from loopgrad.codegen.targets.gpu.emit import accumulate
from loopgrad.codegen.targets.gpu.emit.exact_sum import ExactSum
from loopgrad.codegen.targets.gpu.emit.window_sum import WindowSum
from loopgrad.codegen.targets.gpu.lanes.layout import plan
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry
from loopgrad.graph.types import float16, float32, float64
from tests.codegen.targets.gpu.emit.test_accumulate import SIZE, places, scatter
from tests.codegen.targets.gpu.gpu_harness import device, executable_of, program_of


def started_by(kernel, initials):
    """A program of this kernel whose table starts so in each of its launches."""
    program = program_of(kernel)
    (step,) = program.steps
    return replace(program, steps=tuple([replace(step, initials=((2, initial),)) for initial in initials]))


@pytest.mark.parametrize(
    ("way", "elements"),
    [(ExactSum, 30), (WindowSum, 900), (WindowSum, 9 * SIZE)],
    ids=lambda v: getattr(v, "__name__", v),
)
@pytest.mark.parametrize("dtype", [float16, float32, float64], ids=str)
def test_sums_on_top_of_a_number(way, elements, dtype, monkeypatch):
    if way is not ExactSum:
        monkeypatch.setattr(accumulate, "EXACT_BYTES", 0)
    kernel = scatter(dtype, SIZE, elements)
    assert type(plan(kernel, Options(), Geometry()).accumulators[0]) is way
    rng = np.random.default_rng(3)
    x, place = rng.integers(-8, 9, SIZE).astype(dtype.np), places(elements)
    run = executable_of(started_by(kernel, [Initial(None, 2.5)]))
    included = elements < 9 * SIZE  # of more nearly none is written behind the lanes
    assert all(start.included is included for step in run.program.steps for _, start in step.initials)
    (got,) = run.run([device().put(a) for a in (x, place, np.full(elements, 99.0, dtype.np))])
    wanted = np.full(elements, 2.5)
    np.add.at(wanted, place[place >= 0], x[place >= 0].astype(np.float64))
    np.testing.assert_array_equal(device().get(got), wanted.astype(dtype.np))


@pytest.mark.parametrize("second", [Initial(None, -0.0), Initial(2)], ids=["other", "elements"])
def test_what_starts_in_several_ways_is_started_before(second):
    kernel = scatter(float32, SIZE, 30)
    program = started_by(kernel, [Initial(None, 0.0), second])
    x, place, table = np.ones(SIZE, np.float32), places(30), np.full(30, 7, np.float32)
    run = executable_of(program)
    assert not any(start.included for step in run.program.steps for _, start in step.initials)
    (got,) = run.run([device().put(a) for a in (x, place, table)])
    start = 0 if second.source is None else 7
    np.testing.assert_array_equal(device().get(got), start + np.bincount(place[place >= 0], minlength=30))
