"""Operations on constants become constants."""

from __future__ import annotations

import pytest

from loopgrad.graph import matrix_ops, ops
from loopgrad.graph.passes import dce, fold
from loopgrad.graph.passes.fold import LIMIT, constant_array
from loopgrad.graph.region_ops import traced_for, traced_switch
from tests.graph.passes import checking

checked, f, i, ops_of = checking.checked, checking.f, checking.i, checking.ops_of


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(fold.run, seed)


def folded(graph):
    return dce.run(fold.run(graph))


def test_splats_of_any_size():
    after = checked(folded, lambda: [ops.mul(ops.full(2.0, f(1000)), ops.full(3.0, f(1000)))])
    (node,) = after.nodes
    assert node.op == "const"
    assert node.attrs["value"] == 6.0


def test_movement_of_a_splat():
    after = checked(folded, lambda: [ops.reshape(ops.broadcast(ops.full(2.0, f()), (100, 3), ()), (300,))])
    assert ops_of(after) == ["const"]


def test_small_arrays():
    def program():
        steps = ops.literal(checking.np.arange(6.0), checking.float64)
        return [ops.cumsum(steps, 0), ops.reduce_sum(steps, (0,)), ops.cast(ops.lt(steps, 3.0), checking.int64)]

    after = checked(folded, program)
    assert ops_of(after) == ["literal", "const", "literal"]
    checking.np.testing.assert_array_equal(constant_array(after.outputs[0]), [0, 1, 3, 6, 10, 15])


def test_all_results_of_a_node():
    def program():
        matrix = ops.literal(checking.np.array([[2.0, 1.0], [1.0, 3.0]]), checking.float64)
        equal = ops.full(2.0, f(2, 2))
        return [*matrix_ops.lu(matrix), *matrix_ops.svd(matrix), *matrix_ops.qr(equal), *matrix_ops.eigh(equal)]

    assert set(ops_of(checked(folded, program))) <= {"const", "literal"}


def test_large_arrays_and_iotas_stay():
    after = checked(folded, lambda: [ops.cumsum(ops.full(1.0, f(LIMIT + 1)), 0), ops.iota(i(4), 0)])
    assert ops_of(after) == ["const", "cumsum", "iota"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0])
def test_special_values(value):
    after = checked(folded, lambda: [ops.add(ops.full(value, f(3)), ops.full(-0.0, f(3)))])
    (node,) = after.nodes
    checking.np.testing.assert_array_equal(node.attrs["value"], value)


@pytest.mark.parametrize(("index", "kept"), [(0, "sin"), (1, "cos"), (7, "cos"), (-3, "sin")])
def test_a_known_branch(index, kept):
    def program(x):
        return traced_switch(ops.full(index, i()), [lambda a: [ops.sin(a)], lambda a: [ops.cos(a)]], [x])

    assert ops_of(checked(folded, program, f(4))) == [kept]


@pytest.mark.parametrize(("count", "expected"), [(0, []), (-2, []), (1, ["sin"]), (2, ["const", "for", "sin"])])
def test_a_known_trip_count(count, expected):
    def program(x):
        return traced_for(ops.full(count, i()), [x], lambda _k, c: [ops.sin(c)])

    assert ops_of(checked(folded, program, f(4))) == expected


def test_shared_results_are_not_inlined_out_of_their_masks():
    def program(k, x, acc):
        branches = [lambda a: [ops.scatter("add", a, (k,), x)], lambda a: [a]]
        return traced_switch(ops.full(0, i(4)), branches, [acc], shared=(0,))

    assert "switch" in ops_of(checked(folded, program, i(4), f(4), f(3)))
