"""The order of a device's work: every submission has a number, and a timeline semaphore says which are done.

Submission n is done when the semaphore has reached n. All of them go to one queue, and each ends with a barrier
between everything before and everything after it. So memory that nobody holds may be used by later submissions at
once. Whatever the host writes or destroys itself (staging memory, command buffers, pipelines) waits for its number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.runtime.vulkan.api import ERROR_DEVICE_LOST

if TYPE_CHECKING:
    from loopgrad.runtime.vulkan.gpu import Gpu

SLICE_NANOSECONDS: Final = 50_000_000  # between looks at Python's signals
MOST_PENDING: Final = 64  # submissions; with more the host waits, or a loop of calls would run ahead without end
TIMELINE: Final = 1  # VK_SEMAPHORE_TYPE_TIMELINE
TIMEOUT: Final = 2  # VK_TIMEOUT

Labels = Mapping[str, None]


class Timeline:
    """`submitted`: the number of the last submission. `lost`: why the device can't be used any more."""

    def __init__(self, gpu: Gpu, queue: Any) -> None:
        api, ffi = gpu.api, gpu.ffi
        self._gpu, self._queue = gpu, queue
        self.submitted = self._reached = 0
        self.lost: str | None = None
        kind = api.struct("VkSemaphoreTypeCreateInfo", semaphoreType=TIMELINE)
        self._semaphore = gpu.made("vkCreateSemaphore", "VkSemaphore", api.struct("VkSemaphoreCreateInfo", pNext=kind))
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
            self.require()
            array = self._gpu.ffi.new("VkCommandBuffer[]", buffers)
            self._submit.commandBufferCount, self._submit.pCommandBuffers = len(buffers), array
            self._signal[0] = self.submitted + 1
            self._running.append((self.submitted + 1, labels))
            result = self._gpu.lib.vkQueueSubmit(self._queue, 1, self._submit, self._gpu.ffi.NULL)
            try:
                self._check(result, "vkQueueSubmit")
            except (MemoryError, RuntimeError):
                self._running.pop()  # nothing was started: the next submission has this number
                raise
            self.submitted += 1
            self._destroy()
            return self.submitted

    def throttle(self) -> None:
        """Wait where very many submissions are under way."""
        if self.submitted - self._reached >= MOST_PENDING and self.submitted - self.reached() >= MOST_PENDING:
            self.wait(self.submitted - MOST_PENDING // 2)

    def reached(self) -> int:
        """The number of the last submission that is done."""
        gpu, out = self._gpu, self._value
        with gpu.lock:
            if self._reached < self.submitted and self.lost is None:
                result = gpu.lib.vkGetSemaphoreCounterValue(gpu.device, self._semaphore, out)
                self._check(result, "vkGetSemaphoreCounterValue")
                self._arrive(out[0])
            return self._reached

    def done(self, number: int) -> bool:
        return number <= self._reached or number <= self.reached()

    def wait(self, number: int) -> None:
        """Until that submission is done. Python's signal handlers run meanwhile; what they raise comes out when the
        device is idle, since nobody knows what of a broken run is of use."""
        gpu = self._gpu
        with gpu.lock:
            self.require()
            if number <= self._reached:
                return
            try:
                result = TIMEOUT
                while result == TIMEOUT:
                    self._value[0] = number  # a signal handler may have asked for another
                    result = gpu.lib.vkWaitSemaphores(gpu.device, self._wait, SLICE_NANOSECONDS)
            except BaseException:
                gpu.lib.vkDeviceWaitIdle(gpu.device)
                self._arrive(self.submitted)
                raise
            self._check(result, "vkWaitSemaphores")
            self._arrive(number)

    def idle(self) -> None:
        """Until everything that was started is done."""
        self.wait(self.submitted)

    def _arrive(self, number: int) -> None:
        self._reached = max(self._reached, number)
        while self._running and self._running[0][0] <= self._reached:
            self._running.popleft()

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
