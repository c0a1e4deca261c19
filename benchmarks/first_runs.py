"""python -m benchmarks.first_runs [--count 500] [--seed 0]: expressions that nobody has seen, against NumPy.

Each row runs so many different small expressions once: other operations, shapes or dtypes each time. Shown are the
microseconds of one (processor time of this thread: a busy machine changes it less), NumPy's for the same lines, their
ratio, and how many programs were compiled. `--compiled` compiles each before it runs. What prebuilt functions cost that
no process of this machine has needed before isn't counted: the row `functions` runs each once beforehand.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import loopgrad as lg
from loopgrad.runtime.session import SESSION

Expression = Callable[[Any], Any]
DTYPES = ("int32", "int64", "float32", "float64")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "less", "equal")
UNARY = ("negative", "abs", "square", "sign")
FUNCTIONS = ("exp", "sin", "log1p", "tanh", "sqrt", "arctan")
SUMS = ("sum", "mean", "var", "max", "prod", "cumsum")


def drawn(rng: np.random.Generator, most: int = 6) -> np.ndarray:
    shape = tuple(rng.integers(1, most, rng.integers(0, 4)).tolist())
    return np.asarray(rng.uniform(0.5, 3.0, shape)).astype(rng.choice(DTYPES))


def elementwise(rng: np.random.Generator) -> tuple[Expression, list[np.ndarray]]:
    first, second, third = (str(name) for name in rng.choice(BINARY[:5], 3))
    unary, a = str(rng.choice(UNARY)), drawn(rng)
    b = np.asarray(rng.uniform(0.5, 3.0, a.shape)).astype(a.dtype)

    def run(xp: Any, x: Any, y: Any) -> Any:
        return getattr(xp, third)(getattr(xp, first)(x, y), getattr(xp, second)(getattr(xp, unary)(x), y))

    return run, [a, b]  # type: ignore[return-value]


def movement(rng: np.random.Generator) -> tuple[Expression, list[np.ndarray]]:
    a, shift = drawn(rng, 8), int(rng.integers(0, 5))

    def run(xp: Any, x: Any) -> Any:
        y = xp.concatenate([xp.ravel(x), xp.roll(xp.ravel(x.T), shift)])
        return xp.stack([y[::-1], y * 2])[:, :shift]

    return run, [a]  # type: ignore[return-value]


def functions(rng: np.random.Generator) -> tuple[Expression, list[np.ndarray]]:
    one, other = (str(name) for name in rng.choice(FUNCTIONS, 2))
    a = drawn(rng).astype(np.float64)

    def run(xp: Any, x: Any) -> Any:
        return getattr(xp, one)(x) + getattr(xp, other)(x * 0.5)

    return run, [a]  # type: ignore[return-value]


def sums(rng: np.random.Generator) -> tuple[Expression, list[np.ndarray]]:
    name, a = str(rng.choice(SUMS)), drawn(rng).astype(np.float64)
    axis = int(rng.integers(0, a.ndim)) if a.ndim else None

    def run(xp: Any, x: Any) -> Any:
        return getattr(xp, name)(x * 1.5, axis=axis) if axis is not None else x * 1.5

    return run, [a]  # type: ignore[return-value]


def large(rng: np.random.Generator) -> tuple[Expression, list[np.ndarray]]:
    """Ten multiply-adds of 100,000 elements, each time of another length."""
    a = rng.uniform(0.5, 1.0, 100_000 + int(rng.integers(0, 10_000)))

    def run(xp: Any, x: Any) -> Any:
        y = x
        for _ in range(10):
            y = y * x + 0.5
        return y

    return run, [a]


def loops(rng: np.random.Generator) -> tuple[Expression, list[np.ndarray]]:
    """Twenty trips, each time over another length."""
    a = rng.uniform(0.5, 1.0, int(rng.integers(2, 5_000)))

    def run(xp: Any, x: Any) -> Any:
        if xp is lg:
            return lg.fori_loop(0, 20, lambda _i, v: v * 0.5 + x, x)
        v = x
        for _ in range(20):
            v = v * 0.5 + x
        return v

    return run, [a]


ROWS: dict[str, Callable[[np.random.Generator], Any]] = {
    "elementwise": elementwise,
    "movement": movement,
    "functions": functions,
    "sums": sums,
    "large arrays": large,
    "loops of 20 trips": loops,
}


def measured(make: Callable[[np.random.Generator], Any], count: int, seed: int) -> tuple[float, float, int]:
    """Microseconds of one expression, NumPy's, and compiled programs."""
    rng = np.random.default_rng(seed)
    cases = [make(rng) for _ in range(count)]
    inputs = [[lg.asarray(a) for a in arrays] for _, arrays in cases]
    for (run, _), arrays in zip(cases[: count // 5], inputs, strict=False):
        np.asarray(run(lg, *arrays))  # functions made beforehand, pages touched
    SESSION.clear()
    before, ours = SESSION.compiled, time.thread_time()
    for (run, _), arrays in zip(cases, inputs, strict=True):
        np.asarray(run(lg, *arrays))
    ours, numpy = time.thread_time() - ours, time.thread_time()
    for run, arrays in cases:
        run(np, *arrays)
    numpy = time.thread_time() - numpy
    return ours / count * 1e6, numpy / count * 1e6, SESSION.compiled - before


def scalars(count: int) -> tuple[float, float, int]:
    """Microseconds of making an array of so many lazy scalars."""
    x, a = lg.asarray(np.arange(float(count))), np.arange(float(count))
    before, found = SESSION.compiled, []
    ours = time.thread_time()
    np.asarray(lg.asarray([x[i] * 2.0 for i in range(count)]))
    found.append(time.thread_time() - ours)
    numpy = time.thread_time()
    np.asarray([a[i] * 2.0 for i in range(count)])
    found.append(time.thread_time() - numpy)
    return found[0] * 1e6, found[1] * 1e6, SESSION.compiled - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true", help="compile each before it runs")
    given = parser.parse_args()
    print(f"{'':24}{'ours us':>10}{'NumPy us':>10}{'ratio':>8}{'compiled':>10}")
    with lg.options(direct=not given.compiled), np.errstate(all="ignore"):
        results = {name: measured(make, given.count, given.seed) for name, make in ROWS.items()}
        results["array of 1,000 scalars"] = scalars(1000)
    for name, (ours, numpy, compiled) in results.items():
        print(f"{name:24}{ours:10.1f}{numpy:10.1f}{ours / numpy:8.1f}{compiled:10}")


if __name__ == "__main__":
    main()
