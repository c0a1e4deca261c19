"""Group D: loop bounds from arrays, fields and other loops."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check, check_gradient

import loopgrad as lg


def zero():
    return lg.zeros((), dtype=lg.float64)


def lanes_sum(lane, count):
    return lg.sum(lg.vmap(lane)(lg.arange(count)))


def decay(_, v):
    return 0.95 * v + 0.01


def test_d1_scalar_cell_relaunched(device):
    x = lg.asarray([0.1, 0.3, 0.5, 0.8])
    gradient = lg.compile(lg.grad(lambda x, n: lg.sum(lg.fori_loop(0, n, decay, x))))
    for n in (1, 20, 50, 0, 3):
        check(gradient(x, lg.asarray(n, dtype=lg.int32)), np.full(4, 0.95**n), 1e-13)
    assert gradient.explain().count("compiled") <= 1


@pytest.mark.parametrize("on_device", [False, True])
def test_d2_per_lane_cell(device, mode, on_device):
    counts = np.array([2, 3, 1, 2], dtype=np.int32)
    trips = lg.asarray(counts) + 0 if on_device else lg.asarray(counts)
    x = lg.asarray([0.1, 0.3, 0.5, 0.8])
    check_gradient(lambda x: lg.sum(lg.fori_loop(0, trips, decay, x)), (x,), 0.95**counts, mode=mode, rtol=1e-14)


def test_d3_array_shape(device, mode):
    a = lg.asarray(np.zeros(7))

    def loss(x):
        return lg.sum(lg.fori_loop(0, a.shape[0], decay, x))

    check_gradient(loss, (lg.asarray([0.1, 0.3]),), np.full(2, 0.95**7), mode=mode, rtol=1e-14)


def test_d4_two_dimensional_cell(device, mode):
    a = np.zeros((3, 5), dtype=np.int32)
    a[2, 2] = 100
    table = lg.asarray(a)

    def loss(x0):
        lane = lambda i, j: lg.fori_loop(0, table[i, j], decay, x0)
        row = lambda i: lg.vmap(lambda j: lane(i, j))(lg.arange(5))
        return lg.sum(lg.vmap(row)(lg.arange(3)))

    check_gradient(loss, (lg.asarray(0.2),), 14 + 0.95**100, mode=mode, rtol=1e-13)


def test_d4_strided_view(device, mode):
    """A bound array that is a non-contiguous view of a larger one."""
    base = np.zeros((6, 10), dtype=np.int32)
    base[4, 4] = 100
    trips = lg.asarray(base[::2, ::2])

    def loss(x0):
        return lg.sum(lg.fori_loop(0, trips, decay, lg.broadcast_to(x0, (3, 5))))

    check_gradient(loss, (lg.asarray(0.2),), 14 + 0.95**100, mode=mode, rtol=1e-13)


@pytest.mark.parametrize("form", ["two_argument", "difference"])
def test_d5_start_and_stop(device, mode, form):
    start, stop = lg.asarray(np.array([0, 3])), lg.asarray(np.array([3, 4]))

    def loss(x):
        def lane(i):
            begin, end = start[i], stop[i]
            weight = lg.astype(end - begin, x.dtype)
            add = lambda j, acc: acc + x[j] * x[j] * weight
            if form == "two_argument":
                return lg.fori_loop(begin, end, add, zero())
            return lg.fori_loop(0, end - begin, lambda j, acc: add(j + begin, acc), zero())

        return lanes_sum(lane, 2)

    check_gradient(loss, (lg.full((6,), 0.1),), [0.6, 0.6, 0.6, 0.2, 0.0, 0.0], mode=mode, rtol=1e-13)


def test_d6_ragged_offsets(device, mode):
    starts = lg.asarray(np.array([0, 2, 3, 6]))
    x = np.random.default_rng(6).normal(size=(6, 2))

    def loss(x):
        def cell(i, env):
            length = starts[i + 1] - starts[i]
            return lg.fori_loop(0, length, lambda j, acc: acc + x[starts[i] + j, env] ** 2, zero())

        return lg.sum(lg.vmap(lambda i: lg.vmap(lambda env: cell(i, env))(lg.arange(2)))(lg.arange(3)))

    check_gradient(loss, (lg.asarray(x),), 2 * x, mode=mode, rtol=1e-13)


LINK_START, LINK_END = np.array([0, 2]), np.array([2, 4])
PARENT = np.array([-1, 0, 1, 1])
JOINT_START, JOINT_END = np.array([0, 1, 2, 4]), np.array([1, 2, 4, 4])


@pytest.mark.parametrize("outer", ["literal", "dynamic"])
def test_d7_two_level_hierarchy(device, mode, outer):
    """Entities hold links, links hold joints, and a link also reads its parent."""
    entities = 2 if outer == "literal" else lg.asarray(2, dtype=lg.int32)
    tables = [lg.asarray(t) for t in (LINK_START, LINK_END, PARENT, JOINT_START, JOINT_END)]
    link_start, link_end, parent, joint_start, joint_end = tables

    def loss(x):
        def link(number, y):
            number = lg.astype(number, lg.int32)
            has_parent = parent[number] != -1
            y = lg.cond(has_parent, lambda: y + 0.3 * x[parent[number]], lambda: y)
            joints = joint_end[number] - joint_start[number]
            return lg.fori_loop(0, joints, lambda _, y: y + 0.5 * x[number] ** 2, y)

        return lg.fori_loop(0, entities, lambda e, y: lg.fori_loop(link_start[e], link_end[e], link, y), zero())

    x = np.array([0.5, 1.0, 1.5, 2.0])
    want = (JOINT_END - JOINT_START) * x
    for number in range(4):
        if PARENT[number] >= 0:
            want[PARENT[number]] += 0.3
    check_gradient(loss, (lg.asarray(x),), want, mode=mode, rtol=1e-13)


def test_d8_bounds_from_two_fields(device, mode):
    first, last = lg.asarray(np.array([0, 2])), lg.asarray(np.array([2, 5]))

    def loss(x):
        def lane(o):
            body = lambda i, acc: acc + 0.5 * lg.fori_loop(0, 2, decay, x[i])
            return lg.fori_loop(first[o], last[o], body, zero())

        return lanes_sum(lane, 2)

    x = lg.asarray(np.linspace(0.1, 0.5, 5))
    check_gradient(loss, (x,), np.full(5, 0.5 * 0.95**2), mode=mode, rtol=1e-13)


def test_d10_triangular_with_array_bounded_inner_loops(device):
    group_begin, group_end = np.array([0, 1, 3]), np.array([1, 3, 4])
    sub_begin, sub_end = np.array([0, 2, 2, 3]), np.array([2, 2, 3, 6])
    tables = [lg.asarray(t) for t in (group_begin, group_end, sub_begin, sub_end)]

    def loss(x):
        gb, ge, sb, se = tables

        def lane(entity, batch):
            def pair(j, y):
                def link(number, y):
                    packed = lambda k: lg.stack([x[number, batch], x[entity, batch] * 2.0, x[sb[number] + k, batch]])
                    return lg.fori_loop(0, se[number] - sb[number], lambda k, y: y + lg.sum(packed(k) ** 2), y)

                return lg.fori_loop(gb[j], ge[j], link, y)

            return lg.fori_loop(entity, 3, pair, zero())

        return lg.sum(lg.vmap(lambda e: lg.vmap(lambda b: lane(e, b))(lg.arange(2)))(lg.arange(3)))

    x = np.random.default_rng(10).normal(size=(6, 2))
    want = np.zeros_like(x)
    for entity, batch in np.ndindex(3, 2):
        for j in range(entity, 3):
            for number in range(group_begin[j], group_end[j]):
                for k in range(sub_end[number] - sub_begin[number]):
                    want[number, batch] += 2 * x[number, batch]
                    want[entity, batch] += 8 * x[entity, batch]
                    want[sub_begin[number] + k, batch] += 2 * x[sub_begin[number] + k, batch]
    check_gradient(loss, (lg.asarray(x),), want, rtol=1e-12)


def test_d14_64_bit_bounds(device, mode):
    trips = lg.asarray(np.array([5, 0, 7], dtype=np.int64))
    x, want = np.array([0.3, 0.4, 0.5]), np.ones(3)
    for lane, count in enumerate((5, 0, 7)):
        v = x[lane]
        for _ in range(count):
            want[lane] *= np.cos(v)
            v = np.sin(v) + 0.1

    def loss(x):
        return lg.sum(lg.fori_loop(0, trips, lambda _, v: lg.sin(v) + 0.1, x))

    check_gradient(loss, (lg.asarray(x),), want, mode=mode, rtol=1e-13)


SQUARES_LANES, SQUARES_CELLS = 4, 6


def squares_up_to(bound):
    """M lanes, lane i adds x[j]² for j < bound(i): with a constant bound each cell is seen M times."""

    def loss(x):
        lane = lambda i: lg.fori_loop(0, bound(i), lambda j, acc: acc + x[j] * x[j], zero())
        return lanes_sum(lane, SQUARES_LANES)

    return loss


FIELD = np.full(SQUARES_LANES, SQUARES_CELLS, dtype=np.int32)
INDEX = np.array([2, 0, 3, 1], dtype=np.int32)


BOUND_NAMES = [
    "cell", "indirect", "indirect twice", "max of two", "max with zero", "difference cancels",
    "shape terms", "arithmetic", "halved index", "index modulo", "square root",
]  # fmt: skip


def bounds():
    """name -> the bound of lane i, every one equal to SQUARES_CELLS."""
    f, a, idx = lg.asarray(FIELD), lg.asarray(FIELD.astype(np.int64)), lg.asarray(INDEX)
    shape = f.shape[0]
    return {
        "cell": lambda i: f[i],
        "indirect": lambda i: f[idx[i]],
        "indirect twice": lambda i: a[idx[idx[i]]],
        "max of two": lambda i: lg.maximum(f[i], lg.astype(a[i], lg.int32)),
        "max with zero": lambda i: lg.maximum(f[i], 0),
        "difference cancels": lambda i: f[i] + (lg.astype(a[i], lg.int32) - lg.astype(a[i], lg.int32)),
        "shape terms": lambda i: a[i] + (shape - shape),
        "arithmetic": lambda i: lg.maximum(a[i] + 0, a[i] * 1 - 0),
        "halved index": lambda i: a[i // 2],
        "index modulo": lambda i: a[i % 4],
        "square root": lambda i: lg.astype(lg.floor(lg.sqrt(lg.astype(a[i] * a[i], lg.float64))), lg.int64),
    }


@pytest.mark.in_turns
@pytest.mark.parametrize("name", BOUND_NAMES)
def test_d15_d16_d18_d19_bound_expressions(device, mode, name):
    loss = squares_up_to(bounds()[name])
    want = np.full(SQUARES_CELLS, 2 * 0.1 * SQUARES_LANES)
    check_gradient(loss, (lg.full((SQUARES_CELLS,), 0.1),), want, mode=mode, rtol=1e-13)


@pytest.mark.parametrize("form", ["literal", "field", "shape", "cell", "two_argument"])
def test_d17_forms_of_the_outer_bound(device, mode, form):
    n = 6
    x, gate = np.linspace(0.1, 0.6, n), np.array([1.0, 0, 1, 0, 0, 1])
    table = lg.asarray(np.array([3, n], dtype=np.int32))

    def loss(x):
        lower, upper = {
            "literal": (0, n),
            "field": (0, lg.asarray(n, dtype=lg.int32)),
            "shape": (0, x.shape[0]),
            "cell": (0, table[1]),
            "two_argument": (lg.asarray(0), lg.asarray(n)),
        }[form]

        def body(i, y):
            inner = lambda: y + lg.fori_loop(0, 16, lambda _, v: 1.05 * v + 0.05, x[i] * x[i])
            return lg.cond(lg.asarray(gate)[i] > 0.5, inner, lambda: y)

        return lg.fori_loop(lower, upper, body, zero())

    check_gradient(loss, (lg.asarray(x),), gate * 2 * x * 1.05**16, mode=mode, rtol=1e-13)


def test_d18_range_of_a_square_root(device, mode):
    a = np.array([9.0, 16.0, 2.0, 0.0, 30.0])

    def loss(x):
        count = lg.astype(lg.floor(lg.sqrt(lg.asarray(a))), lg.int32)
        return lg.sum(lg.fori_loop(0, count, lambda _, v: v * v, x))

    x, count = np.array([0.9, 0.8, 0.7, 0.6, 0.95]), np.floor(np.sqrt(a))
    check_gradient(loss, (lg.asarray(x),), 2**count * x ** (2**count - 1), mode=mode, rtol=1e-12)


def test_d18_bounds_over_independent_axes(device, mode):
    start, stop = np.array([0, 2, 1]), np.array([3, 1, 4, 6])

    def loss(x):
        cell = lambda i, j: lg.fori_loop(
            lg.asarray(start)[i], lg.asarray(stop)[j], lambda k, acc: acc + lg.sin(x[k]) * x[k], zero()
        )
        return lg.sum(lg.vmap(lambda i: lg.vmap(lambda j: cell(i, j))(lg.arange(4)))(lg.arange(3)))

    x = np.linspace(0.2, 1.2, 6)
    visits = np.zeros(6)
    for begin in start:
        for end in stop:
            visits[begin:end] += 1
    check_gradient(loss, (lg.asarray(x),), visits * (np.sin(x) + x * np.cos(x)), mode=mode, rtol=1e-13)


def test_d18_value_dependent_while(device, mode):
    a = np.array([0.5, 9.5, 12.0, -3.3])
    trips = np.maximum(np.ceil(10.0 - a), 0)

    def loss(a):
        return lg.sum(lg.while_loop(lambda v: v[0] < 10.0, lambda v: (v[0] + 1.0, v[1] * v[0]), (a, a))[1])

    def product(value):
        return value * np.prod([value + k for k in range(int(max(np.ceil(10.0 - value), 0)))])

    step = 1e-7
    want = np.array([(product(v + step) - product(v - step)) / (2 * step) for v in a])
    assert trips.tolist() == [10, 1, 0, 14]
    check_gradient(loss, (lg.asarray(a),), want, mode=mode, rtol=1e-6, atol=1e-4)


def test_d18_selection_as_the_inner_loop(device, mode):
    """A sparse inner loop: the positions of the active cells are data."""
    active = np.array([1, 3, 4])

    def loss(x):
        positions = lg.asarray(active)
        lane = lambda i: lg.fori_loop(0, positions.shape[0], lambda k, acc: acc + x[i, positions[k]] ** 3, zero())
        return lanes_sum(lane, 2)

    x = np.random.default_rng(18).normal(size=(2, 6))
    want = np.zeros_like(x)
    want[:, active] = 3 * x[:, active] ** 2
    check_gradient(loss, (lg.asarray(x),), want, mode=mode, rtol=1e-13)


def test_d19_bound_of_uneven_cells_behind_an_arithmetic_index(device, mode):
    """The deepest lane is found through the index expression, not through the array alone."""
    a = np.array([1, 40, 2, 0], dtype=np.int64)
    first, second = lg.asarray(a), lg.asarray(np.array([3, 1, 0, 2]))
    x = np.linspace(0.1, 0.8, 8)

    def run(trips, x):
        return lg.sum(lg.fori_loop(0, trips, lambda _, v: lg.sin(v) + 0.1, x))

    def want(counts):
        result = np.ones(8)
        for lane, count in enumerate(counts):
            v = x[lane]
            for _ in range(count):
                result[lane] *= np.cos(v)
                v = np.sin(v) + 0.1
        return result

    i = np.arange(8)
    half = lambda x: run(first[lg.arange(8) // 2], x)
    wrapped = lambda x: run(first[lg.arange(8) % 4], x)
    nested = lambda x: run(first[second[lg.arange(8) % 4]], x)
    check_gradient(half, (lg.asarray(x),), want(a[i // 2]), mode=mode, rtol=1e-12)
    check_gradient(wrapped, (lg.asarray(x),), want(a[i % 4]), mode=mode, rtol=1e-12)
    check_gradient(nested, (lg.asarray(x),), want(a[np.array([3, 1, 0, 2])[i % 4]]), mode=mode, rtol=1e-12)
