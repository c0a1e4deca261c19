"""The minimum cut against brute force, and which of several equal ones is taken."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from loopgrad.autodiff.loops.mincut import minimum_cut


def separates(cut, operands, sources, wanted):
    """Whether no wanted vertex can be reached from a source around the cut."""
    reached = set()
    for v in operands:  # operands come before their users
        if v not in cut and (v in sources or any(u in reached for u in operands[v])):
            reached.add(v)
    return not reached & set(wanted)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("near_sources", [False, True])
def test_cheapest(seed, near_sources):
    rng = np.random.default_rng(seed)
    n = 9
    prices = {v: int(rng.integers(1, 9)) for v in range(n)}
    operands = {v: [int(u) for u in range(v) if rng.random() < 0.35] for v in range(n)}
    sources = [v for v in range(n) if not operands[v]]
    wanted = [v for v in range(n) if rng.random() < 0.4] or [n - 1]
    cut = minimum_cut(prices, operands, sources, wanted, near_sources)
    assert separates(set(cut), operands, sources, wanted)
    best = min(
        sum(prices[v] for v in candidate)
        for size in range(n + 1)
        for candidate in combinations(range(n), size)
        if separates(set(candidate), operands, sources, wanted)
    )
    assert sum(prices[v] for v in cut) == best


def test_equal_cuts():
    prices = dict.fromkeys("abcd", 4)
    chain = {"b": ["a"], "c": ["b"], "d": ["c"]}
    assert minimum_cut(prices, chain, ["a"], ["d"], near_sources=False) == ["d"]
    assert minimum_cut(prices, chain, ["a"], ["d"], near_sources=True) == ["a"]


def test_one_source_for_two_wants():
    prices = {"v": 4, "sin": 4, "cos": 4}
    assert minimum_cut(prices, {"sin": ["v"], "cos": ["v"]}, ["v"], ["sin", "cos"], False) == ["v"]


def test_a_long_chain_is_not_recursive():
    n = 5000
    prices = dict.fromkeys(range(n), 1)
    assert minimum_cut(prices, {v: [v - 1] for v in range(1, n)}, [0], [n - 1], False) == [n - 1]
