"""The same program gives the same bits whatever the number of threads, run after run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent("""
    import hashlib
    import numpy as np
    import loopgrad as lg

    generator = np.random.default_rng(5)
    x = generator.normal(size=50_000).astype(np.float32)
    trips = generator.integers(0, 40, x.size)
    place = generator.integers(0, 97, x.size)
    digest = hashlib.blake2b()

    def loss(x, table):
        v = lg.fori_loop(0, lg.asarray(trips), lambda _, v: lg.sin(v) + 0.1, x)
        v = lg.while_loop(lambda v: lg.abs(v) > 0.3, lambda v: v * 0.7, v * table[lg.asarray(place)])
        return lg.sum(v * v) + lg.max(v) + lg.sum(lg.cumsum(v) * v)

    with lg.default_device(DEVICE):
        step = lg.compile(lg.value_and_grad(loss, argnums=(0, 1)))
        for _ in range(3):
            value, (dx, dtable) = step(lg.asarray(x), lg.linspace(0.5, 2.0, 97, dtype=lg.float32))
            for part in (value, dx, dtable, lg.cumsum(lg.asarray(np.resize(x, 400_000)))):
                digest.update(np.asarray(part).tobytes())
            print(digest.hexdigest())
            digest = hashlib.blake2b()
""")


def test_bits_do_not_depend_on_the_thread_count(process_device):
    outputs = []
    counts = ("1", "3") if process_device == "cpu" else ("2",)  # only the CPU has a pool of threads
    for threads in counts:
        environment = {**os.environ, "LOOPGRAD_NUM_THREADS": threads}
        program = PROGRAM.replace("DEVICE", repr(process_device))
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, env=environment
        )
        assert run.returncode == 0, run.stderr
        outputs.extend(run.stdout.split())
    assert len(outputs) == 3 * len(counts)
    assert len(set(outputs)) == 1


@pytest.mark.in_turns
@pytest.mark.parametrize("threads", ["0", "-1", "many"])
def test_bad_thread_counts_are_refused_in_one_line(process_device, threads):
    if process_device != "cpu":
        pytest.skip("only the CPU has a pool of threads")
    program = PROGRAM.replace("DEVICE", repr(process_device))
    environment = {**os.environ, "LOOPGRAD_NUM_THREADS": threads}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, env=environment)
    assert run.returncode != 0
    assert "LOOPGRAD_NUM_THREADS" in run.stderr.strip().splitlines()[-1]
