"""What vmap promises: the batched graph gives what the graph gives for each batch element alone."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.batching import batch
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import DTYPES, TensorType
from loopgrad.graph.verify import verify
from tests.graph import random_graphs as _random_graphs


def type_of(array):
    return TensorType(array.shape, DTYPES[array.dtype.name])


def graph_of(function, arrays):
    graph, captures = trace(function, [type_of(a) for a in arrays])
    assert not captures
    return graph


def batched_graph(graph, flags, size):
    """A closed graph over the whole batch whose outputs all have the batch axis, and which had it before."""
    types = [TensorType((size, *t.shape), t.dtype) if b else t for t, b in zip(graph.input_types, flags, strict=True)]
    found = []

    def function(*arguments):
        values, outputs = batch(graph, arguments, flags, size)
        found.extend(outputs)
        shapes = [(size, *v.shape) for v in graph.outputs]
        for v, b, s in zip(values, outputs, shapes, strict=True):
            assert v.shape == (s if b else s[1:])
        whole = zip(values, outputs, shapes, strict=True)
        return [v if b else ops.broadcast(v, s, range(1, len(s))) for v, b, s in whole]

    result, captures = trace(function, types)
    assert not captures
    return result, found


def nodes_of(graph, *names):
    """All nodes of these names, those of regions too."""
    found = []
    for node in graph.nodes:
        if node.op in names:
            found.append(node)
        for region in node.regions:
            found += nodes_of(region, *names)
    return found


def assert_vmapped(graph, arrays, flags, size):
    """Compare with one run per batch element; `arrays` have the batch axis where flagged. Returns the graph."""
    batched, _ = batched_graph(graph, flags, size)
    verify(batched)
    results = interpret(batched, arrays)
    singles = [interpret(graph, [a[i] if b else a for a, b in zip(arrays, flags, strict=True)]) for i in range(size)]
    for position, result in enumerate(results):
        if size:
            expected = np.stack([s[position] for s in singles])
            np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-13, err_msg=f"output {position}")
    return batched


def assert_same(function, *arrays, flags=None, graph=None):
    """vmap of `function` over the flagged arrays (all, unless told) equals the stack of single calls; so does
    vmap over halves of the batch, vmapped."""
    arrays = [np.asarray(a) for a in arrays]
    flags = [True] * len(arrays) if flags is None else list(flags)
    size = next(len(a) for a, b in zip(arrays, flags, strict=True) if b)
    graph = graph or graph_of(function, [a[0] if b else a for a, b in zip(arrays, flags, strict=True)])
    batched = assert_vmapped(graph, arrays, flags, size)
    if size % 2 == 0 and size:
        assert_nested(graph, arrays, flags, size)
    empty = [a[:0] if b else a for a, b in zip(arrays, flags, strict=True)]
    assert_vmapped(graph, empty, flags, 0)
    assert_vmapped(graph, [a[:1] if b else a for a, b in zip(arrays, flags, strict=True)], flags, 1)
    return batched


def assert_nested(graph, arrays, flags, size):
    """vmap of vmap: the outer one over the first half of the flagged inputs only, over the second, over all."""
    flagged = [i for i, b in enumerate(flags) if b]
    half = len(flagged) // 2
    inner, _ = batched_graph(graph, flags, size)
    for outer in (set(flagged), set(flagged[:half]), set(flagged[half:])):
        if not outer:
            continue
        outer_flags = [i in outer for i in range(len(arrays))]
        both = [np.stack([a, np.roll(a, 1, 0), a[::-1]]) if f else a for a, f in zip(arrays, outer_flags, strict=True)]
        assert_vmapped(inner, both, outer_flags, 3)


@pytest.fixture
def same():
    """same(function, *arrays, flags=None): asserts the promise and returns the batched graph."""
    return assert_same


@pytest.fixture
def vmapped():
    """vmapped(graph, arrays, flags, size): the promise once, for a graph."""
    return assert_vmapped


@pytest.fixture
def traced():
    """traced(function, arrays): the graph of a function for arrays like these."""
    return graph_of


@pytest.fixture
def nodes():
    """nodes(graph, *names): all nodes of these names, those in regions too."""
    return nodes_of


@pytest.fixture
def random_graphs():
    """The module of random programs."""
    return _random_graphs
