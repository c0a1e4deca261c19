"""`lg.mesh`: the processes that a launcher started, one device each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from loopgrad.lazy.tensor.config import current
from loopgrad.runtime.devices import NUMBERED, get_device
from loopgrad.runtime.mesh.device import MeshDevice
from loopgrad.runtime.mesh.world import world

PUBLIC: Final = "Mesh mesh"


@dataclass(frozen=True, slots=True)
class Mesh:
    """Processes that run one program: this one is number `rank` of `size`. `device`: what arrays of the mesh are on."""

    rank: int
    size: int
    device: str


def mesh(device: str | None = None) -> Mesh:
    """The processes that a launcher of MPI started (`mpiexec -n 4 python -m mpi4py fit.py`, or
    `python -m loopgrad run -n 4 fit.py`), as a `Mesh`; one of size 1 without a launcher.

    `device` is what each process computes with: the default device, or the one named. Of several GPUs of a machine,
    "cuda" is another one in each of its processes. Every process must run the same program: what differs between them
    goes through `lg.shard`. Results have the same bits, whatever the number of processes.

    Raises RuntimeError where a launcher is there and mpi4py isn't (`pip install loopgrad[mpi]`), or where the device
    can't be used, ValueError for an unknown device.

    >>> mesh = lg.mesh()
    >>> mesh.rank, mesh.size, mesh.device
    (0, 1, 'mesh:cpu')
    """
    engine = world()
    name = current().device if device is None else device
    if name in NUMBERED:
        count, _ = NUMBERED[name][0]()
        name = f"{name}:{engine.local_rank % max(count, 1)}"
    made = get_device(f"mesh:{name}")
    return Mesh(engine.rank, engine.size, made.name)


def mesh_device(mesh: Mesh) -> MeshDevice:
    """What arrays of a mesh are on."""
    found = get_device(mesh.device)
    assert isinstance(found, MeshDevice)
    return found
