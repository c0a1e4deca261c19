"""Device memory: few large driver allocations, cut into pieces of power-of-two sizes that are used again.

An `Allocation` returns by itself when nobody holds it. Nothing on the device can still use it then, or
whatever uses its memory next comes later on the same stream: each driver has one of the two.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from loopgrad.graph.location import located, user_location
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.processes import child_safe_lock

SMALLEST: Final = 256
CHUNK: Final = 1 << 24
LARGEST_PIECE: Final = 1 << 22
LARGE_STEP: Final = 1 << 21  # sizes above LARGEST_PIECE are multiples of it
PATIENCE: Final = 256  # requests during which most memory lies idle before it goes back

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Chunk(Protocol):
    """Memory as the driver gives it. `destroy` waits for work that uses it."""

    @property
    def address(self) -> int: ...

    def destroy(self) -> None: ...


Piece = tuple[Chunk, int, int]  # and where it begins there, and its size


class Allocation:
    """Some bytes of a chunk. `made`: for drivers that number their work, that after which the content is final; None
    where nobody said so. `failure`: why there is no content."""

    __slots__ = ("__weakref__", "_home", "address", "chunk", "failure", "made", "offset", "size")

    def __init__(self, home: Heap, chunk: Any, offset: int, size: int) -> None:
        self._home, self.chunk, self.offset, self.size = home, chunk, offset, size
        self.made: int | None = None
        self.failure: Exception | None = None
        self.address: int = chunk.address + offset

    def __del__(self) -> None:
        self._home.given.append((self.chunk, self.offset, self.size))


class Heap:
    """Allocations of one kind of memory. Large pieces go back to the driver where it has no more, or when most
    memory was of no use for long. `make` asks the driver for a chunk and raises MemoryError; `describe`
    says what then is available, for the message."""

    def __init__(self, make: Callable[[int], Chunk], describe: Callable[[], str]) -> None:
        self._make = make
        self._describe = describe
        self._free: dict[int, list[tuple[Chunk, int]]] = {}
        self._lock = child_safe_lock()
        self._idle = 0  # bytes of large free pieces
        self._unused = 0  # requests since one of them was of use
        self.given: deque[Piece] = deque()
        self.held = 0

    def take(self, size: int) -> Allocation:
        """At least `size` bytes, aligned to 256; MemoryError where there are none."""
        return self.take_each((piece(size),))[0]

    def take_each(self, pieces: Sequence[int]) -> list[Allocation]:
        """Allocations of these sizes, each as of `piece`."""
        made: list[Allocation] = []
        with self._lock:
            self.collect()
            self._unused += len(pieces)
            if self._unused > PATIENCE and self._idle > self.held // 2:
                self._release_large()
            for wanted in pieces:
                free = self._free.get(wanted)
                if not free:
                    free = self._cut(wanted)
                    self._free[wanted] = free
                elif wanted > LARGEST_PIECE:
                    self._idle -= wanted
                    self._unused = 0
                chunk, offset = free.pop()
                made.append(Allocation(self, chunk, offset, wanted))
        return made

    def ready(self, size: int) -> bool:
        """Whether a free piece of that size is there, so that `take` asks the driver for nothing."""
        with self._lock:
            self.collect()
            return bool(self._free.get(piece(size)))

    def idle(self) -> int:
        """Bytes that go back to the driver where it has no others."""
        with self._lock:
            self.collect()
            return self._idle

    def _cut(self, size: int) -> list[tuple[Chunk, int]]:
        whole = size if size > LARGEST_PIECE else max(size, min(CHUNK, size * 64))
        try:
            chunk = self._make(whole)
        except MemoryError:
            self._release_large()
            whole = size
            try:
                chunk = self._make(whole)
            except MemoryError as refused:
                need = f"{refused}: expected {whole:,} bytes, {self._describe()}"
                text = f"{need}; use smaller arrays or a narrower dtype"
                raise MemoryError(located(text, user_location())) from None
        self.held += whole
        return [(chunk, offset) for offset in range(0, whole, size)]

    def collect(self) -> None:
        """Take back what nobody holds any more."""
        self.free(self.given)

    def free(self, pieces: deque[Piece]) -> None:
        while pieces:
            chunk, offset, size = pieces.popleft()
            self._free.setdefault(size, []).append((chunk, offset))
            if size > LARGEST_PIECE:
                self._idle += size

    def _release_large(self) -> None:
        """Give whole chunks back to the driver."""
        for size in [s for s in self._free if s > LARGEST_PIECE]:
            for chunk, _ in self._free.pop(size):
                chunk.destroy()
                self.held -= size
        self._idle = self._unused = 0

    def release(self) -> None:
        """Give back what can be given back, since another device or library needs it."""
        with self._lock:
            self.collect()
            self._release_large()


def piece(size: int) -> int:
    """The bytes that a request of `size` gets."""
    if size > LARGEST_PIECE:
        return -(-size // LARGE_STEP) * LARGE_STEP
    return SMALLEST if size <= SMALLEST else 1 << (size - 1).bit_length()


class GpuBuffer(Buffer):
    """A tensor's elements in device memory. `copied` is the copy on the host, while somebody holds it."""

    __slots__ = ("allocation", "copied")

    def __init__(self, allocation: Allocation, device: str, type: TensorType) -> None:
        self.array, self.device, self._type = EMPTY, device, type  # as Buffer does: each result of a call costs one
        self.allocation = allocation
        self.copied: weakref.ref[np.ndarray[Any, Any]] | None = None
        self.address = allocation.address

    @property
    def nbytes(self) -> int:
        return self.type.nbytes

    def retyped(self, type: TensorType) -> Buffer:
        return GpuBuffer(self.allocation, self.device, type)


EMPTY: Final = np.empty(0, np.uint8)
EMPTY.flags.writeable = False
