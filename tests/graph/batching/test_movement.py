from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.types import TensorType, int64

X = np.arange(48.0).reshape(4, 3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda v: [ops.broadcast(v, (2, 3, 4), (1, 2)), ops.broadcast(v, (3, 5, 4), (0, 2))],
        lambda v: [ops.reshape(v, (12,)), ops.reshape(v, (2, 6)), ops.reshape(v, (1, 3, 4))],
        lambda v: [ops.transpose(v, (1, 0))],
        lambda v: [ops.slice(v, (1, 0), (3, 4), (1, 2)), ops.slice(v, (2, 3), (None, 0), (-1, -1))],
        lambda v: [ops.slice(v, (0, 2), (None, None)), ops.slice(v, (3, 0), (3, 4))],
        lambda v: [ops.pad(v, (1, 0), (0, 2), 7.0)],
        lambda v: [ops.flip(v, (1,)), ops.flip(v, (0, 1))],
        lambda v: [ops.concat([v, ops.neg(v)], 0), ops.concat([v, ops.sin(v), v], 1)],
    ],
)
def test_moved(same, function):
    same(function, X)


def test_broadcast_of_extent_one(same):
    same(lambda v: [ops.broadcast(v, (5, 3), (0, 1))], np.arange(4.0).reshape(4, 1, 1))


def test_broadcast_of_scalars(same):
    same(lambda v: [ops.broadcast(v, (2, 3), ())], np.arange(4.0))


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("kind", ["f", "i", "b"])
def test_pad(same, flags, kind):
    x = np.arange(24).reshape(4, 2, 3) if flags[0] else np.arange(6).reshape(2, 3)
    value = np.arange(4) + 50 if flags[1] else np.array(7)
    if kind == "b":
        x, value = x % 2 == 0, value % 2 == 0
    elif kind == "f":
        x, value = x + 0.5, value + 0.25
    same(lambda x, value: [ops.pad(x, (1, 0), (0, 2), value), ops.pad(x, (0, 1), (0, 0), value)], x, value, flags=flags)


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
def test_concat(same, flags):
    x, y = [np.random.default_rng(i).normal(size=(4, 2, 3) if b else (2, 3)) for i, b in enumerate(flags)]
    same(lambda x, y: [ops.concat([x, y], 0), ops.concat([y, x, y], 1)], x, y, flags=flags)


def test_creation_is_not_batched(same, nodes):
    literal = np.array([3, 1, 2])
    t = TensorType((3,), int64)
    graph = same(
        lambda x: [ops.add(x, ops.iota(t, 0)), ops.literal(literal, int64), ops.full(2, t)], np.ones((4, 3), int)
    )
    assert [n.results[0].shape for n in nodes(graph, "literal", "iota")] == [(3,), (3,)]
