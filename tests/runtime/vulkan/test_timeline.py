"""Submissions that nobody waits for, transfers in front of them, and what happens when the device is lost."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.vulkan import driver as vulkan_driver
from loopgrad.runtime.vulkan import timeline as vulkan_timeline
from loopgrad.runtime.vulkan import transfers
from loopgrad.runtime.vulkan.api import device_count, lacking
from loopgrad.runtime.vulkan.device import VulkanDevice
from loopgrad.runtime.vulkan.driver import VulkanDriver
from loopgrad.runtime.vulkan.memory import mapped

pytestmark = pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")


class Library:
    """The driver's functions, some of them other ones."""

    def __init__(self, real, **other):
        self._real = real
        for name, function in other.items():
            setattr(self, name, function)

    def __getattr__(self, name):
        return getattr(self._real, name)


@pytest.fixture
def vulkan():
    found = get_device("vulkan:0")
    with lg.default_device("vulkan:0"):
        yield found


@pytest.fixture
def waits(vulkan, monkeypatch):
    """How often the host waited for the device."""
    calls, real = [], vulkan.gpu.lib

    def counted(*arguments):
        calls.append(1)
        return real.vkWaitSemaphores(*arguments)

    monkeypatch.setattr(vulkan.gpu, "lib", Library(real, vkWaitSemaphores=counted))
    return calls


@pytest.fixture
def blocking(monkeypatch):
    """Waits block at once."""
    monkeypatch.setattr(vulkan_timeline, "SPIN_NANOSECONDS", 0)


@pytest.fixture
def separate(vulkan, monkeypatch):
    """Memory of the device's own, which the host doesn't see."""
    data = vulkan.driver.data

    def seen(allocation, size):
        return None if allocation._home is data else mapped(allocation, size)

    monkeypatch.setattr(vulkan_driver, "mapped", seen)
    return vulkan


def test_calls_are_started_and_not_waited_for(vulkan, waits):
    compiled = lg.compile(lambda x, y: x * 2.0 + y)
    x = lg.asarray(np.arange(1000.0))
    for _ in range(2):
        compiled(x, x)
    vulkan.gpu.timeline.idle()
    waits.clear()
    before, results = vulkan.gpu.timeline.submitted, [x]
    for _ in range(20):
        results.append(compiled(results[-1], x))
    assert vulkan.gpu.timeline.submitted == before + 20
    assert not waits
    wanted = np.arange(1000.0)
    for result in results:
        np.testing.assert_array_equal(np.asarray(result), wanted)
        wanted = wanted * 2.0 + np.arange(1000.0)


@pytest.fixture
def slow(vulkan, monkeypatch):
    """A device that seems to be done with nothing until somebody waits; how many lists each submission brought it."""
    timeline, real, sizes = vulkan.gpu.timeline, vulkan.gpu.lib, []

    def submit(queue, count, info, fence):
        sizes.append(info.commandBufferCount)
        return real.vkQueueSubmit(queue, count, info, fence)

    def counter(device, semaphore, out):
        out[0] = timeline._reached
        return 0

    timeline.idle()
    monkeypatch.setattr(vulkan_timeline, "MOST_IN_BURST", 1)
    library = Library(real, vkQueueSubmit=submit, vkGetSemaphoreCounterValue=counter)
    monkeypatch.setattr(vulkan.gpu, "lib", library)
    return sizes


def repeated_call():
    """A compiled function and an argument, after its commands were recorded for the addresses that come in turn."""
    compiled, x = lg.compile(lambda x: x + 1.0), lg.asarray(np.zeros(3))
    for _ in range(6):
        compiled(x)
    lg.synchronize("vulkan:0")
    return compiled, x


def test_submissions_wait_for_company_while_the_device_is_busy(vulkan, slow, monkeypatch):
    monkeypatch.setattr(vulkan.gpu.timeline._sender, "ask", lambda: None)
    compiled, x = repeated_call()
    slow.clear()
    timeline = vulkan.gpu.timeline
    before, results = timeline.sent, [compiled(x) for _ in range(12)]
    assert len(slow) == 3  # one, one more, and eight together
    assert (timeline.sent, timeline.submitted) == (before + 10, before + 12)
    assert np.asarray(results[-1]).tolist() == [1.0] * 3
    assert timeline.sent == timeline.submitted


@pytest.mark.usefixtures("slow")
def test_what_waits_for_company_is_sent_when_no_call_comes(vulkan):
    timeline = vulkan.gpu.timeline
    compiled, x = repeated_call()
    for _ in range(5):
        compiled(x)
    deadline = time.monotonic() + 30
    while timeline.sent < timeline.submitted and time.monotonic() < deadline:
        time.sleep(0.001)
    assert timeline.sent == timeline.submitted


