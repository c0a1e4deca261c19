"""What the numbers depend on: the machine, and the versions of what is compared."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from pathlib import Path

PACKAGES = ("numpy", "llvmlite", "numba", "jax", "torch", "drjit", "quadrants", "cuda-core", "cuda-bindings")


def machine() -> dict[str, str]:
    """Words for a table's head; two runs with the same ones can be compared."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"gpu": gpu(), "processor": processor(), "python": platform.python_version(), **versions}


def gpu() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    query = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip().splitlines()
    return lines[0] if lines else ""


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} x{len(names)}" if names else platform.machine()
