"""Products of a loop's trips that needn't wait for each other leave it, in front or behind; others stay."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.interpret import interpret
from loopgrad.graph.passes import distribute
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float16, float32, float64, int64
from loopgrad.graph.verify import verify
from tests.graph.passes import checking

N = 5  # trips
ROWS, WIDE, OUT = 6, 9, 12  # of a product with more than `FEW` multiplications
X, W, H, SUM = (N, ROWS, WIDE), (WIDE, OUT), (ROWS, OUT), (WIDE, OUT)


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(distribute.run, seed)


def loop(step, carried, captured, count=N, dtype=float64, reverse=False):
    """The graph of a loop over `step(k, carries, captures)`, before and after the pass, compared on random inputs."""

    def program(*given):
        inits, read = given[: len(carried)], given[len(carried) :]
        n = ops.full(count, TensorType((), int64))
        return traced_for(n, inits, lambda k, *c: step(k, *c, *read), reverse=reverse)

    types = [TensorType(shape, dtype) for shape in (*carried, *captured)]
    before = checking.traced(program, *types)
    after, notes = distribute.distributed(before, lambda _: True)
    verify(after)
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(t.shape), dtype.np) for t in types]
    exact = 1e-12 if dtype is float64 else 1e-4 if dtype is float32 else 1e-2
    for want, got in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=exact, atol=exact)
    return after, notes


def products(graph, inside):
    """How many products the loop has, or the graph around it."""
    (node,) = [n for n in graph.nodes if n.op == "for"]
    return checking.ops_of(node.regions[0] if inside else graph, deep=inside).count("matmul")


def row(table, k):
    return ops.gather(table, k)


BEFORE = {
    "rows": (X, W, lambda x, w, k: ops.matmul(row(x, k), w)),
    "more rows than trips": ((8, ROWS, WIDE), W, lambda x, w, k: ops.matmul(row(x, k), w)),
    "fewer, the last one repeated": ((3, ROWS, WIDE), W, lambda x, w, k: ops.matmul(row(x, k), w)),
    "rows backwards": (X, W, lambda x, w, k: ops.matmul(row(x, ops.sub(N - 1, k)), w)),
    "two layers": (X, (WIDE, WIDE + OUT), lambda x, w, k: two_layers(row(x, k), w)),
    "the trip's number": (X, W, lambda x, w, k: ops.matmul(ops.mul(row(x, k), number(k, (ROWS, WIDE))), w)),
    "columns": ((N, WIDE, OUT), (ROWS, WIDE), lambda x, w, k: ops.matmul(w, row(x, k))),
    "both vary": ((N, WIDE, WIDE), (N, ROWS, OUT), lambda x, w, k: both(row(x, k), row(w, k))),
    "a batch": ((N, 2, ROWS, WIDE), (2, WIDE, OUT), lambda x, w, k: ops.reduce_sum(ops.matmul(row(x, k), w), (0,))),
    "turned": ((N, WIDE, ROWS), W, lambda x, w, k: ops.matmul(ops.transpose(row(x, k), (1, 0)), w)),
}


def number(k, shape):
    return ops.broadcast(ops.cast(k, float64), shape, ())


def two_layers(x, w):
    first = ops.slice(w, (0, 0), (WIDE, WIDE))
    return ops.matmul(ops.tanh(ops.matmul(x, first)), ops.slice(w, (0, WIDE), (WIDE, WIDE + OUT)))


def both(x, y):
    """(6, 9) @ (9, 12) of rows of both."""
    left = ops.slice(x, (0, 0), (ROWS, WIDE))
    return ops.matmul(left, ops.concat([y, ops.slice(y, (0, 0), (WIDE - ROWS, OUT))], 0))


@pytest.mark.parametrize("name", BEFORE)
def test_what_no_carry_reaches_is_multiplied_before_the_loop(name):
    x, w, step = BEFORE[name]
    after, notes = loop(lambda k, h, x, w: [ops.tanh(ops.add(h, step(x, w, k)))], [H], [x, w])
    assert products(after, inside=True) == 0
    assert products(after, inside=False) == (2 if name == "two layers" else 1)
    assert "before the loop" in notes[0]
    assert f"all {N} trips" in notes[0]


def turned(v):
    return ops.transpose(v, (*range(len(v.shape) - 2), len(v.shape) - 1, len(v.shape) - 2))


AFTER = {
    "left turned": ((ROWS, WIDE), (ROWS, OUT), SUM, lambda h, d: ops.matmul(turned(h), d)),
    "left as it is": ((WIDE, ROWS), (ROWS, OUT), SUM, lambda h, d: ops.matmul(h, d)),
    "both turned": ((ROWS, WIDE), (OUT, ROWS), SUM, lambda h, d: ops.matmul(turned(h), turned(d))),
    "moved": ((ROWS, WIDE), (ROWS, OUT), (OUT * WIDE,), lambda h, d: flat(ops.matmul(turned(h), d))),
    "summed": ((ROWS, WIDE), (ROWS, OUT), (OUT,), lambda h, d: ops.reduce_sum(ops.matmul(turned(h), d), (0,))),
    "a batch": ((2, ROWS, WIDE), (2, ROWS, OUT), (2, *SUM), lambda h, d: ops.matmul(turned(h), d)),
    "vectors": ((1, 3 * WIDE), (1, 2 * OUT), (3 * WIDE, 2 * OUT), lambda h, d: ops.matmul(turned(h), d)),
    "twice": ((ROWS, WIDE), (ROWS, OUT), SUM, lambda h, d: twice(ops.matmul(turned(h), d), ops.matmul(turned(h), d))),
}


def flat(product):
    return ops.reshape(ops.transpose(product, (1, 0)), (OUT * WIDE,))


def twice(a, b):
    return ops.accumulate(a, b)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", AFTER)
def test_what_is_only_added_up_is_multiplied_after_the_loop(name, reverse):
    h, d, total, term = AFTER[name]

    def step(k, h, d, s):
        return [ops.sin(h), ops.cos(d), ops.accumulate(s, term(h, d))]

    after, notes = loop(step, [h, d, total], [], reverse=reverse)
    assert products(after, inside=True) == 0
    assert products(after, inside=False) == (2 if name == "twice" else 1)
    assert all("after the loop" in note for note in notes)


def test_sums_share_the_rows_that_they_need():
    """Rows that are there are read where they are, others are written once, and summed where they are the sum's own."""

    def step(k, d, by_w, by_u, by_b, x, h):
        d = ops.tanh(ops.add(d, ops.broadcast(ops.reduce_sum(row(h, k), (0, 1)), H, ())))
        by_w = ops.accumulate(by_w, ops.matmul(turned(row(x, k)), d))
        return [d, by_w, ops.accumulate(by_u, ops.matmul(turned(row(h, k)), d)), ops.accumulate(by_b, d)]

    after, _ = loop(step, [H, SUM, SUM, H], [X, X])
    (node,) = [n for n in after.nodes if n.op == "for"]
    assert products(after, inside=True) == 0
    assert len(node.results) == 2  # d and its rows
    assert checking.ops_of(after, deep=False).count("reduce_sum") == 1


