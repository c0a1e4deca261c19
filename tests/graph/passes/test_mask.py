"""The masked form of lane loops and switches equals the interpreter's masked lockstep, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.errors import LoopLimitError
from loopgrad.graph.interpret import interpret
from loopgrad.graph.passes import mask, optimise
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, uint8
from loopgrad.graph.verify import verify
from tests.graph.passes import checking

f, i, ops_of, traced = checking.f, checking.i, checking.ops_of, checking.traced


def lane_nodes(graph):
    """How many lane loops and switches there are, at any depth."""
    return sum(bool(node.regions and node.attrs["lanes"]) + sum(map(lane_nodes, node.regions)) for node in graph.nodes)


def everything(_node):
    return True


def check(program, *types, seeds=3):
    """All lane nodes are gone, the results are equal; the masked graph."""
    before = traced(program, *types)
    after = mask.run(before, everything)
    verify(after)
    assert lane_nodes(before) > 0
    assert lane_nodes(after) == 0
    rng = np.random.default_rng(0)
    for _ in range(seeds):
        arrays = checking.random_graphs.random_arrays(rng, types)
        for expected, got in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
            np.testing.assert_array_equal(got, expected)
        checking.same_meaning(before, optimise(after), arrays)
    return after


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("wanted", [everything, mask.crosses_lanes])
def test_random_programs(seed, wanted):
    graph, arrays = checking.random_graphs.random_program(seed, depth=2 + seed % 2)
    after = mask.run(graph, wanted)
    verify(after)
    for expected, got in zip(interpret(graph, arrays), interpret(after, arrays), strict=True):
        np.testing.assert_array_equal(got, expected)


# ---- which nodes


def test_local_loops_stay_and_crossing_ones_go():
    def program(n, x):
        (y,) = traced_for(n, [x], lambda _k, c: [ops.sin(c)])
        return traced_for(n, [y], lambda _k, c: [ops.broadcast(ops.reduce_sum(c, (0,)), (4,), ())])

    after = mask.run(traced(program, i(4), f(4)))
    assert [n.attrs["lanes"] for n in after.nodes if n.op == "for"] == [1, 0]


def test_a_local_loop_inside_a_crossing_one_stays_a_lane_loop():
    def program(n, x):
        def outer(k, c):
            (d,) = traced_for(ops.min(n, k), [c], lambda _j, e: [ops.sin(e)])
            return [ops.sub(d, ops.broadcast(ops.reduce_max(c, (0,)), (4,), ()))]

        return traced_for(n, [x], outer)

    before = traced(program, i(4), f(4))
    after = mask.run(before)
    assert lane_nodes(after) == 1
    arrays = checking.random_graphs.random_arrays(np.random.default_rng(0), before.input_types)
    checking.same_meaning(before, after, arrays)


# ---- shapes that autodiff makes


def cross(c):
    """Something that looks at other lanes."""
    return ops.sub(c, ops.broadcast(ops.reduce_max(c, (0,)), c.shape, tuple(range(1, len(c.shape)))))


def test_a_forward_loop_that_pushes_and_a_reverse_loop_that_pops():
    def program(n, x):
        def forward(_k, stack, c):
            return [ops.push(stack, c), ops.sin(cross(c))]

        def backward(_k, stack, c_adj):
            stack, c = ops.pop(stack)
            return [stack, ops.mul(cross(c_adj), ops.cos(c))]

        stack, y = traced_for(n, [ops.stack_new(f(4, 3)), x], forward)
        return [y, traced_for(n, [stack, y], backward, reverse=True)[1]]

    check(program, i(4), f(4, 3))


def test_a_while_loop_that_counts_its_trips_and_the_loop_back():
    def program(x, limit):
        def body(c, trips, stack):
            return [ops.add(ops.mul(cross(c), 0.5), 1.0), ops.add(trips, 1), ops.push(stack, c)]

        def cond(c, trips, _stack):
            return ops.and_(ops.lt(ops.abs(c), limit), ops.lt(trips, 9))

        start = [x, ops.full(0, i(4)), ops.stack_new(f(4))]
        y, trips, stack = traced_while(start, cond, body)

        def back(_k, s, adj):
            s, c = ops.pop(s)
            return [s, ops.add(adj, ops.sin(cross(c)))]

        return [y, trips, traced_for(trips, [stack, y], back, reverse=True)[1]]

    check(program, f(4), f(4))


def test_inner_stacks_threaded_through_an_outer_loop():
    def program(n, m, x):
        def outer(k, stack, c):
            def inner(_j, s, d):
                return [ops.push(s, d), ops.sin(cross(d))]

            return traced_for(ops.min(m, k), [stack, c], inner)

        def outer_back(k, stack, adj):
            def inner_back(_j, s, d):
                s, saved = ops.pop(s)
                return [s, ops.add(d, cross(saved))]

            return traced_for(ops.min(m, k), [stack, adj], inner_back, reverse=True)

        stack, y = traced_for(n, [ops.stack_new(f(4)), x], outer)
        return [y, traced_for(n, [stack, y], outer_back, reverse=True)[1]]

    check(program, i(4), i(4), f(4), seeds=6)


def test_branches_with_loops_and_stacks():
    def program(n, x):
        def forward(k, stack, c):
            def busy(s, d):
                return traced_for(k, [s, d], lambda _j, t, e: [ops.push(t, e), ops.sin(e)])

            return traced_switch(ops.lt(c, 0.3), [lambda s, d: [s, cross(d)], busy], [stack, c])

        return traced_for(n, [ops.stack_new(f(4)), x], forward)[1:]

    check(program, i(4), f(4), seeds=6)


def test_three_branches_and_a_clamped_index():
    def program(k, x):
        return traced_switch(k, [lambda a: [cross(a)], lambda a: [ops.sin(a)], lambda a: [ops.neg(a)]], [x])

    check(program, i(4), f(4), seeds=8)


# ---- inactive lanes, where an operation mixes lanes


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("loop", ["for", "while"])
def test_a_switch_gives_inactive_lanes_what_their_branch_gives(loop, heavy):
    def chosen(k, c):
        if not heavy:
            return ops.sin(c)
        return traced_for(k, [c], lambda _j, e: [ops.mul(e, 0.5)])[0]

    def step(n, k, c):
        (d,) = traced_switch(k, [lambda _k, a: [ops.add(a, 1.0)], lambda k, a: [chosen(k, a)]], [n, c])
        return [ops.add(c, ops.broadcast(ops.reduce_sum(d, (0,)), c.shape, ()))]

    def counted(n, k, x):
        return traced_for(n, [x], lambda _j, c: step(n, k, c))

    def tested(n, k, x):
        def body(j, c):
            return [ops.add(j, 1), *step(n, k, c)]

        return traced_while([ops.full(0, n.type), x], lambda j, _c: ops.lt(j, n), body)

    check(counted if loop == "for" else tested, i(4), i(4), f(4), seeds=8)


def test_a_branch_that_mixes_lanes_sees_those_that_chose_another():
    def program(n, k, x):
        def mixing(a):
            (b,) = traced_switch(ops.lt(a, 0.0), [lambda v: [ops.exp(v)], lambda v: [ops.neg(v)]], [a])
            return [ops.broadcast(ops.reduce_sum(b, (0,)), a.shape, ())]

        def body(_j, c):
            return [ops.sin(ops.add(c, traced_switch(k, [lambda a: [a], mixing], [c])[0]))]

        return traced_for(n, [x], body)

    check(program, i(4), i(4), f(4), seeds=8)


# ---- accumulators


def test_updates_of_inactive_lanes_are_dropped():
    def program(n, where, x, acc):
        def body(_k, a, c):
            return [ops.scatter("add", a, (where,), c), cross(c)]

        return traced_for(n, [acc, x], body, shared=(0,))

    after = check(program, i(4), i(4), f(4), f(3), seeds=6)
    assert "select" in ops_of(after)


def test_accumulators_through_inner_loops_and_branches():
    def program(n, m, where, x, acc):
        def outer(k, a, c):
            def inner(_j, b):
                branches = [lambda t: [t], lambda t: [ops.scatter("add", t, (where,), c)]]
                return traced_switch(ops.lt(c, 0.5), branches, [b], shared=(0,))

            (a,) = traced_for(ops.min(m, k), [a], inner, shared=(0,))
            (a,) = traced_for(ops.reduce_max(m, (0,)), [a], lambda _j, b: [ops.scatter("max", b, (where,), c)])
            return [a, cross(c)]

        return traced_for(n, [acc, x], outer, shared=(0,))

    check(program, i(4), i(4), i(4), f(4), f(3), seeds=8)


def test_unsigned_indices():
    def program(n, x, acc):
        where = ops.cast(ops.iota(i(4), 0), uint8)

        def body(_k, a, c):
            return [ops.scatter("add", a, (where,), c), cross(c)]

        return traced_for(n, [acc, x], body, shared=(0,))

    check(program, i(4), f(4), TensorType((256,), f().dtype))


# ---- edges


def test_no_lanes_at_all():
    def program(n, x):
        (y,) = traced_for(n, [x], lambda _k, c: [ops.sin(c)])
        (z,) = traced_while([y], lambda c: ops.lt(c, 0.0), lambda c: [ops.neg(c)])
        return traced_switch(n, [lambda a: [a], lambda a: [ops.neg(a)]], [z])

    check(program, i(0), f(0))


def test_lanes_of_two_dims_and_wider_lanes_inside():
    def program(n, m, x):
        def outer(_k, c):
            def inner(_j, d):
                return [ops.add(d, ops.broadcast(ops.reduce_min(d, (0, 1)), (4, 3), ()))]

            return traced_for(m, [c], inner)

        return traced_for(n, [x], outer)

    check(program, i(4), i(4, 3), f(4, 3), seeds=6)


def test_lanes_inside_that_stand_for_rows():
    def program(n, m, x, y):
        def outer(_k, c):
            def cond(d):
                return ops.lt(ops.abs(d), 2.0)

            (d,) = traced_while([ops.reduce_max(c, (1,))], cond, lambda d: [ops.add(d, 1.5)])
            (e,) = traced_for(m, [y], lambda _j, e: [cross(e)])
            return [ops.sub(c, ops.broadcast(ops.add(d, e), (4, 3), (0,)))]

        return traced_for(n, [x], outer)

    check(program, i(4, 3), i(4), f(4, 3), f(4), seeds=6)


def test_an_exceeded_limit_is_still_reported():
    def program(x):
        return traced_while([x], lambda c: ops.gt(c, 0.0), lambda c: [ops.sub(c, cross(c))], max_steps=3)

    before = traced(program, f(4))
    for graph in (before, mask.run(before)):
        with pytest.raises(LoopLimitError):
            interpret(graph, [np.array([1.0, 2.0, 3.0, 4.0])])


def test_inactive_lanes_cannot_keep_an_inner_loop_alive():
    """In the outer loop's inactive lanes the inner condition would never fail."""

    def program(n, x):
        def outer(_k, c):
            def cond(d):
                return ops.lt(d, 1.0)

            def body(d):
                nothing = ops.reduce_sum(ops.mul(d, 0.0), (0,))
                return [ops.add(d, ops.broadcast(nothing, (4,), ()))]

            return [cross(traced_while([c], cond, body)[0])]

        return traced_for(n, [x], outer)

    before = traced(program, i(4), f(4))
    after = mask.run(before, everything)
    arrays = [np.array([1, 0, 1, 0]), np.array([2.0, -1.0, 3.0, -5.0])]
    for expected, got in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_branch_that_hands_on_its_operand_beside_one_with_a_loop():
    """The first branch's result is the operand itself: the lanes that chose it keep it."""

    def program(p, x):
        def looping(v):
            return traced_for(ops.full(2, i()), [v], lambda _, w: [ops.add(w, ops.flip(w, [0]))])

        return traced_switch(ops.gt(p, 0.0), [lambda v: [v], looping], [x])

    check(program, f(4), f(4))
