"""Calls that are started and not looked at: what is done again, in which order, and what a failure leaves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime import devices
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.gpu import direct_calls, ledger
from loopgrad.runtime.gpu.recorder import Recorder
from loopgrad.runtime.gpu.stack_heap import StackHeap
from loopgrad.runtime.session import SESSION
from loopgrad.runtime.vulkan.api import device_count
from loopgrad.runtime.vulkan.device import VulkanDevice
from tests.runtime.loops import gradient_of_ragged_loops, ragged_reference


def endless_vulkan():
    """lavapipe as if it never stopped a loop, which it doesn't for the trips of these tests."""
    if device_count()[0] == 0:
        pytest.skip(device_count()[1])
    device = VulkanDevice(0)
    device.gpu.features = replace(device.gpu.features, endless_loops=True)
    if device.driver.ledger is None:
        device.driver.ledger = ledger.Ledger(device.driver, device.driver.available())
    return device


@pytest.fixture(params=["simulator:1", "vulkan:0"])
def gpu(request, monkeypatch):
    SESSION.clear()  # programs of other tests know deeper stacks
    name = request.param
    if name == "vulkan:0":
        monkeypatch.setitem(devices._made, name, endless_vulkan())
    with lg.default_device(name):
        yield get_device(name)
    SESSION.clear()


def loops():
    """Compiled, with stacks for three trips."""
    compiled = lg.compile(gradient_of_ragged_loops())
    for _ in range(2):
        compiled(lg.asarray(np.ones(40)), lg.asarray(np.full(40, 3, np.int32))).numpy()
    return compiled


def lanes(seed, trips):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 1.5, 40), rng.integers(0, trips + 1, 40, dtype=np.int32)


def calls(gpu):
    return list(gpu.driver.ledger._calls)


def test_nobody_looks_until_elements_are_needed(gpu, monkeypatch):
    compiled, looks = loops(), []
    original = gpu.driver.start

    def start(work, uploads, report):
        looks.extend([report] if report is not None else [])
        return original(work, uploads, report)

    monkeypatch.setattr(gpu.driver, "start", start)
    given = [lanes(seed, 3) for seed in range(5)]
    results = [compiled(lg.asarray(x), lg.asarray(n)) for x, n in given]
    assert len(calls(gpu)) == 5
    assert not looks
    for (x, n), result in zip(given, results, strict=True):
        np.testing.assert_allclose(np.asarray(result), ragged_reference(x, n), rtol=1e-12)
    assert len(looks) == 1
    assert not calls(gpu)


def test_calls_in_vain_are_done_again_in_order(gpu):
    """Also those that only use what such a call made, or have nothing to do with it."""
    compiled = loops()
    scaled = lg.compile(lambda g, x: (g * 2e-3 + x, lg.sum(g)))
    x, n = lanes(0, 3)
    [a.numpy() for a in scaled(lg.asarray(x), lg.asarray(x))]
    x, few, many = lg.asarray(x), lg.asarray(n), lg.asarray(n * 50)
    first = compiled(x, few)
    second = compiled(first, many)
    third, total = scaled(second, first)
    fourth = compiled(third, few)
    assert len(calls(gpu)) == 4
    one = ragged_reference(np.asarray(x), n)
    two = ragged_reference(one, n * 50)
    three = two * 2e-3 + one
    np.testing.assert_allclose(np.asarray(fourth), ragged_reference(three, n), rtol=1e-9)
    np.testing.assert_allclose(np.asarray(third), three, rtol=1e-9)
    np.testing.assert_allclose(float(total), two.sum(), rtol=1e-9)
    np.testing.assert_allclose(np.asarray(second), two, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(first), one, rtol=1e-12)


def test_inputs_that_nobody_else_holds_live_on(gpu):
    compiled = loops()
    results = [compiled(*map(lg.asarray, lanes(seed, 3 if seed else 200))) for seed in range(20)]
    for seed, result in enumerate(results):
        wanted = ragged_reference(*lanes(seed, 3 if seed else 200))
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-9)


def test_results_that_nobody_holds_matter_to_those_after_them(gpu):
    compiled, shrunk = loops(), lg.compile(lambda v: v * 0.2)
    x, n = lanes(0, 90)
    value = shrunk(lg.asarray(x))
    value.numpy()
    value, wanted = shrunk(lg.asarray(x)), x * 0.2
    for _ in range(6):
        value = shrunk(compiled(value, lg.asarray(n)))
        wanted = ragged_reference(wanted, n) * 0.2
    assert len(calls(gpu)) == 12
    np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-9)


def test_a_ledger_that_is_full_is_settled(gpu, monkeypatch):
    compiled = loops()
    for limit in ("MOST_CALLS", "_most_bytes"):
        if limit == "MOST_CALLS":
            monkeypatch.setattr(ledger, limit, 3)
        else:
            monkeypatch.setattr(gpu.driver.ledger, limit, 2000)
        x, n = lanes(1, 3)
        results, most = [], 0
        for _ in range(10):
            results.append(compiled(lg.asarray(x), lg.asarray(n)))
            most = max(most, len(calls(gpu)))
        assert 1 < most <= 3
        for result in results:
            np.testing.assert_allclose(np.asarray(result), ragged_reference(x, n), rtol=1e-12)


