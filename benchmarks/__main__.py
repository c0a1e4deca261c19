"""python -m benchmarks [--workload ragged,newton] [--peers jax,drjit] [--rounds 11] [--size N] [--json FILE]"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path

from benchmarks.harness import as_json, measure, table
from benchmarks.workloads import WORKLOADS


def _machine() -> str:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="loopgrad beside its peers")
    parser.add_argument("--workload", default=",".join(WORKLOADS), help=f"any of {', '.join(WORKLOADS)}")
    parser.add_argument("--peers", default=None, help="comma-separated; default: all of the workload")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--size", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    print(_machine())
    collected = []
    for name in arguments.workload.split(","):
        workload = WORKLOADS[name]
        wanted = list(workload.contenders)
        if arguments.peers is not None:
            wanted = [c for c in wanted if c == "loopgrad" or c in arguments.peers.split(",")]
        size = arguments.size or workload.size
        rows = measure(workload, wanted, size, arguments.rounds)
        print(table(workload, rows, size, arguments.rounds), flush=True)
        collected.append(as_json(workload, rows, size))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": _machine(), "results": collected}, indent=1))


if __name__ == "__main__":
    main()
