"""The adapter of MPI, through mpi4py: collectives on host memory."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from loopgrad.runtime.mesh.background import Background
from loopgrad.runtime.mesh.communicator import MESSAGE, Array, Bytes, CallHistory, Said
from loopgrad.runtime.mesh.messages import ended
from loopgrad.runtime.mesh.start import RUNNER

LOCAL_RANKS: Final = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
PATIENCE: Final = 50e-6  # seconds between two looks
SHORT: Final = 64  # bytes of most messages: they take half as long as the longest
FEW: Final = 8  # processes that write to each other themselves


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _await(is_over: Callable[[], bool]) -> None:
    """Let others compute until something is over: MPI's own waiting takes a core, of which there are too few."""
    while not is_over():
        time.sleep(PATIENCE)


class Mailboxes:
    """Messages between few processes, each in memory of its own: from each to each, by requests that are made once.
    That is a fraction of what a collective of the same bytes takes. (Not MPI's blocking collectives:
    they don't meet others, by which a process may wait whose background sends what another one's main thread does,
    because it failed.)"""

    def __init__(self, comm: Any) -> None:
        rank, size = comm.Get_rank(), comm.Get_size()
        self._messages = [bytearray(MESSAGE) for _ in range(size)]
        self._own = own = self._messages[rank]
        others = [other for other in range(size) if other != rank]
        receive = [comm.Recv_init([self._messages[other], MPI.BYTE], other) for other in others]
        self._requests = [
            [*receive, *[comm.Send_init([own, length, MPI.BYTE], other) for other in others]]
            for length in (SHORT, MESSAGE)
        ]
        self._under_way: Sequence[Any] = ()

    def exchanged(self, message: bytes, patient: bool) -> Sequence[Said]:
        """What all say, until the next time."""
        if self._under_way:  # the wait was broken off
            MPI.Request.Waitall(self._under_way)
        n = len(message)
        self._own[:n] = message
        self._under_way = requests = self._requests[n > SHORT]
        for request in requests:
            request.Start()
        if patient:
            _await(lambda: MPI.Request.Testall(requests))
        else:
            for request in requests:
                request.Wait()
        self._under_way = ()
        return self._messages


def end_all_by_exceptions(communicator: MpiCommunicator) -> None:
    """An exception that nobody catches ends all processes, as under `python -m mpi4py`: the others would wait for this
    one for ever. Of a program that ends otherwise the others are told (`messages.ended`)."""
    owner, runner = os.getpid(), sys.modules.get(RUNNER)
    if runner is None:
        _end_by_excepthook(owner)
    else:
        _note_status(runner, communicator)

    def tell() -> None:
        if os.getpid() == owner and not MPI.Is_finalized() and not communicator.ends_all:
            ended(communicator)

    atexit.register(tell)


def _end_by_excepthook(owner: int) -> None:
    before = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        sys.stderr.flush()
        if os.getpid() == owner:
            MPI.COMM_WORLD.Abort(1)

    sys.excepthook = end


def _note_status(runner: Any, communicator: MpiCommunicator) -> None:
    """`python -m mpi4py` ends all processes when this one has ended, where its status says so: nobody is told then."""
    noted = runner.set_abort_status

    def note(status: Any) -> None:
        communicator.ends_all = not isinstance(status, SystemExit) or bool(status.code)
        noted(status)

    runner.set_abort_status = note


class MpiCommunicator:
    """All processes of this MPI program, in a communicator of their own: messages of the user's stay apart."""

    def __init__(self) -> None:
        self._comm: Any = MPI.COMM_WORLD.Dup()
        self.name = MPI.get_vendor()[0]
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self.meets = self.size > 1
        self.history = CallHistory()
        self.background = Background() if MPI.Query_thread() >= MPI.THREAD_SERIALIZED else None
        self.ends_all = False
        if self.meets:
            end_all_by_exceptions(self)
        known = [os.environ[name] for name in LOCAL_RANKS if name in os.environ]
        self.local_rank = int(known[0]) if known else self.rank

        here = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        crowded = here.Get_size() > cores()
        here.Free()
        self._crowded: bool = self._comm.allreduce(crowded, MPI.LOR)  # all call the same functions of MPI, or none meet
        self._mailboxes = Mailboxes(self._comm) if self.size <= FEW else None

    @property
    def _patient(self) -> bool:
        """Whether cores are for others while this thread waits."""
        return self._crowded or (self.background is not None and self.background.here)

    def gather(self, message: bytes) -> Sequence[Said]:
        if self._mailboxes is not None:
            return self._mailboxes.exchanged(message, self._patient)
        found = bytearray(self.size * MESSAGE)
        request = self._comm.Iallgather(message.ljust(MESSAGE, b"\0"), found)
        if self._patient:
            _await(request.Test)
        else:
            request.Wait()
        return [found[at : at + MESSAGE] for at in range(0, len(found), MESSAGE)]

    def gather_ragged(self, own: Bytes, lengths: Sequence[int], found: Bytes) -> None:
        if self._patient:
            _await(self._comm.Iallgatherv(own, (found, lengths)).Test)
        else:
            self._comm.Allgatherv(own, (found, lengths))

    def exchange(self, own: Bytes, given: Sequence[int], found: Bytes, taken: Sequence[int]) -> None:
        if self._patient:
            _await(self._comm.Ialltoallv((own, given), (found, taken)).Test)
        else:
            self._comm.Alltoallv((own, given), (found, taken))

    def total(self, array: Array) -> Array:
        wide = array.astype(np.float32) if array.dtype.kind == "V" or array.dtype == np.float16 else array
        found = np.empty_like(wide)
        dense = np.ascontiguousarray(wide)
        if self._patient:
            _await(self._comm.Iallreduce(dense, found).Test)
        else:
            self._comm.Allreduce(dense, found)
        return found.astype(array.dtype, copy=False)
