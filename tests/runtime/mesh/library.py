"""A library with NCCL's interface whose devices' memory is the host's, between real processes: it hands to MPI what is
asked of it, group by group, as NCCL would put it on its stream."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import loopgrad as lg
from loopgrad.lazy.mesh.meshes import Mesh
from loopgrad.runtime import devices
from loopgrad.runtime.gpu.streams.collectives import TYPES, joined
from loopgrad.runtime.mesh.device import MeshDevice
from loopgrad.runtime.mesh.world import world
from tests.simulator.device import SimulatorDevice

SUMMED = {7: "f4", 8: "f8"}


def memory(address: int, length: int, dtype: Any = np.uint8) -> Any:
    """The memory there, as an array."""
    content = (ctypes.c_char * (length * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(content, dtype)


class Function:
    """A function of a library, as ctypes has them: with attributes."""

    def __init__(self, do: Any) -> None:
        self.do = do

    def __call__(self, *arguments: Any) -> int:
        self.do(*arguments)
        return 0


class MpiLibrary:
    """`counts`: how often what was called."""

    def __init__(self) -> None:
        from mpi4py import MPI  # late: only where there is a launcher

        self.comm: Any = MPI.COMM_WORLD.Dup()
        self.group: list[Any] = []
        self.counts: dict[str, int] = {}
        functions = {
            "ncclGetUniqueId": lambda _: None, "ncclCommInitRank": self.joins, "ncclGroupStart": self.group.clear,
            "ncclGroupEnd": self.run, "ncclGetErrorString": lambda _: b"refused",
        }  # fmt: skip
        for name, do in functions.items():
            setattr(self, name, Function(do))
        for name in ("ncclAllGather", "ncclBroadcast", "ncclAllReduce", "ncclSend", "ncclRecv"):
            setattr(self, name, Function(lambda *arguments, name=name: self.group.append((name, *arguments))))

    def joins(self, handle: Any, size: int, token: Any, rank: int) -> None:
        assert (size, rank) == (self.comm.size, self.comm.rank)

    def run(self) -> None:
        requests: list[Any] = []
        for name, *arguments in self.group:
            self.counts[name] = self.counts.get(name, 0) + 1
            requests += getattr(self, name.removeprefix("nccl").lower())(*arguments)
        for request in requests:
            request.Wait()

    def allgather(self, source: int, target: int, count: int, *_: Any) -> list[Any]:
        self.comm.Allgather(memory(source, count).copy(), memory(target, count * self.comm.size))
        return []

    def broadcast(self, source: int, target: int, count: int, _: int, root: int, *more: Any) -> list[Any]:
        found = memory(target, count)
        if root == self.comm.rank:
            found[:] = memory(source, count)
        self.comm.Bcast(found, root)
        return []

    def allreduce(self, source: int, target: int, count: int, kind: int, *_: Any) -> list[Any]:
        assert kind in TYPES.values()
        self.comm.Allreduce(memory(source, count, SUMMED[kind]).copy(), memory(target, count, SUMMED[kind]))
        return []

    def send(self, address: int, count: int, _: int, peer: int, *more: Any) -> list[Any]:
        return [self.comm.Isend(memory(address, count).copy(), peer)]

    def recv(self, address: int, count: int, _: int, peer: int, *more: Any) -> list[Any]:
        return [self.comm.Irecv(memory(address, count), peer)]


class WithLibrary(SimulatorDevice):
    """A simulated GPU of this process."""

    def __init__(self) -> None:
        super().__init__(1)
        self.library = MpiLibrary()

    def collectives(self, communicator: Any) -> Any:
        return joined(lambda: self.library, "MPI's library", self.driver, b"%d" % communicator.rank, communicator)


def gpu_mesh() -> tuple[Mesh, WithLibrary | None]:
    """A mesh of simulated GPUs, one a process."""
    engine = world()
    inner = WithLibrary() if engine.meets else SimulatorDevice(1)
    device = MeshDevice(inner, engine)
    device.name = "mesh:library"
    devices.MAKERS[device.name] = lambda: device
    assert (device.memory is not None) == engine.meets
    return Mesh(engine.rank, engine.size, device.name), inner if isinstance(inner, WithLibrary) else None


def gpu_mesh_by_host() -> Mesh:
    """As `gpu_mesh`, where no library moves the memory of devices."""
    engine, name = world(), "mesh:by host"
    device = MeshDevice(SimulatorDevice(1), engine)
    device.name = name
    devices.MAKERS[name] = lambda: device
    return Mesh(engine.rank, engine.size, name)


def check_sums(mesh: Mesh, library: WithLibrary | None) -> None:
    """In the library's own order, and that its functions were called."""
    x = lg.shard(np.linspace(0.0, 1.0, 77), mesh)
    with lg.options(fast_collectives=True):
        np.testing.assert_allclose(float(lg.sum(lg.sin(x))), np.sin(np.linspace(0.0, 1.0, 77)).sum())
    if library is not None:
        wanted = {"ncclAllGather", "ncclAllReduce", "ncclSend", "ncclRecv"}
        assert wanted <= set(library.library.counts), library.library.counts
