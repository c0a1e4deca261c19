"""python -m benchmarks.overheads: what happens around the work, ours alone.

Import, tracing 10,000 nodes, cold compile of `ragged`, the first result of a second process (from the
disk cache), the cost of calling a compiled small function (with arrays, a tree and a keyword, a number), of a line of
a script that is evaluated again and again, of elements read one by one, of lists of lazy numbers, and of lengths that a
program hasn't seen before. Every figure comes from a process of its own, several times, and the median is shown.
Figures of single calls are the time that the process had of its cores: others may use the machine meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

_PRELUDE = """
import time
start = time.perf_counter()
import numpy as np
import loopgrad as lg
imported = time.perf_counter() - start
def ragged_loss(x, n):
    return lg.sum(lg.fori_loop(0, n, lambda _i, v: lg.sin(v) + 0.1, x))
"""

_IMPORT = "print(imported)"

_NUMPY_IMPORT = """
import time
start = time.perf_counter()
import numpy
print(time.perf_counter() - start)
"""

_TRACE = """
x = lg.asarray(np.ones(8, np.float32))
y = x
start = time.perf_counter()
for _ in range(5000):
    y = y * x + x
print(time.perf_counter() - start)
"""

_COLD = """
x = lg.asarray(np.linspace(-1, 1, 1000, dtype=np.float32))
n = lg.asarray(np.arange(1000, dtype=np.int32) % 64)
start = time.perf_counter()
value, gradient = lg.compile(lg.value_and_grad(ragged_loss))(x, n)
np.asarray(gradient)
print(time.perf_counter() - start)
"""

_SPENT = """
def spent(f, calls=100, rounds=60):
    for _ in range(calls):
        f()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            f()
        times.append((time.process_time() - start) / calls)
    return sorted(times)[len(times) // 2]
x = lg.asarray(np.ones(8, np.float32))
y = lg.asarray(np.full(8, 2.0, np.float32))
"""

_CALL = (
    _SPENT
    + """
f = lg.compile(lambda x, y: x * y + x)
print(spent(lambda: f(x, x)))
"""
)

_TREE_CALL = (
    _SPENT
    + """
f = lg.compile(lambda p, *, k: {"u": p["x"] * p["y"], "v": k + p["x"]})
print(spent(lambda: f({"x": x, "y": y}, k=x)))
"""
)

_NUMBER_CALL = (
    _SPENT
    + """
f = lg.compile(lambda x, n: x * n)
print(spent(lambda: f(x, 2.5)))
"""
)

_REPLAY = (
    _SPENT
    + """
f = lg.compile(lambda x, y: x * y + x)
r = f.capture(x, x)
print(spent(lambda: r.replay(x, x)))
"""
)

_LINE = (
    _SPENT
    + """
def line():
    y = x
    for _ in range(OPERATIONS):
        y = y * x
    return y.numpy()
print(spent(line))
"""
)

_NAMED = (
    _SPENT
    + """
def line():
    a = x * 2.0
    b = a + 1.0
    c = b * a
    return c.numpy()
print(spent(line))
"""
)

_ELEMENT = (
    _SPENT
    + """
print(spent(lambda: float(x[3])))
"""
)

_LIST = """
x = lg.asarray(np.linspace(0, 1, COUNT))
def numbers():
    return [x[i] * 2.0 + 1.0 for i in range(COUNT)]
np.asarray(lg.asarray(numbers()))
listed = numbers()
start = time.process_time()
MADE(listed)
print(time.process_time() - start)
"""

_NEW_LENGTH = """
from statistics import median
def cube_roots(a):
    return lg.while_loop(lambda v: abs(v**3 - a) > 1e-12 * a, lambda v: v - (v - a / (v * v)) / 3.0, lg.ones_like(a))
def logsumexp(x):
    return lg.max(x) + lg.log(lg.sum(lg.exp(x - lg.max(x))))
f = lg.value_and_grad(FUNCTION)
times = []
for n in range(100_001, 100_041, 2):
    x = lg.asarray(np.linspace(0.1, 1.0, n))
    start = time.process_time()
    lg.eval(f(x))
    times.append(time.process_time() - start)
print(median(times))
"""


def _figure(body: str, cache: str, prelude: str = _PRELUDE) -> float:
    environment = {**os.environ, "LOOPGRAD_CACHE_DIR": cache}
    run = subprocess.run([sys.executable, "-c", prelude + body], capture_output=True, text=True, env=environment)
    if run.returncode:
        raise SystemExit(run.stderr)
    return float(run.stdout.split()[-1])


def _median(body: str, runs: int, *, keep_cache: bool = False, prelude: str = _PRELUDE) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as shared:
        figures = []
        if keep_cache:
            _figure(body, shared, prelude)
        for _ in range(runs):
            if keep_cache:
                figures.append(_figure(body, shared, prelude))
            else:
                with tempfile.TemporaryDirectory() as fresh:
                    figures.append(_figure(body, fresh, prelude))
    return statistics.median(figures), min(figures), max(figures)


NEW = {
    "cube roots by Newton, gradient": "lambda x: lg.sum(cube_roots(x))",
    "logsumexp, gradient": "logsumexp",
}


def _list_row(made: str, count: int, runs: int) -> tuple[str, float, float, float]:
    body = _LIST.replace("COUNT", str(count)).replace("MADE(listed)", f"np.asarray({made}(listed))")
    return f"{made} of {count:,} lazy numbers", *_median(body, runs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overheads", description="figures around the work")
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    rows = [
        ("import numpy (for scale)", *_median(_NUMPY_IMPORT, runs, prelude="")),
        ("import loopgrad (numpy included)", *_median(_IMPORT, runs)),
        ("trace 10,000 elementwise nodes", *_median(_TRACE, runs)),
        ("ragged, cold: trace, compile, first result", *_median(_COLD, runs)),
        ("ragged, second process: result after import", *_median(_COLD, runs, keep_cache=True)),
        ("call of a compiled small function", *_median(_CALL, runs)),
        ("the same with a dict and a keyword", *_median(_TREE_CALL, runs)),
        ("the same with an array and a number", *_median(_NUMBER_CALL, runs)),
        ("replay of a captured small function", *_median(_REPLAY, runs)),
        *[(f"a line of {n} operations, again", *_median(_LINE.replace("OPERATIONS", n), runs)) for n in ("3", "10")],
        ("a line of 3 operations, each with a name", *_median(_NAMED, runs)),
        ("an element of an array as a number", *_median(_ELEMENT, runs)),
        *[_list_row(made, count, runs) for made in ("lg.asarray", "np.array") for count in (1_000, 10_000)],
        *[(f"another length: {name}", *_median(_NEW_LENGTH.replace("FUNCTION", f), runs)) for name, f in NEW.items()],
    ]
    print(f"{'':48}{'median':>12}{'min':>12}{'max':>12}   ({runs} processes each)")
    for name, *figures in rows:
        print(f"{name:48}" + "".join(f"{f * 1e3:10.3f}ms" for f in figures))


if __name__ == "__main__":
    main()
