"""The order of a device's work: every submission has a number, and a timeline semaphore says which are done.

Submission n is done when the semaphore has reached n. All of them go to one queue, and each ends with a barrier
between everything before and everything after it. So memory that nobody holds may be used by later submissions at
once. Whatever the host writes or destroys itself (staging memory, command buffers, pipelines) waits for its number.

While the device has enough to do, submissions wait for company and are given to the driver together: on an H200 a small
kernel takes 9.5 us in a batch of its own and 4.9 in one of eight, and the host 5 and 1. Those that come right after
another do so, too, a few of them. They are sent by whoever waits, by the next call when the device has little left, or
by a thread if there is none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize, ref

from loopgrad.runtime.processes import child_safe_lock
from loopgrad.runtime.vulkan.api import ERROR_DEVICE_LOST, TYPE_CPU

if TYPE_CHECKING:
    from loopgrad.runtime.vulkan.gpu import Gpu

SLICE_NANOSECONDS: Final = 50_000_000  # between looks at Python's signals
MOST_PENDING: Final = 64  # submissions; with more the host waits, or a loop of calls would run ahead without end
MOST_TOGETHER: Final = 8  # submissions that are given to the driver at once
MOST_IN_BURST: Final = 4  # as many while the device has little to do
# within which a submission comes right after another: calls with 20 us of other work between them take 33 us each on an
# H100, and 36 where that is 30 us; a slow host takes as long for a call alone
BURST_NANOSECONDS: Final = 100_000
ENOUGH: Final = 2  # batches under way, with which the device has enough to do
PATIENCE_SECONDS: Final = 0.001  # until what waits for company is sent anyway
# Before a wait blocks, since being woken takes 40 us on an H200: a loop that takes 800 us there took 1,000 with 100 us
SPIN_NANOSECONDS: Final = 1_000_000
TIMELINE: Final = 1  # VK_SEMAPHORE_TYPE_TIMELINE
TIMEOUT: Final = 2  # VK_TIMEOUT

Labels = Mapping[str, None]


class Timeline:
    """`submitted`: the number of the last submission; `sent`: of the last that the driver has. `lost`: why the device
    can't be used any more."""

    def __init__(self, gpu: Gpu, queue: Any) -> None:
        api, ffi = gpu.api, gpu.ffi
        self._gpu, self._queue = gpu, queue
        self.submitted = self.sent = self._reached = 0
        self.lost: str | None = None
        kind = api.struct("VkSemaphoreTypeCreateInfo", semaphoreType=TIMELINE)
        self._semaphore = gpu.made("vkCreateSemaphore", "VkSemaphore", api.struct("VkSemaphoreCreateInfo", pNext=kind))
        self._held: list[Any] = []  # command buffers that wait for company
        self._latest = 0  # when the last submission came
        self._array, self._null = ffi.new("VkCommandBuffer[]", 2 * MOST_TOGETHER), ffi.NULL
        self._batches: deque[int] = deque()  # their last numbers, of those that are under way
        self._sender = LateSender(self)
        self._running: deque[tuple[int, Labels]] = deque()
        self._discarded: deque[tuple[Callable[..., None], Any]] = deque()
        self._waiting: deque[tuple[int, Callable[..., None], Any]] = deque()
        # structs that every call fills in again
        semaphores = ffi.new("VkSemaphore[]", [self._semaphore])
        self._signal, self._value = ffi.new("uint64_t[1]"), ffi.new("uint64_t[1]")
        signals = api.struct(
            "VkTimelineSemaphoreSubmitInfo", signalSemaphoreValueCount=1, pSignalSemaphoreValues=self._signal
        )
        self._submit = api.struct("VkSubmitInfo", pNext=signals, signalSemaphoreCount=1, pSignalSemaphores=semaphores)
        self._wait = api.struct("VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=semaphores, pValues=self._value)
        self._alive = (semaphores, signals)

    def submit(self, buffers: Sequence[Any], labels: Labels) -> int:
        """Start these command buffers, one after the other; the submission's number. `labels` name its kernels."""
        with self._gpu.lock:
            if self.lost is not None:
                self.require()
            count, now = len(self._held), perf_counter_ns()
            self._held += buffers
            self.submitted = number = self.submitted + 1
            self._running.append((number, labels))
            few = MOST_IN_BURST if now - self._latest < BURST_NANOSECONDS else 1
            self._latest = now
            waiting = number - self.sent
            try:
                if waiting >= few and (waiting >= MOST_TOGETHER or not self._busy()):
                    self.send()
                elif waiting == 1:
                    self._sender.ask()
            except (MemoryError, RuntimeError):
                del self._held[count:]  # this one wasn't started: the next submission has this number
                self.submitted -= 1
                self._running.pop()
                raise
            if self._discarded or self._waiting:
                self._destroy()
            return number

    def _busy(self) -> bool:
        """Whether the device has enough to do for now."""
        if len(self._batches) >= ENOUGH:
            self.reached()
        return len(self._batches) >= ENOUGH

    def send(self) -> None:
        """Give the driver what waits for company; the lock is held."""
        if self.sent == self.submitted:
            return
        count = len(self._held)
        if count > len(self._array):
            self._array = self._gpu.ffi.new("VkCommandBuffer[]", 2 * count)
        self._array[0:count] = self._held
        self._submit.commandBufferCount, self._submit.pCommandBuffers = count, self._array
        self._signal[0] = self.submitted
        result = self._gpu.lib.vkQueueSubmit(self._queue, 1, self._submit, self._null)
        if result:
            self._check(result, "vkQueueSubmit")
        self._held.clear()
        self.sent = self.submitted
        self._batches.append(self.sent)

    def send_late(self) -> None:
        """What `send` does, for nobody in particular."""
        with self._gpu.lock:
            if self.lost is None:
                with suppress(MemoryError, RuntimeError):  # whoever waits for it tries again, and is told
                    self.send()

    def throttle(self) -> None:
        """Wait where very many submissions are under way."""
        if self.submitted - self._reached >= MOST_PENDING and self.submitted - self.reached() >= MOST_PENDING:
            self.wait(self.submitted - MOST_PENDING // 2)

    def reached(self) -> int:
        """The number of the last submission that is done."""
        gpu, out = self._gpu, self._value
        with gpu.lock:
            if self._reached < self.sent and self.lost is None:
                result = gpu.lib.vkGetSemaphoreCounterValue(gpu.device, self._semaphore, out)
                if result:
                    self._check(result, "vkGetSemaphoreCounterValue")
                self._arrive(out[0])
            return self._reached

    def done(self, number: int) -> bool:
        return number <= self._reached or (number <= self.sent and number <= self.reached())

    def wait(self, number: int) -> None:
        """Until that submission is done. Python's signal handlers run meanwhile; what they raise comes out when the
        device is idle, since nobody knows what of a broken run is of use."""
        gpu = self._gpu
        with gpu.lock:
            self.require()
            if number <= self._reached:
                return
            if number > self.sent:
                self.send()
            try:
                result = TIMEOUT
                own = gpu.kind != TYPE_CPU  # processors, where others take the host's
                end = perf_counter_ns() + SPIN_NANOSECONDS
                while own and perf_counter_ns() < end:
                    if number <= self.reached():
                        return
                # the number of its batch, which alone is signalled: the validation layer waits for no other
                signalled = next((last for last in self._batches if last >= number), self.sent)
                while result == TIMEOUT:
                    self._value[0] = signalled  # a signal handler may have asked for another
                    result = gpu.lib.vkWaitSemaphores(gpu.device, self._wait, SLICE_NANOSECONDS)
            except BaseException:
                gpu.lib.vkDeviceWaitIdle(gpu.device)
                self._arrive(self.sent)
                raise
            self._check(result, "vkWaitSemaphores")
            self._arrive(signalled)

    def idle(self) -> None:
        """Until everything that was started is done."""
        self.wait(self.submitted)

    def _arrive(self, number: int) -> None:
        self._reached = max(self._reached, number)
        while self._running and self._running[0][0] <= self._reached:
            self._running.popleft()
        while self._batches and self._batches[0] <= self._reached:
            self._batches.popleft()

    # handles

    def discard(self, destroy: Callable[..., None], handle: Any) -> None:
        """Destroy a handle when no work can use it any more. Finalizers call this, in any thread at any time."""
        self._discarded.append((destroy, handle))

    def _destroy(self) -> None:
        gpu = self._gpu
        while self._discarded:
            self._waiting.append((self.submitted, *self._discarded.popleft()))
        while self._waiting and self._waiting[0][0] <= self._reached:
            _, destroy, handle = self._waiting.popleft()
            destroy(gpu.device, handle, gpu.ffi.NULL)

    # failures

    def require(self) -> None:
        """RuntimeError where the device was lost."""
        if self.lost is not None:
            raise RuntimeError(self.lost)

    def _check(self, result: int, what: str) -> None:
        if result == ERROR_DEVICE_LOST:
            self.lost = self._explain(what)
            self.require()
        self._gpu.api.check(result, what)

    def _explain(self, what: str) -> str:
        names = list(dict.fromkeys(label for _, labels in self._running for label in labels))
        match names:
            case []:
                cause = "its work"
            case [name]:
                cause = f"kernel {name}"
            case _:
                cause = f"one of the kernels {', '.join(names)}"
        return (
            f"{self._gpu.name}: {cause} failed: the device was lost ({what}); it can't be used again in this process. "
            "Drivers give a device up when a kernel takes too long or reads beyond its memory"
        )


class LateSender:
    """A thread that sends what waits for company when no call comes that does. It ends with the timeline, and sends
    nothing once the process ends."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = ref(timeline)
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._awake = False  # it was asked, and hasn't looked yet
        self._sending, self._ended = child_safe_lock(), False
        self._thread: threading.Thread | None = None
        finalize(timeline, self._end)

    def ask(self) -> None:
        """Something waits."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="loopgrad-vulkan-sender", daemon=True)
            self._thread.start()
        if not self._awake:
            self._awake = True
            self._asked.put(None)

    def _run(self) -> None:
        while True:
            self._asked.get()
            sleep(PATIENCE_SECONDS)
            self._awake = False
            with self._sending:
                timeline = self._timeline()
                if timeline is None or self._ended:
                    return
                timeline.send_late()
                del timeline

    def _end(self) -> None:
        with self._sending:
            self._ended = True
        self._asked.put(None)
