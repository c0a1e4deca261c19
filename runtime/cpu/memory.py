"""How much memory may still be allocated, and the blocks that running calls borrow.

Memory is checked before it is taken: a system that overcommits would rather end the process later
than refuse now.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from sys import getrefcount
from typing import Any, Final

import numpy as np

from loopgrad.graph.location import located, user_location
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.processes import child_safe_lock

UNCHECKED_BYTES: Final = 1 << 26  # smaller requests aren't worth reading /proc for
HEADROOM: Final = 0.95
SPARES_PER_TYPE: Final = 4
MOST_IN_RING: Final = 64
RING_BYTES: Final = 1 << 16  # of a buffer in it
ALIGNMENT: Final = 64

UNLIMITED: Final = 1 << 60
"""Bytes: a limit that says there is none."""

_CGROUP_FILES: Final = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_bytes() -> int | None:
    """Bytes that can be allocated without swapping or exceeding a container's limit; None: unknown."""
    bounds = [b for b in (_meminfo(), *(_cgroup(*files) for files in _CGROUP_FILES)) if b is not None]
    if bounds:
        return max(min(bounds), 0)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _meminfo() -> int | None:
    _, _, rest = _read("/proc/meminfo").partition(b"MemAvailable:")
    number = rest.split(maxsplit=1)[:1]
    return int(number[0]) * 1024 if number and number[0].isdigit() else None


def _cgroup(limit_file: str, usage_file: str) -> int | None:
    limit = _read(limit_file).strip()
    if not limit.isdigit() or int(limit) >= UNLIMITED:
        return None
    usage = _read(usage_file).strip()
    return int(limit) - int(usage) if usage.isdigit() else None


def _read(path: str) -> bytes:
    """A short file of the system's, b"" where there is none. Every new program with stacks asks: files that Python
    wraps took five times as long."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, 4096)
    except OSError:
        return b""
    finally:
        os.close(file)


def nothing() -> int:
    return 0


def refusal(needed: int, reusable: Callable[[], int] = nothing) -> tuple[int, int] | None:
    """None where `needed` bytes may be allocated, else (needed, available). `reusable` bytes are
    given back first. What is only kept for speed is dropped before anything is refused."""
    if needed <= UNCHECKED_BYTES:
        return None
    for attempt in range(2):
        available = available_bytes()
        if available is None or needed - reusable() <= available * HEADROOM:
            return None
        if attempt == 0:
            release_idle()
    assert available is not None
    return needed, int(available * HEADROOM) + reusable()


def release_idle() -> None:
    """Give back everything that is only kept for speed."""
    for release in IDLE:
        release()


def ensure(needed: int, purpose: str) -> None:
    """MemoryError, with need and available, where `needed` bytes can't be allocated."""
    refused = refusal(needed)
    if refused is not None:
        text = (
            f"{purpose}: expected at most {refused[1]:,} bytes (what is available), needed {needed:,}; "
            "use smaller arrays or a narrower dtype"
        )
        raise MemoryError(located(text, user_location()))


