"""The reverse pass is compiled when a cotangent is asked for, or comes along with a value: not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.nodes import Graph
from loopgrad.runtime import session

X = np.linspace(0.1, 0.9, 31)


def loss(x: Any) -> Any:
    """Of a loop that nobody can bound: its derivative needs stacks, its value none."""
    return lg.sum(lg.while_loop(lambda v: v < 1.0, lambda v: v * 1.25 + 0.1 * lg.sin(v), x) ** 2)


def numpy_loss(x: np.ndarray[Any, Any]) -> float:
    total = 0.0
    for v in x:
        while v < 1.0:
            v = v * 1.25 + 0.1 * np.sin(v)
        total += v * v
    return total


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Graph]]:
    """What is compiled meanwhile, everything before its first run."""
    found: list[Graph] = []
    inner = session.compiled
    monkeypatch.setattr(session, "compiled", lambda d, graph, o: (found.append(graph), inner(d, graph, o))[1])
    with lg.options(direct=False):
        session.SESSION.clear()
        yield found


def saves(graph: Graph) -> bool:
    """Whether anything is kept for a derivative, or its loop undone."""
    return any(node.op == "stack_new" or any(map(saves, node.regions)) for node in graph.nodes)


VALUES: dict[str, Callable[[Any], Any]] = {
    "vjp": lambda x: lg.vjp(loss, x)[0],
    "linearize": lambda x: lg.linearize(loss, x)[0],
    "jvp": lambda x: lg.jvp(loss, (x,), (x,))[0],
    "value_and_grad": lambda x: lg.value_and_grad(loss)(x)[0],
    "grad with aux": lambda x: lg.grad(lambda x: (loss(x), loss(x)), has_aux=True)(x)[1],
}


@pytest.mark.parametrize("name", VALUES)
def test_of_a_value_alone_nothing_is_compiled_for_its_derivative(name: str, graphs: list[Graph]) -> None:
    found = float(VALUES[name](lg.asarray(X)))
    np.testing.assert_allclose(found, numpy_loss(X), rtol=1e-13)
    assert [saves(graph) for graph in graphs] == [False]
    (graph,) = graphs
    assert len([node for node in graph.nodes if node.regions]) == 1


def test_the_pullback_is_compiled_when_it_is_asked(graphs: list[Graph]) -> None:
    value, pull = lg.vjp(loss, lg.asarray(X))
    float(value)
    (cotangent,) = pull(lg.asarray(1.0))
    assert [saves(graph) for graph in graphs] == [False]  # asked for, but not looked at
    found = np.asarray(cotangent)
    assert [saves(graph) for graph in graphs] == [False, True]
    h = 1e-6
    slopes = [(numpy_loss(X + h * e) - numpy_loss(X - h * e)) / (2 * h) for e in np.eye(len(X))]
    np.testing.assert_allclose(found, slopes, rtol=1e-6)


def test_a_gradient_that_is_held_comes_along_with_its_value(graphs: list[Graph]) -> None:
    value, gradient = lg.value_and_grad(loss)(lg.asarray(X))
    float(value)
    np.asarray(gradient)
    assert [saves(graph) for graph in graphs] == [True]  # one program, one loop forward


def test_a_compiled_function_has_no_code_for_a_gradient_that_it_drops() -> None:
    both, alone = lg.compile(lg.value_and_grad(loss)), lg.compile(lambda x: lg.value_and_grad(loss)(x)[0])
    x = lg.asarray(X)
    assert float(alone(x)) == float(both(x)[0])
    assert "push" in both.text("graph", x)
    assert "push" not in alone.text("graph", x)
