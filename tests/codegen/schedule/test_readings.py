"""What is read at several places: how often it is evaluated, and so whether it is stored."""

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule.readings import OWN, ReadPlaces
from loopgrad.codegen.schedule.schedule import schedule
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import TensorType, float64, int32, int64
from tests.codegen.schedule.test_fusion import opcodes

ROWS, LENGTH = 40, 64
TYPE = TensorType((ROWS, LENGTH), float64)


def rolled(v, distance):
    distance %= LENGTH
    cut = LENGTH - distance
    parts = [((0, cut), (ROWS, LENGTH)), ((0, 0), (ROWS, cut))]
    return ops.concat([ops.slice(v, *part) for part in parts], axis=1) if distance else v


def streams(distances):
    """Functions of one expensive value, each rolled by its distance, beside each other."""

    def function(x):
        u = ops.exp(ops.sin(x))
        return [ops.concat([rolled(ops.mul(u, ops.add(x, 1.0 * k)), d) for k, d in enumerate(distances)], axis=0)]

    return function


def columns(x):
    """Elements of rows that a lane reads whole as well."""
    u = ops.exp(x)
    column = [ops.slice(ops.mul(u, u), (0, d), (ROWS, d + 1)) for d in range(3)]
    return [ops.add(column[0], ops.mul(column[1], column[2])), ops.sin(u)]


@pytest.mark.parametrize(
    ("function", "exponentials"),
    [(streams((1, 2, 3, 5)), 1), (streams((3, 3, 3, 3)), 8), (columns, 4)],
    ids=["apart", "together", "columns"],
)
def test_functions_of_a_value_at_other_places_evaluate_it_again(function, exponentials):
    """Of the same place, each of the four has two pieces."""
    graph, _ = trace(function, [TYPE])
    program = schedule(graph, DEFAULT_OPTIONS)
    assert sum(opcodes(k).count("exp") for k in program.kernels) == exponentials
    x = np.random.default_rng(0).normal(size=TYPE.shape)
    for got, want in zip(interpret_program(program, [x]), interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_places_are_followed_through_rows_and_dims_of_one_element():
    """Single elements of rows count as their rows, wherever a dim of one element comes and goes."""
    types = [TensorType((4, 6, 3), float64)]

    def function(v):
        part = ops.slice(v, (0, 1, 2), (4, 5, 3))
        return [ops.reshape(part, (4, 4)), ops.slice(v, (0, 1, 0), (4, 5, 3)), ops.flip(v, (1,))]

    graph, _ = trace(function, types)
    found = {(n.op, n.results[0].shape): n for n in graph.nodes}
    flat, part, whole = found["reshape", (4, 4)], found["slice", (4, 4, 1)], found["slice", (4, 4, 3)]
    flipped = found["flip", (4, 6, 3)]
    places = ReadPlaces()
    element = places.moved(part, 0, places.reshaped(flat, OWN))
    row = places.moved(whole, 0, OWN)
    assert element != row
    assert places.rows[element] == row
    assert places.moved(flipped, 0, places.moved(flipped, 0, row)) == row


def test_narrower_numbers_are_read_where_they_are():
    """A histogram of rows, whose bins are numbers of 64 bits."""
    shape = (64, 32, 128)

    def counts(x):
        bins = ops.broadcast(ops.iota(TensorType((32,), int64), 0), shape, (1,))
        wide = ops.broadcast(ops.cast(x, int64), shape, (0, 2))
        return [ops.reduce_sum(ops.cast(ops.eq(wide, bins), int32), (2,))]

    graph, _ = trace(counts, [TensorType((64, 128), int32)])
    (kernel,) = schedule(graph, DEFAULT_OPTIONS).kernels
    assert [p.size for p in kernel.params if p.access == "write"] == [64 * 32]


def test_few_narrow_factors_leave_one_value_to_store():
    """A cotangent times each of some rows that all rows share, padded by as much as each is shifted."""
    types = [TensorType((64, 64, 8), float64), TensorType((3, 8), float64)]

    def function(x, w):
        u = ops.exp(ops.sin(x))
        total = None
        for k in range(3):
            tap = ops.broadcast(ops.reshape(ops.slice(w, (k, 0), (k + 1, 8)), (8,)), u.shape, [2])
            padded = ops.pad(ops.mul(u, tap), (8 * k, 0, 0), (16 - 8 * k, 0, 0))
            total = padded if total is None else ops.add(total, padded)
        return [total]

    graph, _ = trace(function, types)
    program = schedule(graph, DEFAULT_OPTIONS)
    assert [opcodes(k).count("store") for k in program.kernels] == [1, 1]
    rng = np.random.default_rng(0)
    given = [rng.normal(size=t.shape) for t in types]
    np.testing.assert_allclose(interpret_program(program, given)[0], interpret(graph, given)[0], rtol=1e-12)