def test_the_thread_that_sends_late_ends_with_its_device():
    sender = VulkanDevice(0).gpu.timeline._sender
    sender.ask()
    thread = sender._thread
    deadline = time.monotonic() + 30
    while thread.is_alive() and time.monotonic() < deadline:
        gc.collect()
        thread.join(0.01)
    assert not thread.is_alive()


def test_a_few_submissions_right_after_another_go_together(vulkan, monkeypatch):
    """Whatever the device does; the first one goes at once."""
    timeline, sizes = vulkan.gpu.timeline, []
    monkeypatch.setattr(timeline._sender, "ask", lambda: None)
    compiled, x = repeated_call()
    monkeypatch.setattr(vulkan_timeline, "BURST_NANOSECONDS", 10**12)
    monkeypatch.setattr(timeline, "_busy", lambda: False)
    timeline._latest = -(10**12)
    for _ in range(9):
        compiled(x)
        sizes.append(timeline.submitted - timeline.sent)
    assert sizes == [0, 1, 2, 3, 0, 1, 2, 3, 0]


def test_a_refusal_leaves_what_waited_for_company(vulkan, slow, monkeypatch):
    timeline = vulkan.gpu.timeline
    monkeypatch.setattr(timeline._sender, "ask", lambda: None)
    compiled, x = repeated_call()
    kept = [compiled(x) for _ in range(4)]
    assert timeline.sent < timeline.submitted
    with monkeypatch.context() as refusing:
        refusing.setattr(vulkan.gpu, "lib", Library(vulkan.gpu.lib, vkQueueSubmit=lambda *_: -1))
        while timeline.submitted < timeline.sent + vulkan_timeline.MOST_TOGETHER - 1:
            compiled(x)
        with pytest.raises(MemoryError, match="out of host memory"):
            compiled(x)
        assert timeline.submitted == timeline.sent + vulkan_timeline.MOST_TOGETHER - 1
    assert np.asarray(kept[0]).tolist() == np.asarray(kept[3]).tolist() == [1.0] * 3


def test_elements_wait_for_what_makes_them_only(vulkan, monkeypatch):
    """Not for work that was started later. (Where the host doesn't see the memory, for a copy behind that work.)"""
    if not vulkan.gpu.unified:
        pytest.skip("elements are copied to the host")
    timeline, asked = vulkan.gpu.timeline, []
    original = timeline.wait
    monkeypatch.setattr(timeline, "wait", lambda number: (asked.append(number), original(number)))
    compiled = lg.compile(lambda x: x - 1.0)
    first = compiled(lg.asarray(np.ones(10)))
    made = timeline.submitted
    for _ in range(5):
        compiled(first)
    assert np.asarray(first).tolist() == [0.0] * 10
    assert asked[-1] == made < timeline.submitted


def test_a_loop_of_calls_does_not_run_ahead_without_end(vulkan, waits):
    compiled = lg.compile(lambda x: x + 1.0)
    x = lg.asarray(np.zeros(3))
    for _ in range(300):
        x = compiled(x)
        assert vulkan.gpu.timeline.submitted - vulkan.gpu.timeline._reached <= 64
    assert np.asarray(x).tolist() == [300.0] * 3


@pytest.mark.usefixtures("young_heap")
def test_arrays_go_in_front_of_the_work_that_needs_them(separate, waits):
    """Uploads cost no submission and no wait of their own, whatever becomes of their memory."""
    compiled = lg.compile(lambda x: x * 3.0)
    compiled(lg.asarray(np.ones(50_000)))
    separate.driver.flush()
    separate.gpu.timeline.idle()
    waits.clear()
    before, results = separate.gpu.timeline.submitted, []
    for i in range(12):
        results.append(compiled(lg.asarray(np.full(50_000, float(i)))))
        gc.collect()
    assert separate.gpu.timeline.submitted == before + 12
    assert not waits
    for i, result in enumerate(results):
        assert np.asarray(result).tolist() == [3.0 * i] * 50_000


def test_an_array_that_nobody_wanted(separate):
    """Its copy was recorded when its memory already served another."""
    wanted = np.arange(70_000.0)
    for _ in range(3):
        lg.asarray(-wanted)
        gc.collect()
        placed = lg.asarray(wanted)
        np.testing.assert_array_equal(np.asarray(placed), wanted)


def test_much_data_goes_in_parts(separate, monkeypatch):
    monkeypatch.setattr(transfers, "PART", 1 << 12)
    monkeypatch.setattr(vulkan_driver, "PART", 1 << 12)
    monkeypatch.setattr(transfers, "MOST_STAGED", 1 << 16)
    for size in (1, 511, 512, 513, 40_000):
        wanted = np.random.default_rng(size).normal(size=size)
        placed = lg.asarray(np.concatenate([wanted, wanted]))
        np.testing.assert_array_equal(np.asarray(placed), np.concatenate([wanted, wanted]))


