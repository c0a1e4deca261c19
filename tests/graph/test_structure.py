"""Words of small graphs: they tell apart what digests tell apart, and leave open the same numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import at, emit, trace
from loopgrad.graph.key import abstract_key
from loopgrad.graph.nodes import Graph, Location
from loopgrad.graph.structure import digest, outline, structure
from loopgrad.graph.types import TensorType, bool_, float32, float64, int64
from tests.graph import random_graphs

X = TensorType((4,), float64)
N = TensorType((4,), int64)


def traced(function, types=(X, X)) -> Graph:
    return trace(lambda *v: [function(*v)], types)[0]


def constant(value, type=X):
    return emit("const", (), {"value": value, "type": type})[0]


def sliced(x, start, step=1):
    return emit("slice", (x,), {"start": (start,), "stop": (start + 2 * step - step + 1,), "step": (step,)})[0]


PROGRAMS = [
    lambda x, y: ops.add(x, y),
    lambda x, y: ops.add(y, x),
    lambda x, _y: ops.add(x, x),
    lambda x, y: ops.sub(x, y),
    lambda x, _y: ops.mul(x, constant(0.3)),
    lambda x, _y: ops.mul(x, constant(0.7)),
    lambda x, _y: ops.mul(x, constant(1.0)),
    lambda x, _y: ops.mul(x, constant(0.0)),
    lambda x, _y: ops.mul(x, constant(-0.0)),
    lambda x, _y: ops.mul(x, constant(float("nan"))),
    lambda x, _y: ops.mul(x, constant(float("inf"))),
    lambda _x, _y: constant(1, N),
    lambda _x, _y: constant(True, TensorType((4,), bool_)),
    lambda _x, _y: constant(1.0),
    lambda _x, _y: constant(7, N),
    lambda _x, _y: constant(1.0, TensorType((4,), float32)),
    lambda _x, _y: constant(1.0, TensorType((4, 1), float64)),
    lambda x, _y: sliced(x, 0),
    lambda x, _y: sliced(x, 1),
    lambda x, _y: sliced(x, 0, 2),
    lambda x, _y: ops.reduce_sum(x, (0,)),
    lambda x, _y: ops.reshape(x, (2, 2)),
    lambda x, _y: ops.reshape(x, (4, 1)),
    lambda x, _y: ops.broadcast(x, (4, 4), (0,)),
    lambda x, _y: ops.broadcast(x, (4, 4), (1,)),
    lambda x, _y: ops.cast(x, int64),
    lambda x, _y: ops.cast(x, float32),
]


def test_words_are_equal_where_digests_are():
    graphs = [traced(p) for p in PROGRAMS for _ in range(2)]
    found = [structure(g) for g in graphs]
    keys = [abstract_key(g) for g in graphs]
    for (_, numbers), (_, expected, _) in zip(found, keys, strict=True):
        assert numbers == expected
        assert [type(n) for n in numbers] == [type(n) for n in expected]
    for a, one in zip(found, keys, strict=True):
        for b, other in zip(found, keys, strict=True):
            assert (a[0] == b[0]) == (one[0] == other[0])
            assert a[0] != b[0] or hash(a[0]) == hash(b[0])
    assert len({words for words, _ in found}) == len({digest for digest, _, _ in keys}) > 20


def test_input_types_and_outputs_count():
    small = TensorType((4,), float32)
    assert structure(traced(ops.add)) != structure(traced(ops.add, (small, small)))
    both, _ = trace(lambda x: (ops.sin(x), x), [X])
    first, _ = trace(lambda x: (ops.sin(x),), [X])
    assert structure(both) != structure(first)


def test_lines_count_where_an_error_can_show_them():
    def taken(line):
        with at(Location("script.py", line, "f")):
            return structure(traced(lambda x, n: emit("gather", (x, n))[0], (X, N)))

    assert taken(1) == taken(1) != taken(2)


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(seed):
    graphs = [random_graphs.random_program(s)[0] for s in (seed, seed, seed + 1)]
    for graph in graphs:
        found = structure(graph)
        assert (found is None) == any(node.regions for node in graph.nodes)
        assert found is None or found[1] == abstract_key(graph)[1]
    for a, b in pairwise(graphs):
        if structure(a) is not None and structure(b) is not None:
            assert (structure(a)[0] == structure(b)[0]) == (abstract_key(a)[0] == abstract_key(b)[0])


def test_digests_of_words_tell_apart_what_words_do():
    words = [structure(traced(p))[0] for p in PROGRAMS for _ in range(2)]
    for a in words:
        for b in words:
            assert (a == b) == (digest(a) == digest(b))


def test_outlines_are_equal_where_operations_and_connections_are():
    def outlines(*functions):
        return [outline(traced(f)) for f in functions]

    one, other = outlines(lambda x, _y: ops.mul(x, constant(0.3)), lambda x, _y: ops.mul(x, constant(1.0)))
    assert one == other
    assert len(set(outlines(*PROGRAMS[:4]))) == 4
    small = TensorType((5,), float64)
    assert outline(traced(ops.add)) != outline(traced(ops.add, (small, small)))
