"""Programs whose extents were left open, at sizes where decisions come out otherwise, against those made from scratch:
the records and texts have to be equal, and so have the numbers in the code's table.

python tests/programs/random_extents.py --count 500 --seed 7

A program is drawn once and built for many sizes: elementwise operations, reductions, products, running totals,
indexing, joining, loops and derivatives of arrays whose extents follow from two numbers. No machine code is made.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

import loopgrad as lg
from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.targets.cpu.open_numbers import numbered
from loopgrad.codegen.targets.cpu.open_program import OpenProgram
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord
from loopgrad.graph.build import unbound
from loopgrad.graph.complex_pairs import in_pairs
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph
from loopgrad.runtime.cpu.device import without_code
from loopgrad.runtime.cpu.other_extents import OtherExtents
from loopgrad.runtime.cpu.shared_code import SharedCode

EXTENTS: Final = (
    *(0, 1, 2, 3, 7, 8, 15, 31, 32, 33, 63, 64, 100, 255, 256, 257, 511, 1000, 1023, 1024, 1500, 4095, 4096, 5000),
    *(8191, 9999, 16384, 30000, 65535, 65536, 65537),
)
FEW: Final = (1, 2, 3, 7, 8, 16, 31, 32, 33, 100)
DTYPES: Final = ("float64", "float32", "int64", "int32")

Made = Artifact[CpuProgramRecord]
Build = Callable[[int, int], Any]
"""The program's result, lazily, for the two numbers."""


class Drawn(NamedTuple):
    """A program, and what it is made of."""

    build: Build
    parts: tuple[str, ...]


def drawn(random: np.random.Generator) -> Drawn:
    """Some steps one after the other on an array of n, or of n and m, elements."""
    rank, dtype = int(random.integers(1, 3)), str(random.choice(DTYPES))
    names = [str(name) for name in random.choice(list(STEPS), size=int(random.integers(1, 5)))]
    numbers = [float(number) for number in random.uniform(-2.0, 2.0, len(names)).round(2)]
    derived = bool(random.random() < 0.3) and dtype.startswith("float")

    def value(x: Any) -> Any:
        for name, number in zip(names, numbers, strict=True):
            x = STEPS[name](x, number)
        return x

    def build(n: int, m: int) -> Any:
        x = lg.asarray(np.zeros((n, m) if rank == 2 else n, dtype))
        return lg.grad(lambda x: lg.sum(value(x)))(x) if derived else value(x)

    return Drawn(build, (f"{rank}-d {dtype}", *names, *["grad"] * derived))


def _matrix(x: Any) -> Any:
    return x if x.ndim == 2 else lg.stack([x, x + x], axis=1)


def _counted(x: Any, number: float) -> Any:
    return lg.fori_loop(0, 3, lambda k, v: v * 2 + x, x)


def _until(x: Any, number: float) -> Any:
    return lg.while_loop(lambda v: v < 3, lambda v: v + 1, x)


def _scanned(x: Any, number: float) -> Any:
    return lg.scan(lambda c, row: (c + lg.sum(row), c * row), lg.zeros((), dtype=x.dtype), _matrix(x))[1]


