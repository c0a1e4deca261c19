"""Random graphs with nested regions, for tests that compare two ways to compute the same thing.

`random_program(seed)` gives a closed Graph and arrays for its inputs. Values have the shapes (), (N,)
and (N, 3) and the dtypes float64, int64 and bool; loops have few trips; lane loops have lanes (N,).
Every kind of region appears, accumulators and stacks included.
"""

from __future__ import annotations

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import TensorType, bool_, float64, int64

N = 4
SHAPES = ((), (N,), (N, 3))
F = {s: TensorType(s, float64) for s in SHAPES}
INT = {s: TensorType(s, int64) for s in SHAPES}
B = {s: TensorType(s, bool_) for s in SHAPES}
INPUTS = (F[()], F[N,], F[N, 3], INT[()], INT[N,], F[N,])

UNARY = ("neg", "abs", "sin", "tanh", "exp2", "floor", "sign", "cos")
BINARY = ("add", "sub", "mul", "min", "max", "atan2")


class Writer:
    """Emits random operations over a pool of values."""

    def __init__(self, rng, values, depth, lanes):
        self.rng = rng
        self.pool = list(values)
        self.depth = depth
        self.lanes = lanes  # whether lane loops may be written here

    def pick(self, type):
        found = [v for v in self.pool if v.type == type]
        if found and self.rng.random() < 0.9:
            return found[self.rng.integers(len(found))]
        if type.dtype is bool_:
            return ops.lt(self.pick(F[type.shape]), self.pick(F[type.shape]))
        if type.dtype is int64:
            return ops.full(int(self.rng.integers(4)), type)
        return ops.full(float(self.rng.choice([0.0, 1.0, 2.0, 0.5, -0.75, 0.3])), type)

    def shape(self):
        return SHAPES[self.rng.integers(3)]

    def add(self, *values):
        self.pool += values

    def trips(self, shape):
        return ops.mod(self.pick(INT[shape]), ops.full(4, INT[shape]))

    def step(self):
        kinds = ["unary"] * 3 + ["binary"] * 4 + ["select", "shape", "reduce", "along", "index", "integer", "simple"]
        if self.depth:
            kinds += ["for", "while", "switch", "stack"]
            if self.lanes:
                kinds += ["lane_for", "lane_while", "lane_switch", "accumulate", "lane_stack"]
        getattr(self, "write_" + kinds[self.rng.integers(len(kinds))])()

    # ---- straight line

    def write_unary(self):
        v = self.pick(F[self.shape()])
        self.add(getattr(ops, UNARY[self.rng.integers(len(UNARY))])(ops.tanh(v)))

    def write_binary(self):
        shape = self.shape()
        op = getattr(ops, BINARY[self.rng.integers(len(BINARY))])
        self.add(op(self.pick(F[shape]), self.pick(F[shape])))

    def write_select(self):
        shape = self.shape()
        pred = ops.le(self.pick(F[shape]), self.pick(F[shape]))
        self.add(pred, ops.select(pred, self.pick(F[shape]), self.pick(F[shape])))

    def write_simple(self):
        """What the algebra tables look for."""
        shape = self.shape()
        v = self.pick(F[shape])
        choices = (
            lambda: ops.add(v, -0.0), lambda: ops.mul(v, 1.0), lambda: ops.neg(ops.neg(v)), lambda: ops.pow(v, 2.0),
            lambda: ops.div(v, 4.0), lambda: ops.select(ops.full(True, B[shape]), v, self.pick(F[shape])),
            lambda: ops.sub(v, ops.neg(self.pick(F[shape]))), lambda: ops.mul(v, -1.0), lambda: ops.alias(v),
            lambda: ops.cast(ops.cast(self.pick(INT[shape]), float64), int64),
        )  # fmt: skip
        self.add(choices[self.rng.integers(len(choices))]())

    def write_shape(self):
        choices = (
            lambda: ops.broadcast(self.pick(F[()]), (N,), ()),
            lambda: ops.broadcast(self.pick(F[N,]), (N, 3), (0,)),
            lambda: ops.reshape(ops.slice(self.pick(F[N, 3]), (0, 1), (N, 2)), (N,)),
            lambda: ops.transpose(ops.transpose(self.pick(F[N, 3]), (1, 0)), (1, 0)),
            lambda: ops.flip(self.pick(F[N,]), (0,)),
            lambda: ops.concat([ops.slice(self.pick(F[N,]), (1,), (N,)), ops.slice(self.pick(F[N,]), (0,), (1,))], 0),
            lambda: ops.pad(ops.slice(self.pick(F[N,]), (0,), (2,)), (1,), (1,), 0.25),
            lambda: ops.reshape(ops.reshape(self.pick(F[N, 3]), (3 * N,)), (N, 3)),
        )
        self.add(choices[self.rng.integers(len(choices))]())

    def write_reduce(self):
        v = self.pick(F[N, 3])
        op = (ops.reduce_sum, ops.reduce_max, ops.reduce_min)[self.rng.integers(3)]
        self.add(op(v, (1,)) if self.rng.random() < 0.6 else op(v, (0, 1)))

    def write_along(self):
        v = self.pick(F[N, 3])
        axis = int(self.rng.integers(2))
        choices = (lambda: ops.cumsum(v, axis, bool(axis)), lambda: ops.sort(v, axis), lambda: ops.cummax(v, axis))
        self.add(choices[self.rng.integers(3)]())

    def write_integer(self):
        shape = self.shape()
        a, b = self.pick(INT[shape]), self.pick(INT[shape])
        choices = (ops.add, ops.mul, ops.mod, ops.floordiv, ops.min, ops.sub)
        self.add(choices[self.rng.integers(len(choices))](a, b), ops.cast(ops.lt(a, b), int64))

    def write_index(self):
        choices = (
            lambda: ops.gather(self.pick(F[N,]), self.pick(INT[()])),
            lambda: ops.gather(self.pick(F[N, 3]), self.pick(INT[N,])),
            lambda: ops.gather(self.pick(F[N, 3]), ops.iota(INT[N,], 0), self.pick(INT[N,])),
            lambda: ops.scatter("add", self.pick(F[N,]), (self.pick(INT[N,]),), self.pick(F[N,])),
            lambda: ops.scatter("set", self.pick(F[N,]), (self.pick(INT[()]),), self.pick(F[()])),
            lambda: ops.scatter("max", self.pick(F[N, 3]), (self.pick(INT[N,]),), self.pick(F[N, 3])),
            lambda: ops.matmul(self.pick(F[N, 3]), ops.transpose(self.pick(F[N, 3]), (1, 0))),
        )
        value = choices[self.rng.integers(len(choices))]()
        self.add(value if value.shape in SHAPES else ops.reduce_sum(value, (1,)))

    # ---- regions

    def inside(self, values, shapes, lanes=True):
        """A few operations in the current region; float results of these shapes, kept bounded."""
        writer = Writer(self.rng, [*self.pool, *values], self.depth - 1, self.lanes and lanes)
        for _ in range(self.rng.integers(1, 6)):
            writer.step()
        fresh = writer.pool[len(self.pool) + len(values) :]
        results = []
        for shape in shapes:
            found = [v for v in fresh if v.type == F[shape]] or [writer.pick(F[shape])]
            results.append(ops.tanh(ops.add(found[self.rng.integers(len(found))], writer.pick(F[shape]))))
        return writer, results

    def carries(self, shapes):
        return [self.pick(F[s]) for s in shapes]

    def some_shapes(self, choices=SHAPES):
        return [choices[i] for i in self.rng.integers(len(choices), size=self.rng.integers(1, 3))]

    def write_for(self):
        shapes = self.some_shapes()
        count = ops.full(int(self.rng.integers(4)), INT[()]) if self.rng.random() < 0.3 else self.trips(())
        body = lambda k, *carries: self.inside([k, *carries], shapes)[1]  # noqa: E731
        self.add(*traced_for(count, self.carries(shapes), body, reverse=bool(self.rng.integers(2))))

    def write_lane_for(self):
        shapes = self.some_shapes(SHAPES[1:])
        body = lambda k, *carries: self.inside([k, *carries], shapes)[1]  # noqa: E731
        reverse = bool(self.rng.integers(2))
        self.add(*traced_for(self.trips((N,)), self.carries(shapes), body, reverse=reverse))

    def loop_while(self, lanes, shapes):
        bound = self.trips(lanes)

        def body(i, *carries):
            return [ops.add(i, 1), *self.inside([i, *carries], shapes)[1]]

        results = traced_while(
            [ops.full(0, INT[lanes]), *self.carries(shapes)], lambda i, *_: ops.lt(i, bound), body, max_steps=9
        )
        self.add(*results)

    def write_while(self):
        self.loop_while((), self.some_shapes())

    def write_lane_while(self):
        self.loop_while((N,), self.some_shapes(SHAPES[1:]))

    def choose(self, lanes, shapes):
        branches = [lambda *v: self.inside(v, shapes)[1] for _ in range(self.rng.integers(2, 4))]
        self.add(*traced_switch(self.trips(lanes), branches, self.carries(shapes)))

    def write_switch(self):
        self.choose((), self.some_shapes())

    def write_lane_switch(self):
        self.choose((N,), self.some_shapes(SHAPES[1:]))

    def write_accumulate(self):
        """A lane loop that scatters into a shared carry, from a branch too."""
        kind = ("add", "max")[self.rng.integers(2)]

        def body(k, acc, x):
            writer, (x,) = self.inside([k, x], [(N,)])
            rows, columns = writer.pick(INT[N,]), writer.pick(INT[N,])
            acc = ops.scatter(kind, acc, (rows, columns), x)
            if self.rng.random() < 0.5:
                branches = [lambda a, u: [ops.scatter("add", a, (rows,), u)], lambda a, _u: [a]]
                rowwise = ops.broadcast(x, (N, 3), (0,))
                (acc,) = traced_switch(ops.lt(x, writer.pick(F[N,])), branches, [acc, rowwise], shared=(0,))
            return [acc, x]

        self.add(*traced_for(self.trips((N,)), [self.pick(F[N, 3]), self.pick(F[N,])], body, shared=(0,)))

    def stack_pair(self, lanes, shape):
        """A loop that pushes and a reverse loop that pops."""
        count = self.trips(lanes)

        def forward(k, stack, x):
            _, (y,) = self.inside([k, x], [shape])
            return [ops.push(stack, x), y]

        def backward(k, stack, x):
            stack, saved = ops.pop(stack)
            _, (y,) = self.inside([k, x, saved], [shape])
            return [stack, ops.add(y, saved)]

        stack, x = traced_for(count, [ops.stack_new(F[shape]), self.pick(F[shape])], forward)
        _, y = traced_for(count, [stack, self.pick(F[shape])], backward, reverse=True)
        self.add(x, y)

    def write_stack(self):
        self.stack_pair((), self.shape())

    def write_lane_stack(self):
        self.stack_pair((N,), SHAPES[1:][self.rng.integers(2)])


def random_program(seed, steps=10, depth=2, lanes=True, input_types=INPUTS):
    """A closed graph and arrays for its inputs."""
    rng = np.random.default_rng(seed)

    def program(*inputs):
        writer = Writer(rng, inputs, depth, lanes)
        for _ in range(steps):
            writer.step()
        fresh = writer.pool[len(inputs) :]
        return fresh[-5:] or [inputs[0]]

    graph, captures = trace(program, input_types)
    assert not captures
    return graph, random_arrays(rng, input_types)


def random_arrays(rng, types):
    arrays = []
    for t in types:
        if t.dtype is int64:
            arrays.append(rng.integers(-1, 6, size=t.shape))
        elif t.dtype is bool_:
            arrays.append(rng.random(t.shape) < 0.5)
        else:
            arrays.append(rng.normal(size=t.shape))
    return [np.asarray(a) for a in arrays]
