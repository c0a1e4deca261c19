"""Random structured programs for derivatives: nests to depth 4, branches, per-lane trips 0 to 64, integer and bool
carries, gathers, scatters into shared accumulators.

`random_program(seed)` gives a function of Values and arrays for it. As a script, it checks as many seeds as wanted
(reverse against forward mode, and both against central differences where those have converged):

    python -m tests.autodiff.random_programs 1000 2000
"""

from __future__ import annotations

import sys

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, bool_, float64, int64
from tests.autodiff import gradients

N = 4
TABLE = 5
F, INT, B = TensorType((N,), float64), TensorType((N,), int64), TensorType((N,), bool_)
VECTOR = TensorType((N, 3), float64)
TABLE_TYPE = TensorType((TABLE,), float64)
TRIPS = (3, 3, 5, 65)  # trip counts stay below this at a given remaining depth of nesting: leaves run long

SMOOTH = (ops.sin, ops.tanh, ops.cos, lambda v: ops.exp(ops.neg(ops.mul(v, v))), ops.atan)
PAIRS = (
    ops.add, ops.sub, ops.mul, ops.min, ops.max,
    lambda a, b: ops.div(a, ops.add(ops.mul(b, b), 1)), ops.atan2,
)  # fmt: skip


class Writer:
    """Emits random statements; `pool` holds the values that may be read here."""

    def __init__(self, rng, pool, depth, lanes=False):
        self.rng = rng
        self.pool = list(pool)
        self.depth = depth
        self.lanes = lanes  # inside lanes, nothing may look at other lanes: some of them hold no value

    def pick(self, type):
        found = [v for v in self.pool if v.type == type]
        if found:  # rather a recent one, so that little of what was written is dead
            return found[-1 - min(int(self.rng.geometric(0.45)) - 1, len(found) - 1)]
        if type is B:
            return ops.lt(self.pick(F), self.pick(F))
        return ops.full(float(self.rng.uniform(-1, 1)) if type.dtype is float64 else int(self.rng.integers(4)), type)

    def chance(self, p):
        return self.rng.random() < p

    def bounded(self, v):
        """Keep magnitudes near one, so that long recurrences neither explode nor die."""
        return ops.add(ops.sin(v), ops.mul(v, 0.1)) if self.chance(0.5) else ops.tanh(v)

    def step(self):
        kinds = ["unary", "pair", "pair", "select", "integer", "lookup", "vector", "own_update"]
        getattr(self, "write_" + kinds[self.rng.integers(len(kinds))])()

    def region(self):
        kinds = ["for", "for", "while", "switch", "histogram"]
        getattr(self, "write_" + kinds[self.rng.integers(len(kinds))])()

    def run(self, statements):
        for _ in range(statements):
            self.step()
            if self.depth and self.chance(0.45):
                self.region()

    # ---- straight line

    def write_unary(self):
        self.pool.append(SMOOTH[self.rng.integers(len(SMOOTH))](self.pick(F)))

    def write_pair(self):
        self.pool.append(self.bounded(PAIRS[self.rng.integers(len(PAIRS))](self.pick(F), self.pick(F))))

    def write_select(self):
        pred = ops.lt(self.pick(F), self.pick(F)) if self.chance(0.5) else self.pick(B)
        self.pool += [pred, ops.select(pred, self.pick(F), self.pick(F))]

    def write_integer(self):
        a, b = self.pick(INT), self.pick(INT)
        self.pool.append(ops.mod(ops.add(ops.mul(a, int(self.rng.integers(1, 4))), b), 7))

    def place(self):
        return ops.mod(self.pick(INT), TABLE)

    def write_lookup(self):
        self.pool.append(self.bounded(ops.mul(ops.gather(self.pick(TABLE_TYPE), self.place()), self.pick(F))))

    def write_vector(self):
        v = self.pick(VECTOR)
        scaled = ops.sin(ops.mul(v, ops.broadcast(self.pick(F), VECTOR.shape, (0,))))
        self.pool += [scaled, ops.reduce_sum(ops.mul(scaled, v), [1])]

    def write_own_update(self):
        own = ops.iota(INT, 0)
        place = ops.mod(self.pick(INT), 3)
        self.pool.append(ops.scatter("set", self.pick(VECTOR), [own, place], self.pick(F)))

    # ---- regions

    def inner(self, arguments, lanes=True):
        return Writer(self.rng, [*self.pool, *arguments], self.depth - 1, self.lanes or lanes)

    def carries(self):
        types = [F] * int(self.rng.integers(1, 3)) + [t for t in (INT, B, VECTOR) if self.chance(0.4)]
        return [self.pick(t) for t in types]

    def count(self):
        limit = TRIPS[len(TRIPS) - 1 - self.depth] if self.depth < len(TRIPS) else 3
        limit = 3 if self.depth > 1 else 6 if self.chance(0.7) else limit
        return ops.mod(ops.mul(self.pick(INT), int(self.rng.integers(1, 23))), limit)

    def next_carries(self, writer, carried):
        writer.run(int(self.rng.integers(1, 4)))
        following = []
        for c in carried:
            new = writer.pick(c.type)
            if c.type is F and self.chance(0.8):
                new = writer.bounded(ops.add(new, ops.mul(c, 0.7)))
            following.append(new)
        return following

    def write_for(self):
        def body(k, *carried):
            index = k if k.type == INT else ops.broadcast_to(k, (N,))
            return self.next_carries(self.inner([index, *carried], k.type == INT), carried)

        count = self.count()
        if self.chance(0.3) and not self.lanes:
            count = ops.reduce_max(count, [0])
        elif self.chance(0.2):
            count = ops.full(2, TensorType((), int64))
        self.pool += traced_for(count, self.carries(), body, reverse=self.chance(0.2))

    def write_while(self):
        limit, threshold = self.count(), float(self.rng.uniform(0.2, 1.2))

        def more(j, v, *rest):
            return ops.and_(ops.lt(j, limit), ops.lt(v, threshold))

        def body(j, v, *carried):
            return [ops.add(j, 1), *self.next_carries(self.inner([j, v, *carried]), (v, *carried))]

        self.pool += traced_while([ops.full(0, INT), self.pick(F), *self.carries()], more, body)[1:]

    def write_switch(self):
        operands = [self.pick(F), self.pick(F), *self.carries()]
        index = self.pick(B) if self.chance(0.5) else self.pick(INT)
        branches = 2 if index.dtype is bool_ else 3
        types = [F, *([INT] if self.chance(0.3) else []), *([VECTOR] if self.chance(0.3) else [])]

        if self.chance(0.3) and not self.lanes:
            index = ops.gather(index, ops.full(0, TensorType((), int64)))
        uniform = not index.shape

        def branch(*arguments):
            writer = self.inner(arguments, not uniform)
            writer.run(int(self.rng.integers(0, 4)))
            return [writer.pick(t) for t in types]

        self.pool += traced_switch(index, [branch] * branches, operands)

    def write_histogram(self):
        """Lanes add into one shared table while they loop."""

        def body(k, total, *carried):
            writer = self.inner([k, *carried])
            following = self.next_carries(writer, carried)
            total = ops.scatter("add", total, [writer.place()], writer.pick(F))
            return [total, *following]

        results = traced_for(self.count(), [self.pick(TABLE_TYPE), *self.carries()], body, shared=[0])
        self.pool += [ops.tanh(results[0]), *results[1:]]


