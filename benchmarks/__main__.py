"""`python -m benchmarks --workload ragged --peers jax,drjit`: one table a workload, and the same as JSON."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

from benchmarks.harness import as_json, run_workload, table
from benchmarks.registry import WORKLOADS, load


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--workload", default=",".join(WORKLOADS), help="names joined by commas")
    parser.add_argument("--peers", help="contenders beside loopgrad, joined by commas; all without it, 'none' for none")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--size", type=int, help="lanes, instead of the workload's own number")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path(".benchmarks"), help="folder of the JSON files")
    chosen = parser.parse_args()
    contenders = [] if chosen.peers is None else ["loopgrad", "limit", *chosen.peers.split(",")]
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name in chosen.workload.split(","):
        rows = run_workload(name, contenders, quick=chosen.quick, rounds=chosen.rounds, size=chosen.size)
        print(table(load(name).TITLE, rows), end="\n\n", flush=True)
        record = {"workload": name, "machine": platform.processor() or platform.machine(), "rows": as_json(rows)}
        (chosen.out / f"{name}.json").write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
