"""What is lifted from a graph becomes an input, and the graph keeps its meaning."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.key import abstract_key
from loopgrad.graph.lift import lift
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64
from loopgrad.graph.verify import verify
from tests.graph import random_graphs

X = TensorType((5, 6), float64)
COUNT = TensorType((), int64)
ARRAY = np.arange(30.0).reshape(5, 6)


def same_meaning(graph, arrays, chosen=None):
    lifted, found = lift(graph, chosen)
    verify(lifted)
    assert [v.type for v in lifted.inputs[len(graph.inputs) :]] == [slot.type for slot in found]
    numbers = [np.asarray(slot.value, slot.type.dtype.np) for slot in found]
    results = interpret(lifted, [*arrays, *numbers])
    for expected, got in zip(interpret(graph, arrays), results, strict=True):
        np.testing.assert_array_equal(expected, got)
    return lifted, found


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    graph, arrays = random_graphs.random_program(seed)
    _, found = same_meaning(graph, arrays)
    assert tuple([slot.value for slot in found]) == abstract_key(graph)[1]
    generator = np.random.default_rng(seed)
    some = {i for i in range(len(found)) if generator.random() < 0.5}
    assert same_meaning(graph, arrays, some)[1] == tuple([slot for i, slot in enumerate(found) if i in some])
    assert lift(graph, ()) == (graph, ())


def traced(function):
    return trace(lambda x: [function(x)], (X,))[0]


SHAPED = {
    "rows": lambda x, i: ops.slice(x, (i, 0), (i + 2, 6)),
    "columns": lambda x, i: ops.slice(x, (0, i), (5, i + 3)),
    "block": lambda x, i: ops.slice(x, (i, i + 1), (i + 2, i + 3)),
    "strided": lambda x, i: ops.slice(x, (i, 0), (i + 2, 6), (1, 2)),
    "padded": lambda x, i: ops.pad(x, (i, 0), (3 - i, 0), 7.0),
    "framed": lambda x, i: ops.pad(x, (i, 2 - min(i, 2)), (3 - i, min(i, 2)), 7.0),
    "looped": lambda x, i: traced_for(
        ops.full(i + 3, COUNT), [x], lambda _k, c: [ops.pad(ops.slice(c, (i, 0), (i + 2, 6)), (i, 0), (3 - i, 0))]
    )[0],
    "scaled": lambda x, i: ops.mul(x, ops.cast(ops.full(i + 5, TensorType((5, 6), int64)), float64)),
}


@pytest.mark.parametrize("name", SHAPED)
def test_one_lifted_graph_serves_every_position(name):
    graphs = [traced(lambda x, i=i: SHAPED[name](x, i)) for i in range(3)]
    assert len({abstract_key(g)[0] for g in graphs}) == 1
    lifted, found = same_meaning(graphs[1], [ARRAY])
    assert found
    for graph in graphs:
        slots = lift(graph)[1]
        numbers = [np.asarray(slot.value, slot.type.dtype.np) for slot in slots]
        for expected, got in zip(interpret(graph, [ARRAY]), interpret(lifted, [ARRAY, *numbers]), strict=True):
            np.testing.assert_array_equal(expected, got)
