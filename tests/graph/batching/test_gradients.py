"""vmap of derivatives: graphs out of reverse mode, with their stacks, saved counts and reverse loops."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.autodiff.forward import jvp_emit
from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.graph import ops
from loopgrad.graph.batching import batch
from loopgrad.graph.build import inline, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.lanes import lane_domain
from loopgrad.graph.passes import optimise
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, float64, int64

F, INT = TensorType((), float64), TensorType((), int64)
X = np.random.default_rng(0).normal(size=(4, 3))


def shrink(x):
    """A value-dependent number of trips."""
    return traced_while(
        [x, ops.full(0.0, F)],
        lambda v, _s: ops.gt(v, 1.0),
        lambda v, s: [ops.sub(ops.mul(v, 0.5), 0.1), ops.add(ops.sin(v), s)],
    )


def shrink_vector(x):
    """The predicate sums over a vector carry."""
    return traced_while(
        [x], lambda v: ops.gt(ops.reduce_sum(ops.mul(v, v), (0,)), 0.5), lambda v: [ops.mul(ops.sin(v), 0.7)]
    )


def counted(n, x):
    return traced_for(n, [x], lambda k, v: [ops.add(ops.sin(v), ops.mul(v, ops.cast(k, float64)))])


def nested(n, x):
    """Trips of the inner loop depend on the outer index and on data."""

    def body(k, v):
        (w,) = counted(ops.sub(n, k), v)
        return [ops.add(shrink(w)[0], ops.sin(v))]

    return traced_for(n, [x], body)


def branching(n, x):
    def body(k, v):
        branches = [counted, lambda _k, v: [ops.mul(v, v)], lambda _k, v: [ops.cos(shrink(v)[1])]]
        return traced_switch(ops.mod(ops.add(k, ops.cast(ops.gt(v, 0.0), int64)), 3), branches, [k, v])

    return traced_for(n, [x], body)


def lookup(n, i, table, w):
    """Gathers from a table in the loop: its cotangent accumulates by scatters."""

    def body(k, v):
        return [ops.sin(ops.add(v, ops.gather(table, ops.add(i, k))))]

    return traced_for(n, [w], body)


def per_lane(n, x):
    """Lanes of the program."""
    return traced_for(n, [x], lambda _k, v: [ops.mul(ops.sin(v), v)])


def checkpointed_for(n, x):
    """Two states in memory: the schedule depends on the trip count."""
    return traced_for(n, [x], lambda _k, v: [ops.sub(ops.mul(ops.sin(v), v), 0.3)], memory_budget=2 * 8 * 3)


def checkpointed_while(x):
    return traced_while(
        [x],
        lambda v: ops.gt(v, 1.0),
        lambda v: [ops.sub(ops.mul(v, 0.8), ops.mul(ops.sin(v), 0.05))],
        memory_budget=3 * 8,
    )


def checkpointed_inside(n, x):
    """A checkpointed loop in a loop with one lane per batch element."""
    return traced_for(n, [x], lambda k, v: [*counted(k, ops.sin(*checkpointed_while(ops.mul(v, 9.0))))])


def total(outputs):
    floats = [o for o in outputs if o.dtype is float64]
    return [ops.reduce_sum(o, range(len(o.shape))) for o in floats]


def value_and_gradient(function):
    """inputs -> outputs and the gradient of their sum by every float input"""

    def emitted(*inputs):
        outputs = list(function(*inputs))
        sums = total(outputs)
        wrt = [v for v in inputs if v.dtype is float64]
        cotangents = vjp_emit(sums, [ops.full(1.0, F) for _ in sums], wrt)
        return [*outputs, *(ops.zeros_like(v) if ct is None else ct for v, ct in zip(wrt, cotangents, strict=True))]

    return emitted


CASES = {
    "shrink": (shrink, [np.array([8.0, 0.5, 90.0, 1.5])]),
    "shrink_vector": (shrink_vector, [X * np.array([[1], [5], [0.1], [9]])]),
    "counted": (counted, [np.array([2, 0, -3, 4]), X[:, 0]]),
    "nested": (nested, [np.array([2, 0, -3, 4]), X[:, 0]]),
    "branching": (branching, [np.array([2, 0, -3, 5]), X[:, 0]]),
    "lookup": (lookup, [np.array([2, 0, -3, 4]), np.arange(4), np.random.default_rng(1).normal(size=(4, 6)), X[:, 0]]),
    "checkpointed_for": (checkpointed_for, [np.array([12, 0, -3, 7]), X]),
    "checkpointed_while": (checkpointed_while, [np.array([80.0, 0.5, 900.0, 1.5])]),
    "checkpointed_inside": (checkpointed_inside, [np.array([2, 0, -3, 4]), X[:, 0]]),
    "checkpointed_lanes": (checkpointed_for, [np.array([[2, 0, 9], [0, 0, 0], [-1, 5, 1], [1, 1, 1]]), X]),
    "per_lane": (per_lane, [np.array([[2, 0, 3], [0, 0, 0], [-1, 5, 1], [1, 1, 1]]), X]),
}
FLAGGED = [
    (name, tuple([choice(p) for p in range(len(arrays))]))
    for name, (_, arrays) in CASES.items()
    for choice in (lambda _p: True, lambda p: p == 0, lambda p: p > 0)
]


@pytest.mark.in_turns
@pytest.mark.parametrize(("name", "flags"), [(name, flags) for name, flags in FLAGGED if any(flags)])
def test_vmap_of_value_and_gradient(same, name, flags):
    function, arrays = CASES[name]
    same(value_and_gradient(function), *[v if f else v[0] for v, f in zip(arrays, flags, strict=True)], flags=flags)


def matrix_power(n, w, x):
    """A small matrix that all share, times a vector."""
    return traced_for(n, [x], lambda _k, v: [ops.reshape(ops.matmul(w, ops.reshape(v, (3, 1))), (3,))])


@pytest.mark.parametrize("name", [*(name for name in CASES if name != "checkpointed_inside"), "matrix_power"])
def test_batched_loops_run_one_batch_element_per_lane(same, name):
    """Nothing that batching emits looks at another batch element, so that a loop can be one kernel."""
    function, arrays = CASES.get(name) or (matrix_power, [np.array([2, 0, -3, 4]), np.eye(3) * 0.5, X])
    flags = [len(a) == 4 for a in arrays]
    graph = optimise(same(value_and_gradient(function), *arrays, flags=flags))
    reports = [lane_domain(node) for node in graph.nodes if node.regions]
    assert all(report.local and report.shape[:1] == (4,) for report in reports)


@pytest.mark.parametrize("name", CASES)
def test_gradient_of_vmap(name, traced):
    """The batched loops are differentiated like any lane loops."""
    function, arrays = CASES[name]
    single = traced(function, [a[0] for a in arrays])
    gradient = traced(value_and_gradient(function), [a[0] for a in arrays])
    whole = traced(
        value_and_gradient(lambda *v: batch(single, v, [True] * len(v), 4)[0]), arrays
    )  # fmt: skip
    results = interpret(whole, arrays)
    for position, result in enumerate(results):
        expected = np.stack([interpret(gradient, [a[i] for a in arrays])[position] for i in range(4)])
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_vmap_of_forward_mode(same, name):
    function, arrays = CASES[name]

    def emitted(*inputs):
        outputs = list(function(*inputs))
        floats = [v for v in inputs if v.dtype is float64]
        tangents = jvp_emit(outputs, floats, [ops.cos(v) for v in floats])
        return [*outputs, *(t for t in tangents if t is not None)]

    same(emitted, *arrays)


@pytest.mark.parametrize("name", ["shrink", "counted"])
def test_vmap_of_second_derivatives(same, name):
    function, arrays = CASES[name]
    same(value_and_gradient(lambda *v: value_and_gradient(function)(*v)[-1:]), *arrays)


def test_gradient_descent_in_a_loop(same):
    """Derivatives inside a batched loop body."""

    def function(n, x):
        def body(_k, v):
            graph, _ = trace(value_and_gradient(shrink), [F])
            *_, slope = inline(graph, [v])
            return [ops.sub(v, ops.mul(slope, 0.1))]

        return traced_for(n, [x], body)

    same(function, np.array([2, 0, -3, 4]), np.array([8.0, 0.5, 90.0, 1.5]))


def test_per_sample_gradients(same):
    """One set of weights, a batch of samples: the gradient by the weights is per sample."""

    def function(w, x):
        (y,) = traced_for(ops.full(3, INT), [x], lambda _k, v: [ops.tanh(ops.matmul(w, v))])
        return [ops.reduce_sum(y, (0, 1))]

    w = np.random.default_rng(2).normal(size=(3, 3))
    same(value_and_gradient(function), w, X[:, :, None], flags=(False, True))
