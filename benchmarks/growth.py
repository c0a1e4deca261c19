"""`python -m benchmarks.growth`: how time grows with size, from 2^8 elements to 2^28, and the exponent of it.

    python -m benchmarks.growth --device cuda:0 --peers none --workload arrays.sort,arrays.cumsum

A contender is asked for ever larger sizes until a call takes it longer than --longest. The exponent is the slope of
the logarithms where time has grown to more than four times that of the smallest size, below which a call's own cost
hides it: 1 for what is linear, and no program of these should have much more. Small sizes are checked against the
oracle, large ones only timed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness import Harness, Settings
from benchmarks.registry import load
from benchmarks.tables import duration

LINEAR: Final = (
    "copy", "cumsum", "sort", "argsort", "gather", "gather_rows", "scatter", "scatter_add", "black_scholes", "median",
    "histogram", "bincount", "searchsorted", "distinct", "cumprod", "cummax", "logcumsumexp", "masked_mean",
)  # fmt: skip
CHECKED: Final = 2**18  # the largest size that is compared with the oracle
GROWN: Final = 4.0


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float | None:
    """The slope of log(time) by log(size) over those times that are well above the first; None for fewer than 3.

    >>> exponent([256, 1024, 4096, 16384, 65536], [1e-6, 1.1e-6, 4.1e-6, 16.4e-6, 65.6e-6])
    1.0
    """
    grown = [(size, time) for size, time in zip(sizes, times, strict=True) if time > GROWN * times[0]]
    if len(grown) < 3:
        return None
    logs = np.log(np.asarray(grown))
    return round(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 2)


def measured(harness: Harness, name: str, sizes: Sequence[int], longest: float) -> dict[str, dict[int, float]]:
    """The times of each contender, by size."""
    workload, settings = load(name), harness.settings
    going = settings.chosen(workload)
    found: dict[str, dict[int, float]] = {}
    for size in sizes:
        if not going or settings.left <= 0:
            break
        harness.settings = replace(settings, size=size, checked=size <= CHECKED)
        for row in harness.run(workload, going):
            key = (row.device, row.name)
            if row.median is None:
                print(f"    {' '.join(key)} at {size:,}: {row.status}")
            else:
                found.setdefault(" ".join(key), {})[size] = row.median
            if row.median is None or row.median > longest:
                going = [other for other in going if other != key]
    harness.settings = settings
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--workload", default=",".join(f"arrays.{name}" for name in LINEAR))
    parser.add_argument("--device", default="cpu", help="devices joined by commas")
    parser.add_argument("--peers", default="none", help="contenders beside loopgrad, joined by commas")
    parser.add_argument("--smallest", type=int, default=8, help="a power of two")
    parser.add_argument("--largest", type=int, default=28, help="a power of two")
    parser.add_argument("--longest", type=float, default=0.5, help="seconds of a call, after which no larger is asked")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds; what doesn't fit is left out")
    parser.add_argument("--out", type=Path, help="a JSON file")
    chosen = parser.parse_args()
    settings = Settings(
        contenders=("loopgrad", *chosen.peers.split(",")), devices=chosen.device.split(","), rounds=chosen.rounds,
        deadline=time.monotonic() + chosen.limit,
    )  # fmt: skip
    sizes = [1 << k for k in range(chosen.smallest, chosen.largest + 1, 2)]
    heads = "".join(f"{f'2^{size.bit_length() - 1}':>9}" for size in sizes)
    print(f"{'program':<24}{'contender':<22}{'exponent':>9}{heads}")
    record: dict[str, Any] = {}
    with Harness(settings) as harness:
        for name in chosen.workload.split(","):
            record[name] = measured(harness, name, sizes, chosen.longest)
            for contender, times in record[name].items():
                fitted = exponent(list(times), list(times.values()))
                cells = "".join(f"{duration(times.get(size)):>9}" for size in sizes)
                print(f"{name:<24}{contender:<22}{fitted if fitted is not None else '-':>9}{cells}", flush=True)
            if chosen.out:
                chosen.out.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
