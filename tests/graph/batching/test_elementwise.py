from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.batching import batch
from loopgrad.graph.build import emit, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.primitives.elementwise import BINARY, COMPARE, PREDICATE, UNARY
from loopgrad.graph.types import TensorType, float32, float64, int64


def arrays(kinds, rng, *shapes):
    if "f" in kinds:
        return [rng.uniform(1.1, 1.9, s) for s in shapes]
    if kinds == "u":
        return [rng.integers(1, 6, s, np.uint32) for s in shapes]
    return [rng.integers(1, 6, s) if "i" in kinds else rng.random(s) < 0.5 for s in shapes]


@pytest.mark.parametrize(("op", "kinds"), [(op, row.kinds) for op, row in {**UNARY, **PREDICATE}.items()])
def test_unary(same, op, kinds):
    (x,) = arrays(kinds, np.random.default_rng(0), (4, 3))
    if op in ("asin", "acos", "atanh"):
        x = x - 1
    same(lambda v: emit(op, (v,)), x)


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("op", "kinds"), [(op, row.kinds) for op, row in {**BINARY, **COMPARE}.items()])
def test_binary(same, op, kinds, flags):
    shapes = [(4, 3) if b else (3,) for b in flags]
    same(lambda x, y: emit(op, (x, y)), *arrays(kinds, np.random.default_rng(1), *shapes), flags=flags)


@pytest.mark.parametrize(
    "flags", [(True, False, False), (False, True, False), (False, False, True), (True, True, True)]
)
def test_select(same, flags):
    rng = np.random.default_rng(2)
    p, x, y = [rng.normal(size=(2, 3) if b else (3,)) for b in flags]
    same(lambda p, x, y: emit("select", (p, x, y)), p < 0, x, y, flags=flags)


def test_one_operand_ops(same):
    x = np.arange(6.0).reshape(2, 3)
    same(lambda v: [ops.cast(v, float32), ops.alias(v), ops.stop_gradient(v), ops.mul(v, v)], x)


def test_scalars_become_vectors(same):
    same(lambda x, y: [ops.add(x, y), ops.add(ops.full(2.0, TensorType((), float64)), x)], np.arange(4.0), np.ones(4))


def test_constants_grow_instead_of_being_repeated(same, nodes):
    graph = same(lambda x: [ops.mul(x, 2.0)], np.ones((4, 3)))
    assert not nodes(graph, "broadcast")


def test_what_does_not_depend_on_the_batch_is_computed_once(same, nodes):
    graph = same(lambda x, y: [ops.mul(x, ops.sin(y))], np.ones((4, 3)), np.ones(3), flags=(True, False))
    assert [n.results[0].shape for n in nodes(graph, "sin")] == [(3,)]


def test_an_upper_bound_is_the_largest_of_the_batch(traced):
    x = np.array([3, 7, 5])
    graph = traced(lambda v: [ops.upper_bound(v)], [x[0]])
    batched = trace(lambda v: batch(graph, [v], [True], 3)[0], [TensorType((3,), int64)])[0]
    assert batched.output_types == (TensorType((), int64),)
    assert interpret(batched, [x])[0] == 7
    twice = trace(lambda v: batch(batched, [v], [True], 2)[0], [TensorType((2, 3), int64)])[0]
    assert interpret(twice, [np.array([[1, 2, 3], [3, 9, 0]])])[0] == 9
    empty = trace(lambda v: batch(graph, [v], [True], 0)[0], [TensorType((0,), int64)])[0]
    assert interpret(empty, [x[:0]])[0] == 0
