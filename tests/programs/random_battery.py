"""Tests of random bits by themselves: a battery that knows nothing of how they were made.

    python tests/programs/random_battery.py --words 24        # 2**24 words of each arrangement

Each test takes words of 32 bits and gives p-values, uniform on [0, 1] for independent fair bits. A battery fails where
a p-value times the number of p-values is below 1e-4. `ARRANGEMENTS` are the ways in which `lg.random` hands out words:
lanes of one draw, steps of one lane, steps of all lanes, keys one after the other, children, and the same by bits in
the order of another significance. `WEAK` are generators that must fail.

After Knuth (TAOCP 2, 3.3.2), Marsaglia (DIEHARD: matrix ranks, birthday spacings), L'Ecuyer and Simard (TestU01: linear
complexity, autocorrelation, Hamming weights).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from math import erfc, sqrt
from typing import Any

import numpy as np
from scipy import stats

import loopgrad as lg

Words = np.ndarray[Any, np.dtype[np.uint32]]
FAILED = 1e-4


def normal_p(z: Any) -> list[float]:
    """Two-sided p-values of standard normal numbers."""
    return [erfc(abs(float(x)) / sqrt(2.0)) for x in np.atleast_1d(z)]


def chi_square_p(found: Any, shares: Any) -> float:
    """Of counts in cells with these probabilities; cells that expect little are joined."""
    expected = np.asarray(shares, np.float64) * np.sum(found)
    order = np.argsort(expected)
    cells = np.cumsum(expected[order]) // 10.0
    cells = np.minimum(cells, cells[-1] - 1) if cells[-1] else cells
    _, group = np.unique(cells, return_inverse=True)
    counts, wanted = np.bincount(group, np.asarray(found)[order]), np.bincount(group, expected[order])
    return float(stats.chi2.sf(((counts - wanted) ** 2 / wanted).sum(), len(wanted) - 1)) if len(wanted) > 1 else 1.0


def bits_of(words: Words) -> np.ndarray[Any, Any]:
    return np.unpackbits(words.view(np.uint8), bitorder="little").reshape(-1, 32)


# ---- tests


def ones_in_each_place(words: Words) -> list[float]:
    ones = bits_of(words).sum(axis=0)
    return normal_p((2.0 * ones - len(words)) / np.sqrt(len(words)))


def bytes_and_pairs(words: Words) -> list[float]:
    data = words.view(np.uint8)
    pairs = data[:-1].astype(np.uint32) << 8 | data[1:]
    far = data[:-4].astype(np.uint32) << 8 | data[4:]
    counts = [np.bincount(data, minlength=256), *[np.bincount(x, minlength=65536) for x in (pairs[::2], far[::8])]]
    return [chi_square_p(c, np.full(len(c), 1.0 / len(c))) for c in counts]


def agreement_with_later_bits(words: Words) -> list[float]:
    """Of the stream of bits with itself, shifted; and of words with later words."""
    bits, z = bits_of(words).reshape(-1), []
    for lag in (1, 2, 3, 7, 31, 32, 33, 64):
        n = len(bits) - lag
        z.append((2.0 * np.count_nonzero(bits[lag:] != bits[:-lag]) - n) / np.sqrt(n))
    for lag in (1, 2, 4, 5, 16, 64, 256, 1024):
        ones = np.bitwise_count(words[lag:] ^ words[:-lag]).sum(dtype=np.int64)
        n = 32 * (len(words) - lag)
        z.append((2.0 * ones - n) / np.sqrt(n))
    return normal_p(z)


def weights_of_neighbours(words: Words) -> list[float]:
    """How many ones three successive words have, each few, as many as not, or many."""
    share = np.array([stats.binom(32, 0.5).cdf(14), 0.0, stats.binom(32, 0.5).sf(17)])
    share[1] = 1.0 - share.sum()
    kind = np.digitize(np.bitwise_count(words), [15, 18])
    p = []
    for lag in (1, 4):
        n = len(kind) // (3 * lag) * 3 * lag
        rows = kind[:n].reshape(-1, 3, lag)
        cells = (rows[:, 0] * 9 + rows[:, 1] * 3 + rows[:, 2]).reshape(-1)
        p.append(chi_square_p(np.bincount(cells, minlength=27), np.kron(np.kron(share, share), share)))
    return p


def gaps(words: Words) -> list[float]:
    """How far apart words are whose upper bits are small, and whose lower bits are."""
    p = []
    for hits in (np.flatnonzero(words < 1 << 28), np.flatnonzero(words & 15 == 0)):
        found = np.bincount(np.minimum(np.diff(hits) - 1, 100), minlength=101)
        shares = np.append(np.full(100, 1 / 16) * (15 / 16) ** np.arange(100), (15 / 16) ** 100)
        p.append(chi_square_p(found, shares))
    return p


def runs_and_extremes(words: Words) -> list[float]:
    """Orders of five successive words (their 120 permutations), and the largest of eight."""
    rows = words[: len(words) // 5 * 5].reshape(-1, 5)
    order = np.argsort(rows, axis=1, kind="stable") @ (5 ** np.arange(5))
    kinds, found = np.unique(order, return_counts=True)
    p = [chi_square_p(found, np.full(120, 1 / 120)) if len(kinds) == 120 else 0.0]
    top = (words[: len(words) // 8 * 8].reshape(-1, 8).max(axis=1) / 2.0**32) ** 8
    return [*p, float(stats.kstest(top[: 1 << 18], "uniform").pvalue)]


def birthday_spacings(words: Words) -> list[float]:
    """Equal distances among 4,096 birthdays in a year of 2**32 days: 4 of them on average, of many years."""
    p = []
    for year in (words, words.byteswap()):
        days = np.sort(year[: len(year) // 4096 * 4096].reshape(-1, 4096)[:2000], axis=1).astype(np.int64)
        spacing = np.sort(np.diff(days, axis=1), axis=1)
        equal = (np.diff(spacing, axis=1) == 0).sum(axis=1)
        mean = 4096.0**3 / 2.0**34
        shares = [*stats.poisson(mean).pmf(np.arange(15)), stats.poisson(mean).sf(14)]
        p.append(chi_square_p(np.bincount(np.minimum(equal, 15), minlength=16), shares))
    return p


def matrix_ranks(words: Words) -> list[float]:
    """Ranks of matrices of 32 words over the field of two elements."""
    rows = words[: len(words) // 32 * 32].reshape(-1, 32)[: 1 << 14].copy()
    rank = np.zeros(len(rows), np.int64)
    used = np.zeros(rows.shape, bool)
    for bit in range(32):
        has = (rows >> bit & 1).astype(bool) & ~used
        pivot, found = has.argmax(axis=1), has.any(axis=1)
        line = rows[np.arange(len(rows)), pivot]
        others = (rows >> bit & 1).astype(bool)
        others[np.arange(len(rows)), pivot] = False
        rows ^= np.where(others & found[:, None], line[:, None], 0).astype(np.uint32)
        used[np.flatnonzero(found), pivot[found]] = True
        rank += found
    shares = [0.288788, 0.577576, 0.128350]
    found = np.bincount(np.clip(32 - rank, 0, 3), minlength=4)
    return [chi_square_p(found, [*shares, 1.0 - sum(shares)])]


def linear_complexity(words: Words) -> list[float]:
    """Of the sequences of the lowest and the highest bits: half their length, give or take a few (Rueppel)."""
    z = []
    for bit in (0, 31):
        sequence = (words[: 1 << 12] >> bit & 1).astype(np.uint8)
        z.append((_complexity(sequence) - (len(sequence) / 2 + 2 / 9)) / sqrt(86 / 81))
    return [min(1.0, 2.0 * 2.0 ** (-2.0 * abs(x))) for x in z]  # its tails are geometric


def _complexity(s: np.ndarray[Any, Any]) -> int:
    """Berlekamp and Massey's algorithm."""
    c, b = np.zeros(len(s) + 1, np.uint8), np.zeros(len(s) + 1, np.uint8)
    c[0] = b[0] = 1
    length, last = 0, -1
    for i in range(len(s)):
        if int(s[i]) ^ (int((c[1 : length + 1] & s[i - length : i][::-1]).sum()) & 1):
            before = c.copy()
            c[i - last :] ^= b[: len(c) - (i - last)]
            if 2 * length <= i:
                length, last, b = i + 1 - length, i, before
    return length


