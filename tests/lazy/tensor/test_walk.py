"""The walk of an evaluation is the graph that `extract` would cut."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.extract import extract
from loopgrad.lazy.tensor.evaluator import known_leaf
from loopgrad.lazy.tensor.walk import walked

X = np.array([0.1, 0.2, 0.3])


def script(seed: int) -> list[lg.Tensor]:
    """Tensors of a random DAG over two leaves."""
    rng = np.random.default_rng(seed)
    made = [lg.asarray(X), lg.asarray(X * 2)]
    for _ in range(20):
        a, b = (made[int(i)] for i in rng.integers(len(made), size=2))
        made.append([lambda a, b: a + b, lambda a, b: a * b, lambda a, _: lg.sin(a), lambda a, _: a - 0.3][
            int(rng.integers(4))
        ](a, b))  # fmt: skip
    return made


@pytest.mark.parametrize("seed", range(20))
def test_nodes_and_inputs_are_those_of_extract_in_its_order(seed: int) -> None:
    values = [t._value for t in script(seed)[-3:]]
    graph, leaves = walked(values).cut(values)
    expected = extract(values)
    assert graph.nodes == expected.nodes
    assert graph.inputs == expected.inputs == tuple(leaves)
    assert graph.outputs == expected.outputs


def test_known_elements_are_where_it_starts() -> None:
    x = lg.asarray(X)
    h = lg.sin(x)
    y = h * 2.0 + x
    inner = h._value
    h.numpy()
    walk = walked((y._value,))
    assert walk.plain
    assert walk.starts == {inner: h._value}
    graph, leaves = walk.cut((y._value,))
    assert set(graph.inputs) == {inner, x._value}
    assert leaves == [known_leaf(v) or v for v in graph.inputs]
    np.testing.assert_array_equal(y.numpy(), h.numpy() * 2.0 + X)


def test_elements_that_are_read_by_two_names_are_one_input() -> None:
    x = lg.asarray(X)
    h = lg.sin(x)
    y = h * 2.0
    h.numpy()
    z = y - h  # of the value that h had, and of the leaf that it has
    walk = walked((z._value,))
    assert not walk.plain
    graph, leaves = walk.cut((z._value,))
    assert len(graph.inputs) == len(leaves) == 1
    np.testing.assert_array_equal(z, h.numpy())


def test_loops_that_stand_for_another_run_once(device: str) -> None:
    def f(v: lg.Tensor) -> lg.Tensor:
        return lg.sum(lg.fori_loop(0, 3, lambda _, c: c * lg.sin(c), v))

    x = lg.asarray(X)
    h = f(x)
    value, gradient = lg.value_and_grad(f)(x)
    walk = walked((h._value, value._value, gradient._value))
    assert any(node.replaces is not None for node in walk.nodes) != walk.plain
    graph, _ = walk.cut((h._value, value._value, gradient._value))
    assert len(graph.nodes) <= len(walk.nodes)
    lg.eval(h, value, gradient)
    np.testing.assert_array_equal(h, value)