def test_a_failure_stays_with_its_results(gpu, monkeypatch):
    """And with what was computed from them; other calls are done, and the program works again."""
    compiled = loops()
    x, n = lanes(2, 3)
    x = x * 0.5
    fine = compiled(lg.asarray(x), lg.asarray(n))
    failed = compiled(lg.asarray(x), lg.asarray(n * 1000))
    after = compiled(failed, lg.asarray(n))
    beside = compiled(lg.asarray(x * 0.5), lg.asarray(n))
    with monkeypatch.context() as short:
        short.setattr(gpu.driver, "available", lambda: 1000)
        short.setattr(gpu.driver, "ready", lambda size: size < 100_000)
        gpu.finish()
    for result in (failed, after, failed, after * 2.0):
        with pytest.raises(MemoryError, match="saved values"):
            np.asarray(result)
    np.testing.assert_allclose(np.asarray(fine), ragged_reference(x, n), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(beside), ragged_reference(x * 0.5, n), rtol=1e-12)
    again = compiled(lg.asarray(x), lg.asarray(n * 1000))
    np.testing.assert_allclose(np.asarray(again), ragged_reference(x, n * 1000), rtol=1e-9, atol=1e-300)


def test_ctrl_c_while_calls_are_done_again(gpu, monkeypatch):
    """The next look goes on where the one before was broken off."""
    compiled = loops()
    given = [lanes(seed, 3) for seed in range(3)]
    given[1] = (given[1][0], given[1][1] * 70)
    results = [compiled(lg.asarray(x), lg.asarray(n)) for x, n in given]
    original, starts = Recorder.run, []

    def interrupted(self, report, sent=()):
        starts.append(1)
        if len(starts) == 2:
            raise KeyboardInterrupt
        original(self, report, sent)

    monkeypatch.setattr(Recorder, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        np.asarray(results[0])
    assert calls(gpu)
    for (x, n), result in zip(given, results, strict=True):
        np.testing.assert_allclose(np.asarray(result), ragged_reference(x, n), rtol=1e-9)


def test_a_start_that_is_broken_off(gpu, monkeypatch):
    """Its kernels may have marked the word, which would stop all that comes later."""
    compiled = loops()
    x, n = lanes(3, 3)

    def interrupted(*call):
        assert len(call) == 3
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(gpu.driver.ledger, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compiled(lg.asarray(x), lg.asarray(n * 80))
    doubled = lg.compile(lambda v: v * 2.0)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(doubled(lg.asarray(x))), x * 2.0)
    np.testing.assert_allclose(np.asarray(compiled(lg.asarray(x), lg.asarray(n))), ragged_reference(x, n), rtol=1e-12)


def test_a_program_that_waits_comes_after_the_ledger(gpu):
    """What it reads may have to be made again."""
    compiled = loops()
    x, n = lanes(4, 3)
    made = compiled(lg.asarray(x), lg.asarray(n * 60))
    wanted = ragged_reference(x, n * 60)
    found = lg.compile(lambda v: lg.sort(v))(made)  # its first call
    np.testing.assert_allclose(np.asarray(found), np.sort(wanted), rtol=1e-9)
    checked = lg.compile(lambda v: lg.while_loop(lambda c: lg.max(c) > 1.0, lambda c: c * 0.5, v))
    made = compiled(lg.asarray(x), lg.asarray(n * 200))
    halved = np.array(ragged_reference(x, n * 200))
    while halved.max() > 1.0:
        halved = halved * 0.5
    np.testing.assert_allclose(np.asarray(checked(made)), halved, rtol=1e-9)


def test_replays_are_entered_too(gpu):
    compiled = lg.compile(gradient_of_ragged_loops())
    x, n = lanes(5, 3)
    captured = compiled.capture(lg.asarray(x), lg.asarray(n))
    results = [captured.replay(lg.asarray(x / k), lg.asarray(n * 10 * k)) for k in range(1, 5)]
    assert len(calls(gpu)) > 1
    assert captured.stats().growths >= 1
    for k, result in enumerate(results, 1):
        np.testing.assert_allclose(np.asarray(result), ragged_reference(x / k, n * 10 * k), rtol=1e-9)


def test_waiting_for_a_device(gpu):
    compiled = loops()
    x, n = lanes(6, 3)
    result = compiled(lg.asarray(x), lg.asarray(n * 40))
    assert calls(gpu)
    lg.synchronize(gpu.name)
    assert not calls(gpu)
    np.testing.assert_allclose(np.asarray(result), ragged_reference(x, n * 40), rtol=1e-9)


def test_threads_share_the_ledger(gpu):
    compiled = loops()

    def work(thread):
        rng = np.random.default_rng(thread)
        held = []
        with lg.default_device(gpu.name):
            for _ in range(25):
                x, n = lanes(int(rng.integers(1000)), int(rng.integers(1, 60)))
                held.append((compiled(lg.asarray(x), lg.asarray(n)), x, n))
                if rng.random() < 0.2:
                    held[int(rng.integers(len(held)))][0].numpy()
        return max(np.abs(np.asarray(r) - ragged_reference(x, n)).max() for r, x, n in held)

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, range(4))) < 1e-6


def test_a_heap_that_only_moves_is_not_laid_out_again(gpu, monkeypatch):
    """Steps whose results are the next one's arguments, while memory of the heap's size is taken and dropped."""
    compiled, laid_out = loops(), []
    original = StackHeap._lay_out
    n = np.arange(40, dtype=np.int32) % 4
    values, counts, kept = [lg.asarray(np.linspace(0.5, 1.5, 40))], lg.asarray(n), []
    for turn in range(24):
        if turn == 8:
            monkeypatch.setattr(StackHeap, "_lay_out", lambda *given: laid_out.append(None) or original(*given))
            monkeypatch.setattr(direct_calls.DirectCalls, "run", lambda *_: None)  # the ordinary way
        values.append(compiled(values[-1], counts))
        if turn % 5 == 0:
            kept.append(gpu.driver.take(1 << (12 + turn % 3)))
    for before, after in pairwise(values):
        np.testing.assert_allclose(np.asarray(after), ragged_reference(np.asarray(before), n), rtol=1e-9)
    assert not laid_out
