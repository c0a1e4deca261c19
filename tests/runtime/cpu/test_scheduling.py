"""The first programs of several threads at once."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import importlib.abc, sys, threading, time
import numpy as np
import loopgrad as lg

inside, passing = threading.Event(), threading.Event()

class Slow(importlib.abc.MetaPathFinder):  # the first thread is in the middle of the package when the second one comes
    def find_spec(self, name, path=None, target=None):
        if name == "loopgrad.codegen.schedule.schedule":
            inside.set()
            passing.wait(1.0)
            time.sleep(0.3)  # it has gone on into what this one needs
        elif name == "loopgrad.codegen.schedule.partition":
            passing.set()

sys.meta_path.insert(0, Slow())
found = {}

def run(name, line):
    found[name] = np.asarray(line())

x, v = lg.asarray(np.eye(3) * 2.0), lg.asarray(np.arange(40.0))
np.asarray(v * 2.0)  # which needs no scheduling, but all else
first = threading.Thread(target=run, args=("inverse", lambda: lg.linalg.inv(x)))
first.start()
assert inside.wait(30)
second = threading.Thread(target=run, args=("sum", lambda: lg.sum(v * 2.0)))
second.start()
first.join()
second.join()
assert found["inverse"][0, 0] == 0.5 and found["sum"] == 1560.0, found
"""


def test_a_module_of_scheduling_waits_for_the_package() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
