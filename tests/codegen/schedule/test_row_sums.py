"""Which scatters of rows become sums of segments, and that they mean the same."""

import numpy as np
import pytest

from loopgrad.codegen.options import Options
from loopgrad.codegen.schedule import row_sums
from loopgrad.codegen.schedule.canonical import rewrite_block
from loopgrad.codegen.schedule.row_sums import rewrite_row_sums
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.passes import dce
from loopgrad.graph.types import TensorType, float16, float32, int32, int64, uint64

RNG = np.random.default_rng(0)


@pytest.fixture
def always(monkeypatch):
    """A sort is worth it for the few rows of a test."""
    monkeypatch.setattr(row_sums, "SORTED", (0, 0, 0, 0))


def added(shape, ids, rows, zero=True, dtype=float32):
    """The graph of rows that are added at these indices to zeros, or to a table."""
    types = [TensorType(i.shape, int64 if i.dtype == np.int64 else int32) for i in ids]
    given = [TensorType(shape, dtype), *types, TensorType(rows, dtype)]

    def function(table, *rest):
        start = ops.full(0.0, table.type) if zero else table
        return [ops.scatter("add", start, rest[:-1], rest[-1])]

    return trace(function, given)[0]


def names(graph):
    return [node.op for node in graph.nodes if node.op in ("scatter", "segment_sum", "argsort")]


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("dtype", [float32, float16])
def test_the_same_rows_are_added(always, zero, dtype):
    """Indices out of range, too: below and above."""
    shape = (5, 7, 3, 4)
    ids = [RNG.integers(-1, 6, (6, 10)), RNG.integers(-1, 8, (6, 10))]
    graph = added(shape, ids, (6, 10, 3, 4), zero, dtype)
    found = rewrite_row_sums(graph, Options())
    assert names(found) == ["argsort", "segment_sum"]
    arrays = [RNG.integers(-4, 5, shape).astype(dtype.np), *ids, RNG.integers(-4, 5, (6, 10, 3, 4)).astype(dtype.np)]
    (got,), (want,) = interpret(found, arrays), interpret(graph, arrays)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [int32, uint64])
def test_rows_of_another_table_are_read_there(always, dtype):
    """As messages along the edges of a graph are: what lies between isn't made. Places may be beyond signed ones."""
    to, source = RNG.integers(0, 5, 30), RNG.integers(-2, 9, 30).astype(dtype.np)

    def function(x, to, source):
        return [ops.scatter("add", ops.full(0.0, TensorType((5, 16), float32)), [to], ops.gather(x, source))]

    graph, _ = trace(function, [TensorType((7, 16), float32), TensorType((30,), int64), TensorType((30,), dtype)])
    found = rewrite_row_sums(graph, Options())
    (node,) = [node for node in found.nodes if node.op == "segment_sum"]
    assert node.operands[0] is found.inputs[0]
    x = RNG.integers(-9, 9, (7, 16)).astype(np.float32)
    for got, want in zip(interpret(found, [x, to, source]), interpret(graph, [x, to, source]), strict=True):
        np.testing.assert_array_equal(got, want)


def messages(x, to, source):
    """Rows of x are added where edges lead to, and rows of that, but for edges out of range, where they come from."""
    sums = ops.scatter("add", ops.full(0.0, TensorType((6, 16), float32)), [to], ops.gather(x, source))
    inside = ops.and_(ops.ge(to, 0), ops.lt(to, 6))
    back = ops.gather(sums, to)
    kept = ops.select(ops.broadcast(inside, back.type.shape, (0,)), back, ops.full(0.0, back.type))
    return sums, ops.scatter("add", ops.full(0.0, x.type), [source], kept)


EDGES = [TensorType((7, 16), float32), TensorType((30,), int64), TensorType((30,), int64)]


