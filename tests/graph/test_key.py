"""Structural keys: equal for equal programs, different for anything that changes the result."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import at, trace
from loopgrad.graph.key import RAISING, _Encoder, abstract_key, key
from loopgrad.graph.nodes import Location
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float32, float64, int64
from tests.graph import random_graphs

X = TensorType((4,), float64)
COUNT = TensorType((), int64)
ROW = TensorType((20,), float64)


def traced(function, types=(X, X)):
    return trace(lambda *v: [function(*v)], types)[0]


def loop(x, scale, name=None, reverse=False, loc=None):
    with at(loc):
        count = ops.full(3, COUNT)
        return traced_for(count, [x], lambda _k, c: [ops.mul(c, scale)], name=name, reverse=reverse)[0]


def test_rebuilding_gives_the_same_key():
    assert key(traced(lambda x, y: ops.add(ops.sin(x), y))) == key(traced(lambda x, y: ops.add(ops.sin(x), y)))
    assert len(key(traced(ops.add))) == 16


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: ops.sub(x, y),
        lambda x, y: ops.add(y, x),
        lambda x, _y: ops.add(x, x),
        lambda x, _y: ops.add(x, 1.0),
        lambda x, _y: loop(x, 0.3),
    ],
)
def test_a_different_program_has_another_key(other):
    assert key(traced(lambda x, y: ops.add(x, y))) != key(traced(other))


def test_input_types_count():
    small = TensorType((4,), float32)
    assert key(traced(ops.add)) != key(traced(ops.add, (small, small)))


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (1.0, 1.5), (float("nan"), float("inf"))])
def test_constants_that_compare_equal_or_not_are_told_apart(a, b):
    assert key(traced(lambda x, _: ops.add(x, a))) != key(traced(lambda x, _: ops.add(x, b)))


def test_what_happens_in_a_region_counts():
    assert key(traced(lambda x, _: loop(x, 0.3))) != key(traced(lambda x, _: loop(x, 0.25)))
    assert key(traced(lambda x, _: loop(x, 0.3))) != key(traced(lambda x, _: loop(x, 0.3, reverse=True)))


def test_names_and_locations_count_only_where_asked_for():
    here, there = (Location("a.py", line, "f") for line in (1, 2))
    one = traced(lambda x, _: loop(x, 0.3, name="one", loc=here))
    two = traced(lambda x, _: loop(x, 0.3, name="two", loc=here))
    elsewhere = traced(lambda x, _: loop(x, 0.3, name="one", loc=there))
    assert key(one, with_locations=False) == key(two, with_locations=False) == key(elsewhere, with_locations=False)
    assert len({key(one), key(two), key(elsewhere)}) == 3


def test_the_line_of_an_operation_that_cannot_fail_does_not_count():
    graphs = []
    for line in (1, 2):
        with at(Location("a.py", line, "f")):
            graphs.append(traced(ops.add))
    assert key(graphs[0]) == key(graphs[1])


def test_abstract_keys_forget_float_constants():
    one, two = (traced(lambda x, _, c=c: loop(ops.mul(x, c), c + 1)) for c in (0.3, 0.7))
    assert abstract_key(one)[0] == abstract_key(two)[0]
    assert abstract_key(one)[1] == (3, 0.3, 1.3)
    assert [slot.node.attrs["value"] for slot in abstract_key(two)[2]] == [3, 0.7, 1.7]


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("inf")])
def test_constants_that_simplification_lives_on_stay(value):
    assert abstract_key(traced(lambda x, _: ops.mul(x, value)))[1] == ()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: ops.mul(x, ops.cast(ops.full(i + 7, TensorType((20,), int64)), float64)),
        lambda x, i: ops.slice(x, (i,), (i + 4,)),
        lambda x, i: ops.pad(x, (i,), (9 - i,)),
        lambda x, i: traced_for(ops.full(i + 5, COUNT), [x], lambda _k, c: [ops.add(c, c)])[0],
    ],
)
def test_abstract_keys_forget_integers_and_positions(function):
    """Programs of the same shapes differ in where and how often only."""
    graphs = [traced(lambda x, i=i: function(x, i), (ROW,)) for i in (0, 3)]
    assert len({abstract_key(g)[0] for g in graphs}) == 1
    assert len({key(g) for g in graphs}) == 2


def test_what_positions_take_counts():
    slices = [traced(lambda x, n=n: ops.slice(x, (3,), (3 + n,)), (ROW,)) for n in (4, 5)]
    pads = [traced(lambda x, n=n: ops.pad(x, (3,), (n,)), (ROW,)) for n in (4, 5)]
    assert len({abstract_key(g)[0] for g in (*slices, *pads)}) == 4


def test_keys_of_random_graphs_are_distinct_and_repeatable():
    keys = [key(random_graphs.random_program(seed)[0]) for seed in range(30)]
    assert len(set(keys)) == 30
    assert keys == [key(random_graphs.random_program(seed)[0]) for seed in range(30)]


def decoded(words, strings, at=0):
    """Where the graph that begins at `at` ends: what is written says so itself."""
    at += 1 + words[at]
    while words[at] != -1:
        op = strings[words[at]]
        at += words[at:].index(-1) + 2  # operands and attributes
        regions, at = words[at], at + 1
        for _ in range(regions):
            at = decoded(words, strings, at)
        at += op in RAISING
    return at + 2 + words[at + 1]


def test_an_encoding_says_where_it_ends():
    for seed in range(40):
        graph = random_graphs.random_program(seed)[0]
        encoder = _Encoder(with_locations=True, abstract=True)
        encoder.graph(graph)
        assert decoded(encoder.words, list(encoder.strings)) == len(encoder.words)
