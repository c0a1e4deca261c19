"""What a kernel needs of a loop: live carries, and nothing else."""

from loopgrad.codegen.lower.liveness import Liveness
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.regions import Loop
from loopgrad.graph.types import TensorType, float64, int32

SCALAR = TensorType((), float64)


def last_region(function, types):
    graph, _ = trace(function, types)
    return next(n for n in reversed(graph.nodes) if n.regions)


def test_a_carry_that_no_wanted_result_reads_is_dead():
    def function(n, x, y, z):
        return traced_for(n, [x, y, z], lambda _, a, b, c: [ops.sin(a), ops.add(b, a), ops.mul(c, c)])

    loop = last_region(function, [TensorType((), int32), SCALAR, SCALAR, SCALAR])
    live = Liveness()
    assert live.carries(Loop.of(loop), frozenset({0})) == {0}
    assert live.carries(Loop.of(loop), frozenset({1})) == {0, 1}
    assert live.carries(Loop.of(loop), frozenset({2})) == {2}
    assert live.operands(loop, frozenset({0})) == (0, 1)


def test_the_condition_keeps_its_carries_alive():
    def function(x, y):
        return traced_while([x, y], lambda a, _: ops.lt(a, 9.0), lambda a, b: [ops.add(a, 1.0), ops.mul(b, 2.0)])

    loop = last_region(function, [SCALAR, SCALAR])
    assert Liveness().carries(Loop.of(loop), frozenset({1})) == {0, 1}
    assert Liveness().carries(Loop.of(loop), frozenset({0})) == {0}


def test_pushes_die_with_their_stack():
    def function(n, x):
        def body(_, a, s):
            return [ops.sin(a), ops.push(s, a)]

        v, s = traced_for(n, [x, ops.stack_new(SCALAR)], body)
        return [v, ops.pop(s)[1]]

    loop = last_region(function, [TensorType((), int32), SCALAR])
    live = Liveness()
    assert not any(n.op == "push" for n in live.graph(loop.regions[0], (0,)).needed)
    assert any(n.op == "push" for n in live.graph(loop.regions[0], (0, 1)).needed)


def test_only_what_some_branch_reads_is_read():
    def function(p, x, y):
        return traced_switch(p, [lambda a, b: [ops.sin(a), b], lambda a, b: [a, ops.cos(b)]], [x, y])

    switch = last_region(function, [TensorType((), int32), SCALAR, SCALAR])
    assert Liveness().operands(switch, frozenset({0})) == (0, 1)
    assert Liveness().operands(switch, frozenset({1})) == (0, 2)


def test_what_is_loaded_isnt_made_again():
    """A loop that runs again for one result leaves out another that is in memory."""

    def function(n, x, y):
        ended, added = traced_for(n, [x, y], lambda _, a, b: [ops.sin(a), ops.add(b, 1.0)])
        return [ops.mul(ended, added)]

    graph, _ = trace(function, [TensorType((), int32), SCALAR, SCALAR])
    loop = next(n for n in graph.nodes if n.regions)
    live = Liveness()
    assert live.slice(graph.nodes, graph.outputs).needed[loop] == {0, 1}
    assert live.slice(graph.nodes, graph.outputs, {loop.results[1]}).needed[loop] == {0}
    assert loop not in live.slice(graph.nodes, graph.outputs, set(loop.results)).needed
