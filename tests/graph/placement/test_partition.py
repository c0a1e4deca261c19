"""Programs of one process against the whole program, and against each other: bit by bit on any number of processes.

The processes are threads. tests/runtime/mesh has real ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import MatmulStep, RoutineStep
from loopgrad.codegen.schedule.schedule import schedule
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Graph
from loopgrad.graph.placement import layout, overlap, partition, rules
from loopgrad.graph.placement.layout import ProcessPart, shard_count
from loopgrad.graph.placement.places import Place
from loopgrad.graph.placement.program import new_partition, partitioned
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.lazy.tensor.graph_export import graph_of
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.executable import Outgrown
from loopgrad.runtime.mesh.communicator import Alone
from loopgrad.runtime.mesh.device import MeshDevice
from tests.graph.placement.processes import compiled, run_parts, together

RNG = np.random.default_rng(0)
SIZES = {0: (1, 3), 1: (1, 2), 5: (1, 3, 8), 100: (1, 2, 3, 8)}  # of meshes, by the number of lanes


class Case(NamedTuple):
    """A program of lanes and of what all processes have, how many arrays are lanes, how often processes meet."""

    program: Callable[..., Any]
    arrays: Callable[[int], list[Any]]
    lanes: int
    meetings: int = 1


def _ragged(x, k, p):
    return lg.value_and_grad(lambda p: lg.sum(lg.fori_loop(0, k, lambda _, v: lg.sin(p[0] * v) + p[1], x)))(p)


def _table_in_loop(x, t):
    def loss(t):
        def step(s):
            return s[0] * t[s[1] % 4] + 0.1, s[1] + 1

        v, _ = lg.while_loop(lambda s: (s[0] < 5.0) & (s[1] < 20), step, (x, lg.zeros(len(x), dtype=lg.int64)))
        return lg.sum(v**2)

    return lg.value_and_grad(loss)(t)


def _dense(x, w):
    return lg.value_and_grad(lambda w: lg.sum(lg.sum(lg.tanh(x @ w), axis=1) ** 2))(w)


def _columns(x, w):
    return lg.value_and_grad(lambda w: lg.sum(lg.tanh(w @ x.T)))(w)


def _kinds_of_sums(x):
    k = lg.astype(x * 10.0, lg.int32)
    small = [lg.sum(lg.astype(x, d)) for d in (lg.float16, lg.float32)]
    return lg.sum(x, axis=0), lg.sum(k), lg.any(x > 0.5), lg.all(x < 2.0), lg.prod(1.0 + x / 100.0), *small


def _extremes(x):
    return lg.max(x), lg.min(x), lg.max(lg.astype(x * 10.0, lg.int32)), lg.max(-0.0 * x)


def _first_positions(x, k):
    held = lg.where(k == 3, np.nan, x)
    columns = lg.stack([x, -x, held], axis=1)
    return lg.argmax(x), lg.argmin(columns, axis=0), lg.argmax(k), lg.argmax(k > 2), lg.argmax(columns.T, axis=1)


def _uniform_loop(x, p):
    """The condition and the body reduce: processes meet in every trip."""

    def condition(s):
        return (lg.sum(lg.abs(s[0])) > 1.0) & (s[1] < 5)

    return lg.while_loop(condition, lambda s: (s[0] * 0.8 - p * lg.sum(s[0]) * 1e-3, s[1] + 1), (x, 0))


def _descent(x, p):
    """Gradients inside a loop, differentiated again."""

    def loss(p):
        return lg.sum((x * p - 1.0) ** 2)

    return lg.value_and_grad(lambda q: loss(lg.fori_loop(0, 3, lambda _, v: v - 1e-3 * lg.grad(loss)(v), q)))(p)


def _batched(x, p):
    walk = lg.vmap(lambda v: lg.while_loop(lambda s: s < 3.0, lambda s: s * p + 0.3, v))
    return lg.value_and_grad(lambda p: lg.sum(lg.vmap(lambda v: lg.sin(v * p))(x)))(p), walk(x)


def _positions(x):
    return lg.sum(x * lg.arange(len(x))) + lg.sum(lg.arange(len(x)) * 1.0), x + lg.arange(len(x))


def _table(x, t):
    return lg.value_and_grad(lambda t: lg.sum(t[lg.astype(x * 5.0, lg.int64)] * x))(t)


def _own_rows(x, k):
    return lg.value_and_grad(lambda x: lg.sum(lg.take_along_axis(x, k[:, None] % 3, axis=1) ** 2))(x)


def _branches(x, k, p):
    def loss(p):
        return lg.sum(lg.switch(k % 3, [lambda v: v * p, lambda v: v + p, lambda v: lg.sin(p * v)], x))

    return lg.value_and_grad(loss)(p)


def _gathered(x, p):
    return lg.value_and_grad(lambda p: lg.sum(lg.sort(lg.gather_all(x * p)) * lg.arange(len(x))))(p)


def _complex(x, p):
    return lg.value_and_grad(lambda p: lg.sum(lg.abs(lg.exp(1j * x * p) + p)))(p)


def _checkpoint(x, p):
    return lg.value_and_grad(lambda p: lg.sum(lg.checkpoint(lambda v: lg.exp(lg.sin(v * p)))(x)))(p)


def _nested(x, k, p):
    def loss(p):
        inner = lambda _, v: lg.while_loop(lambda s: s > 1.0, lambda s: s * p[1], v + p[0])  # noqa: E731
        return lg.sum(lg.fori_loop(0, k, inner, x))

    return lg.value_and_grad(loss)(p)


def _batched_meetings(x, p):
    """Lanes that all processes have, each of which adds up those that are shared, until its own end."""

    def walk(p):
        grown = lg.while_loop(lambda c: c < 9.0, lambda c: c + 1.0 + lg.sum(x * lg.cos(c * p)) * 1e-2, p)
        chosen = lg.cond(p > 1.0, lambda v: lg.max(x, initial=0.0) * v, lambda v: v * 3.0, p)
        return lg.fori_loop(0, lg.astype(p * 3.0, lg.int32), lambda _, c: c + lg.sum(x * c) * 1e-3, grown + chosen)

    return lg.value_and_grad(lambda p: lg.sum(lg.vmap(walk)(p)))(p)


def _products(x, p):
    """Over lanes, and over what each lane has."""
    own = lambda x, p: lg.sum(lg.prod(lg.stack([x, x * p - 0.5], axis=1), axis=1))  # noqa: E731
    return lg.value_and_grad(lambda x, p: lg.prod(1.0 + x * p / 10.0) + own(x, p), argnums=(0, 1))(x, p)


def _lanes(n: int) -> list[Any]:
    return [RNG.random(n)]


def _counts(n: int) -> list[Any]:
    return [RNG.random(n), RNG.integers(0, 9, n)]


def _with(*more: Any, lanes: Callable[[int], list[Any]] = _lanes) -> Callable[[int], list[Any]]:
    return lambda n: [*lanes(n), *map(np.asarray, more)]


CASES = {
    "ragged": Case(_ragged, _with([1.0, 0.1], lanes=_counts), 2),
    "table in a loop": Case(_table_in_loop, _with([1.0, 1.1, 1.2, 1.3]), 1),
    "dense": Case(_dense, lambda n: [RNG.random((n, 4)), RNG.random((4, 3))], 1),
    "columns": Case(_columns, lambda n: [RNG.random((n, 4)), RNG.random((3, 4))], 1),
    "sums": Case(_kinds_of_sums, _lanes, 1),
    "products": Case(_products, _with(1.1), 1, 0),
    "extremes": Case(_extremes, _lanes, 1),
    "first positions": Case(_first_positions, lambda n: [RNG.random(n), RNG.integers(0, 4, n)], 2),
    "uniform loop": Case(_uniform_loop, _with(0.1), 1, 0),
    "descent": Case(_descent, _with(0.5), 1, 0),
    "vmap": Case(_batched, _with(1.5), 1),
    "positions": Case(_positions, _lanes, 1),
    "table": Case(_table, _with([0.5, 1.5, 2.5, 3.5, 4.5]), 1),
    "own rows": Case(_own_rows, lambda n: [RNG.random((n, 3)), RNG.integers(0, 9, n)], 2),
    "branches": Case(_branches, _with(1.1, lanes=_counts), 2),
    "gathered": Case(_gathered, _with(1.1), 1, 0),
    "checkpoint": Case(_checkpoint, _with(1.1), 1, 0),
    "batched meetings": Case(_batched_meetings, _with([0.7, 1.4]), 1, 0),
    "nested": Case(_nested, _with([2.0, 0.5], lanes=_counts), 2),
}


def _traced(case: Case, n: int) -> tuple[Graph, tuple[Place, ...], list[Any]]:
    arrays = case.arrays(n)
    tensors = [lg.asarray(a) for a in arrays]
    graph = graph_of(*lg.tree.leaves(case.program(*tensors)))
    order = [next(i for i, t in enumerate(tensors) if t._value is v) for v in graph.inputs]
    return graph, tuple([Place(0) if i < case.lanes else Place() for i in order]), [arrays[i] for i in order]


def _bytes(arrays: list[Any]) -> list[bytes]:
    return [np.asarray(a).tobytes() for a in arrays]


@pytest.mark.in_turns
@pytest.mark.parametrize("name", CASES)
def test_bits_are_the_same_on_any_number_of_processes(name):
    case = CASES[name]
    for n, sizes in SIZES.items():
        if n == 0 and case.program in (_extremes, _first_positions):  # there is no largest of none
            continue
        graph, places, arrays = _traced(case, n)
        expected, alone = interpret(graph, arrays, False), None
        for size in sizes:
            outputs, found, met = run_parts(graph, places, arrays, size)
            results = together(outputs, found)
            for result, reference in zip(results, expected, strict=True):
                loose = 1e-2 if reference.dtype == np.float16 else 1e-6 if reference.dtype == np.float32 else 1e-11
                np.testing.assert_allclose(result, reference, rtol=loose, atol=1e-12)
            alone = alone or _bytes(results)
            assert _bytes(results) == alone, (n, size)
            if case.meetings and size > 1:
                assert met == case.meetings


@pytest.mark.in_turns
@pytest.mark.parametrize("name", CASES)
def test_large_results_are_made_part_by_part_to_the_same_bits(name, monkeypatch):
    """As if all were large: also those of fewer elements than processes, or of none. On three processes and eight all
    that can start early does."""
    graph, places, arrays = _traced(CASES[name], 33)
    alone = _bytes(together(*run_parts(graph, places, arrays, 1)[:2]))
    met = run_parts(graph, places, arrays, 3)[2]
    monkeypatch.setattr(partition, "LARGE", 1)
    monkeypatch.setattr(partition, "SWIFT", 1)
    outputs, found, _ = run_parts(graph, places, arrays, 2, swift=True)  # of two rows the engine adds some up
    assert _bytes(together(outputs, found)) == alone
    for size in (2, 3, 8):
        if size == 3:
            monkeypatch.setattr(overlap, "EARLY", 0)
            monkeypatch.setattr(overlap, "OPERATIONS", 0)
        outputs, found, meetings = run_parts(graph, places, arrays, size)
        assert _bytes(together(outputs, found)) == alone, size
        if size == 3 and name not in ("first positions", "own rows", "gathered", "batched meetings"):
            assert meetings > met


def test_large_gradients_start_while_those_of_earlier_layers_are_computed(monkeypatch):
    """As devices run it; the ends come behind all that doesn't wait for them. Small ones travel together."""

    def loss(ws, x):
        for w in ws:
            x = lg.tanh(x @ w)
        return lg.sum(x * x)

    tensors = [lg.asarray(RNG.random(shape, np.float32)) for shape in ((128, 32), *[(32, 32)] * 4)]
    graph = graph_of(*lg.tree.leaves(lg.value_and_grad(loss)(tensors[1:], tensors[0])))
    places = tuple([Place(0 if v is tensors[0]._value else None) for v in graph.inputs])
    for early, starts in ((32 * 32 * 4, 3), (1 << 20, 0)):
        monkeypatch.setattr(partition, "LARGE", early)
        monkeypatch.setattr(overlap, "EARLY", early)
        made = new_partition(ProcessPart(1, 2), fast=False)
        steps = schedule(partitioned(graph, places, made)[0]).steps
        assert len([note for note in made.notes if "start on their way" in note]) == starts
        products = [i for i, step in enumerate(steps) if isinstance(step, MatmulStep)]
        routines = {i: (step.name, dict(step.attrs)) for i, step in enumerate(steps) if isinstance(step, RoutineStep)}
        begun = [i for i, (name, _) in routines.items() if name == "collective_start"]
        ended = {i: name for i, (name, attrs) in routines.items() if attrs.get("started")}
        assert len(begun) == len(ended) == 2 * starts - bool(starts)
        assert len([i for i in begun if i < products[-1]]) == starts - bool(starts)
        assert all(i > products[-1] for i, name in ended.items() if name == "all_gather")
        assert (max(ended, default=-1) == len(steps) - 1) == bool(starts)  # it leaves the result where it is wanted


