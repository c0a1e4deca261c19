"""A few of the programs of `random_extents`, and each of its steps by itself."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.runtime.cpu.device import without_code
from loopgrad.runtime.cpu.other_extents import MOST_NODES, OtherExtents
from loopgrad.runtime.cpu.shared_code import SharedCode

from .random_extents import STEPS, Comparison, Drawn, drawn, graph_of, sizes_of

SIZES = [(1003, 40), (1007, 40), (1017, 40), (1019, 40), (1021, 40), (0, 40), (7, 1)]
FIXED = {("transpose", 2), ("max", 2), ("argmax", 2)}
"""Lanes are looked at that read across their order, or columns are cut into blocks whose number divides an extent."""


@pytest.mark.in_turns
@pytest.mark.parametrize("rank", [1, 2])
def test_steps_are_filled_in(rank: int) -> None:
    for name, step in STEPS.items():
        comparison = Comparison()
        shape = lambda n, m: (n, m)[:rank]
        build = lambda n, m, step=step, shape=shape: step(lg.asarray(np.zeros(shape(n, m))), 0.5)
        comparison.run(Drawn(build, (name,)), iter(SIZES))
        assert comparison.wrong == []
        scheduled, filled = comparison.scheduled[name], comparison.filled[name]
        assert filled > 0 or (name, rank) in FIXED or not scheduled, f"{name} was scheduled {scheduled} times"


def test_random_programs() -> None:
    comparison = Comparison()
    for number in range(8):
        random = np.random.default_rng([11, number])
        comparison.run(drawn(random), sizes_of(random, 12))
    assert comparison.wrong == []
    assert comparison.filled.total() > 10


def test_little_is_kept_of_what_comes_once() -> None:
    """Neither texts nor code: most programs come with one shape only."""
    extents = OtherExtents(SharedCode(lambda text: b"code"), without_code)
    x = lg.asarray(np.zeros(1000))
    graph = graph_of(lambda n, m: lg.sin(x) + 1.0, 0, 0)
    assert graph is not None
    outline, made = extents.outline(graph, DEFAULT_OPTIONS), without_code(graph, DEFAULT_OPTIONS)
    assert outline is not None
    extents.scheduled(outline, graph, made)
    (family,) = extents._families.values()
    assert [len(sample.text) for sample in family.samples] == [32]
    long = graph_of(lambda n, m: sum([lg.sin(x + float(k)) for k in range(MOST_NODES)], x), 0, 0)
    assert long is not None
    assert extents.outline(long, DEFAULT_OPTIONS) is None
