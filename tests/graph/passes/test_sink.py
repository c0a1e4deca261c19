"""Constants, iotas and broadcasts are recomputed inside regions instead of captured."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.passes import dce, sink
from loopgrad.graph.region_ops import traced_for, traced_switch
from tests.graph.passes import checking

checked, f, i, ops_of = checking.checked, checking.f, checking.i, checking.ops_of


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(sink.run, seed)


def sunk(graph):
    return dce.run(sink.run(graph))


def test_a_captured_constant_is_known_inside():
    def program(n, x):
        two = ops.full(2.0, f(4))
        return traced_for(n, [x], lambda _k, c: [ops.mul(c, two)])

    after = checked(sunk, program, i(), f(4))
    assert ops_of(after) == ["for", "const", "mul"]
    assert len(after.nodes[0].operands) == 2


def test_a_broadcast_is_captured_small():
    def program(n, x, y):
        wide = ops.broadcast(y, (4, 3), (0,))
        return traced_for(n, [x], lambda _k, c: [ops.mul(c, wide)])

    after = checked(sunk, program, i(), f(4, 3), f(4))
    assert ops_of(after) == ["for", "broadcast", "mul"]
    assert after.nodes[0].operands[2].shape == (4,)


def test_through_two_loops():
    def program(n, x):
        rows = ops.iota(i(4), 0)

        def outer(_k, c):
            return traced_for(n, [c], lambda _j, d: [ops.gather(d, rows)])

        return traced_for(n, [x], outer)

    assert ops_of(checked(sunk, program, i(), f(4))) == ["for", "for", "iota", "gather"]


def test_accumulators_are_not_made_constants():
    def program(k, x):
        branches = [lambda a: [ops.scatter("add", a, (k,), x)], lambda a: [a]]
        return traced_switch(ops.lt(x, 0.0), branches, [ops.full(0.0, f(3))], shared=(0,))

    checked(sunk, program, i(4), f(4))
