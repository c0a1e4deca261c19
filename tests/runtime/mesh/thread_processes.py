"""A mesh whose processes are threads of this one: whole programs of users, each thread with a device of its own.

What `mpi.py` does for real processes is done here by a room in which threads meet. A thread that ends, or that waits
for longer than anybody may, ends all: a test fails then, and doesn't hang.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import count
from typing import Any, Final

import numpy as np

from loopgrad.lazy.mesh.meshes import Mesh
from loopgrad.runtime import devices
from loopgrad.runtime.mesh.background import Background
from loopgrad.runtime.mesh.communicator import Array, Bytes, CallHistory, Exchanged, Gathered, Said, Summed
from loopgrad.runtime.mesh.device import MeshDevice
from tests.runtime.mesh.library import memory
from tests.simulator.device import SimulatorDevice
from tests.simulator.driver import PATTERN

LONGEST: Final = 120.0  # seconds that a thread waits for the others, who may compile on a busy machine
EXCHANGING: Final = "exchanging"  # a simulated GPU, whose memory goes to others without the host
NUMBERS = count()


class Room:
    """Where `size` threads meet."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=LONGEST)
        self.given: list[Any] = [None] * size

    def exchanged(self, rank: int, own: Any) -> list[Any]:
        """What each gives."""
        self.given[rank] = own
        self.barrier.wait()
        found = list(self.given)
        self.barrier.wait()
        return found


class ThreadCommunicator:
    """Implements `Communicator`."""

    name = "threads"

    def __init__(self, room: Room, rank: int, size: int) -> None:
        self._room = room
        self.rank = self.local_rank = rank
        self.size = size
        self.meets = size > 1
        self.history = CallHistory()
        self.background = Background()
        self.met = 0

    def exchanged(self, own: Any) -> list[Any]:
        """What each gives."""
        return self._room.exchanged(self.rank, own)

    def gather(self, message: bytes) -> Sequence[Said]:
        self.met += 1
        return self._room.exchanged(self.rank, message)

    def gather_ragged(self, own: Bytes, lengths: Sequence[int], found: Bytes) -> None:
        each = self._room.exchanged(self.rank, own.copy())
        assert [len(x) for x in each] == list(lengths)
        found[:] = np.concatenate(each)

    def exchange(self, own: Bytes, given: Sequence[int], found: Bytes, taken: Sequence[int]) -> None:
        stops = np.cumsum(given)
        each = self._room.exchanged(self.rank, [own[b - n : b].copy() for b, n in zip(stops, given, strict=True)])
        mine = [parts[self.rank] for parts in each]
        assert [len(x) for x in mine] == list(taken)
        found[:] = np.concatenate(mine)

    def total(self, array: Array) -> Array:
        return np.asarray(reduce(np.add, self._room.exchanged(self.rank, array.copy()))).astype(array.dtype)


class UnderWay:
    """A collective beside other work, which may read its operands and write its results at any time until it is joined:
    so nobody may write the ones, or use the memory of the others. Until then that holds what nobody wants."""

    def __init__(self) -> None:
        self.read: list[tuple[int, Bytes]] = []
        self.written: list[tuple[int, Bytes]] = []

    def write(self, address: int, data: Bytes) -> None:
        self.written.append((address, data))
        memory(address, len(data))[:] = PATTERN

    def end(self) -> None:
        for address, data in self.read:
            assert (memory(address, len(data)) == data).all(), "an operand of a collective under way was overwritten"
        for address, data in self.written:
            found = memory(address, len(data))
            assert (found == PATTERN).all(), "the memory of a result under way was written"
            found[:] = data


class ThreadMemory:
    """Implements `Memory`: what NCCL would put on a stream is done at once, since a simulator's work is. `begun`: how
    many collectives went on beside other work."""

    name = "threads' memory"

    def __init__(self, communicator: ThreadCommunicator) -> None:
        self._rank, self._exchanged = communicator.rank, communicator.exchanged
        self._beside: UnderWay | None = None
        self.under_way: dict[int, UnderWay] = {}
        self.begun = 0

    def gather(self, parts: Sequence[Gathered]) -> None:
        for source, target, lengths in parts:
            each = np.concatenate(self._exchanged(self._read(source, lengths[self._rank])))
            assert len(each) == sum(lengths)
            self._write(target, each)

    def exchange(self, parts: Sequence[Exchanged]) -> None:
        for sent, taken in parts:
            each = self._exchanged([(to, self._read(address, n)) for to, address, n in sent if n])
            queues = [[data for to, data in given if to == self._rank] for given in each]
            for rank, address, n in taken:
                if n:
                    self._write(address, queues[rank].pop(0))
            assert not any(queues)

    def sum(self, parts: Sequence[Summed]) -> None:
        for source, target, n, dtype in parts:
            each = self._exchanged(self._read(source, n * dtype.itemsize))
            self._write(target, np.asarray(reduce(np.add, [own.view(dtype.np) for own in each])).view(np.uint8))

    def beside(self, start: Callable[[], None]) -> int:
        self.begun += 1
        self._beside = self.under_way[self.begun] = UnderWay()
        try:
            start()
            return self.begun
        finally:
            self._beside = None

    def join(self, started: int) -> None:
        if started in self.under_way:
            self.under_way.pop(started).end()

    def join_all(self) -> None:
        for started in list(self.under_way):
            self.join(started)

    def _read(self, address: int, n: int) -> Bytes:
        found = memory(address, n).copy() if n else np.empty(0, np.uint8)
        if self._beside is not None:
            self._beside.read.append((address, found))
        return found

    def _write(self, address: int, data: Bytes) -> None:
        if not len(data):
            return
        if self._beside is not None:
            self._beside.write(address, data)
        else:
            assert not self.under_way, "collectives have one order on all devices"
            memory(address, len(data))[:] = data


class ExchangingDevice(SimulatorDevice):
    def __init__(self) -> None:
        super().__init__(1)

    def collectives(self, communicator: Any) -> Any:
        return ThreadMemory(communicator)


def on_threads(size: int, program: Callable[[Mesh], Any], inner: str = "cpu") -> list[Any]:
    """What `program` gives on each of `size` processes, for its mesh. The first error that isn't another thread's is
    raised."""
    room, results, failed = Room(size), [None] * size, list[BaseException]()
    number = next(NUMBERS)
    made = []
    for rank in range(size):
        own = ExchangingDevice() if inner == EXCHANGING else devices.get_device(inner)
        device = MeshDevice(own, ThreadCommunicator(room, rank, size))
        device.name = f"mesh:{inner} {number}.{rank}"
        devices.MAKERS[device.name] = lambda device=device: device
        made.append(device.name)

    def process(rank: int) -> None:
        try:
            results[rank] = program(Mesh(rank, size, made[rank]))
        except BaseException as error:
            failed.append(error)
            room.barrier.abort()

    threads = [threading.Thread(target=process, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in made:
        del devices.MAKERS[name]
        devices._made.pop(name, None)
    if failed:
        raise next((e for e in failed if not isinstance(e, threading.BrokenBarrierError)), failed[0])
    return results