class HostBlock:
    """Aligned bytes; `address` is a multiple of 64."""

    __slots__ = ("_memory", "address", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
        start: int = self._memory.ctypes.data
        self.address = (start + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT

    def fill(self, content: bytes) -> None:
        """Copy bytes to the front."""
        start = self.address - self._memory.ctypes.data
        self._memory[start : start + len(content)] = np.frombuffer(content, dtype=np.uint8)


class Arenas:
    """Blocks for temporaries, lent to one call at a time and shared by all Programs."""

    def __init__(self) -> None:
        self._free: list[HostBlock] = []
        self.peak = 0

    def take(self, size: int) -> HostBlock:
        """A block of at least `size` bytes. One that is too small makes room for a larger one."""
        try:
            block = self._free.pop()
        except IndexError:
            block = None
        if block is not None and block.size >= size:
            return block
        del block
        ensure(size, "temporaries of the program")
        self.peak = max(self.peak, size)
        return HostBlock(size)

    def give(self, block: HostBlock) -> None:
        self._free.append(block)

    def idle_bytes(self) -> int:
        """Bytes of the blocks that no call is using."""
        return sum([block.size for block in list(self._free)])

    def clear(self) -> None:
        self._free.clear()


class Spares:
    """Buffers of one type that were handed out before; one that nobody else holds is used again:
    its pages are mapped, its address is known. Two threads that look at one buffer count each other, since only one
    of them runs at a time; where the interpreter has no such lock, nothing is used again.

    The first few are looked at one by one, so that a script which drops its results writes where it wrote before. Where
    it holds these (the weights of a model, and the next ones beside them), small buffers come from a ring: the one that
    was handed out longest ago is the likeliest to be free."""

    __slots__ = ("_buffers", "_owner", "_place", "_ring", "type")

    def __init__(self, type: TensorType, owner: Recycler) -> None:
        self.type = type
        self._owner = owner
        self._buffers: list[Buffer] = []
        self._ring: list[Buffer] = []
        self._place = 0  # of the one that is looked at next

    def take(self) -> Buffer:
        """A writable destination for `type`'s elements."""
        if not COUNTED:
            return fresh_buffer(self.type)
        for buffer in self._buffers:
            if getrefcount(buffer) <= FREE_BUFFER and getrefcount(buffer.array) <= FREE_ARRAY:
                return buffer
        ring = self._ring  # `drop` makes another one
        place = self._place if self._place < len(ring) else 0
        self._place = place + 1
        if ring:
            buffer = ring[place]
            if getrefcount(buffer) <= FREE_BUFFER and getrefcount(buffer.array) <= FREE_ARRAY:
                return buffer
        buffer = fresh_buffer(self.type)
        few = len(self._buffers) < SPARES_PER_TYPE
        if (few or (len(ring) < MOST_IN_RING and buffer.nbytes <= RING_BYTES)) and self._owner.admit(buffer.nbytes):
            if few:
                self._buffers.append(buffer)
            else:
                ring.insert(place, buffer)  # behind it is the oldest again
        return buffer

    def idle_bytes(self) -> int:
        """Bytes of the buffers that nobody else holds."""
        total = 0
        for buffers in (self._buffers, self._ring):
            for buffer in buffers:
                if getrefcount(buffer) <= FREE_BUFFER and getrefcount(buffer.array) <= FREE_ARRAY:
                    total += self.type.nbytes
        return total

    def drop(self) -> None:
        self._buffers.clear()
        self._ring = []


class Recycler:
    """All spares, bounded in bytes."""

    def __init__(self) -> None:
        self._spares: dict[TensorType, Spares] = {}
        self._bytes = 0
        self._limit = _recycling_limit()
        self._lock = child_safe_lock()

    def held_bytes(self) -> int:
        """Bytes of results kept for reuse."""
        return sum([spares.idle_bytes() for spares in list(self._spares.values())])

    def spares(self, type: TensorType) -> Spares:
        with self._lock:
            return self._spares.setdefault(type, Spares(type, self))

    def admit(self, size: int) -> bool:
        """Whether `size` more bytes may be kept; makes room by forgetting everything else once full."""
        if size > self._limit:
            return False
        with self._lock:
            if self._bytes + size > self._limit:
                self.clear()
            self._bytes += size
        return True

    def clear(self) -> None:
        with self._lock:
            for spares in list(self._spares.values()):
                spares.drop()
            self._bytes = 0


def fresh_buffer(type: TensorType) -> Buffer:
    """New memory on the CPU for a result; read-only for users from the start."""
    if type.nbytes > UNCHECKED_BYTES:
        ensure(type.nbytes, f"a result of type {type}")
    array = np.empty(type.shape, dtype=type.dtype.np)
    buffer = Buffer(array, "cpu", type)
    buffer.locate()
    array.flags.writeable = False
    return buffer


def _recycling_limit() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 16
    except (ValueError, OSError, AttributeError):
        return 1 << 28


def _free_counts() -> tuple[int, int]:
    """The reference counts, as `Spares.take` sees them, of a buffer that only the spares hold."""
    probe: Any = np.empty(0)
    buffers = [Buffer(probe, "cpu")]
    del probe
    for buffer in buffers:
        counts = getrefcount(buffer), getrefcount(buffer.array)
    return counts


FREE_BUFFER, FREE_ARRAY = _free_counts()
COUNTED: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()
RECYCLER: Final = Recycler()
ARENAS: Final = Arenas()
IDLE: Final[list[Callable[[], None]]] = [RECYCLER.clear, ARENAS.clear]
