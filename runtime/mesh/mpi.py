"""The adapter of MPI, through mpi4py: collectives on host memory."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from loopgrad.runtime.mesh.communicator import Array, Bytes
from loopgrad.runtime.mesh.start import RUNNER

LOCAL_RANKS: Final = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
PATIENCE: Final = 50e-6  # seconds between two looks


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _await(request: Any) -> None:
    """Let others compute until a collective is over: MPI's own waiting takes a core, of which there are too few."""
    while not request.Test():
        time.sleep(PATIENCE)


def end_all_by_exceptions() -> None:
    """An exception that nobody catches ends all processes, as under `python -m mpi4py`: the others would wait for this
    one for ever."""
    before = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)

    sys.excepthook = end


class MpiCommunicator:
    """All processes of this MPI program, in a communicator of their own: messages of the user's stay apart."""

    def __init__(self) -> None:
        self._comm: Any = MPI.COMM_WORLD.Dup()
        self.name = MPI.get_vendor()[0]
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self.meets = self.size > 1
        if self.meets and RUNNER not in sys.modules:
            end_all_by_exceptions()
        known = [os.environ[name] for name in LOCAL_RANKS if name in os.environ]
        self.local_rank = int(known[0]) if known else self.rank

        here = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self._crowded = here.Get_size() > cores()
        here.Free()

    def gather(self, message: Bytes) -> Bytes:
        rows = np.empty((self.size, len(message)), np.uint8)
        if self._crowded:
            _await(self._comm.Iallgather(message, rows))
        else:
            self._comm.Allgather(message, rows)
        return rows

    def gather_ragged(self, own: Bytes, lengths: Sequence[int]) -> Bytes:
        found = np.empty(sum(lengths), np.uint8)
        if self._crowded:
            _await(self._comm.Iallgatherv(own, (found, lengths)))
        else:
            self._comm.Allgatherv(own, (found, lengths))
        return found

    def total(self, array: Array) -> Array:
        wide = array.astype(np.float32) if array.dtype.kind == "V" or array.dtype == np.float16 else array
        found = np.empty_like(wide)
        dense = np.ascontiguousarray(wide)
        if self._crowded:
            _await(self._comm.Iallreduce(dense, found))
        else:
            self._comm.Allreduce(dense, found)
        return found.astype(array.dtype, copy=False)
