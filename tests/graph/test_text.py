"""Printing and parsing are inverse to each other."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import at, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.key import encode_attrs, key
from loopgrad.graph.nodes import Location
from loopgrad.graph.region_ops import traced_for, traced_switch
from loopgrad.graph.text import GraphTextError, parse_graph, print_attribute, print_graph
from loopgrad.graph.types import StackType, TensorType, float32, float64, int64
from tests.graph import random_graphs

X = TensorType((4,), float64)
COUNT = TensorType((), int64)

SAMPLE = """\
graph (%0: int64[], %1: float64[4]) {
  %2 = sin(%1) : float64[4]  # model.py:3 (step)
  %3 = for(%0, %2) {carries=1, lanes=0, memory_budget=None, name='growth', reverse=False, shared=()} : float64[4]
    body (%4: int64[], %5: float64[4]) {
      %6 = mul(%5, %5) : float64[4]  # model.py:4 (<lambda>)
      return %6
    }
  return %3, %1
}"""


@pytest.mark.parametrize("seed", range(40))
def test_round_trip(seed):
    graph, arrays = random_graphs.random_program(seed)
    text = print_graph(graph)
    parsed = parse_graph(text)
    assert print_graph(parsed) == text
    assert key(parsed) == key(graph)
    for expected, got in zip(interpret(graph, arrays), interpret(parsed, arrays), strict=True):
        np.testing.assert_array_equal(expected, got)


def test_the_documented_form():
    graph = parse_graph(SAMPLE)
    assert print_graph(graph) == SAMPLE
    assert str(graph) == SAMPLE
    assert graph.nodes[0].loc == Location("model.py", 3, "step")
    assert graph.nodes[1].regions[0].nodes[0].loc.function == "<lambda>"


@pytest.mark.parametrize(
    "value",
    [
        0, -3, 2**63 - 1, 0.1, -0.0, 1e-300, float("nan"), float("inf"), -float("inf"), True, False, None,
        "", "it's", 'a "quote"', "line\nbreak # not:1 (a comment)", "{}(),=", b"\x00\xff'\"", (), (1,),
        (1, (2.5, None), "a"), float32, TensorType((), int64), TensorType((2, 3), float32), StackType(X), 1 + 2j,
    ],
)  # fmt: skip
def test_every_kind_of_attribute(value):
    with at(Location("a file.py", 7, "f")):
        graph = trace(lambda x: [ops.sin(x)], [X])[0]
    node = graph.nodes[0]
    node.attrs = {"anything": value}
    back = parse_graph(print_graph(graph)).nodes[0]
    assert encode_attrs(back.attrs) == encode_attrs(node.attrs)
    assert back.loc == Location("a file.py", 7, "f")


def test_an_attribute_without_a_text_is_refused():
    with pytest.raises(GraphTextError, match="attribute"):
        print_attribute([1])


def test_stacks_and_switches():
    def program(i, x):
        stack = ops.push(ops.stack_new(X, name="saved"), x)
        stack, y = traced_for(i, [stack, x], lambda _k, s, c: [ops.push(s, c), ops.sin(c)])
        stack, z = ops.pop(stack)
        return traced_switch(i, [lambda a: [a], lambda a: [ops.neg(a)], lambda _: [y]], [z])

    graph = trace(program, [COUNT, X])[0]
    text = print_graph(graph)
    assert "stack<float64[4]>" in text
    assert text.count("branch (") == 3
    assert print_graph(parse_graph(text)) == text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sin(%1)", "sin(%9)", "defined above"),
        ("float64[4] ", "float65[4] ", "dtype"),
        ("return %6", "returns %6", "row 6"),
        ("= sin", "sin", "'='"),
        ("\n}", "", "another row"),
        ("shared=()", "shared=(", r"row 3"),
    ],
)
def test_damaged_text_names_the_row(old, new, message):
    with pytest.raises(GraphTextError, match=message):
        parse_graph(SAMPLE.replace(old, new))


def test_text_after_the_end_is_refused():
    with pytest.raises(GraphTextError, match="end of the text"):
        parse_graph(SAMPLE + "\n}")
