"""The processes that a launcher started, as `lg.mesh` and the device of a mesh ask for them."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Final

from loopgrad.graph.errors import explained
from loopgrad.runtime.mesh.communicator import Alone, Communicator
from loopgrad.runtime.mesh.start import RUNNER

# What launchers set: Open MPI and PRRTE, MPICH's and Intel's Hydra, Slurm with PMIx or PMI.
LAUNCHED: Final = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID")


@cache
def world() -> Communicator:
    """The processes that the launcher started. RuntimeError where there is one and mpi4py isn't installed."""
    if RUNNER not in sys.modules and not any(name in os.environ for name in LAUNCHED):
        return Alone()
    try:
        from loopgrad.runtime.mesh.mpi import MpiCommunicator  # late: importing mpi4py starts MPI
    except ImportError as missing:
        fix = "pip install loopgrad[mpi]"
        raise RuntimeError(explained("mesh", "mpi4py, under a launcher of MPI", str(missing), fix)) from missing
    return MpiCommunicator()