TESTS: list[Callable[[Words], list[float]]] = [
    ones_in_each_place, bytes_and_pairs, agreement_with_later_bits, weights_of_neighbours, gaps, runs_and_extremes,
    birthday_spacings, matrix_ranks, linear_complexity,
]  # fmt: skip


def battery(words: Words) -> dict[str, float]:
    """The smallest p-value of each test, times how many it made."""
    found = {test.__name__: test(words) for test in TESTS}
    return {name: min(1.0, min(p) * len(p)) for name, p in found.items()}


def failures(words: Words) -> dict[str, float]:
    """Tests that fail, of a battery."""
    return {name: p for name, p in battery(words).items() if not p > FAILED / len(TESTS)}


# ---- what is tested


def _words(raw: Any) -> Words:
    return np.ascontiguousarray(np.asarray(raw)).reshape(-1).view(np.uint32)


def _steps(lanes: int, steps: int) -> Words:
    def step(k: Any, state: Any) -> Any:
        found, stream = state
        word, stream = stream.integers(0, 2**64 - 1, dtype=lg.uint64, endpoint=True)
        return found.at[k].set(word), stream

    start = (lg.zeros((steps, lanes), dtype=lg.uint64), lg.random.Generator(1).stream(lanes))
    return _words(lg.compile(lambda s: lg.fori_loop(0, steps, step, s)[0])(start))