STEPS: Final[dict[str, Callable[[Any, float], Any]]] = {
    "add": lambda x, number: x + x.dtype(number),
    "mul": lambda x, number: x * x.dtype(number),
    "square": lambda x, number: x * x,
    "sin": lambda x, number: lg.sin(x) if x.dtype.is_float else abs(x),
    "where": lambda x, number: lg.where(x > x.dtype(number), x, -x),
    "cast": lambda x, number: x.astype("float32") if x.dtype.is_float else x.astype("float64"),
    "sum": lambda x, number: x - lg.sum(x, axis=0, keepdims=True),
    "sum of rows": lambda x, number: x * lg.sum(x, axis=-1, keepdims=True),
    "sum of all": lambda x, number: lg.sum(x) + x,
    "max": lambda x, number: x - lg.max(lg.concat([x, x]), axis=0),
    "mean": lambda x, number: x - lg.mean(lg.concat([x, x])) if x.dtype.is_float else x,
    "softmax": lambda x, number: lg.nn.softmax(x) if x.dtype.is_float else x,
    "cumsum": lambda x, number: lg.cumsum(x, axis=0),
    "total of rows": lambda x, number: lg.cumsum(x, axis=-1),
    "product": lambda x, number: _matrix(x) @ _matrix(x).T,
    "product of columns": lambda x, number: _matrix(x).T @ _matrix(x),
    "transpose": lambda x, number: x.T * 1,
    "ravel": lambda x, number: x.reshape(-1),
    "flip": lambda x, number: x[::-1],
    "tail": lambda x, number: x[x.shape[0] // 2 :],
    "every other": lambda x, number: x[::2],
    "concat": lambda x, number: lg.concat([x, x[:1], x]),
    "stack": lambda x, number: lg.stack([x, x]) if x.ndim < 3 else x,
    "pad": lambda x, number: lg.pad(x, 2),
    "roll": lambda x, number: lg.roll(x, 1),
    "take": lambda x, number: lg.take(x, lg.asarray([0, 0]), axis=0),
    "update": lambda x, number: x.at[0].set(0),
    "arange": lambda x, number: x + lg.arange(x.shape[-1], dtype=x.dtype),
    "sort": lambda x, number: lg.sort(x),
    "argmax": lambda x, number: lg.argmax(lg.concat([x, x]), axis=0),
    "broadcast": lambda x, number: x[..., None] * x.dtype(number) + lg.ones(3, dtype=x.dtype) if x.ndim < 3 else x,
    "fori_loop": _counted,
    "while_loop": _until,
    "scan": _scanned,
}


class Comparison:
    """What programs were made and how often they were filled in."""

    def __init__(self) -> None:
        self.filled: Counter[str] = Counter()
        self.scheduled: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, program: Drawn, sizes: Iterator[tuple[int, int]]) -> None:
        shared = SharedCode(lambda text: b"code")
        extents = OtherExtents(shared, without_code)
        for n, m in sizes:
            graph = graph_of(program.build, n, m)
            if graph is None:
                continue
            outline = extents.outline(graph, DEFAULT_OPTIONS)
            assert outline is not None
            found, scratch = extents.program(outline), without_code(graph, DEFAULT_OPTIONS)
            if found is None:
                self.scheduled.update(program.parts)
                shared.code(scratch.texts["llvm"])
                extents.scheduled(outline, graph, scratch)
            else:
                self.filled.update(program.parts)
                if not same(*found, scratch):
                    self.wrong.append(f"{program.parts} of {n}, {m}")


def graph_of(build: Build, n: int, m: int) -> Graph | None:
    """What a device gets to compile; None where the program has nothing to compute, or isn't for these sizes."""
    try:
        result = build(n, m)
    except (ValueError, IndexError, lg.LoopgradError):
        return None
    graph = in_pairs(unbound(extract([result._value])))
    return graph if graph.nodes and sum(t.size for t in graph.output_types) < 1 << 26 else None


def same(program: OpenProgram, atoms: list[Any], scratch: Made) -> bool:
    """Whether an artifact that is filled in is what scheduling gives: the record, the text, and the code's table."""
    filled, text = program.artifact(atoms), scratch.texts["llvm"]
    fields = [f for f in CpuProgramRecord.__slots__ if f != "table"]
    records = all(getattr(filled.program, f) == getattr(scratch.program, f) for f in fields)
    return records and program.text(atoms) == text and filled.program.table == numbered(text).words(program.positions)


def sizes_of(random: np.random.Generator, count: int) -> Iterator[tuple[int, int]]:
    """Groups near each other, such that decisions come out the same, and where they change."""
    for number in range(count):
        if number % 4 == 0:
            near = int(random.choice(EXTENTS))
            m, step = int(random.choice(FEW)), int(random.choice([1, 2, 8]))
        yield near + step * (number % 4), m
    yield from [(int(random.choice(EXTENTS)), m) for _ in range(count // 4)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--sizes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    comparison = Comparison()
    for number in range(arguments.count):
        random = np.random.default_rng([arguments.seed, number])
        comparison.run(drawn(random), sizes_of(random, arguments.sizes))
    for part in sorted({*comparison.filled, *comparison.scheduled}):
        print(f"{part:20} filled in {comparison.filled[part]:5}, scheduled {comparison.scheduled[part]:5}")
    print("\n".join([f"WRONG: {text}" for text in comparison.wrong]) or "all equal")


if __name__ == "__main__":
    main()
