"""python -m benchmarks.compile_times [--quick] [PROGRAM ...]: where the time of a first call goes, ours alone.

Each program is one that a Python loop of n steps builds; it is traced, compiled and run once in a fresh process
without a disk cache. Shown are the seconds that passed, the seconds of processor time of each stage and their total
(which a busy machine changes less), and the exponent by which the total grows from one n to the next (1 is linear).
`--device` chooses another device than the CPU; `--against DIR` runs each measurement with the loopgrad of another
checkout as well, in alternation, and shows how many times as much processor time that took.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

LIMIT: Final = 300  # seconds of one process

# stage -> the functions whose time it is, as `module:name` where callers look them up
STAGES: Final[dict[str, tuple[str, ...]]] = {
    "autodiff": ("lazy.transforms.derivatives:vjp_emit",),
    "recognise": (
        "lazy.tensor.evaluation:walked",
        "lazy.tensor.evaluation:still_needed",
        "lazy.transforms.compiled_version:extract",
        "runtime.session:abstract_key",
        "runtime.cpu.device:key",
        "runtime.gpu.device:key",
    ),
    "passes": ("codegen.schedule.schedule:prepare", "graph.passes.mask:run"),
    "schedule": ("codegen.pipeline:schedule",),
    "lower": ("codegen.schedule.sharing:build_kernel",),
    "kernel": ("codegen.pipeline:optimise", "codegen.targets.cpu.target:verify_kernel"),
    "emit": (
        "codegen.targets.cpu.target:emit_kernels",
        "codegen.targets.cpu.target:emit_entry",
        "codegen.targets.cpu.target:print_kernel",
        "codegen.targets.cpu.target:record",
    ),
    "llvm": (
        "codegen.targets.cpu.target:compile_module",
        "codegen.targets.cpu.llvm:compile_module",
        "codegen.targets.cpu.llvm:compile_side_by_side",
    ),
    "load": ("runtime.cpu.device:CpuExecutable",),
}
SHOWN: Final = ("trace", *STAGES, "other")


# ---- programs: each gives something to call that builds, compiles and runs it


def _gradient(loss: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    import loopgrad as lg

    return lambda: lg.value_and_grad(loss)(x)


def sines(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    return _gradient(lambda x: lg.sum(_repeated(n, lg.sin, x)), lg.asarray(np.linspace(0, 1, 1000)))


def layers(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    m = lg.asarray(np.random.default_rng(0).normal(size=(30, 30)) / 6)
    return _gradient(lambda s: lg.sum(_repeated(n, lambda s: lg.tanh(s @ m), s)), lg.ones((30, 30)) * 0.1)


def reductions(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    step = lambda x: x * 0.9 + lg.sum(x * x) * 1e-4
    return _gradient(lambda x: lg.sum(_repeated(n, step, x)), lg.asarray(np.linspace(0, 1, 1000)))


def multiply_adds(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    return _gradient(lambda x: lg.sum(_repeated(n, lambda v: v * x + 0.1, x)), lg.asarray(np.linspace(0, 1, 1000)))


def stencil(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    u = lg.asarray(np.random.default_rng(0).normal(size=(64, 64)))
    around = lambda u: lg.roll(u, 1, 0) + lg.roll(u, -1, 0) + lg.roll(u, 1, 1) + lg.roll(u, -1, 1)
    return lambda: _repeated(n, lambda u: u + 0.1 * (around(u) - 4 * u), u)


def chained_sines(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    x = lg.asarray(np.linspace(0, 1, 1000))
    return lambda: _repeated(n, lg.sin, x)


def stacked(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    x = lg.asarray(np.linspace(0, 1, 100))

    def run() -> Any:
        values = [x]
        for _ in range(n):
            values.append(lg.sin(values[-1]) + 0.1)
        return lg.stack(values)

    return run


def assignments(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    x = lg.asarray(np.linspace(0, 1, n))

    def run() -> Any:
        a = lg.zeros(n)
        for i in range(n):
            a[i] = x[i] * 2.0
        return a

    return run


def scalars(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    x = lg.asarray(np.linspace(0, 1, n))
    return lambda: lg.asarray([x[i] * 2.0 for i in range(n)])


def nests(n: int) -> Callable[[], Any]:
    """n loops inside each other, differentiated twice."""
    import loopgrad as lg

    def nest(depth: int, v: Any) -> Any:
        if not depth:
            return lg.sin(v) * 1.01
        return lg.fori_loop(0, 2, lambda _, w: nest(depth - 1, w) + 0.01 * w, v)

    slope = lg.grad(lambda x: lg.sum(nest(n, x)))
    return _gradient(lambda x: lg.sum(slope(x) ** 2), lg.asarray(np.linspace(0, 1, 8)))


def functions(n: int) -> Callable[[], Any]:
    """What is long in code: logarithms of the gamma function, and powers."""
    import loopgrad as lg

    x = lg.asarray(np.linspace(0.5, 2, 1000))
    return lambda: _repeated(n, lambda v: lg.exp(lg.lgamma(lg.abs(v) + 1.0)) ** 0.3, x)


def different_layers(n: int) -> Callable[[], Any]:
    """Layers of which no two have the same shape, as long as there are shapes."""
    import loopgrad as lg

    rng, widths = np.random.default_rng(0), [8 + 7 * i % 57 for i in range(n + 1)]
    weights = [lg.asarray(rng.normal(size=(widths[i + 1], widths[i])) / 8) for i in range(n)]
    functions = (lg.tanh, lg.sin, lg.exp, lg.square)

    def loss(weights: Any) -> Any:
        h = lg.ones(widths[0])
        for i, w in enumerate(weights):
            h = functions[i % 4](w @ h)
        return lg.sum(h)

    return _gradient(loss, weights)


def second_order(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    slope = lg.grad(lambda x: lg.sum(_repeated(n, lambda v: lg.sin(v) * x + 0.1 * v, x)))
    return _gradient(lambda x: lg.sum(slope(x) ** 2), lg.asarray(np.linspace(0, 1, 50)))


def sums(n: int) -> Callable[[], Any]:
    """As `reductions`, without derivative."""
    import loopgrad as lg

    x = lg.asarray(np.linspace(0, 1, 1000))
    return lambda: _repeated(n, lambda x: x * 0.9 + lg.sum(x * x) * 1e-4, x)


def body(n: int) -> Callable[[], Any]:
    """One loop, whose body has n steps."""
    import loopgrad as lg

    step = lambda _, v: _repeated(n, lambda v: v * 0.99 + lg.sin(v) * 0.01, v)
    return _gradient(lambda x: lg.sum(lg.fori_loop(0, 5, step, x)), lg.asarray(np.linspace(0, 1, 64)))


def whiles_in_a_row(n: int) -> Callable[[], Any]:
    """Loops of lanes that nobody can bound."""
    import loopgrad as lg

    def loss(x: Any) -> Any:
        for i in range(n):
            x = lg.while_loop(lambda v, i=i: v < 1.0 + 0.1 * i, lambda v: v * 1.3 + lg.sin(v) * 0.1, x)
        return lg.sum(x)

    return _gradient(loss, lg.asarray(np.linspace(0.1, 1, 64)))


def loops_in_a_row(n: int) -> Callable[[], Any]:
    import loopgrad as lg

    def loss(x: Any) -> Any:
        for i in range(n):
            x = lg.fori_loop(0, 3 + i % 4, lambda _, v: lg.sin(v) * 0.9 + 0.1, x)
        return lg.sum(x)

    return _gradient(loss, lg.asarray(np.linspace(0, 1, 50)))


def deep_loops(n: int) -> Callable[[], Any]:
    """n loops inside each other, differentiated once."""
    import loopgrad as lg

    def nest(depth: int, v: Any) -> Any:
        if not depth:
            return lg.sin(v) * 1.01
        return lg.fori_loop(0, 2, lambda _, w: nest(depth - 1, w) + 0.01 * w, v)

    return _gradient(lambda x: lg.sum(nest(n, x)), lg.asarray(np.linspace(0, 1, 8)))


def branches(n: int) -> Callable[[], Any]:
    """Branches that each element takes for itself, one after another."""
    import loopgrad as lg

    def step(v: Any, i: int) -> Any:
        return lg.cond(v < 0.5, lambda v: lg.sin(v) + 0.01 * i, lambda v: v * 0.7, v)

    def loss(x: Any) -> Any:
        for i in range(n):
            x = step(x, i % 7)
        return lg.sum(x)

    return _gradient(loss, lg.asarray(np.linspace(0, 1, 64)))


def tree(n: int) -> Callable[[], Any]:
    """n leaves of a recursion that halves, every inner node different from its neighbour."""
    import loopgrad as lg

    def node(x: Any, first: int, last: int) -> Any:
        if last - first == 1:
            return x * (1.0 + first)
        middle = (first + last) // 2
        left, right = node(x, first, middle), node(x, middle, last)
        return lg.sin(left) * right if first % 2 else left + 0.5 * right

    return _gradient(lambda x: lg.sum(node(x, 0, n)), lg.asarray(np.linspace(0, 1e-3, 100)))


def summands(n: int) -> Callable[[], Any]:
    """A sum of n terms, all of one array."""
    import loopgrad as lg

    def loss(x: Any) -> Any:
        total = x
        for i in range(n):
            total = total + x * (0.5 + i)
        return lg.sum(total)

    return _gradient(loss, lg.asarray(np.linspace(0, 1, 100)))


def arguments(n: int) -> Callable[[], Any]:
    """A compiled function of n arrays, and a gradient by each."""
    import loopgrad as lg

    arrays = [lg.asarray(np.linspace(0, 1, 8) + i) for i in range(n)]

    def loss(arrays: Any) -> Any:
        return sum([lg.sum(lg.sin(a) * 0.1) for a in arrays])

    return lambda: lg.compile(lg.value_and_grad(loss))(arrays)


PROGRAMS: Final[dict[str, tuple[Callable[[int], Callable[[], Any]], tuple[int, ...]]]] = {
    "sines": (sines, (25, 100, 400, 1600)),
    "layers": (layers, (25, 100, 400, 1600)),
    "reductions": (reductions, (25, 100, 400, 1600)),
    "multiply_adds": (multiply_adds, (25, 100, 400, 1600, 25_000)),
    "sums": (sums, (200, 2000, 20_000)),
    "stencil": (stencil, (25, 100, 500, 2000, 9000)),
    "chained_sines": (chained_sines, (100, 1000, 10_000, 100_000)),
    "stacked": (stacked, (25, 100, 1000, 4000)),
    "assignments": (assignments, (25, 100, 500, 2000)),
    "scalars": (scalars, (25, 100, 900, 4000)),
    "nests": (nests, (1, 2, 3)),
    "functions": (functions, (10, 50, 200, 800)),
    "different_layers": (different_layers, (25, 100, 400)),
    "second_order": (second_order, (25, 100, 400)),
    "loops_in_a_row": (loops_in_a_row, (25, 50, 100, 200)),
    "whiles_in_a_row": (whiles_in_a_row, (25, 50, 100, 200)),
    "body": (body, (100, 200, 400, 800)),
    "deep_loops": (deep_loops, (1, 2, 4, 6)),
    "branches": (branches, (25, 100, 400)),
    "tree": (tree, (64, 512, 4096)),
    "summands": (summands, (100, 1000, 10_000)),
    "arguments": (arguments, (10, 100, 1000)),
}


def _repeated(n: int, step: Callable[[Any], Any], x: Any) -> Any:
    for _ in range(n):
        x = step(x)
    return x


# ---- one measurement, in a process of its own


class Clock:
    """Processor seconds of each stage without those of the stages inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[str] = []
        self._since = time.process_time()

    def enter(self, stage: str) -> None:
        self._lap()
        self._inside.append(stage)

    def leave(self) -> None:
        self._lap()
        self._inside.pop()

    def _lap(self) -> None:
        now = time.process_time()
        if self._inside:
            self.seconds[self._inside[-1]] += now - self._since
        self._since = now

    def wrap(self, stage: str, place: str) -> None:
        path, name = place.split(":")
        try:
            module = importlib.import_module(f"loopgrad.{path}")
            inner = getattr(module, name)
        except (ImportError, AttributeError):
            return  # this checkout has no such place

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.enter(stage)
            try:
                return inner(*args, **kwargs)
            finally:
                self.leave()

        setattr(module, name, timed)