def _keys(count: int) -> Words:
    draw = lg.vmap(lambda key: lg.random.Generator(lg.random.Philox4x32(key=key)).bit_generator.random_raw())
    return _words(lg.compile(draw)(np.arange(count, dtype=np.uint64)))


def arrangements(count: int) -> Iterator[tuple[str, Words]]:
    """Words as they are handed out; two of 32 bits for each number."""
    half = count // 2
    rng = lg.random.Generator(1)
    lanes = _words(rng.bit_generator.random_raw(half))
    yield "lanes of a draw", lanes
    yield "lanes, bits reversed", np.packbits(bits_of(lanes)[:, ::-1], bitorder="little").view(np.uint32)
    short = [rng.bit_generator.random_raw(64) for _ in range(64)]
    yield "draws of 64", np.resize(_words(np.stack([np.asarray(x) for x in short])), 8192)
    yield "steps of a lane", _steps(1, min(half, 1 << 17))
    yield "steps of 64 lanes", _steps(64, half // 64)
    yield "keys one after the other", _keys(half)
    yield "NumPy's order of Philox-4x64", _words(lg.random.Philox4x64(1).random_raw(half))
    yield (
        "the generator's other blocks of Philox-4x64",
        _words(
            lg.random.Generator(lg.random.Philox4x64(1)).integers(
                0, 2**64 - 1, size=half, dtype=lg.uint64, endpoint=True
            )
        ),
    )


def weak(count: int) -> Iterator[tuple[str, Words]]:
    """Generators that must fail."""
    n = np.arange(count, dtype=np.uint64)
    yield "a counter", n.astype(np.uint32)
    yield "multiplied counters", ((n * np.uint64(6364136223846793005)) >> np.uint64(32)).astype(np.uint32)
    powers = np.array([pow(1664525, int(k), 1 << 32) for k in range(256)], np.uint64)
    lcg, state = np.empty(count, np.uint32), 1
    sums = np.array([sum(pow(1664525, i, 1 << 32) for i in range(int(k))) % (1 << 32) for k in range(256)], np.uint64)
    for i in range(0, count, 256):
        part = (powers * np.uint64(state) + sums * np.uint64(1013904223)) % np.uint64(1 << 32)
        lcg[i : i + 256] = part[: count - i].astype(np.uint32)
        state = (1664525 * int(part[-1]) + 1013904223) % (1 << 32)
    yield "a congruential generator of 32 bits", lcg
    shift, x = np.empty(min(count, 1 << 16), np.uint32), 2463534242
    for i in range(len(shift)):
        x ^= x << 13 & 0xFFFFFFFF
        x ^= x >> 17
        x ^= x << 5 & 0xFFFFFFFF
        shift[i] = x
    yield "xorshift of 32 bits", shift
    biased = np.random.default_rng(0).integers(0, 2**32, count, np.uint32)
    yield "one word of 64 copied", np.where(n % np.uint64(64) == 63, np.roll(biased, 4), biased)


def main() -> int:
    parser = argparse.ArgumentParser(description="a battery of tests of lg.random's bits")
    parser.add_argument("--words", type=int, default=22, help="the logarithm of how many words each arrangement has")
    count = 1 << parser.parse_args().words
    bad = 0
    for name, words in arrangements(count):
        found = battery(words)
        bad += any(p <= FAILED / len(TESTS) for p in found.values())
        print(f"{name} ({len(words):,} words)")
        print("".join(f"    {test:28} {p:.2g}\n" for test, p in found.items()), end="", flush=True)
    print(f"{bad} arrangements failed")
    return bad


if __name__ == "__main__":
    sys.exit(main())
