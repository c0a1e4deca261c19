"""A mesh whose processes are threads of this one: whole programs of users, each thread with a device of its own.

What `mpi.py` does for real processes is done here by a room in which threads meet. A thread that ends, or that waits
for longer than anybody may, ends all: a test fails then, and doesn't hang.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
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
        return np.asarray(sum(self._room.exchanged(self.rank, array.copy()))).astype(array.dtype)


class ThreadMemory:
    """Implements `Memory`: what NCCL would put on a stream is done at once, since a simulator's work is."""

    name = "threads' memory"

    def __init__(self, communicator: ThreadCommunicator) -> None:
        self._rank, self._exchanged = communicator.rank, communicator.exchanged

    def gather(self, parts: Sequence[Gathered]) -> None:
        for source, target, lengths in parts:
            each = np.concatenate(self._exchanged(_bytes(source, lengths[self._rank])))
            assert len(each) == sum(lengths)
            if len(each):
                memory(target, len(each))[:] = each

    def exchange(self, parts: Sequence[Exchanged]) -> None:
        for sent, taken in parts:
            each = self._exchanged([(to, _bytes(address, n)) for to, address, n in sent if n])
            queues = [[data for to, data in given if to == self._rank] for given in each]
            for rank, address, n in taken:
                if n:
                    memory(address, n)[:] = queues[rank].pop(0)
            assert not any(queues)

    def sum(self, parts: Sequence[Summed]) -> None:
        for source, target, n, dtype in parts:
            memory(target, n, dtype.np)[:] = sum(self._exchanged(memory(source, n, dtype.np).copy()))


def _bytes(address: int, n: int) -> Bytes:
    return memory(address, n).copy() if n else np.empty(0, np.uint8)


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
