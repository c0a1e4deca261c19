"""Orders of contractions against a search through all of them, and what einsum makes of them against NumPy."""

from functools import cache
from itertools import combinations, pairwise
from math import prod

import numpy as np

import loopgrad as lg
from loopgrad.lazy.numpy.contraction_order import EXACT, contraction_order

PROGRAMS = [
    "ab,bc,cd,de,ef->af",  # chains
    "ab,bc,cd,de,ef,fg,gh->ah",
    "ab,bc,cd,de,ef,fg,gh,hi->ai",
    "abc,cd,bde,ef,afg,gh->dh",
    "ab,ab,bc,cd,da,ae->e",
    "az,bz,cz,dz,ez,abcde->z",
    "ab,cd,ef,bd,fa,ce->",
]


def drawn(program: str, seed: int) -> tuple[list[str], str, dict[str, int]]:
    left, output = program.split("->")
    rng = np.random.default_rng(seed)
    letters = sorted(set(left) - {","})
    return left.split(","), output, {c: int(rng.integers(2, 9)) for c in letters}


def cost(labels: list[str], output: str, extents: dict[str, int], order: list[tuple[int, int]]) -> int:
    """Multiplications."""
    left, total = [frozenset(part) for part in labels], 0
    for i, j in order:
        assert i < j
        y, x = left.pop(j), left.pop(i)
        total += prod([extents[c] for c in x | y])
        left.append((x | y).intersection(set(output).union(*left)))
    assert len(left) == 1
    return total


def cheapest(labels: list[str], output: str, extents: dict[str, int]) -> int:
    """By trying all orders."""

    @cache
    def of(left: tuple[frozenset[str], ...]) -> int:
        found = []
        for i, j in combinations(range(len(left)), 2):
            rest = [part for k, part in enumerate(left) if k not in (i, j)]
            both = left[i] | left[j]
            kept = both.intersection(set(output).union(*rest))
            found.append(prod([extents[c] for c in both]) + of(tuple(sorted([*rest, kept], key=sorted))))
        return min(found, default=0)

    return of(tuple(sorted([frozenset(part) for part in labels], key=sorted)))


def test_no_order_is_cheaper():
    for program in PROGRAMS:
        for seed in range(2 if program.count(",") < 6 else 1):
            labels, output, extents = drawn(program, seed)
            order = contraction_order(labels, output, extents)
            assert cost(labels, output, extents, order) == cheapest(labels, output, extents), program


def test_many_operands_are_contracted_in_some_good_order():
    names = [chr(ord("a") + i) for i in range(EXACT + 4)]
    labels = [x + y for x, y in pairwise(names)]
    extents = dict.fromkeys(names, 5)
    order = contraction_order(labels, names[0] + names[-1], extents)
    assert cost(labels, names[0] + names[-1], extents, order) == (len(labels) - 1) * 5**3


def test_einsum_by_these_orders():
    for seed, program in enumerate(PROGRAMS):
        labels, _, extents = drawn(program, seed)
        arrays = [np.random.default_rng(i).normal(size=[extents[c] for c in part]) for i, part in enumerate(labels)]
        got = np.asarray(lg.einsum(program, *map(lg.asarray, arrays)))
        wanted = np.einsum(program, *arrays, optimize=True)
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10 * np.abs(wanted).max(), err_msg=program)
