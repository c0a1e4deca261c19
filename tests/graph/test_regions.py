"""Region nodes by name: segments, positions, what continues what, and nodes made of other parts."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.errors import VerifyError
from loopgrad.graph.nodes import Graph, Node
from loopgrad.graph.primitives import INFER
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.regions import KINDS, Loop, Region, Switch, beginning, previous
from loopgrad.graph.types import StackType, TensorType, bool_, float64, int64
from loopgrad.graph.verify import verify

N = 4
SCALAR, COUNT, LANES = TensorType((), float64), TensorType((), int64), TensorType((N,), float64)


def last_node(function, *types):
    """The last node of the traced function, and its graph."""
    graph = trace(function, types)[0]
    verify(graph)
    return graph.nodes[-1], graph


def counted():
    """for (n, x, y, a): x, y carried, a captured."""

    def program(n, x, y, a):
        return traced_for(n, [x, y], lambda _k, x, y: [ops.mul(x, a), ops.add(y, x)])

    return last_node(program, COUNT, SCALAR, SCALAR, SCALAR)


def unbounded():
    """while (x, a): x carried, a captured."""

    def program(x, a):
        return traced_while([x], lambda x: ops.lt(x, a), lambda x: [ops.add(x, 1.0)])

    return last_node(program, SCALAR, SCALAR)


def chosen():
    """switch (p, x, y)"""
    branches = [lambda x, y: [ops.sin(x), y], lambda x, y: [y, ops.cos(x)]]
    return last_node(lambda p, x, y: traced_switch(p, branches, [x, y]), TensorType((), bool_), SCALAR, SCALAR)


def test_the_parts_of_a_for():
    node, graph = counted()
    n, x, y, a = graph.inputs
    loop = Loop.of(node)
    assert (loop.count, loop.condition, loop.decider, loop.width) == (n, None, n, 2)
    assert (loop.lead, loop.inits, loop.captures, loop.arguments) == ((n,), (x, y), (a,), (x, y, a))
    assert list(loop.captured) == [3]
    (k,), carries, captures = loop.split(loop.body.inputs)
    assert k.type == COUNT
    assert len(captures) == 1
    assert [loop.argument(j) for j in range(2)] == list(carries)
    assert [loop.init(j) for j in range(2)] == [x, y]
    assert [loop.carry_at(loop.position(j)) for j in range(2)] == [0, 1]
    assert [loop.carry_at(i) for i in (0, 3)] == [None, None]


def test_the_parts_of_a_while():
    node, graph = unbounded()
    x, a = graph.inputs
    loop = Loop.of(node)
    assert loop.count is None
    assert loop.condition is node.regions[0]
    assert loop.decider is node.regions[0].outputs[0]
    assert loop.split(node.operands) == ((), (x,), (a,))
    assert loop.inputs_of(1) == [r.inputs[1] for r in node.regions]
    assert loop.bodies == node.regions[1:]


def test_the_parts_of_a_switch():
    node, graph = chosen()
    p, x, y = graph.inputs
    switch = Switch.of(node)
    assert (switch.index, switch.decider, switch.arguments) == (p, p, (x, y))
    assert list(switch.captured) == [1, 2]
    assert switch.inputs_of(2) == [branch.inputs[1] for branch in switch.branches]
    assert switch.bodies == node.regions


@pytest.mark.parametrize("made", [counted, unbounded, chosen])
def test_every_kind_is_a_region(made):
    node, _ = made()
    region = Region.of(node)
    assert (region.lanes, region.lane_shape, region.shared, region.accumulators) == (0, (), (), [])
    assert region.arguments == node.operands[region.first :]
    for i in region.captured:
        for value in region.inputs_of(i):
            assert value.type == node.operands[i].type
    for body in region.bodies:
        assert body.output_types == tuple([r.type for r in node.results])


def test_every_operation_with_regions_has_a_kind():
    assert all(op in INFER for op in KINDS)
    with pytest.raises(KeyError):
        Region.of(Node("add", (), ()))
    with pytest.raises(AssertionError):
        Loop.of(chosen()[0])


def test_the_shape_of_lanes():
    counts = TensorType((N,), int64)
    each, _ = last_node(lambda n, x: traced_for(n, [x], lambda _k, x: [ops.sin(x)]), counts, LANES)
    until, _ = last_node(
        lambda x: traced_while([x], lambda x: ops.lt(x, 1.0), lambda x: [ops.add(x, 0.5)]), LANES
    )  # fmt: skip
    for node in (each, until):
        assert Region.of(node).lanes == 1
        assert Region.of(node).lane_shape == (N,)


def test_stacks_go_through():
    """A push in a branch in a loop: from the loop's result back to the stack that was made."""

    def program(n, p, x):
        stack = ops.stack_new(SCALAR)
        push, skip = (lambda s, v: [ops.push(s, v), v]), (lambda s, v: [s, ops.sin(v)])

        def body(_k, v, s):
            s, v = traced_switch(p, [push, skip], [s, v])
            return [v, s]

        return ops.pop(traced_for(n, [x, stack], body)[1])

    graph = trace(program, (COUNT, TensorType((), bool_), SCALAR))[0]
    loop = next(node for node in graph.nodes if node.op == "for")
    (switch,) = loop.regions[0].nodes
    stack = next(r for r in loop.results if isinstance(r.type, StackType))
    at = Region.of(loop).source(stack.index)
    assert isinstance(loop.operands[at].type, StackType)
    assert previous(stack) is loop.operands[at]
    assert beginning(graph.nodes[-1].results[0]).node.op == "stack_new"
    inside = next(r for r in switch.results if isinstance(r.type, StackType))
    assert beginning(inside) is loop.regions[0].inputs[at]


