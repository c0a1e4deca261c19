"""Alike pieces of concats become one expression."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.passes import alike, dce
from tests.graph.passes import checking

checked, f, ops_of, traced = checking.checked, checking.f, checking.ops_of, checking.traced


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed, monkeypatch):
    monkeypatch.setattr(alike, "MANY", 2)
    checking.check_random(alike.run, seed)


def joined(graph):
    return dce.run(alike.run(graph))


def rows(x):
    return [ops.slice(x, (i, 0), (i + 1, 3)) for i in range(20)]


def test_slices_next_to_each_other_are_one_slice():
    after = checked(joined, lambda x: [ops.concat([ops.sin(row) for row in rows(x)], 0)], f(20, 3))
    assert [op for op in ops_of(after) if op not in ("reshape", "transpose")] == ["slice", "sin"]


def test_one_value_of_its_own_may_go_into_a_piece():
    def program(x, y):
        own = [ops.cumsum(row, 1) for row in rows(x)]
        return [ops.concat([ops.add(ops.sin(v), w) for v, w in zip(own, rows(y), strict=True)], 0)]

    after = ops_of(checked(joined, program, f(20, 3), f(20, 3)))
    assert after.count("cumsum") == 20
    assert after.count("sin") == after.count("add") == after.count("concat") == 1


def test_two_values_of_their_own_are_left():
    def program(x, y):
        pairs = zip(rows(x), rows(y), strict=True)
        return [ops.concat([ops.add(ops.cumsum(v, 1), ops.cumsum(w, 1)) for v, w in pairs], 0)]

    assert ops_of(checked(joined, program, f(20, 3), f(20, 3))).count("add") == 20


def test_what_others_read_is_not_computed_twice():
    def program(x):
        own = [ops.sin(row) for row in rows(x)]
        return [ops.concat([ops.mul(v, v) for v in own], 0), ops.neg(own[3])]

    after = ops_of(checked(joined, program, f(20, 3)))
    assert after.count("sin") == 20
    assert after.count("mul") == 1


def test_pieces_that_are_outputs_are_taken_from_the_array():
    def program(x):
        own = [ops.sin(row) for row in rows(x)]
        twice = [ops.mul(v, v) for v in own]
        return [ops.concat(twice, 0), own[3], twice[0], twice[-1]]

    after = ops_of(checked(joined, program, f(20, 3)))
    assert (after.count("sin"), after.count("mul")) == (1, 1)


def test_sums_are_left_as_they_are():
    def program(x):
        return [ops.concat([ops.reduce_sum(row, (0,)) for row in rows(x)], 0)]

    assert ops_of(checked(joined, program, f(20, 3))).count("reduce_sum") == 20


def test_movements_of_values_of_their_own_are_left():
    def program(x):
        values = [ops.sin(x)]
        for _ in range(20):
            values.append(ops.sin(values[-1]))
        return [ops.concat([ops.reshape(v, (1, 3)) for v in values], 0)]

    before = traced(program, f(3))
    assert alike.run(before) is before
