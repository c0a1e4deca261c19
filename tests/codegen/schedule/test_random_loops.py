"""Random nests of lane loops, uniform loops and branches, with lookups, shared scatters and gradients."""

import numpy as np
import pytest

import loopgrad.codegen.schedule.groups as grouping
from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, float64, int32, int64

LANES = [(), (5,), (2, 3), (300,)]
TRAILING = [(), (3,), (2, 2)]


def pick(rng, items):
    return items[rng.integers(len(items))]


class Body:
    """Draws the operations of loop bodies over values of shape lanes + trailing."""

    def __init__(self, rng, lanes, table, mixes):
        self.rng = rng
        self.lanes = lanes
        self.table = table
        self.mixes = mixes

    def per_lane(self, v):
        trailing = tuple(range(len(self.lanes), len(v.shape)))
        return ops.reduce_sum(v, trailing) if trailing else v

    def block(self, values, index, depth):
        found = list(values)
        for _ in range(self.rng.integers(1, 5)):
            found.append(self.step(found, index, depth))
        last = [w for w in found if w.shape == values[0].shape][-1]
        return ops.tanh(ops.add(last, ops.mul(values[0], 0.5)))

    def step(self, values, index, depth):
        rng, v = self.rng, pick(self.rng, values)
        shape, k = v.shape, len(self.lanes)
        match rng.integers(9):
            case 0:
                return ops.tanh(pick(rng, [ops.add, ops.sub, ops.mul, ops.max])(v, pick(rng, values)))
            case 1:
                return ops.mul(ops.gather(self.table, ops.cast(ops.mul(v, 3.0), int64)), 0.5)
            case 2 if index.shape == shape[: len(index.shape)]:
                return ops.mul(v, ops.broadcast_leading(ops.cast(index, float64), shape))
            case 3 if len(shape) > k:
                axis = k + int(rng.integers(len(shape) - k))
                rest = [d for d in range(len(shape)) if d != axis]
                return ops.tanh(ops.broadcast(ops.reduce_sum(v, (axis,)), shape, rest))
            case 4 if len(shape) > k:
                return ops.flip(v, (k + int(rng.integers(len(shape) - k)),))
            case 5 if depth:
                return self.loop(v, depth - 1)
            case 6 if not self.mixes:  # inactive lanes of a branch have no defined value to mix
                return self.branch(v, index)
            case 7 if self.mixes and k:
                return ops.tanh(ops.mul(ops.broadcast_to(ops.reduce_sum(v, tuple(range(k))), shape), 0.1))
        return pick(rng, [ops.sin, ops.exp, ops.floor, ops.abs])(ops.min(v, 2.0))

    def loop(self, v, depth):
        count = ops.rem(ops.cast(ops.abs(ops.mul(self.per_lane(v), 2.0)), int32), 4)
        match self.rng.integers(3):
            case 0:
                return traced_for(count, [v], lambda k, w: [self.block([w, v], k, depth)])[0]
            case 1:
                trips = ops.full(int(self.rng.integers(4)), TensorType((), int32))
                return traced_for(trips, [v], lambda k, w: [self.block([w, v], k, depth)])[0]
        return traced_while(
            [ops.zeros_like(count), v],
            lambda j, _: ops.lt(j, count),
            lambda j, w: [ops.add(j, 1), self.block([w, v], j, depth)],
            max_steps=10,
        )[1]

    def branch(self, v, index):
        chosen = ops.gt(self.per_lane(v), 0.1)
        if self.rng.random() < 0.5:
            chosen = ops.cast(chosen, int32)
        return traced_switch(chosen, [lambda w: [self.block([w], index, 0)], lambda w: [ops.sin(w)]], [v])[0]


def random_program(rng):
    """A function of (x, counts, table), its input types and arrays."""
    lanes, trailing = pick(rng, LANES), pick(rng, TRAILING)
    mixes, uniform, scatters = rng.random() < 0.25, rng.random() < 0.3, rng.random() < 0.4
    types = [TensorType(lanes + trailing, float64), TensorType(lanes, int32), TensorType((6,), float64)]
    arrays = [rng.normal(size=lanes + trailing), rng.integers(-1, 5, lanes), rng.normal(size=6)]

    def function(x, n, table):
        body = Body(rng, lanes, table if rng.random() < 0.7 else ops.sin(table), mixes)
        before = ops.sin(x) if rng.random() < 0.5 else x
        count = ops.reduce_max(n, tuple(range(len(lanes)))) if uniform and lanes else n

        def scatter(k, w, held):
            z = body.block([w, before], k, 2)
            row = body.per_lane(z)
            return [z, ops.scatter("add", held, [ops.cast(ops.mul(row, 5.0), int32)], row)]

        if scatters:
            v, *rest = traced_for(count, [x, ops.mul(table, 2.0)], scatter, shared=(1,) if lanes else ())
        else:
            v, *rest = traced_for(count, [x], lambda k, w: [body.block([w, before], k, 2)])
        after = ops.mul(v, x)
        return [after, ops.reduce_sum(ops.mul(after, v), tuple(range(len(v.shape)))), *rest]

    return function, types, arrays


@pytest.mark.parametrize("seed", range(120))
def test_values(check, seed):
    function, types, arrays = random_program(np.random.default_rng(seed))
    check(function, types, arrays)


@pytest.mark.parametrize("seed", range(80))
def test_values_and_gradients(check, seed):
    function, types, arrays = random_program(np.random.default_rng(seed))

    def both(x, n, table):
        value = None
        for output in function(x, n, table):
            part = ops.reduce_sum(ops.sin(output), tuple(range(len(output.shape))))
            value = part if value is None else ops.add(value, part)
        found = vjp_emit([value], [ops.ones_like(value)], [x, table])
        return [value, *[g for g in found if g is not None]]

    check(both, types, arrays)


@pytest.mark.parametrize("rounds", [1, 2])
def test_values_where_grouping_ends_early(check, monkeypatch, rounds):
    """What must be stored is, whatever else would be worth it."""
    monkeypatch.setattr(grouping, "ROUNDS", rounds)
    for seed in range(15):
        function, types, arrays = random_program(np.random.default_rng(seed))
        check(function, types, arrays)