def test_what_else_is_added_stays_in_the_loop():
    def step(k, h, s, x):
        other = ops.broadcast(ops.reduce_sum(ops.cos(h), (0,)), SUM, (1,))
        return [ops.sin(h), ops.accumulate(s, ops.accumulate(ops.matmul(turned(row(x, k)), h), other))]

    after, _ = loop(step, [H, SUM], [X])
    (node,) = [n for n in after.nodes if n.op == "for"]
    assert products(after, inside=True) == 0
    assert "reduce_sum" in checking.ops_of(node.regions[0])


def gradient(x, h, k):
    return ops.matmul(turned(row(x, k)), h)


def spread(values):
    """Something of the carry's shape that reads a sum or product."""
    return ops.broadcast(ops.reduce_sum(values, (0,)), H, (1,))


def few(v):
    return ops.slice(v, (0, 0), (2, 2))


STAYING = {
    "the sum is read": lambda k, h, s, x: [ops.sub(h, spread(s)), ops.accumulate(s, gradient(x, h, k))],
    "a sum that the program wrote": lambda k, h, s, x: [ops.sin(h), ops.add(s, gradient(x, h, k))],
    "the product is read": lambda k, h, s, x: (lambda g: [ops.sub(h, spread(g)), ops.accumulate(s, g)])(
        gradient(x, h, k)
    ),
    "a carry is multiplied": lambda k, h, s, x: [ops.sub(h, ops.matmul(row(x, k), s)), ops.tanh(s)],
    "few multiplications": lambda k, h, s, x: [
        ops.sin(h), ops.accumulate(s, ops.pad(ops.matmul(few(row(x, k)), few(h)), (0, 0), (WIDE - 2, OUT - 2)))
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", STAYING)
def test_what_must_stay_stays(name):
    after, notes = loop(STAYING[name], [H, SUM], [X])
    assert products(after, inside=True) == 1
    assert not notes


def test_a_count_that_nobody_knows_and_one_trip_change_nothing():
    def program(n, h, s, x):
        return traced_for(n, [h, s], lambda k, h, s: [ops.sin(h), ops.accumulate(s, gradient(x, h, k))])

    before = checking.traced(program, checking.i(), checking.f(*H), checking.f(*SUM), checking.f(*X))
    assert distribute.run(before) is before
    after, _ = loop(lambda k, h, s, x: [ops.sin(h), ops.accumulate(s, gradient(x, h, k))], [H, SUM], [X], count=1)
    assert products(after, inside=True) == 1


def test_rows_without_room_change_nothing(monkeypatch):
    monkeypatch.setattr(distribute, "ALWAYS", 0)
    monkeypatch.setattr(distribute, "TIMES", 1)

    def step(_k, h, s):
        return [ops.sin(h), ops.accumulate(s, ops.matmul(turned(h), h))]

    after, notes = loop(step, [(ROWS, WIDE), (WIDE, WIDE)], [])
    assert products(after, inside=True) == 1
    assert not notes


@pytest.mark.parametrize("dtype", [float32, float16])
def test_halves_leave_as_well(dtype):
    after, _ = loop(lambda k, h, s, x: [h, ops.accumulate(s, gradient(x, h, k))], [H, SUM], [X], dtype=dtype)
    assert products(after, inside=True) == 0


def test_wide_sums_of_products_of_halves_stay_wide():
    types = [TensorType(shape, dtype) for shape, dtype in ((SUM, float32), (X, float16), ((N, ROWS, OUT), float16))]

    def program(s, x, h):
        def step(k, s):
            (terms,) = emit("matmul", (turned(row(x, k)), row(h, k)), {"dtype": float32})
            return [ops.accumulate(s, terms)]

        return traced_for(ops.full(N, TensorType((), int64)), [s], step)

    before = checking.traced(program, *types)
    after = distribute.run(before)
    assert checking.ops_of(after, deep=False).count("matmul") == 1
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(t.shape), t.dtype.np) for t in types]
    wanted = arrays[0] + np.einsum("tkm,tkn->mn", *[a.astype(np.float64) for a in arrays[1:]])
    np.testing.assert_allclose(interpret(after, arrays)[0], wanted, rtol=1e-5, atol=1e-5)


