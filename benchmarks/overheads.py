"""python -m benchmarks.overheads: what happens around the work, ours alone.

Import, tracing 10,000 nodes, cold compile of `ragged`, the first result of a second process (from the
disk cache), the cost of calling a compiled small function, and the stack bytes of `ragged`. Every
figure that needs a fresh process runs in one, several times, and the median is shown.
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

_CALL = """
f = lg.compile(lambda x, y: x * y + x)
x = lg.asarray(np.ones(8, np.float32))
f(x, x)
times = []
for _ in range(200):
    start = time.perf_counter()
    for _ in range(100):
        f(x, x)
    times.append((time.perf_counter() - start) / 100)
print(sorted(times)[len(times) // 2])
"""

_REPLAY = """
f = lg.compile(lambda x, y: x * y + x)
x = lg.asarray(np.ones(8, np.float32))
r = f.capture(x, x)
r.replay(x, x)
times = []
for _ in range(200):
    start = time.perf_counter()
    for _ in range(100):
        r.replay(x, x)
    times.append((time.perf_counter() - start) / 100)
print(sorted(times)[len(times) // 2])
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
        ("replay of a captured small function", *_median(_REPLAY, runs)),
    ]
    print(f"{'':48}{'median':>12}{'min':>12}{'max':>12}   ({runs} processes each)")
    for name, *figures in rows:
        print(f"{name:48}" + "".join(f"{f * 1e3:10.3f}ms" for f in figures))


if __name__ == "__main__":
    main()
