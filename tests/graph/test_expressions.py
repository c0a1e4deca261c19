"""Expressions of noted values: what they tell apart, and where the parts are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from sys import getrefcount
from typing import NamedTuple

import numpy as np
import pytest

from loopgrad.graph import expressions, ops
from loopgrad.graph.build import emit, emit_alike, emit_beside
from loopgrad.graph.expressions import LARGEST, OPAQUE, expression_of
from loopgrad.graph.nodes import Leaf, Noted, Value
from loopgrad.graph.structure import noted_structure
from loopgrad.graph.types import TensorType, float32, float64

VECTOR = TensorType((6,), float64)


class Given(NamedTuple):
    """Two leaves, a number and a position."""

    a: Value
    b: Value
    n: float
    i: int


Line = Callable[[Given], Value]


def times(v: Value, number: float) -> Value:
    return emit_beside("mul", v, number)


LINES: dict[str, Line] = {
    "number": lambda g: times(g.a, g.n),
    "number in front": lambda g: emit_beside("sub", g.a, g.n, True),
    "one": lambda g: times(g.a, 1.0),
    "zero": lambda g: times(g.a, 0.0),
    "minus zero": lambda g: times(g.a, -0.0),
    "infinity": lambda g: times(g.a, float("inf")),
    "no number": lambda g: times(g.a, float("nan")),
    "two": lambda g: emit_alike("sub", g.a, g.b, VECTOR),
    "exchanged": lambda g: emit_alike("sub", g.b, times(g.a, g.n), VECTOR),
    "deep": lambda g: emit_alike("add", times(ops.mul(g.a, g.b), g.n), emit_beside("add", g.b, g.n), None),
    "compared": lambda g: emit_beside("lt", emit_alike("mul", g.a, g.a, VECTOR), g.n),
    "constant": lambda g: ops.add(g.a, ops.full(g.n, VECTOR)),
    "sliced": lambda g: times(ops.slice(g.a, (g.i,), (g.i + 2,)), g.n),
    "sliced elsewhere": lambda g: times(ops.slice(g.a, (g.i,), (g.i + 3,)), g.n),
    "three": lambda g: emit("select", (emit_beside("lt", g.a, g.n), ops.sin(g.b), times(g.b, g.n)))[0],
    "of integers": lambda _: emit("iota", (), {"type": VECTOR, "axis": 0})[0],
    "cast": lambda g: ops.cast(times(g.a, g.n), float32),
}  # fmt: skip


def leaves() -> tuple[Leaf, Leaf]:
    return Leaf(TensorType((6,), float64), None), Leaf(TensorType((6,), float64), None)


def test_values_of_one_expression_have_the_same_words_where_they_have_the_same_leaves() -> None:
    values: list[tuple[str, Noted]] = []
    for number, position in ((0.3, 1), (-7.25, 2)):
        for line in LINES:
            value = LINES[line](Given(*leaves(), number, position))
            assert isinstance(value, Noted)
            values.append((line, value))
    for (one, v), (other, w) in combinations(values, 2):
        same = expression_of(v) is expression_of(w)
        assert same is (one == other), (one, other)
        a, b = noted_structure(v), noted_structure(w)
        assert a is not None
        assert b is not None
        assert (a[0] == b[0]) is same, (one, other)


@pytest.mark.parametrize("line", LINES)
def test_parts_are_those_that_words_are_made_of(line: str) -> None:
    value = LINES[line](Given(*leaves(), 0.3, 1))
    assert isinstance(value, Noted)
    found = noted_structure(value)
    assert found is not None
    places = expression_of(value).places
    _, numbers, met, inner = found
    parts = places.gathered(value)
    assert parts is not None
    at = places.met(parts)
    assert [[parts[i] for i in those] for those in at] == [met, inner, [*numbers]]
    assert {*places.leaves(parts)} == {*met}
    assert {*places.inner(parts)} == {*inner}


def counted(value: Value) -> tuple[list[int], list[int]]:
    """References to the values on the way, and what they are where only these values refer to each other."""
    assert isinstance(value, Noted)
    places = expression_of(value).places
    parts = places.gathered(value)
    assert parts is not None
    inner = places.inner(parts)
    seen = [*map(getrefcount, inner)]
    del inner
    return seen, places.counts(parts)


def test_references_of_others_show() -> None:
    a, b = leaves()
    inner = times(a, 0.3)
    value = emit_alike("add", inner, b, VECTOR)
    seen, alone = counted(value)
    assert seen == [alone[0] + 1], "held here"
    inner.known = object()
    del inner
    places = expression_of(value).places
    assert isinstance(value, Noted)
    assert places.gathered(value) is None, "known"
    value = emit_alike("add", times(a, 0.3), b, VECTOR)
    assert isinstance(value, Noted)
    assert expression_of(value).places is places
    seen, alone = counted(value)
    assert seen == alone
    assert value.note[1][0].node.op == "mul"
    seen, alone = counted(value)
    assert seen == [alone[0] + 1], "a node was made"
    inner = times(a, 0.3)
    value = emit_alike("add", emit_alike("mul", inner, inner, VECTOR), inner, VECTOR)
    del inner
    seen, alone = counted(value)
    assert seen == alone, "read three times, by two values"
    assert len({*alone}) == 2


def test_what_is_large_has_no_expression() -> None:
    a, _ = leaves()
    value: Value = a
    for _ in range(LARGEST):
        value = times(value, 0.5)
    assert expression_of(value).size == LARGEST
    assert expression_of(emit_beside("lt", value, 0.5)) is OPAQUE
    assert emit_beside("lt", value, 0.5).dtype.name == "bool"
    value = emit_alike("add", value, a, VECTOR)
    assert expression_of(value) is OPAQUE
    assert value.type == VECTOR
    doubled: Value = a
    for _ in range(64):
        doubled = emit_alike("add", doubled, doubled, VECTOR)
    assert expression_of(doubled) is OPAQUE
    chain = a
    for _ in range(5000):  # without recursion
        chain = ops.sin(chain)  # type: ignore[assignment]
    assert expression_of(chain) is OPAQUE


def test_they_are_forgotten_where_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "MOST", 40)
    a, _ = leaves()
    for n in range(200):
        value = ops.slice(a, (0,), (1 + n % 5,), (1,))
        for _ in range(n // 5 + 1):
            value = times(value, 0.3)
        assert expression_of(value).type == TensorType((1 + n % 5,), float64)
        assert len(expression_of(a).further) <= 41


def test_numbers_of_all_kinds_are_gathered_in_order() -> None:
    a, _ = leaves()
    value = emit_beside("add", times(ops.slice(a, (2,), (4,)), 7.5), np.float64(0.25))
    assert isinstance(value, Noted)
    places = expression_of(value).places
    parts = places.gathered(value)
    assert parts is not None
    assert [parts[i] for i in places.met(parts)[2]] == [0.25, 7.5, 2]
