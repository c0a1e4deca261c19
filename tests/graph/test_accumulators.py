"""Accumulators are recognised whatever looks at them for nothing."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.accumulators import carry_chain, is_accumulator
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Graph
from loopgrad.graph.passes import optimise, sink
from loopgrad.graph.region_ops import for_loop, traced_for, traced_switch
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import TensorType, float64, int64
from loopgrad.graph.verify import verify

N = 4
LANES, TABLE, INDEX = TensorType((N,), float64), TensorType((3,), float64), TensorType((N,), int64)


def captured_for_nothing(table, x):
    """A loop that captures `table` and doesn't read it; its result is needed."""
    k = TensorType((), int64)
    body, _ = trace(lambda _k, c, _table: [ops.mul(c, 2.0)], (k, x.type, table.type))
    return for_loop(ops.full(3, k), [x], body, [table])[0]


def read_in_vain(table, x):
    """A value that nobody needs."""
    ops.gather(table, ops.full(0, INDEX))
    return x


def switch_with(reader):
    def program(index, where, x):
        zeros = ops.full(0.0, TABLE)

        def first(t, c):
            return [ops.scatter("add", t, (where,), c), ops.sin(c)]

        def second(t, c):
            return [ops.scatter("add", t, (where,), c), reader(t, c)]

        return traced_switch(index, [first, second], [zeros, x], shared=(0,))

    return trace(program, (INDEX, INDEX, LANES))[0]


@pytest.mark.parametrize("reader", [captured_for_nothing, read_in_vain])
def test_a_switch_keeps_its_accumulator_operand(reader):
    graph = switch_with(reader)
    switch = graph.nodes[-1]
    assert Region.of(switch).accumulators == [1]
    for after in (graph, sink.run(graph), optimise(graph)):
        verify(after)
        assert Region.of(after.nodes[-1]).accumulators  # a constant initial value too comes in from outside


@pytest.mark.parametrize("reader", [captured_for_nothing, read_in_vain])
def test_a_carry_stays_an_accumulator(reader):
    def program(n, where, x, table):
        def body(_k, t, c):
            return [ops.scatter("add", t, (where,), c), reader(t, c)]

        return traced_for(n, [table, x], body)

    loop = trace(program, (TensorType((), int64), INDEX, LANES, TABLE))[0].nodes[-1]
    assert is_accumulator(Loop.of(loop), 0)
    assert carry_chain(Loop.of(loop), 1) is None


def test_a_node_kept_without_readers():
    """The body is closed by hand: `trace` would have left the dead node out."""
    loop = trace(
        lambda n, where, x, table: traced_for(n, [table], lambda _k, t: [ops.scatter("add", t, (where,), x)]),
        (TensorType((), int64), INDEX, LANES, TABLE),
    )[0].nodes[-1]
    (body,) = loop.regions
    dead = trace(lambda t: [ops.sin(t)], (TABLE,))[0].nodes[0]
    dead.operands = (body.inputs[1],)
    loop.regions = (Graph(body.inputs, (dead, *body.nodes), body.outputs),)
    assert is_accumulator(Loop.of(loop), 0)
