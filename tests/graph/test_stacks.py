"""Following stacks: from node to node, and who pushes and pops in lanes."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.regions import Region
from loopgrad.graph.stacks import handled_in_lanes, last_stack, stack_type, uses_of_stack
from loopgrad.graph.types import TensorType, float64, int64

X, COUNTS, COUNT = TensorType((4,), float64), TensorType((4,), int64), TensorType((), int64)


def saving(popped_outside: bool):
    """A loop pushes on a stack and another one, or its surroundings, pop; %0: counts, one a lane or one for all."""

    def program(n, x):
        stack, _ = traced_for(n, [ops.stack_new(X), x], lambda _k, s, c: [ops.push(s, c), ops.sin(c)])
        if popped_outside:
            stack, y = ops.pop(stack)
            return [y]

        def back(_k, s, c):
            s, y = ops.pop(s)
            return [s, ops.add(c, y)]

        return [traced_for(n, [stack, x], back, reverse=True)[1]]

    return program


@pytest.mark.parametrize(
    ("counts", "popped_outside", "handlers"),
    [(COUNTS, False, {True}), (COUNT, False, {False}), (COUNT, True, {False}), (COUNTS, True, {True, False})],
)
def test_who_handles_a_stack(counts, popped_outside, handlers):
    graph, _ = trace(saving(popped_outside), [counts, X])
    (new,) = [node for node in graph.nodes if node.op == "stack_new"]
    assert handled_in_lanes(graph, new.results[0]) == handlers


def test_a_stack_is_followed_to_its_end():
    graph, _ = trace(saving(True), [COUNT, X])
    (new,) = [node for node in graph.nodes if node.op == "stack_new"]
    steps = list(uses_of_stack(graph, new.results[0]))
    assert [node.op for node, _, _ in steps] == ["for", "pop"]
    assert last_stack(graph, new.results[0]) is steps[-1][2]
    assert stack_type(steps[0][2]).element == X


def test_a_stack_is_followed_into_a_region():
    graph, _ = trace(saving(True), [COUNT, X])
    (loop,) = [node for node in graph.nodes if node.regions]
    region = Region.of(loop)
    (operand,) = [i for i, v in enumerate(loop.operands) if v.node is not None and v.node.op == "stack_new"]
    (inside,) = region.inputs_of(operand)
    assert [node.op for node, _, _ in uses_of_stack(region.running[0], inside)] == ["push"]
