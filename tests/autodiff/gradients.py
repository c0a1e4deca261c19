"""How every derivative is checked: emit it, verify the graph, compare with central differences and with jvp.

`function` maps Values to a list of Values (at graph level); inputs are arrays. `active` are the positions
of the inputs to differentiate by.
"""

from __future__ import annotations

import numpy as np

from loopgrad.autodiff.forward import jvp_emit
from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import DTYPES, TensorType
from loopgrad.graph.verify import verify


def types_of(arrays):
    return [TensorType(a.shape, DTYPES[a.dtype.name]) for a in arrays]


def graph_of(function, arrays):
    """The closed graph of what `function` emits, verified."""
    graph, captures = trace(lambda *v: list(function(*v)), types_of(arrays))
    assert not captures
    verify(graph)
    return graph


def zeros_for(values, given):
    return [ops.zeros_like(v) if t is None else t for v, t in zip(values, given, strict=True)]


def vjp_of(function, active):
    """(inputs, cotangents of the differentiable outputs) -> (outputs, cotangents of the active inputs)"""

    def emitted(*values):
        count = emitted.inputs
        inputs, cotangents = values[:count], list(values[count:])
        outputs = list(function(*inputs))
        given = [cotangents.pop(0) if o.dtype.differentiable else None for o in outputs]
        wrt = [inputs[i] for i in active]
        return [*outputs, *zeros_for(wrt, vjp_emit(outputs, given, wrt))]

    return emitted


def gradient_of(function, active):
    """inputs -> gradient of the sum of all differentiable outputs by the active inputs"""

    def emitted(*inputs):
        outputs = [o for o in function(*inputs) if o.dtype.differentiable]
        wrt = [inputs[i] for i in active]
        return zeros_for(wrt, vjp_emit(outputs, [ops.ones_like(o) for o in outputs], wrt))

    return emitted


def jvp_of(function, active):
    """(inputs, tangents of the active inputs) -> (outputs, tangents of the differentiable outputs)"""

    def emitted(*values):
        count = emitted.inputs
        inputs, tangents = values[:count], values[count:]
        outputs = list(function(*inputs))
        floats = [o for o in outputs if o.dtype.differentiable]
        return [*outputs, *zeros_for(floats, jvp_emit(floats, [inputs[i] for i in active], tangents))]

    return emitted


def run_vjp(function, arrays, active, cotangents):
    emitted = vjp_of(function, active)
    emitted.inputs = len(arrays)
    results = interpret(graph_of(emitted, [*arrays, *cotangents]), [*arrays, *cotangents])
    split = len(results) - len(active)
    return results[:split], results[split:]


def run_jvp(function, arrays, active, tangents):
    emitted = jvp_of(function, active)
    emitted.inputs = len(arrays)
    return interpret(graph_of(emitted, [*arrays, *tangents]), [*arrays, *tangents])


def gradients(function, arrays, active=None):
    """The gradient of the sum of all float outputs."""
    active = float_positions(arrays) if active is None else active
    return interpret(graph_of(gradient_of(function, active), arrays), arrays)


def float_positions(arrays):
    return [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]


def floats_only(results):
    return [r for r in results if r.dtype.kind == "f"]


def central_difference(function, arrays, active, tangents, h):
    graph = graph_of(function, arrays)

    def shifted(sign):
        moved = list(arrays)
        for i, t in zip(active, tangents, strict=True):
            moved[i] = arrays[i] + sign * h * t
        return floats_only(interpret(graph, moved))

    return [(a - b) / (2 * h) for a, b in zip(shifted(1), shifted(-1), strict=True)]


def check(function, arrays, active=None, order=1, h=1e-6, rtol=1e-5, atol=1e-7, seed=0, numeric=True):
    """Values unchanged, jvp equals central differences, vjp agrees with jvp; `order` 2 checks the gradient's own
    derivatives too (reverse over reverse and forward over reverse)."""
    arrays = [np.asarray(a) for a in arrays]
    active = float_positions(arrays) if active is None else active
    rng = np.random.default_rng(seed)
    plain = interpret(graph_of(function, arrays), arrays)
    tangents = [rng.standard_normal(arrays[i].shape) for i in active]
    forward = run_jvp(function, arrays, active, tangents)
    outputs, t_out = forward[: len(plain)], forward[len(plain) :]
    for expected, got in zip(plain, outputs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    if numeric:
        for expected, got in zip(central_difference(function, arrays, active, tangents, h), t_out, strict=True):
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
    cotangents = [rng.standard_normal(o.shape) for o in floats_only(plain)]
    outputs, adjoint = run_vjp(function, arrays, active, cotangents)
    for expected, got in zip(plain, outputs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    left = sum(float(np.vdot(c, t)) for c, t in zip(cotangents, t_out, strict=True))
    right = sum(float(np.vdot(a, t)) for a, t in zip(adjoint, tangents, strict=True))
    scale = 1 + sum(float(np.abs(c * t).sum()) for c, t in zip(cotangents, t_out, strict=True))
    assert np.isclose(left, right, rtol=1e-9, atol=1e-9 * scale), (left, right)
    if order > 1:
        check(gradient_of(function, active), arrays, active, order - 1, h, rtol * 10, atol * 100, seed, numeric)


# ---- looking at what was emitted


def gradient_graph(function, arrays, active=None):
    """The primal outputs and the gradients in one graph."""
    active = float_positions(arrays) if active is None else active

    def both(*inputs):
        outputs = function(*inputs)
        floats = [o for o in outputs if o.dtype.differentiable]
        wrt = [inputs[i] for i in active]
        return [*outputs, *zeros_for(wrt, vjp_emit(floats, [ops.ones_like(o) for o in floats], wrt))]

    return graph_of(both, arrays)


def all_nodes(graph):
    for node in graph.nodes:
        yield node
        for region in node.regions:
            yield from all_nodes(region)


def region_nodes(function, arrays):
    return [n for n in gradient_graph(function, arrays).nodes if n.regions]


def lanes_of(function, arrays):
    """The lanes of the outermost loops and switches."""
    return [n.attrs["lanes"] for n in region_nodes(function, arrays)]


def pushed(function, arrays, active=None):
    """(what was saved, its type) of every push in the gradient."""
    graph = gradient_graph(function, arrays, active)
    values = [n.operands[1] for n in all_nodes(graph) if n.op == "push"]
    return [("carry" if v.node is None else v.node.op, str(v.type)) for v in values]


def depths(function, arrays):
    """The value of each stack's depth operand, None where it is measured."""
    graph = gradient_graph(function, arrays)
    made = [n for n in graph.nodes if n.op == "stack_new"]
    known = [n.operands[0] for n in made if n.operands]
    values = iter(interpret(type(graph)(graph.inputs, graph.nodes, tuple(known)), [np.asarray(a) for a in arrays]))
    return [int(next(values)) if n.operands else None for n in made]
