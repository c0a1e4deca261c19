"""Random NumPy scripts, as many as wanted, on the chosen device and in every way of running them.

    python tests/programs/random_scripts.py --count 1000 [--start 0] [--device cpu] [--jobs 1] [--seconds 300]

Differences are printed as programs that can be run, made small first; refusals are counted by their message.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import loopgrad as lg
from tests.programs.numpy_scripts.conventions import REFUSALS
from tests.programs.numpy_scripts.scripts import Script, generate, shrink
from tests.programs.numpy_scripts.ways import WAYS, check, failures


def one(seed: int, device: str, ways: tuple[str, ...]) -> tuple[int, list[str], list[str]]:
    """How many ways were compared, differences as text, refusals."""
    script, differences, refusals = generate(seed), [], []
    with lg.default_device(device):
        for way, outcome in failures(script, ways):
            refusals.extend(f"{message}   [{line}]" for line, message in outcome.refused)
            if outcome.difference is None:
                continue

            def fails(smaller: Script, way: str = way) -> bool:
                return check(smaller, way, np.random.default_rng(seed + 1)).difference is not None

            small = shrink(script, fails)
            again = check(small, way, np.random.default_rng(seed + 1)).difference
            differences.append(f"# seed {seed}, {way}: {again or outcome.difference}\n{small.text()}")
    return len(ways), differences, refusals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--refusals", action="store_true", help="list what was refused, by message")
    given = parser.parse_args()
    seeds = range(given.start, given.start + given.count)
    ways, began = tuple(given.ways.split(",")), time.monotonic()
    compared, done, differing, refused = 0, 0, 0, Counter[str]()
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        batch = 16 * given.jobs
        for first in range(0, len(seeds), batch):
            part = seeds[first : first + batch]
            for ran, differences, refusals in pool.map(one, part, [given.device] * len(part), [ways] * len(part)):
                done += 1
                compared += ran
                differing += len(differences)
                refused.update(refusals)
                for text in differences:
                    print(text, flush=True)
            if time.monotonic() - began > given.seconds:
                break
    if given.refusals:
        for message, count in refused.most_common():
            known = any(re.match(pattern, message) for pattern, _ in REFUSALS)
            print(f"{count:6d} {'  ' if known else '! '}{message}")
    total = sum(refused.values())
    print(
        f"{done} scripts from seed {given.start} on {given.device}, {compared} runs, {total} refusals, "
        f"{differing} differ"
    )
    sys.exit(differing != 0)


if __name__ == "__main__":
    main()
