"""Collectives on a device's own memory and stream, by a library with NCCL's C interface (NCCL; AMD's RCCL).

A collective is put on the stream behind what makes its operands, and what reads its results comes behind it: the host
doesn't wait. One that only starts is put on a second stream, beside the work that comes until that waits for it.
All operands of one travel in one group, which the library starts as one kernel. Rows of which every
process has as many are gathered by one call; others by one call for each process that has some.

Processes find each other through the communicator that they have already (MPI), which also brings errors and the check
that programs agree before each collective (`runtime/mesh/collective_call.py`).
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Callable, Sequence
from ctypes import byref, c_char, c_char_p, c_int, c_size_t, c_void_p
from hashlib import blake2b
from typing import Any, Final

from loopgrad.graph.types import DType, bfloat16, float16, float32, float64
from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.gpu.streams.driver import StreamDriver
from loopgrad.runtime.mesh.collective_call import PURPOSE, CollectiveCall
from loopgrad.runtime.mesh.communicator import Communicator, Exchanged, Gathered, Memory, Summed

ID_BYTES: Final = 128
BYTES: Final = 0  # the library's name of a byte's type
ADD: Final = 0
TYPES: Final[dict[DType, int]] = {float16: 6, float32: 7, float64: 8, bfloat16: 9}
MESSAGE: Final = struct.Struct(f"<?16s{ID_BYTES}s")  # has the library, which device, where processes meet


class UniqueId(ctypes.Structure):
    """Where the processes of a communicator meet."""

    _fields_ = (("internal", c_char * ID_BYTES),)


SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "ncclGetUniqueId": (c_void_p,),
    "ncclCommInitRank": (c_void_p, c_int, UniqueId, c_int),
    "ncclAllGather": (c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p),
    "ncclBroadcast": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclAllReduce": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclSend": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclRecv": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}


class Library:
    """The functions of such a library, by their names; what they refuse is raised."""

    def __init__(self, loaded: Any, name: str) -> None:
        self.name = name
        self._explain = loaded.ncclGetErrorString
        self._explain.restype, self._explain.argtypes = c_char_p, (c_int,)
        self._functions: dict[str, Any] = {}
        for function, arguments in SIGNATURES.items():
            entry = self._functions[function] = getattr(loaded, function)
            entry.restype, entry.argtypes = c_int, arguments

    def call(self, function: str, *arguments: Any) -> None:
        status = self._functions[function](*arguments)
        if status:
            raise StreamFailure(f"{function}: {self._explain(status).decode()}")


class StreamCollectives:
    """Implements `Memory`: the processes' devices, one each. The device's lock is held where it is called."""

    def __init__(self, library: Library, driver: StreamDriver, token: bytes, rank: int, size: int) -> None:
        self.name = library.name
        self._library, self._driver = library, driver
        self._handle = c_void_p()
        self._stream = driver.api.stream
        self._second: int | None = None
        self._events: list[Any] = []  # that nobody waits for
        self._started: dict[int, Any] = {}  # events behind what is on the second stream, by how many came before
        self._count = 0
        with driver.lock:
            library.call("ncclCommInitRank", byref(self._handle), size, UniqueId.from_buffer_copy(token), rank)

    def gather(self, parts: Sequence[Gathered]) -> None:
        self._grouped(self._gather, parts)

    def exchange(self, parts: Sequence[Exchanged]) -> None:
        self._grouped(self._exchange, parts)

    def sum(self, parts: Sequence[Summed]) -> None:
        self._grouped(self._sum, parts)

    def beside(self, start: Callable[[], None]) -> int:
        api = self._driver.api
        with self._driver.watched({}):
            if self._second is None:
                self._second = api.make_stream()
            event = self._events.pop() if self._events else api.make_event()
            api.order(api.stream, self._second)
            self._stream = self._second
            try:
                start()
            finally:
                self._stream = api.stream
                api.record(event, self._second)
                self._count += 1
                self._started[self._count] = event
        return self._count

    def join(self, started: int) -> None:
        event = self._started.pop(started, None)
        if event is not None:
            with self._driver.watched({}):
                self._driver.api.follow(event)
            self._events.append(event)

    def join_all(self) -> None:
        for started in list(self._started):
            self.join(started)

    def _grouped(self, do: Callable[[Any], None], parts: Sequence[Any]) -> None:
        with self._driver.watched({f"{self.name}'s collective": None}):
            self._library.call("ncclGroupStart")
            try:
                for part in parts:
                    do(part)
            finally:
                self._library.call("ncclGroupEnd")

    def _gather(self, part: Gathered) -> None:
        source, target, lengths = part
        call, handle, stream = self._library.call, self._handle, self._stream
        if len(set(lengths)) == 1:
            if lengths[0]:
                call("ncclAllGather", source, target, lengths[0], BYTES, handle, stream)
            return
        at = 0
        for rank, length in enumerate(lengths):
            if length:
                call("ncclBroadcast", source, target + at, length, BYTES, rank, handle, stream)
            at += length

    def _exchange(self, part: Exchanged) -> None:
        for function, spans in zip(("ncclSend", "ncclRecv"), part, strict=True):
            for rank, address, length in spans:
                if length:
                    self._library.call(function, address, length, BYTES, rank, self._handle, self._stream)

    def _sum(self, part: Summed) -> None:
        source, target, count, dtype = part
        if count:
            arguments = (count, TYPES[dtype], ADD, self._handle, self._stream)
            self._library.call("ncclAllReduce", source, target, *arguments)


def joined(
    load: Callable[[], Any], name: str, driver: StreamDriver, device: bytes, communicator: Communicator
) -> Memory | str:
    """The collectives of all these processes, each of which calls this; or why the host's memory is the way: the same
    answer on all of them. `device` is one for each device of a machine."""
    meeting = CollectiveCall(communicator, b"library".ljust(PURPOSE), lambda: f"{name}'s start for lg.mesh()")
    token = UniqueId()
    try:
        loaded = load()
        library = None if loaded is None else Library(loaded, name)
        if library is not None and communicator.rank == 0:
            library.call("ncclGetUniqueId", byref(token))
        which = blake2b(socket.gethostname().encode() + b"\0" + device, digest_size=16).digest()
        rows = [MESSAGE.unpack(row) for row in meeting.rows(MESSAGE.pack(library is not None, which, bytes(token)))]
    except Exception as error:
        meeting.failed(error)
        raise
    missing = [rank for rank, (there, _, _) in enumerate(rows) if not there]
    if missing or library is None:
        return f"{name} isn't installed where process {missing[0]} is"
    if len({which for _, which, _ in rows}) < len(rows):
        return f"several processes share a device, which {name} doesn't do"
    return StreamCollectives(library, driver, rows[0][2], communicator.rank, communicator.size)
