"""Sums into the same elements of a table become one."""

from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.passes import cse, dce, scatters
from tests.graph.passes import checking

checked, f, i, ops_of = checking.checked, checking.f, checking.i, checking.ops_of


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(scatters.run, seed)


def joined(graph):
    return dce.run(scatters.run(cse.run(graph)))


def test_those_of_a_chain_that_have_indices_in_common():
    def program(table, x, y, first, second):
        for k, index in enumerate([first, second, first, second, second]):
            table = ops.scatter("add", table, (index,), ops.mul(x if k % 2 else y, k + 2))
        return [table]

    after = ops_of(checked(joined, program, f(5, 3), f(4, 3), f(4, 3), i(4), i(4)))
    assert after.count("scatter") == 2
    assert after.count("add") == 3


def test_what_is_read_between_them_stays():
    def program(table, x, index):
        once = ops.scatter("add", table, (index,), x)
        twice = ops.scatter("add", once, (index,), ops.neg(x))
        largest = ops.scatter("max", twice, (index,), x)
        return [ops.scatter("add", largest, (index,), x), once]

    assert ops_of(checked(joined, program, f(5), f(4), i(4))).count("scatter") == 4
