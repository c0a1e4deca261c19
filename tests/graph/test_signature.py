"""Signatures: named segments of what a function takes and gives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from loopgrad.graph import ops
from loopgrad.graph.nodes import Value
from loopgrad.graph.signature import Signature
from loopgrad.graph.types import TensorType, float32, int32


class Taken(Signature):
    left: Sequence[Value]
    none: Sequence[Value]
    right: Sequence[Value]


def values(count: int) -> list[Value]:
    return [Value(TensorType((i,), int32 if i % 2 else float32)) for i in range(count)]


def test_values_are_in_the_order_of_the_fields():
    a, b, c = values(3)
    assert Taken([a], (), [b, c]).values == (a, b, c)


def test_what_corresponds_one_to_one_is_split_alike():
    given = Taken(values(1), (), values(2))
    others = values(3)
    found = given.split(others)
    assert isinstance(found, Taken)
    assert (list(found.left), list(found.none), list(found.right)) == (others[:1], [], others[1:])
    assert given.split(given.values).values == given.values


@pytest.mark.parametrize("count", [2, 4])
def test_other_numbers_of_values_are_refused(count):
    with pytest.raises(AssertionError):
        Taken(values(1), (), values(2)).split(values(count))


def test_a_traced_function_sees_its_arguments_by_name():
    given = Taken(values(1), (), values(2))
    graph = given.traced(lambda a: [*a.right, ops.neg(a.left[0])])
    assert graph.input_types == tuple([v.type for v in given.values])
    inputs = given.split(graph.inputs)
    assert graph.outputs[:2] == tuple(inputs.right)
    assert graph.outputs[2].node is not None
    assert graph.outputs[2].node.operands == tuple(inputs.left)


def test_a_traced_function_reads_nothing_else():
    outside = ops.full(1, TensorType((), int32))
    with pytest.raises(AssertionError, match="takes all it reads"):
        Taken((), (), values(1)).traced(lambda _a: [ops.neg(outside)])


def test_some_segments_are_replaced():
    given, others = Taken(values(1), (), values(2)), values(2)
    found = given.replaced(none=others)
    assert (found.left, found.none, found.right) == (given.left, others, given.right)
    with pytest.raises(AssertionError, match="wrong"):
        given.replaced(wrong=others)