@pytest.mark.parametrize(("size", "ways"), [(2, ["all_sum"]), (3, ["all_to_all", "all_gather"])])
def test_a_large_sum_of_two_devices_is_one_collective(size, ways, monkeypatch):
    """It has one order, whoever adds."""
    monkeypatch.setattr(partition, "LARGE", 16)
    monkeypatch.setattr(partition, "SWIFT", 1)
    x = lg.asarray(RNG.random((64, 5)))
    made = replace(new_partition(ProcessPart(0, size), fast=False), swift=True)
    nodes = partitioned(graph_of(x.T @ x), (Place(0),), made)[0].nodes
    assert [node.op for node in nodes if PRIMITIVES[node.op].collective] == ways


def test_what_a_process_sends_of_a_large_gradient_does_not_grow_with_their_number():
    def gradient(x, w):
        return lg.grad(lambda w: lg.sum(lg.tanh(x @ w) ** 2))(w)

    x, w = RNG.random((64, 300)), RNG.random((300, 200))
    tensors = [lg.asarray(x), lg.asarray(w)]
    graph = graph_of(gradient(*tensors))
    order = [next(i for i, t in enumerate(tensors) if t._value is v) for v in graph.inputs]
    places, arrays = tuple([Place(None if i else 0) for i in order]), [(x, w)[i] for i in order]
    alone, sent = None, {}
    for size in (1, 2, 4, 8):
        seen: list[int] = []
        outputs, found, _ = run_parts(graph, places, arrays, size, seen=seen)
        results = _bytes(together(outputs, found))
        alone = alone or results
        assert results == alone
        sent[size] = max(seen, default=0)
    assert sent[8] <= sent[4] * 1.01 <= sent[2] * 1.02 <= 1.02 * 2 * w.nbytes  # rows to their owners, their sums to all


