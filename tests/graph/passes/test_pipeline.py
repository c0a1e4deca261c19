"""The whole pipeline keeps the meaning after every pass, and reaches a small result."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.passes import PIPELINE, optimise
from loopgrad.graph.region_ops import traced_for
from tests.graph.passes import checking

f, i = checking.f, checking.i


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_after_every_pass(seed):
    graph, arrays = checking.random_graphs.random_program(seed, depth=3)
    current = graph
    for name, run in PIPELINE:
        current = run(current)
        checking.verify(current, after=name)
    checking.same_meaning(graph, current, arrays)


def test_constants_from_outside_fold_inside():
    def program(n, x):
        two = ops.full(2.0, f(4))
        half = ops.div(1.0, two)
        return traced_for(n, [x, two], lambda _k, c, d: [ops.mul(ops.mul(c, d), half), d])[:1]

    after = checking.checked(optimise, program, i(), f(4))
    assert checking.ops_of(after) == ["for", "const", "const", "mul", "mul"]
