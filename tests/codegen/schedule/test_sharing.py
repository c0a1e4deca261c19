"""Equal kernels are lowered once; what makes them differ keeps them apart."""

import numpy as np
import pytest

from loopgrad.codegen.schedule import groups
from loopgrad.codegen.steps import launches
from loopgrad.graph import ops
from loopgrad.graph.types import TensorType, bool_, float64, int64

VECTOR = TensorType((100,), float64)
X = np.linspace(-1, 1, 100)


def steps_of(sequence):
    """A kernel for each: they can't be one, since each reads sums of what the one before made."""

    def function(x):
        for step in sequence:
            mean = ops.mul(ops.reduce_sum(x, (0,)), 0.01)
            x = step(ops.sub(x, ops.broadcast_to(mean, x.shape)))
        return [x]

    return function


def test_equal_kernels_with_other_buffers_are_one(check):
    few, many = (check(steps_of([ops.sin] * n), [VECTOR], [X]) for n in (10, 40))
    assert len(many.kernels) == len(few.kernels) < 8
    assert sum(launches(many.steps).values()) > 40


def test_operations_and_attributes_keep_kernels_apart(check):
    once = len(check(steps_of([ops.sin, ops.sin, ops.sin]), [VECTOR], [X]).kernels)
    other = check(steps_of([ops.sin, ops.cos, ops.sin, lambda v: ops.flip(v, (0,))]), [VECTOR], [X])
    assert len(other.kernels) > once


def test_equal_kernels_may_read_data(check):
    weights = np.linspace(0.5, 1.5, 100)
    program = check(steps_of([lambda v: ops.mul(v, ops.literal(weights, float64))] * 10), [VECTOR], [X])
    assert launches(program.steps).most_common(1)[0][1] >= 4


def test_zeros_of_either_sign_are_different_constants(check):
    program = check(steps_of([lambda v: ops.mul(v, 0.0), lambda v: ops.div(1.0, ops.mul(v, -0.0))] * 2), [VECTOR], [X])
    assert launches(program.steps).most_common(1)[0][1] <= 2


def test_many_kernels_that_differ_in_constants_read_them_from_memory(check):
    def written(n):
        def function(x):
            for i in range(n):
                place, update = ops.full(i, TensorType((1,), int64)), ops.full(i * 0.5, TensorType((1,), float64))
                x = ops.scatter("set", x, [place], update)
            return [x]

        return function

    few, many = (check(written(n), [VECTOR], [X]) for n in (20, 90))
    assert len(few.kernels) == len(many.kernels) < 12


def test_many_kernels_that_differ_in_where_slices_and_pads_are_read_it_from_memory(check):
    """Each step reads one element that the step before has written, and writes the next: `a[i] = a[i - 1] * 1.5`."""

    def written(n):
        def function(x):
            for i in range(1, n):
                last = ops.mul(ops.slice(x, (i - 1,), (i,)), 1.5)
                here = ops.literal(np.arange(100) == i, bool_)
                x = ops.select(here, ops.pad(last, (i,), (99 - i,), 0.0), x)
                x = ops.sub(x, ops.broadcast_to(ops.mul(ops.reduce_sum(x, (0,)), 0.01), x.shape))
            return [x]

        return function

    few, many = (check(written(n), [VECTOR], [X]) for n in (30, 90))
    assert len(few.kernels) == len(many.kernels) < 45


def test_one_buffer_in_two_places_is_another_kernel(check, rng):
    """x + y with different x and y, then with equal ones, which the kernel then reads once."""

    def function(x, y):
        first = ops.reduce_sum(ops.mul(ops.cumsum(x, 0), ops.cumsum(y, 0)), (0,))
        second = ops.cumsum(ops.add(x, ops.broadcast_to(first, x.shape)), 0)
        return [ops.reduce_sum(ops.mul(second, second), (0,)), second]

    check(function, [VECTOR, VECTOR], [rng.random(100), rng.random(100)])


@pytest.mark.parametrize("seed", range(6))
def test_kernels_cut_anywhere_mean_the_same(check, seed, monkeypatch):
    """Values that are read much later cross every cut."""
    for name, nodes in (("MAX_NODES", 12), ("LONG_PIECE", 12), ("SHORT_PIECE", 8), ("CUT_WINDOW", 4)):
        monkeypatch.setattr(groups, name, nodes)
    rng = np.random.default_rng(seed)

    def function(x, y):
        values = [x, y]
        for _ in range(60):
            a, b = (values[rng.integers(max(len(values) - 25, 0), len(values))] for _ in range(2))
            values.append([ops.add, ops.sub, ops.mul, ops.max][rng.integers(4)](ops.sin(a), b))
        return [values[-1], values[20], ops.reduce_sum(values[40], (0,))]

    program = check(function, [VECTOR, VECTOR], [X, X[::-1].copy()])
    assert max(len(k.body.ops) for k in program.kernels) < 100


def test_a_reverse_chain_is_cut_although_everything_crosses(check):
    """All values of the way forward are read on the way back."""

    def function(x):
        forward = [x]
        for _ in range(3000):
            forward.append(ops.sin(forward[-1]))
        slope = ops.ones_like(x)
        for v in reversed(forward[:-1]):
            slope = ops.mul(slope, ops.cos(v))
        return [slope]

    program = check(function, [TensorType((3,), float64)], [np.array([0.1, 0.2, 0.3])])
    assert max(len(k.body.ops) for k in program.kernels) < 4000
    assert sum(launches(program.steps).values()) < 30


def test_the_pieces_of_a_chain_and_of_its_reverse_are_equal(check):
    """So that a program that is twice as long has no more kernels; the last of each are what is left."""

    def chain(n):
        def function(x):
            forward = [x]
            for _ in range(n):
                forward.append(ops.add(ops.mul(forward[-1], x), 0.125))
            slope, total = ops.ones_like(x), x
            for v in reversed(forward[:-1]):
                total = ops.add(total, ops.mul(slope, v))
                slope = ops.mul(slope, x)
            return [total]

        return function

    few, many = (check(chain(n), [TensorType((3,), float64)], [np.array([0.1, 0.2, 0.3])]) for n in (1500, 3000))
    assert abs(len(few.kernels) - len(many.kernels)) <= 2
    assert len(many.kernels) < 14
    assert sum(launches(many.steps).values()) > 25


def test_a_concat_of_very_many_pieces(check):
    def function(x):
        return [ops.concat([ops.mul(x, float(i)) for i in range(150)], 0)]

    program = check(function, [TensorType((2,), float64)], [np.array([1.0, 2.0])])
    assert len(program.steps) > 2
