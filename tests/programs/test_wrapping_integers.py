"""Random integer programs that wrap, as values and as indices of gathers and scatters, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
LANES = 120
Program = Callable[[Any, list[Any]], Any]
Step = Callable[[Any, list[Any]], Any]


def _same(xp: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Both in the dtype of the first."""
    return a, b.astype(a.dtype)


def _binary(function: Callable[[Any, Any, Any], Any], i: int, j: int) -> Step:
    return lambda xp, v: function(xp, *_same(xp, v[i], v[j]))


BINARY: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda xp, a, b: a + b,
    lambda xp, a, b: a - b,
    lambda xp, a, b: a * b,
    lambda xp, a, b: a // b,
    lambda xp, a, b: a % b,
    lambda xp, a, b: xp.fmod(a, b),
    lambda xp, a, b: a & b,
    lambda xp, a, b: a | b,
    lambda xp, a, b: a ^ b,
    lambda xp, a, b: a << (b & 15),
    lambda xp, a, b: a >> (b & 15),
    lambda xp, a, b: xp.minimum(a, b),
    lambda xp, a, b: xp.maximum(a, b),
    lambda xp, a, b: xp.where(a < b, a, b + 1),
    lambda xp, a, b: xp.where(a == b, b, a) - b,
    lambda xp, a, b: a ** (b & 3),
)
UNARY: tuple[Callable[[Any, Any, int], Any], ...] = (
    lambda xp, a, c: a + c,
    lambda xp, a, c: c - a,
    lambda xp, a, c: a * c,
    lambda xp, a, c: a // c,
    lambda xp, a, c: a % c,
    lambda xp, a, c: a & c,
    lambda xp, a, c: a | c,
    lambda xp, a, c: a ^ c,
    lambda xp, a, c: a >> (c & 7),
    lambda xp, a, c: a << (c & 7),
    lambda xp, a, c: -a,
    lambda xp, a, c: ~a,
    lambda xp, a, c: xp.abs(a),
    lambda xp, a, c: xp.sign(a),
    lambda xp, a, c: xp.clip(a, c // 2, c),
    lambda xp, a, c: (a > c).astype(a.dtype) + (a // 2),
    lambda xp, a, c: xp.maximum(a, c),
    lambda xp, a, c: xp.minimum(a, c),
)
WHOLE: tuple[Callable[[Any, Any], Any], ...] = (
    lambda xp, a: xp.cumsum(a, dtype=a.dtype),
    lambda xp, a: a[::-1],
    lambda xp, a: xp.broadcast_to(xp.sum(xp.reshape(a, (4, -1)), axis=0, dtype=a.dtype), (4, LANES // 4)).reshape(-1),
    lambda xp, a: xp.argsort(a, stable=True).astype(a.dtype),
    lambda xp, a: xp.concatenate([a[7:], a[:7]]),
    lambda xp, a: xp.sort(a),
)


def random_program(rng: np.random.Generator, arguments: int, whole: bool) -> Program:
    """Steps that each append a value; the last is the result."""
    steps: list[Step] = []
    for n in range(arguments, arguments + int(rng.integers(2, 8))):
        i, j = int(rng.integers(max(n - 3, 0), n)), int(rng.integers(n))
        kind = rng.random()
        if kind < 0.4:
            steps.append(_binary(BINARY[rng.integers(len(BINARY))], i, j))
        elif kind < 0.7:
            function, c = UNARY[rng.integers(len(UNARY))], int(rng.choice([1, 2, 3, 7, 37, 64, 100, 127]))
            steps.append(lambda xp, v, f=function, i=i, c=c: f(xp, v[i], c))
        elif kind < 0.9 or not whole:
            name = DTYPES[rng.integers(len(DTYPES))]
            steps.append(lambda xp, v, i=i, name=name: v[i].astype(getattr(xp, name)))
        else:
            moved = WHOLE[rng.integers(len(WHOLE))]
            steps.append(lambda xp, v, f=moved, i=i: f(xp, v[i]))

    def program(xp: Any, values: list[Any]) -> Any:
        held = list(values)
        for step in steps:
            held.append(step(xp, held))
        return held[-1]

    return program


def resolved(index: Any, extent: int) -> np.ndarray[Any, Any]:
    """Positions as they are meant: negative ones from the end; what is out of range stays so."""
    return np.array([int(i) + extent if int(i) < 0 else int(i) for i in np.asarray(index).ravel()], object)


def by_hand(x: Any, index: Any) -> tuple[Any, Any, Any]:
    """A gather that clamps, a scatter-add of 1, 2, ... that drops, and the gradient of the weighted gather."""
    where = resolved(index, len(x))
    weights = np.arange(1.0, len(where) + 1)
    added, slope = x.copy(), np.zeros_like(x)
    clamped = np.array([min(max(p, 0), len(x) - 1) for p in where], int)
    inside = np.array([0 <= p < len(x) for p in where], bool)
    np.add.at(added, clamped[inside], weights[inside])
    np.add.at(slope, clamped, weights)
    return x[clamped], added, slope


def any_integers(rng: np.random.Generator, name: str) -> np.ndarray[Any, Any]:
    limits = np.iinfo(name)
    data = rng.integers(limits.min, limits.max, LANES, dtype=name, endpoint=True)
    data[:4] = limits.min, limits.max, 0, 1
    return data


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_and_indices(device: str, seed: int) -> None:
    """Of the positions alone, of which much is known, for two seeds of three; of data as well for the third."""
    rng = np.random.default_rng(seed)
    first, second = "int8" if seed % 2 else DTYPES[rng.integers(len(DTYPES))], DTYPES[rng.integers(len(DTYPES))]
    data = any_integers(rng, second)
    program = random_program(rng, 2, whole=True)
    x = rng.normal(size=int(rng.choice([3, 50, 130, 300])))
    weights = np.arange(1.0, LANES + 1)

    def starts(xp: Any, data: Any) -> list[Any]:
        positions = xp.arange(LANES, dtype=getattr(xp, first))
        return [positions, data if seed % 3 == 0 else xp.arange(LANES, dtype=getattr(xp, second)) + 5]

    def run(data: Any, x: Any) -> Any:
        index = program(lg, starts(lg, data))
        return index, x[index], x.at[index].add(weights), lg.grad(lambda x: lg.sum(weights * x[index]))(x)

    expected = program(np, starts(np, data))
    results = [np.asarray(r) for r in lg.compile(run)(lg.asarray(data), lg.asarray(x))]
    assert results[0].dtype == expected.dtype
    np.testing.assert_array_equal(results[0], expected)
    for got, wanted in zip(results[1:], by_hand(x, expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_indices_in_loops(device: str, seed: int) -> None:
    """The counter, in any dtype and from any lower bound, runs through a random program and addresses a table."""
    rng = np.random.default_rng(1000 + seed)
    name = "int8" if seed % 4 == 0 else DTYPES[rng.integers(len(DTYPES))]
    name = "uint32" if seed % 2 and name == "uint64" else name  # Python bounds are int64
    limits = np.iinfo(name)
    low = max([limits.min, limits.max - 40, -5, 0, 3, 60][rng.integers(6)], limits.min)
    bounds = [low, min(low + int(rng.integers(1, 40)), limits.max)]
    other = rng.integers(limits.min, limits.max, dtype=name, endpoint=True)
    program = random_program(rng, 2, whole=False)
    x = rng.normal(size=int(rng.choice([3, 50, 130, 300])))
    numpy_starts = lambda k: [np.full((), k, name), np.asarray(other if seed % 3 == 0 else k, name)]
    indices = [program(np, numpy_starts(k)) for k in range(*bounds)]
    taken, _, slope = by_hand(x, np.array([int(i) for i in indices], object))

    def run(low: Any, high: Any, other: Any, x: Any) -> Any:
        def body(k: Any, total: Any) -> Any:
            weight = (k - low + 1).astype(lg.float64)
            k = k.astype(getattr(lg, name))  # of Python bounds it is an int64
            return total + weight * x[program(lg, [k, other if seed % 3 == 0 else k])]

        return lg.fori_loop(low, high, body, lg.asarray(0.0))

    given: list[Any] = [b if seed % 2 else lg.asarray(np.asarray(b, name)) for b in bounds]
    loss = lambda other, x: run(*given, other, x)
    value, gradient = lg.value_and_grad(loss, argnums=1)(lg.asarray(other), lg.asarray(x))
    np.testing.assert_allclose(float(value), np.sum(np.arange(1, len(taken) + 1) * taken), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(gradient), slope, rtol=1e-12)


EDGES = {
    "negative": lambda xp, x: -x,
    "size": lambda xp, x: xp.abs(x),
    "difference": lambda xp, x: xp.zeros_like(x) - x,
    "product": lambda xp, x: x * -1,
    "complement": lambda xp, x: ~x + 1,
}
USES = {
    "itself": lambda xp, v: v,
    "widened": lambda xp, v: v.astype(xp.int64) + 1,
    "float": lambda xp, v: v.astype(xp.float64),
    "compared": lambda xp, v: v < 0,
    "from the end": lambda xp, v: xp.where(v < 0, v + 3, v),
}


@pytest.mark.in_turns
@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_least_number_is_its_own_negative(device: str, name: str) -> None:
    """A compiler may take what comes from a negation, or a size, for a number that hasn't wrapped."""
    x = np.array([np.iinfo(name).min, np.iinfo(name).max, -1, 0, 1, 5], name)

    def run(xp: Any, x: Any) -> list[Any]:
        return [use(xp, edge(xp, x)) for edge in EDGES.values() for use in USES.values()]

    for got, wanted in zip(lg.compile(lambda x: run(lg, x))(lg.asarray(x)), run(np, x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted)
    for edge in EDGES.values():  # and in a kernel of its own
        for use in USES.values():
            np.testing.assert_array_equal(np.asarray(use(lg, edge(lg, lg.asarray(x)))), use(np, edge(np, x)))
