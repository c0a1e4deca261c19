"""`python -m loopgrad run`: the command that starts several processes of a program. No launcher: it finds one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

RUNNER: Final = "mpi4py.run"  # what `python -m mpi4py` imports
LAUNCHER: Final = "mpiexec"
THREADS: Final = "LOOPGRAD_NUM_THREADS"
AS_ROOT: Final = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")  # in containers one is


class StartError(Exception):
    """Why the processes can't be started."""


def run(count: int, program: Path, arguments: Sequence[str]) -> int:
    """Run the program in so many processes; the exit status is the launcher's. StartError where it can't be started."""
    if count < 1:
        raise StartError(f"-n: expected at least 1 process, got {count}")
    if not program.is_file():
        raise StartError(f"expected a Python file to run, there is none at {program}")
    if importlib.util.find_spec("mpi4py") is None:
        raise StartError("expected mpi4py to be installed; pip install loopgrad[mpi]")
    command = [*launcher(count), sys.executable, "-m", "mpi4py", str(program), *arguments]
    return subprocess.run(command, env=environment(count, os.environ), check=False).returncode


def launcher(count: int) -> list[str]:
    """The command in front of the program's: the launcher beside this Python, or else the one on PATH."""
    beside = Path(sys.executable).with_name(LAUNCHER)
    found = str(beside) if beside.exists() else shutil.which(LAUNCHER)
    if found is None:
        raise StartError(f"expected {LAUNCHER} beside {sys.executable} or on PATH; pip install loopgrad[mpi]")
    about = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    own = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in about.stdout else []
    return [found, *own, "-n", str(count)]


def environment(count: int, given: Mapping[str, str]) -> dict[str, str]:
    """The processes' environment: threads for the cores that are each one's."""
    made = dict(given)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    made.setdefault(THREADS, str(max(cores // count, 1)))
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        made.update(dict.fromkeys(AS_ROOT, "1"))
    return made
