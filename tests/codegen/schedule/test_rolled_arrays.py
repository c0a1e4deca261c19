"""Lanes of a GPU read what is rolled or padded where it lies; a CPU's vectors have the edges in memory of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import Options
from loopgrad.codegen.pipeline import build_program
from loopgrad.graph.extract import extract


def rolled(m: Any, x: Any) -> Any:
    return m.roll(x, 1, 0) + m.roll(x, -1, 0) + m.roll(x, 1, 1) + m.roll(x, -1, 1)


def around(m: Any, x: Any) -> Any:
    """Rolled along both dims; each row of what is rolled along the first is read three times."""
    return m.max(m.stack([m.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)]), axis=0)


def joined(m: Any, x: Any) -> Any:
    return x - m.concatenate([x[:, :1], 2.0 * x[:, :-1]], axis=1)


@pytest.mark.parametrize("function", [rolled, around, joined])
def test_one_kernel(function: Any) -> None:
    x = np.random.default_rng(0).normal(size=(256, 128))
    given = lg.asarray(x)
    graph = extract([function(lg, given)._value], [given._value])
    assert len(build_program(graph, Options(), {}).kernels) == 1
    np.testing.assert_allclose(np.asarray(function(lg, given)), function(np, x), rtol=1e-14)


def test_small_numbers_are_copied() -> None:
    given = lg.asarray(np.arange(256 * 128).reshape(256, 128).astype(np.uint8))
    graph = extract([around(lg, given)._value], [given._value])
    assert len(build_program(graph, Options(), {}).kernels) == 2


def test_edges_of_vectors_are_stored() -> None:
    given = lg.asarray(np.arange(256.0 * 128).reshape(256, 128))
    graph = extract([rolled(lg, given)._value], [given._value])
    assert len(build_program(graph, Options(), {}, in_order=True).kernels) > 1