def test_branches_must_continue_the_same():
    swap, keep = (lambda a, b: [b, a]), (lambda a, b: [a, b])
    node, _ = last_node(lambda p, x, y: traced_switch(p, [keep, swap], [x, y]), COUNT, LANES, LANES)
    with pytest.raises(VerifyError, match="result 0 doesn't come from one accumulator operand"):
        Region.of(node).source(0)


def as_graph(graph, form):
    """`graph` with its last node in another form."""
    node = form.node(None)
    return Graph(graph.inputs, (*graph.nodes[:-1], node), node.results)


def test_a_loop_with_other_parts():
    node, graph = counted()
    loop = Loop.of(node)
    body = trace(lambda _k, y, a: [ops.add(y, a)], (COUNT, SCALAR, SCALAR))[0]
    smaller = loop.rebuilt(inits=loop.inits[1:], body=body)
    verify(as_graph(graph, smaller))
    assert smaller.node(None).attrs["carries"] == 1
    assert loop.rebuilt() == (node.op, node.operands, node.attrs, node.regions)


def test_a_while_with_other_parts():
    node, graph = unbounded()
    loop = Loop.of(node)
    never = trace(lambda x, a: [ops.lt(a, x)], (SCALAR, SCALAR))[0]
    verify(as_graph(graph, loop.rebuilt(condition=never, captures=[loop.inits[0]])))


def test_a_switch_with_other_parts():
    node, graph = chosen()
    switch = Switch.of(node)
    other = switch.rebuilt(operands=switch.arguments[::-1], branches=[switch.branches[0]])
    verify(as_graph(graph, other))
    assert other.operands == (switch.index, *switch.arguments[::-1])


@pytest.mark.parametrize("made", [counted, unbounded, chosen])
def test_other_captures(made):
    """The last operand is replaced by another of its type."""
    node, graph = made()
    region = Region.of(node)
    last = len(node.operands) - 1
    form = region.recaptured({last}, [node.operands[last - 1]], node.regions)
    assert form.operands == (*node.operands[:last], node.operands[last - 1])
    verify(as_graph(graph, form))


def test_fewer_results():
    def program(p, where, table, x):
        def step(t, x):
            return [ops.sin(x), ops.scatter("add", t, (where,), x)]

        return traced_switch(p, [step, step], [table, x], shared=(1,))

    node, _ = last_node(program, TensorType((N,), bool_), TensorType((N,), int64), TensorType((3,), float64), LANES)
    switch = Region.of(node)
    assert switch.accumulators == [1]
    kept = tuple([Graph(r.inputs, r.nodes, r.outputs[1:]) for r in node.regions])
    form = switch.narrowed(range(len(node.operands)), kept, [1])
    assert form.attrs["shared"] == (0,)
    made = trace(lambda *operands: emit(*form._replace(operands=operands)), [v.type for v in node.operands])[0]
    verify(made)