def test_programs_without_memory_in_common(separate):
    def loss(x, n):
        return lg.sum(lg.vmap(lambda v, trips: lg.fori_loop(0, trips, lambda _, s: lg.sin(s) + 0.1 * v, v))(x, n))

    x, gradient = np.linspace(-1.0, 1.0, 3000), lg.compile(lg.grad(loss))
    for most in (3, 40, 10):
        n = np.arange(3000) % most
        got = np.asarray(gradient(lg.asarray(x), lg.asarray(n)))
        with lg.default_device("cpu"):
            wanted = np.asarray(lg.grad(loss)(lg.asarray(x), lg.asarray(n)))
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_staging_memory_is_used_again_when_its_submission_is_done(separate):
    heap = separate.driver.host
    for i in range(40):
        np.asarray(lg.compile(lambda x: x + 1.0)(lg.asarray(np.full(30_000, float(i)))))
    held = heap.held
    for i in range(40):
        np.asarray(lg.compile(lambda x: x + 1.0)(lg.asarray(np.full(30_000, float(i)))))
    assert heap.held == held


@pytest.mark.usefixtures("blocking")
def test_a_wait_that_is_broken_off_ends_when_the_device_is_idle(vulkan, monkeypatch):
    timeline, real, calls = vulkan.gpu.timeline, vulkan.gpu.lib, []
    compiled = lg.compile(lambda x: lg.sum(lg.cos(x)))
    x = lg.asarray(np.zeros(400))

    def interrupted(*_):
        calls.append("wait")
        if len(calls) == 1:
            return 2  # VK_TIMEOUT
        raise KeyboardInterrupt

    def idle(handle):
        calls.append("idle")
        return real.vkDeviceWaitIdle(handle)

    with monkeypatch.context() as patch:
        patch.setattr(vulkan.gpu, "lib", Library(real, vkWaitSemaphores=interrupted, vkDeviceWaitIdle=idle))
        with pytest.raises(KeyboardInterrupt):
            np.asarray(compiled(x))
    assert calls == ["wait", "wait", "idle"]
    assert timeline.done(timeline.submitted)
    assert float(compiled(x)) == 400.0


@pytest.mark.usefixtures("blocking")
@pytest.mark.parametrize("where", ["vkQueueSubmit", "vkWaitSemaphores"])
def test_a_lost_device_names_the_kernel_and_the_line(where):
    lost = VulkanDevice(0)
    driver, report = lost.driver, lost.driver.shared(4)
    lost.gpu.lib = Library(lost.gpu.lib, **{where: lambda *_: -4})
    commands = driver.commands()
    commands.begin()
    commands.labels["k0_for (script.py:3)"] = None
    commands.end()
    with pytest.raises(RuntimeError, match=r": kernel k0_for \(script.py:3\) failed: the device was lost"):
        driver.start([commands], (), report)
    for again in (lambda: driver.take(8), lambda: driver.start([commands], (), None), lambda: driver.shared(3)):
        with pytest.raises(RuntimeError, match="it can't be used again in this process"):
            again()


def test_what_a_device_lacks_is_named(vulkan):
    base, _, twelve = vulkan.gpu.api.features(vulkan.gpu.physical)
    assert not lacking(base, twelve)
    twelve.timelineSemaphore = 0
    assert lacking(base, twelve) == "timelineSemaphore"
    assert isinstance(vulkan.driver, VulkanDriver)


def test_a_device_without_timelines_is_one_line(monkeypatch):
    monkeypatch.setattr("loopgrad.runtime.vulkan.api.lacking", lambda *_: "timelineSemaphore")
    (status,) = [s for s in lg.devices() if s.kind == "vulkan"]
    assert not status.available
    assert str(status).endswith("lacks timelineSemaphore")
    assert "\n" not in str(status)


def test_a_refused_submission_leaves_no_names_of_kernels(vulkan, monkeypatch):
    """The next one has its number, and a failure would name kernels that were never started."""
    timeline, real = vulkan.gpu.timeline, vulkan.gpu.lib
    timeline.idle()
    monkeypatch.setattr(vulkan.gpu, "lib", Library(real, vkQueueSubmit=lambda *_: -2))
    before = timeline.submitted, list(timeline._running)
    with pytest.raises(MemoryError, match="out of device memory"):
        timeline.submit([], {"never started": None})
    assert (timeline.submitted, list(timeline._running)) == before
    monkeypatch.setattr(vulkan.gpu, "lib", real)
    assert np.asarray(lg.asarray([1.0]) * 2).tolist() == [2.0]
