"""Reductions by shards on the CPU beside their reference, bit by bit: however lanes are laid out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.cpu.vector import lanes
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.placement.layout import shard_extent
from loopgrad.graph.placement.places import Place
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import DTYPES, TensorType
from loopgrad.lazy.tensor.graph_export import graph_of
from loopgrad.runtime.devices import get_device
from tests.graph.placement.processes import run_parts, together

RNG = np.random.default_rng(0)
KINDS = [(kind, dtype) for kind in ("add", "mul", "min", "max") for dtype in ("float32", "float64")]


def run(graph: Graph, arrays: list[Any]) -> list[Any]:
    device = get_device("cpu")
    return [device.get(b) for b in device.compile(graph, Options()).run([device.put(a) for a in arrays])]


def reduced(n: int, extent: int, kept: tuple[int, ...] = ()) -> tuple[Graph, list[Any]]:
    """Elements of all kinds and dtypes, squared; shards combined in one root, or in three."""
    shards = -(-n // extent)
    roots = ((0, shards // 2), (shards // 2, 1), (shards // 2 + 1, shards - shards // 2 - 1))
    inputs, outputs, arrays, b = [], [], [], GraphBuilder()
    for dtype in ("float32", "float64"):
        inputs.append(Value(TensorType((n, *kept), DTYPES[dtype])))
        arrays.append((RNG.standard_normal((n, *kept)) * 10.0 ** RNG.integers(-3, 3, (n, *kept))).astype(dtype))
        square = b.value("mul", inputs[-1], inputs[-1])
        near = b.value("add", b.const(1, square.type), b.value("mul", square, b.const(1e-6, square.type)))
        for kind in ("add", "mul", "min", "max"):
            x = near if kind == "mul" else square
            outputs.append(
                b.value("shard_reduce", x, combine=kind, extent=extent, roots=roots if shards > 2 else ((0, shards),))
            )
    return Graph(tuple(inputs), tuple(b.nodes), tuple(outputs)), arrays


@pytest.mark.parametrize(
    ("n", "extent"),
    [(1, 5), (3, 2), (100, 17), (1024, 16), (4000, 64), (20_000, 333), (9000, 7000), (40_000, 16_512)],
)
def test_lanes_are_combined_in_the_order_of_the_reference(n, extent):
    graph, arrays = reduced(n, extent)
    for found, expected in zip(run(graph, arrays), interpret(graph, arrays, False), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def test_elements_of_a_lane_are_combined_side_by_side():
    graph, arrays = reduced(300, 5, (3,))
    for found, expected in zip(run(graph, arrays), interpret(graph, arrays, False), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize(("n", "room"), [(700, None), (9001, None), (9001, 256)])
def test_sorted_lanes_of_any_number_of_processes(n, room, monkeypatch):
    """Lanes run in the order of their trips; what they make is combined in that of their places. Also where so much
    waits that a part takes several blocks."""
    if room is not None:
        monkeypatch.setattr(lanes, "WAITING", room)
    x, trips = RNG.random(n), RNG.integers(0, 40, n, np.int32)
    tensors = [lg.asarray(x), lg.asarray(trips)]
    out = lg.fori_loop(0, tensors[1], lambda _, v: v * 0.75 + 0.125, tensors[0])
    graph = graph_of(lg.sum(out), lg.max(out), lg.sum(tensors[1]))
    given = [x if v.dtype.is_float else trips for v in graph.inputs]
    wanted = None
    for size in (1, 3, 8):
        places = (Place(0), Place(0))
        for way in (run, None):
            options = {} if way is None else {"run": way}
            found = [np.asarray(a).tobytes() for a in together(*run_parts(graph, places, given, size, **options)[:2])]
            wanted = wanted or found
            assert found == wanted, (size, way)
    assert shard_extent(n) > 1
