"""Equal nodes are merged, in regions too; stacks and aliases never are."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.passes import cse
from loopgrad.graph.region_ops import traced_for
from tests.graph.passes import checking

checked, f, i, ops_of = checking.checked, checking.f, checking.i, checking.ops_of


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(cse.run, seed)


def test_equal_nodes_are_merged():
    assert ops_of(checked(cse.run, lambda x: [ops.add(ops.sin(x), ops.sin(x))], f(4))) == ["sin", "add"]


def test_operands_of_commutative_operations_may_swap():
    after = checked(cse.run, lambda x, y: [ops.sub(ops.mul(x, y), ops.mul(y, x))], f(4), f(4))
    assert ops_of(after) == ["mul", "sub"]
    after = checked(cse.run, lambda x, y: [ops.mul(ops.sub(x, y), ops.sub(y, x))], f(4), f(4))
    assert ops_of(after) == ["sub", "sub", "mul"]


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (1.0, 2.0)])
def test_different_constants_stay_apart(a, b):
    after = checked(cse.run, lambda x: [ops.atan2(ops.mul(x, a), ops.mul(x, b))], f(4))
    assert ops_of(after).count("mul") == 2


def test_equal_loops_are_merged_whatever_their_names():
    def program(n, x):
        loops = [traced_for(n, [x], lambda _k, c: [ops.sin(c)], name=name)[0] for name in ("a", "b")]
        return [ops.add(*loops)]

    assert ops_of(checked(cse.run, program, i(), f(4))) == ["for", "sin", "add"]


def test_a_value_captured_twice_is_captured_once():
    def program(n, x, y):
        a, b = ops.sin(y), ops.sin(y)
        return traced_for(n, [x], lambda _k, c: [ops.add(ops.mul(c, a), ops.mul(c, b))])

    after = checked(cse.run, program, i(), f(4), f(4))
    assert len(after.nodes[-1].operands) == 3
    assert ops_of(after) == ["sin", "for", "mul", "add"]


def test_stacks_and_aliases_stay_apart():
    def program(x):
        tops = [ops.pop(ops.push(ops.stack_new(f(4)), x))[1] for _ in range(2)]
        return [*tops, ops.alias(x), ops.alias(x)]

    assert len(checked(cse.run, program, f(4)).nodes) == 8