@pytest.mark.parametrize("lanes", [1, 2, 3, 6, 7])
def test_lanes_that_were_not_added_up_travel_without_what_sums_lost(lanes):
    """Rests are of sums only: two processes with a lane each give that lane, whatever other sums have."""
    x = RNG.random((lanes, 5)) * 10.0 ** RNG.integers(-8, 8, (lanes, 5))
    graph, sums = graph_of(lg.sum(lg.asarray(x), axis=0)), []
    for size in (1, 2, 3, 4):
        seen: list[int] = []
        outputs, found, _ = run_parts(graph, (Place(0),), [x], size, seen=seen)
        sums += _bytes(together(outputs, found))
        joined = [[height > 0 for _, height in ProcessPart(rank, size).subtrees(lanes)] for rank in range(size)]
        assert sum(seen) == x[0].nbytes * sum([len(each) + sum(each) for each in joined]) * (size > 1)
    assert len(set(sums)) == 1
    np.testing.assert_allclose(np.frombuffer(sums[0]), [math.fsum(column) for column in x.T], rtol=1e-15)


def test_weights_are_not_copied_where_the_order_of_a_product_does_not_depend_on_rows():
    """Narrow products and others, by rows and by columns, on any number of processes, and of all rows at once."""
    device = get_device("cpu")
    for n, terms, columns, copied in ((640, 300, 40, 0), (513, 300, 5, 0), (64, 300, 5, 1)):
        x, w = RNG.random((n, terms)), RNG.random((terms, columns))
        graph = graph_of(lg.asarray(x) @ lg.asarray(w), lg.sin(lg.asarray(w.T.copy()) @ lg.asarray(x).T))
        arrays = [np.asarray(v.buffer.array) for v in graph.inputs]
        places = tuple([Place(0 if a.shape == x.shape else None) for a in arrays])
        alone = None
        for size in (1, 3):
            outputs, found, _ = run_parts(graph, places, arrays, size, run=compiled, alike=device.adds_rows_alike)
            results = together(outputs, found)
            np.testing.assert_allclose(results[0], x @ w, rtol=1e-12)
            alone = alone or _bytes(results)
            assert _bytes(results) == alone, (n, size)
        buffers = [device.put(a) if p.axis is None else a for a, p in zip(arrays, places, strict=True)]
        mesh = MeshDevice(device, Alone())
        each = zip(arrays, buffers, places, strict=True)
        given = [mesh.put_lanes(a, n) if p.axis == 0 else mesh.taken(b) for a, b, p in each]
        executable = mesh.compile(graph, Options())
        executable.run(given)
        assert ("broadcast" in executable.text("graph")) == bool(copied), (n, terms, columns)


