"""vmap of random graphs with nested regions, against one run per batch element."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph.types import TensorType


def random_case(random_graphs, seed, lanes=True):
    """A graph, arrays (some with the batch axis), which have it, and its size; 4 is also the programs' lanes."""
    rng = np.random.default_rng(1000 + seed)
    graph, _ = random_graphs.random_program(seed, steps=8, depth=2 + seed % 2, lanes=lanes)
    size = int(rng.choice([2, 3, 4]))
    flags = [bool(f) for f in rng.random(len(graph.inputs)) < 0.4]
    flags[rng.integers(len(flags))] = True
    types = [TensorType((size, *t.shape), t.dtype) if b else t for t, b in zip(graph.input_types, flags, strict=True)]
    return graph, random_graphs.random_arrays(rng, types), flags, size


@pytest.mark.parametrize("seed", range(60))
def test_programs(random_graphs, vmapped, seed):
    vmapped(*random_case(random_graphs, seed))