def measure(program: str, n: int, device: str) -> dict[str, float]:
    """Processor seconds by stage of a first call, and the seconds that passed."""
    import loopgrad as lg

    clock = Clock()
    always = {"direct": False} if hasattr(lg.Options(), "direct") else {}  # an earlier checkout compiles all
    with lg.default_device(device), lg.options(**always):
        np.asarray(lg.ones(3) * 2.5)  # the compiler and the thread pool are there
        run = PROGRAMS[program][0](n)
        for stage, places in STAGES.items():
            for place in places:
                clock.wrap(stage, place)
        began = time.perf_counter()
        clock.enter("trace")
        result = run()
        clock.leave()
        clock.enter("other")
        lg.eval(result)
        clock.leave()
        passed = time.perf_counter() - began
    return {**clock.seconds, "passed": passed}


def in_process(program: str, n: int, device: str, checkout: Path) -> dict[str, float] | str:
    """The same in a fresh process, or what stopped it."""
    paths = os.pathsep.join([str(checkout / "src"), str(Path(__file__).parent.parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "LOOPGRAD_CACHE_DIR": ""}
    code = f"from benchmarks.compile_times import *; print(json.dumps(measure({program!r}, {n}, {device!r})))"
    try:
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return f"more than {LIMIT} s"
    if run.returncode:
        return (run.stderr.strip().splitlines() or ["failed"])[-1]
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def _median(found: list[dict[str, float] | str]) -> dict[str, float] | str:
    """Of each stage; what stopped one of them, if anything did."""
    stopped = [f for f in found if isinstance(f, str)]
    if stopped:
        return stopped[0]
    tables = [f for f in found if not isinstance(f, str)]
    return {stage: statistics.median([t.get(stage, 0.0) for t in tables]) for stage in ("passed", *SHOWN)}


def _total(seconds: dict[str, float]) -> float:
    return sum([seconds[stage] for stage in SHOWN])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_times", description="seconds of a first call")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--quick", action="store_true", help="without the largest n")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--against", type=Path, help="another checkout")
    asked = parser.parse_args()
    if unknown := set(asked.programs) - set(PROGRAMS):
        parser.error(f"expected some of {', '.join(PROGRAMS)}, got {', '.join(sorted(unknown))}")
    here = Path(__file__).parent.parent
    checkouts = [here, *([asked.against] if asked.against else [])]
    head = f"{'':16}{'n':>8}{'passed':>9}{'total':>9}{'growth':>8}"
    print(head + "".join(f"{stage:>10}" for stage in SHOWN), flush=True)
    for program in asked.programs or PROGRAMS:
        sizes = PROGRAMS[program][1]
        before: tuple[int, float] | None = None
        for n in sizes[:-1] if asked.quick else sizes:
            runs = [[in_process(program, n, asked.device, c) for c in checkouts] for _ in range(asked.runs)]
            ours, *others = [_median([run[i] for run in runs]) for i in range(len(checkouts))]
            if isinstance(ours, str):
                print(f"{program:16}{n:8}  {ours}", flush=True)
                break
            total = _total(ours)
            growth = f"{math.log(total / before[1]) / math.log(n / before[0]):8.2f}" if before else " " * 8
            row = f"{program:16}{n:8}{ours['passed']:9.2f}{total:9.2f}{growth}"
            row += "".join(f"{ours[stage]:10.3f}" for stage in SHOWN)
            for other in others:
                row += f"  other: {other}" if isinstance(other, str) else f"  other: {_total(other) / total:.2f}x"
            print(row, flush=True)
            before = n, total


if __name__ == "__main__":
    main()
