"""What the number of a trip surely is answers comparisons and look-ups; other questions stay."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.interpret import interpret
from loopgrad.graph.passes import trip_numbers
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, int64
from loopgrad.graph.verify import verify
from tests.graph.passes import checking

N = 5  # trips


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(trip_numbers.run, seed)


def left(question, reverse=False):
    """Which operations a loop has after the pass, of those that are asked for by its trips' numbers."""

    def program(x):
        n = ops.full(N, TensorType((), int64))

        def step(k, s):
            return [ops.add(s, ops.mul(ops.cast(question(k), s.dtype), x))]

        return traced_for(n, [x], step, reverse=reverse)

    before = checking.traced(program, checking.f())
    after = trip_numbers.run(before)
    verify(after)
    x = np.asarray(1.5)
    np.testing.assert_equal(interpret(after, [x]), interpret(before, [x]))
    (node,) = [n for n in after.nodes if n.op == "for"]
    return {"lt", "le", "gt", "ge", "gather"}.intersection(checking.ops_of(node.regions[0]))


def numbers(extent):
    return ops.iota(TensorType((extent,), int64), 0)


ANSWERED = {
    "below the count": lambda k: ops.lt(k, N),
    "not below it": lambda k: ops.ge(k, N),
    "at least 0": lambda k: ops.ge(k, 0),
    "beyond the last": lambda k: ops.gt(k, N - 1),
    "up to the last": lambda k: ops.le(k, N - 1),
    "negative": lambda k: ops.lt(k, 0),
    "mirrored": lambda k: ops.ge(ops.sub(N - 1, k), 0),
    "looked up": lambda k: ops.gather(numbers(N), k),
    "looked up among more": lambda k: ops.gather(numbers(2 * N), ops.sub(N - 1, k)),
}
OPEN = {
    "the last trip": lambda k: ops.lt(k, N - 1),
    "but the first": lambda k: ops.gt(k, 0),
    "the next number": lambda k: ops.lt(ops.add(k, 1), N),
    "too few to look up": lambda k: ops.gather(numbers(N - 1), k),
    "before the first": lambda k: ops.gather(numbers(N), ops.sub(k, 1)),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ANSWERED)
def test_what_is_known(name, reverse):
    assert not left(ANSWERED[name], reverse)


@pytest.mark.parametrize("name", OPEN)
def test_what_is_not(name):
    assert left(OPEN[name])


def test_a_count_that_nobody_knows_and_no_trip_change_nothing():
    def program(n, x):
        return traced_for(n, [x], lambda k, s: [ops.select(ops.ge(k, 0), s, x)])

    before = checking.traced(program, checking.i(), checking.f())
    assert trip_numbers.run(before) is before
    before = checking.traced(lambda x: program(ops.full(0, TensorType((), int64)), x), checking.f())
    assert trip_numbers.run(before) is before
