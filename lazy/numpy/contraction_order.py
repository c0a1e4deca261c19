"""In which order the operands of an einsum are contracted, two at a time.

Of few operands the best order, by dynamic programming over their subsets (Pfeifer, Haegeman and Verstraete, "Faster
identification of optimal contraction sequences for tensor networks", 2014): the cheapest way to make what a subset
leaves is the cheapest of its halves, each made in the cheapest way. Of more, what NumPy's greedy search finds. The cost
is the number of multiplications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from string import ascii_letters
from typing import Any, Final

import numpy as np

EXACT: Final = 8  # operands, whose subsets have 3**8 halves
ANY_SIZE: Final = 1 << 62  # of what a contraction leaves

Pair = tuple[int, int]
Tree = Any  # an operand's number, or two trees


def contraction_order(labels: Sequence[str], output: str, extents: Mapping[str, int]) -> list[Pair]:
    """Which two (rising) of what is left are contracted; what they make comes last."""
    if len(labels) <= EXACT:
        return _pairs(_best(labels, output, extents), len(labels))
    if len(extents) > len(ascii_letters):  # NumPy has no more names
        return from_left_to_right(len(labels))
    return _greedy(labels, output, extents)


def from_left_to_right(count: int) -> list[Pair]:
    """The first two, then what they make with the next one."""
    return [(0, n - 1 if k else 1) for k, n in enumerate(range(count, 1, -1))]


def _best(labels: Sequence[str], output: str, extents: Mapping[str, int]) -> Tree:
    """The operands as leaves of the order's tree. Subsets are sets of bits."""
    count = len(labels)

    @cache
    def left(subset: int) -> frozenset[str]:
        """The letters of what a subset leaves: those that the output or another operand has."""
        inside = {c for i in range(count) if subset >> i & 1 for c in labels[i]}
        others = [labels[i] for i in range(count) if not subset >> i & 1]
        return frozenset(inside.intersection("".join([output, *others])))

    @cache
    def best(subset: int) -> tuple[int, Tree]:
        if subset & (subset - 1) == 0:
            return 0, subset.bit_length() - 1
        lowest, found = subset & -subset, None
        half = (subset - 1) & subset
        while half:
            if half & lowest:  # of two halves the one with the first operand
                other = subset ^ half
                terms = prod([extents[c] for c in left(half) | left(other)])
                cost = best(half)[0] + best(other)[0] + terms
                if found is None or cost < found[0]:
                    found = cost, (best(half)[1], best(other)[1])
            half = (half - 1) & subset
        assert found is not None
        return found

    return best((1 << count) - 1)[1]


def _pairs(tree: Tree, count: int) -> list[Pair]:
    """The tree's contractions, those inside before those outside."""
    places: list[Tree] = list(range(count))
    found: list[Pair] = []

    def contract(node: Tree) -> None:
        if isinstance(node, int):
            return
        contract(node[0])
        contract(node[1])
        i, j = sorted((places.index(node[0]), places.index(node[1])))
        found.append((i, j))
        del places[j], places[i]
        places.append(node)

    contract(tree)
    return found


def _greedy(labels: Sequence[str], output: str, extents: Mapping[str, int]) -> list[Pair]:
    names = str.maketrans(dict(zip(extents, ascii_letters, strict=False)))
    text = ",".join(labels) + "->" + output
    shapes = [np.broadcast_to(np.empty(()), [extents[c] for c in part]) for part in labels]  # one element in memory
    path, _ = np.einsum_path(text.translate(names), *shapes, optimize=("greedy", ANY_SIZE))
    pairs: list[Pair] = []
    for group in path[1:]:  # of more than two where their order doesn't matter
        places = sorted(group)
        while len(places) > 1:
            pairs.append((places[0], places[1]))
            places = [*[place - 2 for place in places[2:]], len(labels) - len(pairs) - 1]
    return pairs