def late_row(made, kind="set", adds=()):
    """A step that adds a row of what it makes of the carry to a table."""

    def step(k, h, rows, *captures):
        return [ops.sin(h), ops.scatter(kind, rows, [k], made(k, h, *captures))]

    return step


TALL = (N, ROWS, OUT)
ROW_TAILS = {
    "a product": (TALL, [W], lambda _, h, w: ops.matmul(h, w)),
    "of two layers": (TALL, [W, (OUT, OUT)], lambda _, h, w, v: ops.tanh(ops.matmul(ops.sin(ops.matmul(h, w)), v))),
    "moved": ((N, OUT * ROWS), [W], lambda _, h, w: flat_row(ops.matmul(h, w))),
    "with a bias": (TALL, [W, (OUT,)], lambda _, h, w, b: ops.add(ops.matmul(h, w), as_row(b))),
    "with rows of others": (TALL, [W, TALL], lambda k, h, w, x: ops.mul(ops.matmul(h, w), row(x, k))),
    "with more of the carry": (
        TALL,
        [W],
        lambda _, h, w: ops.add(ops.matmul(h, w), as_column(ops.reduce_sum(h, (1,)))),
    ),
    "turned": ((N, OUT, ROWS), [W], lambda _, h, w: ops.matmul(turned(w), turned(h))),
    "both of the carry": ((N, WIDE, OUT), [W], lambda _, h, w: ops.matmul(turned(h), ops.matmul(h, w))),
}


