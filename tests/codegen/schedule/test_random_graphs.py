"""Random graphs of maps, movements, reductions and lookups: the Program means what the Graph means."""

import numpy as np
import pytest

from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.graph import ops
from loopgrad.graph.types import TensorType, float64, int64

EXTENTS = [1, 2, 3, 4, 5, 7, 16, 20, 70]
LARGEST = 20_000


def pick(rng, items):
    return items[rng.integers(len(items))]


def total(value):
    return ops.reduce_sum(value, tuple(range(len(value.shape))))


def mapped(rng, values, v):
    match rng.integers(6):
        case 0:
            return ops.sin(v)
        case 1:
            return ops.exp(ops.min(v, 2.0))
        case 2:
            return ops.sqrt(ops.abs(v))
        case 3:
            return ops.floor(v)
    other = pick(rng, [w for w in values if w.shape == v.shape])
    return ops.tanh(pick(rng, [ops.add, ops.sub, ops.mul, ops.max])(v, other))


def moved(rng, values, v):
    rank = len(v.shape)
    axis = int(rng.integers(rank))
    match rng.integers(6):
        case 0:
            return ops.transpose(v, rng.permutation(rank).tolist())
        case 1:
            return ops.flip(v, (axis,))
        case 2:
            start = [int(rng.integers(n)) for n in v.shape]
            stop = [int(rng.integers(a + 1, n + 1)) for a, n in zip(start, v.shape, strict=True)]
            return ops.slice(v, start, stop, [int(pick(rng, [1, 1, 2])) for _ in v.shape])
        case 3:
            low, high = (
                [int(rng.integers(3)) if rng.random() < 0.5 else 0 for _ in v.shape] for _ in range(2)
            )  # fmt: skip
            return ops.pad(v, low, high, 1.5)
        case 4:
            rest = v.shape[:axis] + v.shape[axis + 1 :]
            fitting = [w for w in values if w.shape[:axis] + w.shape[axis + 1 :] == rest and len(w.shape) == rank]
            return ops.concat([v, pick(rng, fitting), v][: rng.integers(2, 4)], axis)
    size = int(np.prod(v.shape))
    return ops.reshape(v, (size // 2, 2) if size % 2 == 0 else (size,))


def combined(rng, values, v):
    rank = len(v.shape)
    axis = int(rng.integers(rank))
    axes = [d for d in range(rank) if rng.random() < 0.5] or [axis]
    match rng.integers(5):
        case 0:
            return ops.mul(ops.reduce_sum(v, axes), 0.1)
        case 1:
            return pick(rng, [ops.reduce_max, ops.reduce_min])(v, axes)
        case 2:
            return ops.cast(pick(rng, [ops.argmax, ops.argmin])(v, axis), float64)
        case 3:
            return ops.mul(pick(rng, [ops.cumsum, ops.cummax])(v, axis, bool(rng.integers(2))), 0.2)
    square = ops.transpose(v, (*range(rank - 2), rank - 1, rank - 2)) if rank > 1 else None
    return ops.tanh(ops.matmul(v, square)) if square is not None else ops.sort(v, 0)


def indexed(rng, values, v):
    where = ops.literal(rng.integers(-2, v.shape[0] + 2, rng.integers(1, 6)), int64)
    if rng.random() < 0.5:
        return ops.gather(v, where)
    shape = where.shape + v.shape[1:]
    updates = ops.mul(
        ops.broadcast(total(values[0]), shape, ()), ops.cast(ops.iota(TensorType(shape, int64), 0), float64)
    )
    return ops.tanh(ops.scatter(str(pick(rng, ["add", "max", "set"])), v, [where], updates))


def stretched(rng, values, v):
    place, rank = int(rng.integers(len(v.shape) + 1)), len(v.shape)
    shape = (*v.shape[:place], int(rng.integers(1, 5)), *v.shape[place:])
    return ops.broadcast(v, shape, [d if d < place else d + 1 for d in range(rank)])


def random_function(rng, steps):
    """A function that applies random steps to its arguments and returns a few of the values."""

    def function(*arguments):
        values = list(arguments)
        for _ in range(steps):
            v = pick(rng, values)
            kinds = [mapped, mapped, moved, combined, indexed, stretched] if v.shape else [mapped, stretched]
            made = pick(rng, kinds)(rng, values, v)
            if np.prod(made.shape, dtype=np.int64) <= LARGEST:
                values.append(made)
        return [*(pick(rng, values) for _ in range(rng.integers(1, 4))), values[-1]]

    return function


def random_inputs(rng):
    shapes = [tuple(int(pick(rng, EXTENTS)) for _ in range(rng.integers(4))) for _ in range(rng.integers(1, 4))]
    return [TensorType(s, float64) for s in shapes], [rng.normal(size=s) for s in shapes]


@pytest.mark.parametrize("seed", range(120))
def test_values(check, seed):
    rng = np.random.default_rng(seed)
    types, arrays = random_inputs(rng)
    check(random_function(rng, rng.integers(3, 25)), types, arrays)


@pytest.mark.parametrize("seed", range(60))
def test_values_and_gradients(check, seed):
    rng = np.random.default_rng(1000 + seed)
    types, arrays = random_inputs(rng)
    function = random_function(rng, rng.integers(3, 16))

    def both(*arguments):
        value = None
        for output in function(*arguments):
            value = total(output) if value is None else ops.add(value, total(output))
        found = vjp_emit([value], [ops.ones_like(value)], list(arguments))
        return [value, *[g for g in found if g is not None]]

    check(both, types, arrays)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_empty_tensors(check, shape):
    def function(x, y):
        return [
            ops.sin(x),
            ops.reduce_sum(x, (0,)),
            total(x),
            ops.concat([x, x], 0),
            ops.pad(x, (1,) * len(x.shape), (0,) * len(x.shape), 2.0),
            ops.add(y, ops.broadcast_to(total(x), y.shape)),
        ]

    check(function, [TensorType(shape, float64), TensorType((5,), float64)], [np.zeros(shape), np.arange(5.0)])


def test_outputs_that_need_no_kernel(check):
    def function(x):
        constant = ops.full(2.5, TensorType((3,), float64))
        table = ops.literal(np.arange(6.0).reshape(2, 3), float64)
        twice = ops.add(x, 1.0)
        return [x, x, constant, table, twice, twice, ops.reshape(x, (2, 2))]

    program = check(function, [TensorType((4,), float64)], [np.arange(4.0)])
    assert program.outputs[0] == program.outputs[1]
    assert program.outputs[4] == program.outputs[5]
    assert program.outputs[0] not in program.inputs


def test_a_chain_of_ten_thousand_operations(check):
    def function(x):
        for _ in range(5000):
            x = ops.add(ops.mul(x, 0.999), 0.001)
        return [x]

    program = check(function, [TensorType((4,), float64)], [np.arange(4.0)])
    assert len(program.steps) > 3
    assert len(program.kernels) <= 3  # the first, the last, and one for all others
    assert max(len(k.body.ops) for k in program.kernels) < 3000
    assert sum(slot.kind == "temp" for slot in program.slots) <= 2


def test_a_wide_graph_is_one_kernel(check):
    def function(x):
        return [ops.sin(ops.mul(x, float(i))) for i in range(200)]

    check(function, [TensorType((4,), float64)], [np.arange(4.0)], kernels=1)


@pytest.mark.parametrize("size", [16_384, 20_001])
@pytest.mark.parametrize("special", ["none", "nan", "ties", "lowest"])
def test_positions_in_long_vectors(check, rng, size, special):
    x = rng.normal(size=size)
    match special:
        case "nan":
            x[[19, 5000, 16_000]] = np.nan
        case "ties":
            x = np.floor(x)
        case "lowest":
            x[:] = -np.inf

    def function(x):
        return [ops.argmax(x, 0), ops.argmin(x, 0), ops.argmax(ops.cast(ops.mul(x, 3.0), int64), 0)]

    check(function, [TensorType((size,), float64)], [x])


@pytest.mark.parametrize("rows", [8192, 5003])
def test_long_columns_are_reduced_in_blocks(check, rng, rows):
    def function(x):
        return [ops.reduce_sum(x, (0,)), ops.reduce_max(x, (0,)), ops.reduce_prod(ops.cos(x), (0,))]

    program = check(function, [TensorType((rows, 30), float64)], [rng.normal(size=(rows, 30))])
    assert np.prod(program.kernels[0].domain) > 30


def test_many_independent_chains_become_several_kernels(check):
    def function(x):
        outputs = []
        for i in range(60):
            v = ops.mul(x, float(i))
            for _ in range(50):
                v = ops.add(ops.sin(v), 0.5)
            outputs.append(v)
        return outputs

    program = check(function, [TensorType((4,), float64)], [np.arange(4.0)])
    assert 2 <= len(program.kernels) <= 8
    assert max(len(k.body.ops) for k in program.kernels) < 3000
    assert not any(slot.kind == "temp" for slot in program.slots)
