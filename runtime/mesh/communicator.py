"""What moves bytes between processes: the protocol, and what stands for it where there is one process.

Nothing here is a transport: `MpiCommunicator` (`mpi.py`) hands bytes to MPI. What moves the memory of devices without
the host is a `Memory` beside it (`runtime/gpu/streams/collectives.py`: NCCL, RCCL).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from loopgrad.graph.types import DType
from loopgrad.runtime.mesh.background import Background

Gathered = tuple[int, int, Sequence[int]]  # the address of the own bytes, of all, how many each process has
Span = tuple[int, int, int]  # to or from which process, the address, how many bytes
Exchanged = tuple[Sequence[Span], Sequence[Span]]  # what goes, what comes; between two processes in one order
Summed = tuple[int, int, int, DType]  # the address of the own numbers, of the sums, how many of which type
MESSAGE: Final = 1024  # bytes of the longest
Said = bytes | bytearray
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Array = np.ndarray[Any, Any]


class CallHistory:
    """How often this process has met the others, or tried to. `known`: the error that all know of since the last time;
    `over`: why nobody can meet any more."""

    def __init__(self) -> None:
        self.calls = 0
        self.known: Exception | None = None
        self.over = ""


class Communicator(Protocol):
    """The processes of one program. All call the same methods in the same order."""

    @property
    def name(self) -> str: ...

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def local_rank(self) -> int:
        """Which of the processes on this machine."""
        ...

    @property
    def meets(self) -> bool:
        """Whether programs need collectives: there are other processes."""
        ...

    def gather(self, message: bytes) -> Sequence[Said]:
        """Every process' message of up to MESSAGE bytes, of any length each. Behind it there may be others, and the
        next one comes into the same memory."""
        ...

    def gather_ragged(self, own: Bytes, lengths: Sequence[int], found: Bytes) -> None:
        """The bytes of all processes, one behind the other, into `found`."""
        ...

    def exchange(self, own: Bytes, given: Sequence[int], found: Bytes, taken: Sequence[int]) -> None:
        """To each process the next `given` bytes of the own ones; from each `taken`, one behind the other, into
        `found`."""
        ...

    @property
    def history(self) -> CallHistory:
        """Of this process' calls."""
        ...

    @property
    def background(self) -> Background | None:
        """What sends and receives while the process computes; None where the engine allows one thread only."""
        ...

    def total(self, array: Array) -> Array:
        """The sum over processes, in the engine's own order. The same on all of them."""
        ...


class Memory(Protocol):
    """Collectives on the memory of devices, in the order of their work: all processes call the same, in one order."""

    @property
    def name(self) -> str: ...

    def gather(self, parts: Sequence[Gathered]) -> None:
        """Of each part the bytes of all processes, one behind the other."""
        ...

    def exchange(self, parts: Sequence[Exchanged]) -> None:
        """Of each part what goes to other processes, and what comes from them."""
        ...

    def sum(self, parts: Sequence[Summed]) -> None:
        """Of each part the sums over processes, in the engine's own order."""
        ...

    def beside(self, start: Callable[[], None]) -> int:
        """The collectives that `start` asks for, behind the work that was started and beside what comes, until that
        joins them by what this gives. All must be joined before another collective that isn't beside."""
        ...

    def join(self, started: int) -> None:
        """What comes waits for these collectives, if it doesn't yet."""
        ...

    def join_all(self) -> None:
        """What comes waits for all that was started beside."""
        ...


class Alone:
    """The communicator of a program that no launcher started."""

    name = "no engine"
    rank = 0
    size = 1
    local_rank = 0
    meets = False

    def __init__(self) -> None:
        self.history = CallHistory()
        self.background = Background()

    def gather(self, message: bytes) -> Sequence[Said]:
        return (message,)

    def gather_ragged(self, own: Bytes, lengths: Sequence[int], found: Bytes) -> None:
        found[:] = own

    def exchange(self, own: Bytes, given: Sequence[int], found: Bytes, taken: Sequence[int]) -> None:
        found[:] = own

    def total(self, array: Array) -> Array:
        return array
