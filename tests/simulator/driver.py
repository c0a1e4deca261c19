"""The protocol of a GPU's driver (runtime.gpu.driver) in this process: memory is NumPy's, code is native.

Everything runs at once, in `Commands.run`. Fresh memory holds a pattern, so that nothing relies on zeros.
Launches are narrow: small programs still have invocations with several lanes.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from loopgrad.codegen.program import NO_LIBRARIES
from loopgrad.runtime.cpu.loader import Code
from loopgrad.runtime.gpu.driver import LibraryCall, ProductTask, Push, RoutineTask, Shared, Words
from loopgrad.runtime.gpu.memory import Allocation, Bytes, Heap, piece
from tests.simulator import coroutines
from tests.simulator.code import UPDATE_GROUP, update_code

GROUPS = 8
STREAMING_GROUPS = 1 << 20  # as on CUDA, where one begins when another has ended
RESIDENT_GROUPS = 4
CAPACITY = 1 << 32
SHARED_BYTES = 235 << 10  # and what matrix units of the simulator exchange beside it
PATTERN = 0xA5
REFILLED = 1 << 16


class Chunk:
    def __init__(self, size: int) -> None:
        if size > CAPACITY:
            raise MemoryError("the simulator has no more memory")
        self.memory = np.empty(size + 256, np.uint8)
        start = -self.memory.ctypes.data % 256
        self.memory[start : start + min(size, REFILLED)] = PATTERN
        self.address = self.memory.ctypes.data + start

    def destroy(self) -> None:
        self.memory = np.empty(0, np.uint8)


class HostWords:
    def __init__(self, count: int) -> None:
        self.words: Words = np.zeros(max(count, 1), np.uint64)
        self.address = self.words.ctypes.data

    def clear(self) -> None:
        self.words[:] = 0


class Pipeline:
    def __init__(self, code: Code, entry: str, group: int) -> None:
        self.code, self.group, self.address = code, group, code.address(f"{entry}.run")
        self.backwards = False  # in which order invocations run that wait for each other
        words, numbers, places = [ctypes.c_int64] * 6, [ctypes.c_int32] * 3, [ctypes.c_void_p] * 2
        self.run = ctypes.CFUNCTYPE(None, *words, *numbers, *places)(self.address)
        self.waits = bool(ctypes.c_uint8.from_address(code.address(f"{entry}.waits")).value)

    def dispatch(self, groups: int, push: Push) -> None:
        words = [ctypes.c_int64(word) for word in push]
        memory = (ctypes.c_uint64 * (SHARED_BYTES // 8))()
        if not self.waits:
            self.run(*words, groups, 0, self.group, memory, None)
            return
        ctypes.memset(memory, PATTERN, SHARED_BYTES)
        coroutines.run(self.address, push, groups, self.group, ctypes.addressof(memory), self.backwards)
        self.backwards = not self.backwards


class Image:
    def __init__(self, code: bytes) -> None:
        self.object = code
        self._loaded: Code | None = None

    def pipeline(self, name: str, entry: str, group: int, asked: int = 0) -> Pipeline:
        if self._loaded is None:
            self._loaded = Code(self.object, symbols(self.object))
        return Pipeline(self._loaded, entry, group)


def symbols(code: bytes) -> list[str]:
    """The trampolines of an object, by their regular names."""
    count = 0
    while f"k{count}.run\0".encode() in code:
        count += 1
    return [f"k{i}.{part}" for i in range(count) for part in ("run", "waits")]


class Commands:
    """Those between two barriers run in their order, and in the next run in the other one: a driver may do either."""

    def __init__(self) -> None:
        self.begin()
        self._backwards = True

    def begin(self) -> None:
        self.count = 0
        self._work: list[list[Callable[[], Any]]] = [[]]

    def _add(self, work: Callable[[], Any]) -> None:
        self._work[-1].append(work)
        self.count += 1

    def dispatch(self, pipeline: Pipeline, groups: int, push: Push) -> None:
        self._add(lambda: pipeline.dispatch(groups, push))

    def barrier(self) -> None:
        self._work.append([])

    def copy(self, source: Allocation, target: Allocation, size: int) -> None:
        self._add(lambda: ctypes.memmove(target.address, source.address, size))

    def write(self, target: Allocation, data: bytes) -> None:
        self._add(lambda: ctypes.memmove(target.address, data, len(data)))

    def call(self, call: LibraryCall, words: Words) -> None:
        self._add(lambda: call.start(words))

    def end(self, again: bool) -> None:
        """Nothing to make ready."""

    def run(self, uploads: Sequence[tuple[Shared, int]], report: Shared | None) -> None:
        self.repeat()

    def repeat(self) -> None:
        for beside in self._work:
            for work in reversed(beside) if self._backwards else beside:
                work()
        self._backwards = not self._backwards


class SimulatorDriver:
    """Implements `Driver`."""

    name = "simulator"
    endless_loops = True
    code_growth = 4
    ledger = None

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._update: Pipeline | None = None
        self._heap = Heap(Chunk, lambda: f"{self.available():,} bytes are available")

    @property
    def held(self) -> int:
        return self._heap.held

    def available(self) -> int:
        return CAPACITY - self._heap.held

    def take(self, size: int) -> Allocation:
        return self.take_each((piece(size),))[0]

    def take_each(self, pieces: Sequence[int]) -> list[Allocation]:
        made = self._heap.take_each(pieces)
        for allocation in made:
            ctypes.memset(allocation.address, PATTERN, min(allocation.size, REFILLED))
        return made

    def ready(self, size: int) -> bool:
        return self._heap.ready(size)

    def write(self, allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
        ctypes.memmove(allocation.address, np.ascontiguousarray(array).ctypes.data, array.nbytes)

    def fetch(self, allocation: Allocation, size: int) -> Bytes:
        return np.frombuffer(ctypes.string_at(allocation.address, size), np.uint8).copy()

    bytes = fetch

    def shared(self, words: int) -> HostWords:
        return HostWords(words)

    def finish(self) -> None:
        """All work is done at once."""

    def made(self, allocation: Allocation) -> None:
        """All work is done at once."""

    def start(self, work: Sequence[Commands], uploads: Sequence[tuple[Shared, int]], report: Shared | None) -> None:
        for commands in work:
            commands.run((), None)

    def update(self) -> Pipeline:
        if self._update is None:
            self._update = Image(update_code()).pipeline("update", "k0", UPDATE_GROUP)
        return self._update

    def libraries(self, family: Container[str]) -> Mapping[str, str]:
        return NO_LIBRARIES

    def routine(self, task: RoutineTask) -> None:
        """No library."""

    def product(self, task: ProductTask) -> None:
        """No library."""

    host_decides = "the simulator has no graphs"

    def graph(self, items: Sequence[Any], report: Shared, stop: int) -> None:
        """Recordings are run in steps."""

    def images(self, codes: Sequence[Any]) -> Sequence[Image]:
        return [Image(code) for code in codes]

    def commands(self) -> Commands:
        return Commands()

    def filling(self, pipeline: Pipeline, streams: bool = False) -> int:
        return STREAMING_GROUPS if streams else GROUPS

    def resident(self, pipeline: Pipeline, row_bytes: int) -> int:
        return RESIDENT_GROUPS