def flat_row(product):
    return ops.reshape(ops.transpose(product, (1, 0)), (OUT * ROWS,))


def as_row(vector):
    return ops.broadcast(vector, (ROWS, OUT), (1,))


def as_column(vector):
    return ops.broadcast(vector, (ROWS, OUT), (0,))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["set", "add"])
@pytest.mark.parametrize("name", ROW_TAILS)
def test_what_becomes_rows_only_is_multiplied_after_the_loop(name, kind, reverse):
    table, captures, made = ROW_TAILS[name]
    after, notes = loop(late_row(made, kind), [(ROWS, WIDE), table], captures, reverse=reverse)
    assert products(after, inside=True) == 0
    assert products(after, inside=False) == (2 if name in ("of two layers", "both of the carry") else 1)
    assert all("after the loop" in note for note in notes)


def test_rows_of_a_product_share_what_a_sum_needs():
    """As derivatives of a recurrent layer do: by its inputs and by its matrix."""

    def step(k, d, by_x, by_w, x, w):
        d = ops.tanh(d)
        by_x = ops.scatter("add", by_x, [row(ops.iota(TensorType((N,), int64), 0), k)], ops.matmul(d, turned(w)))
        return [d, by_x, ops.accumulate(by_w, ops.matmul(turned(row(x, k)), d))]

    after, _ = loop(step, [(ROWS, OUT), X, SUM], [X, W])
    (node,) = [n for n in after.nodes if n.op == "for"]
    assert products(after, inside=True) == 0
    assert len(node.results) == 2  # d and its rows


STAYING_ROWS = {
    "the table is read": lambda k, h, t, w: [ops.add(h, few_of(row(t, k))), write(t, k, ops.matmul(h, w))],
    "the product is read": lambda k, h, t, w: (lambda g: [ops.add(h, few_of(g)), write(t, k, g)])(ops.matmul(h, w)),
    "the next trip's row": lambda k, h, t, w: [ops.sin(h), write(t, ops.add(k, 1), ops.matmul(h, w))],
    "the largest": lambda k, h, t, w: [ops.sin(h), ops.scatter("max", t, [k], ops.matmul(h, w))],
}


def few_of(g):
    return ops.broadcast(ops.reduce_sum(g, (0, 1)), (ROWS, WIDE), ())


def write(table, k, value):
    return ops.scatter("set", table, [k], value)


@pytest.mark.parametrize("name", STAYING_ROWS)
def test_rows_that_must_stay_stay(name):
    after, notes = loop(STAYING_ROWS[name], [(ROWS, WIDE), TALL], [W])
    assert products(after, inside=True) == 1
    assert not notes


def test_a_table_of_more_rows_keeps_its_product():
    after, _ = loop(late_row(lambda _, h, w: ops.matmul(h, w)), [(ROWS, WIDE), (N + 1, ROWS, OUT)], [W])
    assert products(after, inside=True) == 1