def random_program(seed, depth=4):
    rng = np.random.default_rng(seed)
    arrays = [
        rng.uniform(-1, 1, (N,)), rng.uniform(0.1, 1.2, (N,)), rng.uniform(-1, 1, (N, 3)), rng.uniform(-1, 1, (TABLE,)),
        rng.integers(0, 9, (N,)), rng.integers(0, 5, (N,)),
    ]  # fmt: skip
    choices = np.random.default_rng(seed + 1_000_000).integers(2**31)

    def function(*values):
        writer = Writer(np.random.default_rng(choices), values, depth)
        writer.run(3)
        writer.region()
        return [v for v in writer.pool[len(values) :] if v.type in (F, VECTOR, TABLE_TYPE)][-6:]

    return function, arrays


def check_program(derivatives, seed, depth=4):
    """Reverse agrees with forward; forward with central differences where two step sizes agree."""
    function, arrays = random_program(seed, depth)
    derivatives.check(function, arrays, numeric=False)
    active = derivatives.float_positions(arrays)
    rng = np.random.default_rng(seed)
    tangents = [rng.standard_normal(arrays[i].shape) for i in active]
    exact = derivatives.run_jvp(function, arrays, active, tangents)
    exact = exact[len(exact) // 2 :]
    coarse, fine = [derivatives.central_difference(function, arrays, active, tangents, h) for h in (2e-6, 1e-6)]
    for e, c, f in zip(exact, coarse, fine, strict=True):
        converged = np.abs(c - f) <= 1e-5 * (1 + np.abs(f))  # not across a kink, a branch or another trip count
        np.testing.assert_allclose(e[converged], f[converged], rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    first, last = (int(a) for a in sys.argv[1:3])
    for number in range(first, last):
        with np.errstate(all="ignore"):
            check_program(gradients, number)
        if number % 50 == 49:
            sys.stdout.write(f"{number + 1} programs checked\n")