@pytest.mark.parametrize("name", ["dense", "columns"])
def test_large_gradients_of_weights_are_added_up_shard_by_shard(name, monkeypatch):
    graph, places, arrays = _traced(CASES[name], 33)
    once = run_parts(graph, places, arrays, 3)
    monkeypatch.setattr(rules, "PRODUCT_BYTES", 1)
    alone = _bytes(together(*run_parts(graph, places, arrays, 1)[:2]))
    for size in (2, 3, 8):
        outputs, found, met = run_parts(graph, places, arrays, size)
        assert _bytes(together(outputs, found)) == alone
        assert met == 1
    for one, other in zip(together(*once[:2]), together(outputs, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", ["ragged", "table in a loop", "dense", "uniform loop"])
def test_bits_are_the_same_incompiled_programs(name):
    graph, places, arrays = _traced(CASES[name], 150)
    alone = None
    for size in (1, 3):
        outputs, found, _ = run_parts(graph, places, arrays, size, run=compiled)
        results = _bytes(together(outputs, found))
        alone = alone or results
        assert results == alone


def test_new_programs_run_directly_to_the_same_bits():
    """Operation by operation, where nobody meets."""
    device = MeshDevice(get_device("cpu"), Alone())
    direct = set()
    for name in ("sums", "table", "vmap", "own rows", "first positions", "dense", "ragged"):
        graph, places, arrays = _traced(CASES[name], 100)
        own = zip(arrays, places, strict=True)
        buffers = [device.put(a) if p.axis is None else device.put_lanes(np.asarray(a), 100) for a, p in own]
        expected = device.compile(graph, Options()).run(buffers)
        try:
            found = device.direct(graph, Options()).run(buffers)
        except Outgrown:
            continue
        direct.add(name)
        assert [b.axis for b in found] == [b.axis for b in expected]
        one, other = ([device.inner.get(b.local) for b in each] for each in (found, expected))
        assert _bytes(one) == _bytes(other)
    assert direct >= {"sums", "first positions"}


def test_the_engine_may_add_up_in_its_own_order():
    for name in ("ragged", "table", "dense"):
        graph, places, arrays = _traced(CASES[name], 100)
        outputs, found, met = run_parts(graph, places, arrays, 3, fast=True)
        assert met == 1
        for result, reference in zip(together(outputs, found), interpret(graph, arrays, False), strict=True):
            np.testing.assert_allclose(result, reference, rtol=1e-11)


MOVING = {
    "sort": lg.sort,
    "roll": lambda x: lg.roll(x, 1),
    "shift": lambda x: x[1:] - x[:-1],
    "total": lg.cumsum,
    "combination": lambda x: lg.associative_scan(lg.multiply, x),
    "pairs": lambda x: x[:, None] * x[None, :],
    "one of them": lambda x: x[3],
    "in a loop of lanes": lambda x: lg.while_loop(lambda v: v < 1.0, lambda v: v + lg.sum(v), x),
    "rows of both factors": lambda x: (x[:, None] * lg.ones(len(x))) @ (x[:, None] * lg.ones(len(x))),
}


@pytest.mark.parametrize("name", MOVING)
def test_what_moves_lanes_is_refused_by_its_line(name):
    graph = graph_of(MOVING[name](lg.asarray(RNG.random(10))))
    with pytest.raises(lg.DeviceError, match=r"(?s)lg\.gather_all\(x\).*at .*test_partition\.py"):
        run_parts(graph, (Place(0),), [RNG.random(10)], 2)


def test_an_only_lane_is_along_any_axis_of_a_product():
    """Which of its axes a row or a column of one element has it in can't be seen."""
    x = RNG.random((1, 3))
    tensor = lg.asarray(x)
    graph = graph_of(tensor[:, 0] @ lg.sin(tensor))
    for size in (1, 2, 3):
        (found,) = together(*run_parts(graph, (Place(0),), [x], size)[:2])
        np.testing.assert_allclose(found, x[:, 0] @ np.sin(x), rtol=1e-15)


def test_shards_are_shared_evenly():
    for n in (0, 1, 2, 63, 64, 65, 1000, 12345):
        for size in (1, 2, 3, 7, 64, 100):
            parts = [ProcessPart(rank, size) for rank in range(size)]
            assert [i for p in parts for i in p.lanes(n)] == list(range(n))
            each = [len(p.shards(n)) for p in parts]
            assert sum(each) == shard_count(n)
            assert max(each) - min(each) <= 1
            roots = [place for p in parts for place in p.subtrees(n)]
            assert [first for first, _ in roots] == sorted(first for first, _ in roots)
            assert shard_count(n) <= sum(1 << height for _, height in roots) < 2 * max(shard_count(n), 1)
            assert len(roots) <= 1 or size > 1


@pytest.mark.parametrize(("name", "value", "n"), [("MANY", 200, 300), ("LARGE", 256, 20_000)])
def test_many_lanes_are_cut_into_more_shards_and_large_ones_are_aligned(monkeypatch, name, value, n):
    monkeypatch.setattr(layout, name, value)
    assert shard_count(n) == (300 if name == "MANY" else 53)
    case = CASES["sums"]
    graph, places, arrays = _traced(case, n)
    alone, expected = None, interpret(graph, arrays, False)
    for size in (1, 3, 4):
        results = together(*run_parts(graph, places, arrays, size)[:2])
        for result, reference in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, reference, rtol=1e-2 if reference.dtype.itemsize < 8 else 1e-11)
        alone = alone or _bytes(results)
        assert _bytes(results) == alone
