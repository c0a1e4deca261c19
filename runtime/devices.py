"""The devices of this machine, by name.

`cpu` and `interpreter` always work. A kind that can't be used stays listed with the reason in one
line; asking for it raises with that line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from loopgrad.codegen.options import Options
from loopgrad.graph.errors import explained
from loopgrad.graph.location import located, user_location
from loopgrad.graph.nodes import Graph, Noted
from loopgrad.graph.structure import LeafOf
from loopgrad.graph.types import DType, TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.executable import DirectProgram, Executable, NotedProgram
from loopgrad.runtime.plan import MemoryStats
from loopgrad.runtime.processes import child_safe_lock, renewed_in_children

PUBLIC: Final = "devices DeviceStatus"


class Device(Protocol):
    """Where buffers live and graphs run."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    def put(self, array: np.ndarray[Any, Any], copy: bool = True) -> Buffer: ...

    def get(self, buffer: Buffer) -> np.ndarray[Any, Any]: ...

    def taken(self, buffer: Buffer) -> Buffer | None:
        """A buffer of another device as one of this device, without a copy; None where it must be copied."""
        ...

    @property
    def lent(self) -> Callable[[np.ndarray[Any, Any], TensorType], Buffer] | None:
        """What makes a row-major array of the host, and its type, an input for the time of one call, without a copy.
        None where programs read other memory."""
        ...

    def adds_rows_alike(self, rows: int, terms: int, columns: int, dtype: DType) -> bool:
        """Whether products of matrices of at least so many rows add up elements in one order, however many rows there
        are; the same where rows and columns are exchanged."""
        ...

    @property
    def reduces_shards(self) -> bool:
        """Whether programs keep the order of `primitives.shards` (whose node such a device takes)."""
        ...

    def compile(self, graph: Graph, options: Options) -> Executable: ...

    def direct(self, graph: Graph, options: Options) -> DirectProgram | None:
        """The graph as a program that runs at once; None where it has to be compiled."""
        ...

    def noted(self, output: Noted, leaf_of: LeafOf, options: Options, together: bool) -> NotedProgram | None:
        """What gives the elements of a noted value at once; None where a graph is needed. Raises CalledOften
        where `together`."""
        ...

    def memory_stats(self) -> MemoryStats: ...

    def finish(self) -> None:
        """Wait until all work that was started is done."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """`reason` says in one line why the device can't be used; empty where it can."""

    name: str
    kind: str
    available: bool
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {'available' if self.available else self.reason}"


def _cpu() -> Device:
    from loopgrad.runtime.cpu.device import CpuDevice  # late: it locates libraries and counts cores

    return CpuDevice()


def _interpreter() -> Device:
    from loopgrad.runtime.interpreter import InterpreterDevice  # late: only checking needs it

    return InterpreterDevice()


def _mesh(name: str) -> Device:
    """The device that the processes of a launcher make up, each with the device named behind the prefix."""
    from loopgrad.runtime.mesh.device import PREFIX, MeshDevice  # late, as above
    from loopgrad.runtime.mesh.world import world  # late: few programs have several processes

    return MeshDevice(get_device(name.removeprefix(PREFIX)), world())


def _vulkan(position: int) -> Device:
    from loopgrad.runtime.vulkan.device import VulkanDevice  # late: it loads the driver

    return VulkanDevice(position)


def _vulkan_count() -> tuple[int, str]:
    from loopgrad.runtime.vulkan.api import device_count  # late, as above

    return device_count()


def _cuda(position: int) -> Device:
    from loopgrad.runtime.cuda.device import CudaDevice  # late: it makes a context

    return CudaDevice(position)


def _cuda_count() -> tuple[int, str]:
    from loopgrad.runtime.cuda.found import device_count  # late, as above

    return device_count()


def _hip(position: int) -> Device:
    from loopgrad.runtime.hip.device import HipDevice  # late: it loads the driver

    return HipDevice(position)


def _hip_count() -> tuple[int, str]:
    from loopgrad.runtime.hip.found import device_count  # late, as above

    return device_count()


MAKERS: Final[dict[str, Callable[[], Device]]] = {"cpu": _cpu, "interpreter": _interpreter}

# kind -> (how many devices there are and, where none, why; the maker of one by its number)
NUMBERED: Final[dict[str, tuple[Callable[[], tuple[int, str]], Callable[[int], Device]]]] = {
    "cuda": (_cuda_count, _cuda),
    "hip": (_hip_count, _hip),
    "vulkan": (_vulkan_count, _vulkan),
}

HOST_KINDS: Final = ("cpu", "interpreter")

# kinds whose memory other libraries can use: DLPack's numbers of them, and the one that the CUDA array interface is for
SHARED_KINDS: Final = {"cuda": 2, "hip": 10}
CUDA_ARRAYS: Final = "cuda"

_made: dict[str, Device] = {}
_lock = child_safe_lock()


def _forget_lost() -> None:
    """In a forked child: GPUs are gone (runtime.processes)."""
    for name, device in list(_made.items()):
        if device.kind not in HOST_KINDS:
            del _made[name]


renewed_in_children(_forget_lost)


def devices_in_use() -> list[Device]:
    """Those that something was asked of so far."""
    return list(_made.values())


def devices() -> list[DeviceStatus]:
    """Every kind of device, usable or not: a list of `DeviceStatus`.

    `available` is a bool, and `reason` says why a device can't be used.

    >>> [d.name for d in lg.devices() if d.kind == "interpreter"]
    ['interpreter']
    """
    found = [DeviceStatus(name, name, True) for name in MAKERS]
    for kind, (count, _) in NUMBERED.items():
        number, reason = count()
        found += [DeviceStatus(f"{kind}:{i}", kind, not reason, reason) for i in range(max(number, 1))]
    return found


def tell_others(name: str, error: Exception) -> None:
    """Of a mesh: the other processes, which may wait for a program of that device that this one couldn't make."""
    if name.startswith("mesh:"):
        from loopgrad.runtime.mesh.device import MeshDevice  # late: it names this module

        device = get_device(name)
        assert isinstance(device, MeshDevice)
        device.tell(error, b"traced", lambda: "a program that couldn't be traced")


def get_device(name: str) -> Device:
    """The device of that name; ValueError where none is known, RuntimeError where it can't run."""
    if not isinstance(name, str):
        raise TypeError(explained("device", "a device's name", repr(name), "lg.devices() lists them"))
    if name in NUMBERED:
        name = f"{name}:0"
    made = _made.get(name)
    if made is not None:
        return made
    maker = MAKERS.get(name) or _shared(name) or _numbered(name)
    if maker is None:
        known = ", ".join(status.name for status in devices())
        fix = "lg.devices() says more of each"
        raise ValueError(explained("device", f"one of the devices {known}", repr(name), fix))
    with _lock:
        if name not in _made:
            _made[name] = maker()
        return _made[name]


def _shared(name: str) -> Callable[[], Device] | None:
    """The maker of a device of many processes, which `lg.mesh` names."""
    return (lambda: _mesh(name)) if isinstance(name, str) and name.startswith("mesh:") else None


def _numbered(name: str) -> Callable[[], Device] | None:
    """The maker of a device whose kind counts its devices; RuntimeError where it isn't there."""
    kind, _, index = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind not in NUMBERED or (index and not index.isdigit()):
        return None
    count, make = NUMBERED[kind]
    number, reason = count()
    position = int(index or 0)
    if position >= number:
        reason = reason or f"there are only {number} devices of this kind"
        text = f"device {name!r} can't be used: {reason}; use one of {', '.join(MAKERS)}"
        raise RuntimeError(located(text, user_location()))
    return lambda: make(position)
