"""`python -m benchmarks --workload ragged --device cuda:0`: one table a workload, and the same as JSON."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import platform
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Settings, as_json, run_workload
from benchmarks.registry import WORKLOADS, load
from benchmarks.tables import markdown, text_table

PACKAGES = ("numpy", "llvmlite", "numba", "jax", "torch", "drjit", "quadrants", "cuda-core", "cuda-bindings")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--workload", default=",".join(WORKLOADS), help="names joined by commas")
    parser.add_argument("--device", default="cpu", help="devices joined by commas: cpu, cuda:0, vulkan:0, ...")
    parser.add_argument("--peers", help="contenders beside loopgrad, joined by commas; all without it, 'none' for none")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--size", type=int, help="lanes, instead of the workload's own number")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds; what doesn't fit is left out")
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/results.json"), help="the JSON file")
    parser.add_argument("--table", type=Path, help="print the tables of such a file as Markdown, and run nothing")
    chosen = parser.parse_args()
    if chosen.table:
        print(markdown(json.loads(chosen.table.read_text())))
        return
    names = [name.replace("-", "_") for name in chosen.workload.split(",")]
    modules = {name: load(name) for name in names}
    settings = Settings(
        contenders=() if chosen.peers is None else ("loopgrad", "limit", *chosen.peers.split(",")),
        devices=chosen.device.split(","), quick=chosen.quick, rounds=chosen.rounds, size=chosen.size,
        deadline=time.monotonic() + chosen.limit,
    )  # fmt: skip
    record: dict[str, Any] = {"machine": machine(), "devices": settings.devices, "workloads": {}}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for name, module in modules.items():
        if settings.left <= 0:
            print(f"{name}: not run, the time was used up", flush=True)
            continue
        rows = as_json(run_workload(name, settings))
        record["workloads"][name] = {"title": module.TITLE, "size": settings.size_of(module), "rows": rows}
        chosen.out.write_text(json.dumps(record, indent=1))
        print(text_table(f"{module.TITLE} ({settings.size_of(module):,})", rows), end="\n\n", flush=True)


def machine() -> dict[str, str]:
    """What the numbers depend on."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {"made": made, "gpu": gpu(), "cpu": cpu(), "python": platform.python_version(), **versions}


def gpu() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    query = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip().splitlines()
    return lines[0] if lines else ""


def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} x{len(names)}" if names else platform.machine()


if __name__ == "__main__":
    main()
