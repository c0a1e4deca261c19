"""Sums of padded values that have places of their own become concats."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.interpret import interpret
from loopgrad.graph.passes import dce, pads
from tests.graph.passes import checking

checked, f, ops_of, traced = checking.checked, checking.f, checking.ops_of, checking.traced


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed, monkeypatch):
    monkeypatch.setattr(pads, "MANY", 2)
    checking.check_random(pads.run, seed)


def joined(graph):
    return dce.run(pads.run(graph))


def added(values):
    total = values[0]
    for v in values[1:]:
        total = ops.add(total, v)
    return total


def rows(x, order):
    return [ops.pad(ops.sin(ops.slice(x, (i, 0), (i + 1, 3))), (2 * i, 1), (39 - 2 * i, 0)) for i in order]


@pytest.mark.parametrize("order", [range(20), range(19, -1, -1), [3, 1, 4, 0, 2, *range(5, 20)]])
def test_rows_with_gaps_between_them(order):
    after = ops_of(checked(joined, lambda x: [added(rows(x, order))], f(20, 3)))
    assert after.count("concat") == after.count("pad") == after.count("add") == 1


def test_a_sum_of_negative_zeros_is_zero():
    graph = traced(lambda x: [added([ops.pad(ops.slice(x, (i,), (i + 1,)), (i,), (9 - i,)) for i in range(10)])], f(10))
    (total,) = interpret(joined(graph), [np.full(10, -0.0)])
    assert not np.signbit(total).any()
    assert "concat" in ops_of(joined(graph))


def test_places_that_overlap_or_fillings_that_are_not_zero_are_left():
    def overlapping(x):
        return [added([ops.pad(x, (i,), (9 - i,)) for i in range(10)])]

    def filled(x):
        return [added([ops.pad(ops.slice(x, (i,), (i + 1,)), (i,), (9 - i,), 1.0) for i in range(10)])]

    assert "concat" not in ops_of(checked(joined, overlapping, f(2)))
    assert "concat" not in ops_of(checked(joined, filled, f(10)))


def test_what_others_read_stays():
    def program(x):
        values = rows(x, range(20))
        total = added(values)
        half = added(values[:10])
        return [total, half]

    assert ops_of(checked(joined, program, f(20, 3))).count("concat") == 2