def test_rows_that_are_left_out_have_no_number(always):
    """The gradient of messages: rows that a scatter dropped have the derivative zero, and aren't made."""
    graph, _ = trace(lambda *given: list(messages(*given)), EDGES)
    found = rewrite_row_sums(graph, Options())
    first, second = [node for node in found.nodes if node.op == "segment_sum"]
    assert second.operands[0] is first.results[0]
    arrays = [RNG.integers(-9, 9, (7, 16)).astype(np.float32), RNG.integers(-2, 8, 30), RNG.integers(-1, 8, 30)]
    for got, want in zip(interpret(found, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("rows", "dims"), [((6, 3, 4), (0, 2, 3)), ((10, 3, 4), (1, 2, 3)), ((6, 10, 3), (0, 1, 2))])
def test_repeated_rows_are_read_where_they_are(always, rows, dims):
    """As the gradient of a bag's mean is. Rows that repeat their own elements are made."""

    def function(ids, rows):
        repeated = ops.broadcast(rows, (6, 10, 3, 4), dims)
        return [ops.scatter("add", ops.full(0.0, TensorType((5, 3, 4), float32)), [ids], repeated)]

    graph, _ = trace(function, [TensorType((6, 10), int64), TensorType(rows, float32)])
    found = dce.run(rewrite_row_sums(graph, Options()))
    (node,) = [node for node in found.nodes if node.op == "segment_sum"]
    assert (node.operands[0] is found.inputs[1]) == (dims[-1] == 3)
    arrays = [RNG.integers(-1, 6, (6, 10)), RNG.integers(-9, 9, rows).astype(np.float32)]
    np.testing.assert_array_equal(interpret(found, arrays)[0], interpret(graph, arrays)[0])


@pytest.mark.parametrize("zero", [True, False])
def test_rows_of_the_other_sign_are_subtracted(always, zero):
    """The gradient of differences along edges: what both ends get is made once."""

    def function(x, to, source, rows):
        start = ops.full(0.0, x.type) if zero else ops.scatter("add", ops.full(0.0, x.type), [source], rows)
        return [ops.scatter("add", start, [to], ops.neg(rows))]

    graph, _ = trace(function, [*EDGES, TensorType((30, 16), float32)])
    found = dce.run(rewrite_row_sums(graph, Options()))
    assert not any(node.op == "neg" for node in found.nodes)
    edges = RNG.integers(-1, 8, 30), RNG.integers(-2, 8, 30)
    arrays = [np.zeros((7, 16), np.float32), *edges, RNG.integers(-9, 9, (30, 16)).astype(np.float32)]
    np.testing.assert_array_equal(interpret(found, arrays)[0], interpret(graph, arrays)[0])


def test_what_is_known_before_is_sorted_together(always):
    """As one array, and equal indices once; not what depends on one of the sums."""

    def function(x, to, source):
        sums, back = messages(x, to, source)
        again = ops.scatter("add", ops.full(0.0, TensorType((6, 16), float32)), [to], ops.gather(back, source))
        places = ops.cast(ops.reshape(ops.gather(sums, to), (480,)), int64)
        late = ops.slice(places, (0,), (30,), (1,))
        return [back, again, ops.scatter("add", ops.full(0.0, x.type), [late], ops.gather(sums, to))]

    graph, _ = trace(function, EDGES)
    found = rewrite_row_sums(graph, Options())
    assert [node.operands[0].shape for node in found.nodes if node.op == "argsort"] == [(2, 30), (1, 30)]
    arrays = [RNG.integers(-9, 9, (7, 16)).astype(np.float32), RNG.integers(-2, 8, 30), RNG.integers(-1, 8, 30)]
    for got, want in zip(interpret(found, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_isnt_worth_a_sort():
    many, few = RNG.integers(0, 9, 1 << 16), RNG.integers(0, 9, 100)
    assert names(rewrite_row_sums(added((30000, 64), [many], (1 << 16, 64)), Options())) == ["argsort", "segment_sum"]
    for shape, ids, rows in (((9, 16), few, (100, 16)), ((30000, 4), many, (1 << 16, 4))):
        graph = added(shape, [ids], rows)
        assert rewrite_row_sums(graph, Options()) is graph


def test_large_tables_are_added_to_where_they_lie(always):
    few = RNG.integers(0, 9, 100)
    assert names(rewrite_row_sums(added((5000, 16), [few], (100, 16), zero=False), Options())) == ["scatter"]


@pytest.mark.parametrize("options", [Options(check_indices=True), Options(deterministic=False)], ids=["check", "any"])
def test_what_is_asked_otherwise(always, options):
    graph = added((9, 16), [RNG.integers(0, 9, 100)], (100, 16))
    assert rewrite_row_sums(graph, options) is graph


def test_lanes_that_come_in_order_add_by_themselves(always):
    graph = added((9, 16), [RNG.integers(0, 9, 100)], (100, 16))
    assert names(rewrite_block(graph, in_order=True)) == ["scatter"]
    assert names(rewrite_block(graph)) == ["argsort", "segment_sum"]
