"""Reductions by shards: their bits depend on the lanes of a shard alone, and those of several on theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.gpu.lanes import plan as plans
from loopgrad.codegen.targets.gpu.lanes import shard_plan, shard_tiles
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives.elementwise import ROWS
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import DTYPES, TensorType
from loopgrad.lazy.tensor.graph_export import graph_of
from tests.codegen.targets.gpu.gpu_harness import Choice, device

KINDS = ("add", "mul", "max")
Array = np.ndarray[Any, Any]
Roots = tuple[tuple[int, int], ...]


def run(graph: Graph, arrays: list[Array], options: Options = Options()) -> list[Array]:  # noqa: B008
    d = device()
    return [np.asarray(d.get(b)) for b in d.compile(graph, options).run([d.put(a) for a in arrays])]


def reductions(b: GraphBuilder, x: Value, extent: int, roots: Roots) -> list[Value]:
    return [b.value("shard_reduce", x, combine=kind, extent=extent, roots=roots) for kind in KINDS]


def reduced(x: Array, extent: int, roots: Roots) -> list[Array]:
    b, given = GraphBuilder(), Value(TensorType(x.shape, DTYPES[x.dtype.name]))
    made = reductions(b, given, extent, roots)
    return run(Graph((given,), tuple(b.nodes), tuple(made)), [x])


def by_pairs(kind: str, rows: list[Any]) -> Any:
    """Neighbours first."""
    reference = ROWS[kind].reference
    assert reference is not None
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=False)
        rows = [reference({}, *pair)[0] for pair in pairs] + rows[len(rows) // 2 * 2 :]
    return rows[0]


def singles(shards: int) -> Roots:
    return tuple([(shard, 1) for shard in range(shards)])


@pytest.fixture
def few_columns(monkeypatch):
    """Short shards have more pieces than columns, and these more than are read at once. (Shapes of tests that have it
    are in no others: caches would give their programs.)"""
    monkeypatch.setattr(shard_plan, "MOST_COLUMNS", 2)
    monkeypatch.setattr(shard_tiles, "TOGETHER", 2)


@pytest.mark.parametrize(
    ("n", "extent", "dtype"), [(700, 11, "float32"), (2000, 300, "float64"), (20_000, 9000, "float32")]
)
def test_a_shard_has_the_same_bits_among_others(n, extent, dtype, few_columns):
    x = (1 + np.random.default_rng(0).standard_normal(n) * 1e-3).astype(dtype)
    shards, eps = -(-n // extent), np.finfo(dtype).eps
    whole = reduced(x, extent, singles(shards))
    for first, count in ((0, 1), (1, 2), (shards - 2, 2)):
        own = reduced(x[first * extent : (first + count) * extent], extent, singles(count))
        for every, found in zip(whole, own, strict=True):
            assert every[first : first + count].tobytes() == found.tobytes()
    parts = [x[i * extent : (i + 1) * extent].astype(np.longdouble) for i in range(shards)]
    sums = whole[0].astype(np.longdouble).sum(axis=1)
    np.testing.assert_allclose(sums, [part.sum() for part in parts], rtol=8 * eps**1.5)  # with what additions lost
    np.testing.assert_allclose(whole[1][:, 0], [part.prod() for part in parts], rtol=extent * eps)
    np.testing.assert_array_equal(whole[2][:, 0], [part.max() for part in parts])


@pytest.mark.parametrize(("n", "extent"), [(2, 1), (90, 2), (700, 1), (1900, 300)])
def test_shards_are_combined_neighbours_first(n, extent):
    """In the launch of the lanes where a workgroup has them all, elsewhere in one of its own."""
    x = (1 + np.random.default_rng(1).standard_normal(n) * 1e-3).astype(np.float64)
    shards = -(-n // extent)
    half = 1 << (shards - 1).bit_length() - 1
    roots = ((0, half), (half, shards - half))
    each, some, one = (reduced(x, extent, r) for r in (singles(shards), roots, ((0, shards),)))
    for kind in ("mul", "max"):
        at = KINDS.index(kind)
        wanted = [by_pairs(kind, list(each[at][first : first + count, 0])) for first, count in roots]
        assert some[at][:, 0].tolist() == wanted
        assert one[at][:, 0].tolist() == [by_pairs(kind, wanted)]
    exact = x.astype(np.longdouble).sum()
    assert abs(one[0].astype(np.longdouble).sum() - exact) < 1e-18 * n
    assert abs(some[0].astype(np.longdouble).sum() - exact) < 1e-18 * n


def test_one_root_may_be_rounded():
    x = np.random.default_rng(2).standard_normal(500) * 10.0 ** np.random.default_rng(3).integers(-8, 8, 500)
    b, given = GraphBuilder(), Value(TensorType((500,), DTYPES["float64"]))
    made = b.value("shard_reduce", given, combine="add", extent=8, roots=((0, 63),), rounded=True)
    (found,) = run(Graph((given,), tuple(b.nodes), (made,)), [x])
    total, rest = reduced(x, 8, ((0, 63),))[0][0]
    assert found.shape == ()
    assert found == total + rest == np.float64(x.astype(np.longdouble).sum())


@pytest.mark.parametrize("way", ["sorted", "measured", "many sums"])
def test_what_else_a_kernel_does_changes_nothing(way, monkeypatch):
    """Its lanes run in another order, or what they make waits in memory of the workgroup: bits are those of an array
    that is only reduced."""
    monkeypatch.setattr(shard_plan, "FEW_PIECES", 8)
    monkeypatch.setattr(plans, "SORTED", 8)
    monkeypatch.setattr(plans, "FEW_SUMS", len(KINDS) + (way != "many sums"))
    planned, plan = list[Any](), plans.sharded_tiles
    monkeypatch.setattr(plans, "sharded_tiles", lambda *given: planned.append(plan(*given)) or planned[-1])
    n, extent, rng = 3000, 1100, np.random.default_rng(4)
    x, trips = rng.random(n), rng.integers(0, 40, n, np.int32)
    given = [lg.asarray(x), lg.asarray(trips)]
    if way == "measured":
        out = lg.while_loop(lambda v: v < 0.9, lambda v: v * 1.03125, given[0] + 0.01 * given[1])
    else:
        out = lg.fori_loop(0, given[1], lambda _, v: v * 0.75 + 0.125, given[0])
    graph = graph_of(out)
    arrays = [x if v.dtype.is_float else trips for v in graph.inputs]
    (lanes,) = run(graph, arrays)
    b = GraphBuilder()
    b.nodes = list(graph.nodes)
    made = reductions(b, graph.outputs[0], extent, singles(3))
    (count,) = [v for v in graph.inputs if not v.dtype.is_float]
    made.append(b.value("reduce_sum", count, axes=(0,)))  # beside them, of all lanes
    together = run(Graph(graph.inputs, tuple(b.nodes), tuple(made)), arrays, Options(sort_lanes=way != "many sums"))
    (t, *_) = planned
    assert together.pop() == trips.sum()
    for alone, found in zip(reduced(lanes, extent, singles(3)), together, strict=True):
        assert found.tobytes() == alone.tobytes()
    if Choice.name.startswith("simulator"):
        assert [t.sorted, t.measured, t.spilled] == [way != "many sums", way == "measured", way == "many sums"]
