"""A stream-ordered GPU as executions see it (runtime.gpu.driver).

Work and transfers are put at the end of one stream, so memory that nobody holds is used again without
waiting. Only who needs something on the host waits.

Circle: the driver's parts, `runtime/gpu/streams/commands.py`, `runtime/gpu/streams/pinned.py`,
`runtime/gpu/streams/shared_words.py`, `runtime/gpu/streams/libraries.py`, `runtime/gpu/streams/fourier.py`,
`runtime/gpu/streams/dense.py` and `runtime/gpu/streams/vendor.py`, each hold the driver that made them, for its lock,
its calls and its memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from loopgrad.runtime.gpu.driver import LibraryCall, ProductTask, RoutineTask, Shared, Work
from loopgrad.runtime.gpu.ledger import Ledger, complete
from loopgrad.runtime.gpu.memory import Allocation, Bytes, Heap
from loopgrad.runtime.gpu.streams.api import StreamApi, StreamFailure
from loopgrad.runtime.gpu.streams.commands import Function, StreamCommands
from loopgrad.runtime.gpu.streams.libraries import Libraries
from loopgrad.runtime.gpu.streams.pinned import Pinned, PinnedChunk
from loopgrad.runtime.gpu.streams.shared_words import StreamSharedWords
from loopgrad.runtime.gpu.streams.staging import QUARTER, Staging
from loopgrad.runtime.gpu.streams.vendor import Vendor, WorkAreas

T = TypeVar("T")

RECEIVED: Final = 1 << 16  # bytes that are fetched through pinned memory
CACHE_SHARE: Final = 0.6  # of the second-level cache, for the stacks in flight
FEWEST: Final = 512  # lanes in flight on a multiprocessor, however deep their stacks
MOST_STACKS: Final = 1_800_000_000  # bytes: lanes with stacks of many kilobytes wait for memory, however many they are
REMEMBERED: Final = 64  # runs whose kernels are named where one failed
SPIN_SECONDS: Final = 0.01
SLEEP_SHARE: Final = 1 / 200  # of the time waited so far
LONGEST_SLEEP: Final = 1e-3


class StreamChunk:
    """Memory of the device."""

    def __init__(self, driver: StreamDriver, size: int) -> None:
        self._driver = driver
        self.address = driver.api.allocate(size)

    def destroy(self) -> None:
        with self._driver.lock:
            self._driver.api.free(self.address)


class StreamImage:
    """A loaded module."""

    def __init__(self, driver: StreamDriver, code: bytes) -> None:
        self._driver = driver
        self._module = driver.with_room(lambda: driver.api.load(code))

    def pipeline(self, name: str, entry: str, group: int, asked: int = 0) -> Function:
        driver, api = self._driver, self._driver.api
        with driver.lock:
            # where code is loaded when it is used
            handle = driver.with_room(lambda: api.function(self._module, entry, asked))
            return Function(handle, name, group, max(api.occupancy(handle, group), 1), self)

    def __del__(self) -> None:
        if hasattr(self, "_module"):
            self._driver.discard(self._driver.api.unload, self._module)


class ContextLock:
    """A reentrant lock; who holds it has the device's context."""

    def __init__(self, api: StreamApi) -> None:
        self._api = api
        self._lock = threading.RLock()
        self._depth = 0
        self._before: Any = None

    def __enter__(self) -> None:
        self._lock.acquire()
        if not self._depth:
            self._before = self._api.enter()
        self._depth += 1

    def __exit__(self, *failure: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._api.leave(self._before)
        self._lock.release()


class Watch:
    """While work is started. (A generator's context would take twice as long in every call.)"""

    __slots__ = ("_driver", "_labels")

    def __init__(self, driver: StreamDriver, labels: Mapping[str, None]) -> None:
        self._driver, self._labels = driver, labels

    def __enter__(self) -> None:
        self._driver.begin(self._labels)

    def __exit__(self, kind: object, failure: BaseException | None, where: object) -> None:
        if isinstance(failure, StreamFailure):
            raise self._driver.failed(failure) from None


class StreamDriver:
    """Implements `Driver`. `lost`: why the device can't be used any more. `update_code` gives the update kernel:
    its image, entry and workgroup size."""

    endless_loops = True
    code_growth = 4

    def __init__(
        self, api: StreamApi, update_code: Callable[[], tuple[bytes, str, int]], vendor: Vendor | None = None
    ) -> None:
        self.api = api
        self.areas = WorkAreas(self)
        self._libraries = Libraries(self, vendor)
        self.name = api.name
        self._update_code = update_code
        self._update: Function | None = None
        self.lock = ContextLock(api)
        self.lost: str | None = None
        self._data = Heap(lambda size: StreamChunk(self, size), lambda: f"{self.available():,} bytes are available")
        self.pinned = Heap(lambda size: PinnedChunk(self, size), lambda: "more can't be pinned")
        self._running: deque[Mapping[str, None]] = deque(maxlen=REMEMBERED)
        self._discarded: deque[tuple[Callable[[Any], None], Any]] = deque()
        with self.lock:
            self._staging = Staging(api)
            self._received = Pinned(api, RECEIVED)
            self.ledger = Ledger(self, api.available())

    # memory

    @property
    def held(self) -> int:
        return self._data.held

    def with_room(self, make: Callable[[], T]) -> T:
        """What `make` makes in the device's memory (code, a graph): where there is no room, once more after free memory
        has gone back to the driver."""
        with self.lock:
            try:
                return make()
            except MemoryError:
                self._data.release()
                return make()

    def take(self, size: int) -> Allocation:
        if self.lost is not None:
            raise RuntimeError(self.lost)
        with self.lock:
            return self._data.take(size)

    def take_each(self, pieces: Sequence[int]) -> list[Allocation]:
        if self.lost is not None:
            raise RuntimeError(self.lost)
        return self._data.take_each(pieces)

    def ready(self, size: int) -> bool:
        with self.lock:
            return self._data.ready(size)

    def available(self) -> int:
        with self.lock:
            return self.api.available() + self._data.idle()

    def write(self, allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
        if array.nbytes:
            with self.lock, self.watched({}):
                self.send(allocation.address, array)

    def send(self, target: int, content: np.ndarray[Any, Any]) -> None:
        """To the device, after the work that was started; the content may change on return."""
        if content.nbytes <= QUARTER:
            self._staging.send(target, content)
            return
        self.api.upload(target, content.ctypes.data, content.nbytes)
        self.wait()

    def made(self, allocation: Allocation) -> None:
        """Who needs the content waits for all work."""

    def fetch(self, allocation: Allocation, size: int) -> Bytes:
        if not size:
            return np.empty(0, np.uint8)
        with self.lock, self.watched({}):
            complete(self, allocation)
            if size <= RECEIVED:
                self.api.download(self._received.address, allocation.address, size)
                self.wait()
                return self._received.bytes[:size].copy()
            result = np.empty(size, np.uint8)
            self.api.download(result.ctypes.data, allocation.address, size)
            self.wait()
            return result

    def shared(self, words: int) -> StreamSharedWords:
        return StreamSharedWords(self, words)

    # work

    def image(self, code: bytes) -> StreamImage:
        return StreamImage(self, code)

    def images(self, codes: Sequence[bytes]) -> Sequence[StreamImage]:
        return list(map(self.image, codes))

    def commands(self) -> StreamCommands:
        return StreamCommands(self)

    def start(
        self, work: Sequence[StreamCommands], uploads: Sequence[tuple[Shared, int]], report: Shared | None
    ) -> None:
        assert report is None or isinstance(report, StreamSharedWords)
        labels = {label: None for commands in work for label in commands.labels}
        with self.lock, self.watched(labels):
            for shared, count in uploads:
                self.send(shared.address, shared.words[:count])
            for commands in work[:-1]:
                commands.issue(None)
            if work:
                work[-1].issue(report)
            elif report is not None:
                report.depart()
            if report is not None:
                self.wait()
                report.arrived()

    def finish(self) -> None:
        with self.lock, self.watched({}):
            complete(self)
            self.wait()

    def update(self) -> Function:
        if self._update is None:
            code, entry, group = self._update_code()
            self._update = self.image(code).pipeline("update", entry, group)
        return self._update

    @property
    def host_decides(self) -> str:
        return "graphs of this driver have no loops"

    def graph(self, items: Sequence[Any], report: Shared, stop: int) -> Work | None:
        """A driver with loops in graphs says so."""
        return None

    def product(self, task: ProductTask) -> LibraryCall | None:
        return None

    def libraries(self, family: Container[str]) -> Mapping[str, str]:
        with self.lock:
            return self._libraries.of(family)

    def routine(self, task: RoutineTask) -> LibraryCall | None:
        with self.lock:
            return self._libraries.routine(task)

    def captured(self, work: Callable[[], None]) -> Any | None:
        """A graph of all that `work` starts, which isn't done now; None where that can't be. A driver with libraries
        says more."""
        return None

    def filling(self, pipeline: Function, streams: bool = False) -> int:
        """As many as there is room for, but one for each tile of a stream: the device starts one where another ends,
        whose loads needn't wait for stores. On an H200 x + 1 takes 1.15 times as long with workgroups that stay."""
        if streams:
            return self.api.group_limit
        return min(self.api.multiprocessors * pipeline.fit, self.api.group_limit)

    def resident(self, pipeline: Function, row_bytes: int) -> int:
        """As many as fill the device, fewer where that keeps their stacks in the second-level cache (a Zipf law's lanes
        take 1.19 times as long on an H200 elsewhere), as many on each multiprocessor, or below MOST_STACKS."""
        most = self.filling(pipeline)
        least = self.api.multiprocessors * min(-(-FEWEST // pipeline.group), pipeline.fit)
        if not row_bytes:
            return most
        cached = int(self.api.cache_bytes * CACHE_SHARE) // (row_bytes * pipeline.group)
        cached -= cached % self.api.multiprocessors
        held = max(MOST_STACKS // (row_bytes * pipeline.group), 1)
        return min(max(cached, least), most, held)

    # waiting and failing

    def watched(self, labels: Mapping[str, None]) -> Watch:
        """Start work of these kernels; a failure names the kernels that may have caused it."""
        return Watch(self, labels)

    def begin(self, labels: Mapping[str, None]) -> None:
        if self.lost is not None:
            raise RuntimeError(self.lost)
        if labels:
            self._running.append(labels)

    def failed(self, failure: StreamFailure) -> RuntimeError:
        """What is raised instead."""
        message = self._explain(failure)
        if self._gone():
            self.lost = message = f"{message}; the device can't be used again in this process"
        return RuntimeError(message)

    def _explain(self, failure: StreamFailure) -> str:
        names = list(dict.fromkeys(label for labels in self._running for label in labels))
        match names:
            case []:
                what = "its work"
            case [name]:
                what = f"kernel {name}"
            case _:
                what = f"one of the kernels {', '.join(names)}"
        return f"{self.name}: {what} failed: {failure}"

    def _gone(self) -> bool:
        """Whether the device refuses everything from now on."""
        try:
            self.api.synchronize()
        except StreamFailure:
            return True
        self._running.clear()
        return False

    def wait(self, hurry: Callable[[], None] | None = None) -> None:
        """Until all work is done. Python's signal handlers run meanwhile; what they raise comes out when the
        device is idle, since memory in use can't be given back; `hurry` makes that soon."""
        api = self.api
        try:
            if not api.idle():
                self._poll()
        except StreamFailure:
            raise
        except BaseException:
            if hurry is not None:
                hurry()
            api.synchronize()
            raise
        self._running.clear()
        while self._discarded:
            destroy, handle = self._discarded.popleft()
            destroy(handle)

    def _poll(self) -> None:
        api, begin = self.api, time.perf_counter()
        while not api.idle():
            waited = time.perf_counter() - begin
            if waited > SPIN_SECONDS:
                time.sleep(min(waited * SLEEP_SHARE, LONGEST_SLEEP))

    def discard(self, destroy: Callable[[Any], None], handle: Any) -> None:
        """Destroy a handle when no work can use it any more."""
        self._discarded.append((destroy, handle))
