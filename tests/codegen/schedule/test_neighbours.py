"""A lane for each neighbour, for the sums of all coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.pipeline import schedule
from loopgrad.codegen.schedule.neighbours import FEWEST, MANY
from loopgrad.graph.extract import extract

POINTS = MANY // FEWEST


def pulled(x: Any, near: Any) -> Any:
    apart = x[near] - x[:, None]
    square = lg.sum(apart * apart, axis=-1, keepdims=True)
    return lg.sum(lg.exp(-square) / (square + 1.0) * apart, axis=1)


def added(x: Any, near: Any) -> Any:
    """Nothing in common: rows of neighbours are read as they lie."""
    return lg.sum(x[near] * 2.0, axis=1)


def domains(function: Any, neighbours: int, in_order: bool = False, points: int = POINTS) -> list[int]:
    x = lg.asarray(np.zeros((points, 3), np.float32))
    near = lg.asarray(np.zeros((points, neighbours), np.int32))
    graph = extract([function(x, near)._value], [x._value, near._value])
    return [int(np.prod(kernel.domain)) for kernel in schedule(graph, in_order=in_order).kernels]


@pytest.mark.parametrize("neighbours", [FEWEST, 20, 32])
def test_a_lane_for_each_neighbour(neighbours: int) -> None:
    assert domains(pulled, neighbours) == [neighbours * POINTS, POINTS]  # whose rows are stages of one launch


def test_few_points_are_left_to_lanes_of_coordinates() -> None:
    assert domains(pulled, 32, points=100)[-1] == 3 * 100


def test_few_neighbours_are_read_by_lanes_of_coordinates() -> None:
    assert domains(pulled, FEWEST - 1)[-1] == 3 * POINTS


def test_rows_with_nothing_in_common_are_read_by_lanes_of_coordinates() -> None:
    assert domains(added, 32)[-1] == 3 * POINTS


def test_vectors_of_a_cpu_have_lanes_of_coordinates() -> None:
    assert domains(pulled, 32, in_order=True)[-1] == 3 * POINTS
