"""Hand-written C for the machine at hand, built with gcc when a benchmark asks for it.

The code is AVX-512 with glibc's vector math (libmvec): what a person would write for one workload. It
is the limit a general system is compared with, not a part of the library.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.contender import Unavailable

FLAGS = ("-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC")


def build(source: str) -> ctypes.CDLL:
    """The compiled source as a loaded library; `Unavailable` without gcc or AVX-512."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise Unavailable("gcc is not installed")
    if "avx512f" not in Path("/proc/cpuinfo").read_text():
        raise Unavailable("written for AVX-512, which this machine lacks")
    digest = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
    folder = Path(tempfile.mkdtemp(prefix="loopgrad-native-"))
    code, library = folder / f"{digest}.c", folder / f"{digest}.so"
    code.write_text(source)
    command = [compiler, *FLAGS, str(code), "-o", str(library), "-lmvec", "-lm"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise Unavailable(f"gcc: {run.stderr.strip().splitlines()[0]}")
    return ctypes.CDLL(str(library))
