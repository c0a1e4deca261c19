"""Functions of arrays at sizes that no other test has, against NumPy: values, and derivatives by differences.

python tests/programs/random_sizes.py --device cuda:0 --seconds 60 --seed 7 [--gradients] [--names cholesky,fft]

Extents are those at which code changes its form, and their neighbours: vectors, tiles, workgroups, rows in registers,
blocks of factorisations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

import loopgrad as lg

EXTENTS: Final = (
    *(1, 2, 3, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 40, 48, 63, 64, 65, 96, 100, 127, 128, 129, 200, 255, 256),
    *(257, 300, 511, 512, 513, 700, 1000, 1023, 1024, 1025, 2000, 2047, 2049, 4096, 5000),
)  # fmt: skip
DTYPES: Final = ("float32", "float64", "int32", "int64", "int16", "uint8", "float16")
TOLERANCE: Final = {"float32": 2e-3, "float16": 2e-2, "complex64": 2e-3}
STEP: Final = 1e-6


class Case(NamedTuple):
    """A function of a module and arrays; its value may be off by so much of its largest element."""

    arguments: list[np.ndarray]
    function: Callable[..., Any]
    tolerance: float


class Sizes:
    """Draws shapes, arrays and cases."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def extent(self, most: int) -> int:
        return int(self.random.choice([e for e in EXTENTS if e <= most]))

    def shape(self, most: int, rank: int = 0) -> tuple[int, ...]:
        found: list[int] = []
        for _ in range(rank or int(self.random.integers(1, 4))):
            found.append(self.extent(max(1, most // int(np.prod(found, initial=1)))))
        self.random.shuffle(found)
        return tuple(found)

    def array(self, shape: tuple[int, ...], dtype: str = "float64") -> np.ndarray:
        kind = np.dtype(dtype).kind
        if kind == "f":
            return self.random.standard_normal(shape).astype(dtype)
        if kind == "c":
            return (self.random.standard_normal(shape) + 1j * self.random.standard_normal(shape)).astype(dtype)
        return self.random.integers(-50 if kind == "i" else 0, 50, shape).astype(dtype)

    def axis(self, shape: tuple[int, ...]) -> int:
        return int(self.random.integers(-len(shape), len(shape)))

    def float_dtype(self) -> str:
        return str(self.random.choice(["float32", "float64"]))

    def positive(self, n: int, batch: tuple[int, ...], dtype: str) -> np.ndarray:
        a = self.random.standard_normal((*batch, n, n))
        return (a @ a.swapaxes(-1, -2) / n + np.eye(n)).astype(dtype)

    def along(self, function: Callable[..., Any], most: int = 200_000) -> Case:
        """A function of an array and an axis, of any dtype."""
        shape, dtype = self.shape(most), str(self.random.choice(DTYPES))
        axis = self.axis(shape)
        return Case([self.array(shape, dtype)], lambda m, a: function(m, a, axis), 1e-6)

    def summed(self, function: Callable[..., Any], looser: float = 1.0) -> Case:
        shape, dtype = self.shape(300_000), self.float_dtype()
        axis = self.axis(shape)
        return Case([self.array(shape, dtype)], lambda m, a: function(m, a, axis), looser * tolerance(dtype))

    def factorised(self, function: Callable[..., Any], symmetric: bool = True) -> Case:
        n, dtype = self.extent(100), self.float_dtype()
        batch = (self.extent(40),) if n < 48 and self.random.random() < 0.5 else ()
        shape = (*batch, self.extent(60), n)
        a = self.positive(n, batch, dtype) if symmetric else self.array(shape, dtype)
        return Case([a], function, tolerance(dtype))


def tolerance(dtype: str) -> float:
    return TOLERANCE.get(dtype, 1e-8)


def running(name: str) -> Callable[..., Any]:
    plain = {"cumsum": np.cumsum, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}[name]
    return lambda m, a, axis: plain(a, axis=axis) if m is np else getattr(lg, name)(a, axis=axis)


def scattered(m: Any, table: Any, index: Any, updates: Any) -> Any:
    if m is lg:
        return table.at[index].add(updates)
    table = table.copy()
    np.add.at(table, index, updates)
    return table


def attended(m: Any, q: Any, k: Any, v: Any) -> Any:
    if m is lg:
        return lg.attention(q, k, v)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def convolved(m: Any, a: Any, b: Any) -> Any:
    if m is lg:
        return lg.conv(a, b)
    windows = np.lib.stride_tricks.sliding_window_view(a, b.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, b)


def softmax(m: Any, a: Any, axis: int) -> Any:
    e = m.exp(a - m.max(a, axis=axis, keepdims=True))
    return e / m.sum(e, axis=axis, keepdims=True)


def product(s: Sizes) -> Case:
    dtype, (m, k, n) = s.float_dtype(), (s.extent(300) for _ in range(3))
    arrays = [s.array(shape, dtype) for shape in ((k, m), (n, k), (n,))]
    return Case(arrays, lambda x, a, b, c: x.tanh(a.T @ b.T / 30 + c), tolerance(dtype))


def scatter(s: Sizes) -> Case:
    n, k, width = s.extent(5000), s.extent(5000), s.extent(40)
    return Case([s.array((n, width)), s.random.integers(0, n, k), s.array((k, width))], scattered, 1e-9)


def attention(s: Sizes) -> Case:
    batch, q, k, d = (s.extent(3), s.extent(4)), s.extent(200), s.extent(200), s.extent(65)
    return Case([s.array((*batch, n, d)) for n in (q, k, k)], attended, 1e-8)


def convolution(s: Sizes) -> Case:
    k = int(s.random.choice([1, 2, 3, 5]))
    n, channels, filters, height, width = s.extent(5), s.extent(9), s.extent(17), s.extent(48), s.extent(48)
    x = s.array((n, channels, max(height, k), max(width, k)))
    return Case([x, s.array((filters, channels, k, k))], convolved, 1e-9)


def moved(s: Sizes) -> Case:
    shape, order = s.shape(300_000, 3), tuple(map(int, s.random.permutation(3)))
    return Case([s.array(shape, str(s.random.choice(DTYPES)))], lambda m, a: m.transpose(a, order), 0.0)


def strided(s: Sizes) -> Case:
    shape = s.shape(300_000)
    where = tuple([slice(int(s.random.integers(0, n)), None, int(s.random.integers(1, 4))) for n in shape])
    return Case([s.array(shape)], lambda m, a: a[where] + 1, 1e-12)


def searched(s: Sizes) -> Case:
    keys, places = np.sort(s.array((s.extent(5000),))), s.array((s.extent(5000),))
    return Case([keys, places], lambda m, a, v: m.searchsorted(a, v), 0.0)


CASES: Final[dict[str, Callable[[Sizes], Case]]] = {
    "cholesky": lambda s: s.factorised(lambda m, a: m.linalg.cholesky(a)),
    "solve": lambda s: s.factorised(lambda m, a: m.linalg.solve(a, a[..., ::-1, :1])),
    "inv": lambda s: s.factorised(lambda m, a: m.linalg.inv(a + 0.5 * a)),
    "slogdet": lambda s: s.factorised(lambda m, a: m.linalg.slogdet(a)[1]),
    "eigvalsh": lambda s: s.factorised(lambda m, a: m.linalg.eigvalsh(a)),
    "qr": lambda s: s.factorised(lambda m, a: (lambda q, r: q @ r)(*m.linalg.qr(a)), symmetric=False),
    "svd": lambda s: s.factorised(lambda m, a: m.linalg.svd(a, compute_uv=False), symmetric=False),
    "product": product,
    "sort": lambda s: s.along(lambda m, a, axis: m.sort(a, axis=axis)),
    "argsort": lambda s: s.along(lambda m, a, axis: m.argsort(a, axis=axis, stable=True)),
    "argmax": lambda s: s.along(lambda m, a, axis: m.argmax(a, axis=axis)),
    "flip": lambda s: s.along(lambda m, a, axis: m.flip(a, axis=axis)),
    "roll": lambda s: s.along(lambda m, a, axis: m.roll(a, 3, axis=axis)),
    "sum": lambda s: s.summed(lambda m, a, axis: m.sum(a, axis=axis)),
    "var": lambda s: s.summed(lambda m, a, axis: m.var(a, axis=axis)),
    "median": lambda s: s.summed(lambda m, a, axis: m.median(a, axis=axis)),
    "softmax": lambda s: s.summed(softmax),
    "cumsum": lambda s: s.summed(running("cumsum"), 20.0),
    "cummax": lambda s: s.summed(running("cummax")),
    "transpose": moved, "strided": strided, "searchsorted": searched, "scatter": scatter,
    "attention": attention, "conv": convolution,
    "fft": lambda s: Case([s.array(s.shape(60_000), "complex128")], lambda m, a: m.fft.fft(a), 1e-8),
    "rfft": lambda s: Case([s.array(s.shape(60_000))], lambda m, a: m.fft.rfft(a), 1e-8),
}  # fmt: skip
UNEVEN: Final = ("argsort", "argmax", "searchsorted", "sort", "median", "cummax", "fft", "rfft")  # or equal elements


def differs(case: Case) -> str:
    """What loopgrad's value has wrong; nothing where it is right."""
    with np.errstate(all="ignore"):
        wanted = np.asarray(case.function(np, *case.arguments))
    given = [lg.asarray(a) for a in case.arguments]
    found = np.asarray(lg.compile(lambda *v: case.function(lg, *v))(*given))
    if found.shape != wanted.shape:
        return f"shape {found.shape} in place of {wanted.shape}"
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    right = np.isclose(found, wanted, rtol=max(case.tolerance, 1e-12), atol=case.tolerance * scale, equal_nan=True)
    return "" if right.all() else f"{np.count_nonzero(~right)} of {wanted.size} elements"


def slopes(case: Case, s: Sizes) -> tuple[float, float] | None:
    """A derivative along a random direction: loopgrad's, and by differences. None where these aren't exact enough."""
    arguments = [a.astype("float64") if a.dtype.kind == "f" else a for a in case.arguments]
    ways = {k: s.array(a.shape) for k, a in enumerate(arguments) if a.dtype.kind == "f"}
    if not ways:
        return None
    weights = s.array(np.shape(case.function(np, *arguments)))

    def at(step: float) -> float:
        there = [a + step * ways[k] if k in ways else a for k, a in enumerate(arguments)]
        return float(np.sum(case.function(np, *there) * weights))

    near, far = (at(STEP) - at(-STEP)) / (2 * STEP), (at(2 * STEP) - at(-2 * STEP)) / (4 * STEP)
    if not abs(near - far) <= 1e-5 * (1 + abs(near)):
        return None
    loss = lambda *v: lg.sum(case.function(lg, *v) * weights)
    found = lg.compile(lg.grad(loss, argnums=tuple(ways)))(*[lg.asarray(a) for a in arguments])
    return sum(float(np.sum(np.asarray(g) * ways[k])) for g, k in zip(found, ways, strict=True)), near


def checked(seed: int, names: tuple[str, ...], gradients: bool) -> Iterator[str]:
    """What is wrong with the case of a seed."""
    s = Sizes(seed)
    name = str(s.random.choice(names))
    case = CASES[name](s)
    what = f"seed {seed}: {name} of {', '.join(f'{a.dtype}{list(a.shape)}' for a in case.arguments)}"
    if gradients:
        found = slopes(case, s) if name not in UNEVEN else None
        if found is not None and not abs(found[0] - found[1]) <= 2e-4 * (1 + abs(found[1])):
            yield f"{what}: slope {found[0]} in place of {found[1]}"
    elif wrong := differs(case):
        yield f"{what}: {wrong}"


def main() -> None:
    """Check seeds for as long as the command line says."""
    parser = argparse.ArgumentParser(description="check functions at random sizes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--names", default=",".join(CASES), help="functions joined by commas")
    parser.add_argument("--gradients", action="store_true")
    chosen = parser.parse_args()
    end, seed, failures = time.monotonic() + chosen.seconds, chosen.seed, 0
    with lg.default_device(chosen.device):
        while time.monotonic() < end:
            for text in checked(seed, tuple(chosen.names.split(",")), chosen.gradients):
                failures += 1
                print(text, flush=True)
            seed += 1
    print(f"{seed - chosen.seed} cases, {failures} failures")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
