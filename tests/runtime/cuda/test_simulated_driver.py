"""The runtime on a libcuda.so.1 without a GPU: what is called, in which order, and what a failure leaves.

Run by itself this skips; test_with_a_simulated_driver.py runs it where CUDA may be simulated.
"""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.devices import get_device
from tests.runtime.cuda.simulated_process import inside, spent
from tests.runtime.loops import gradient_of_ragged_loops, ragged_reference


@inside
def test_a_program_without_stacks_waits_for_nothing(sim):
    compiled = lg.compile(lambda x: lg.exp(x) * 2.0)
    x = lg.asarray(np.arange(100.0))
    for _ in range(3):
        result = compiled(x)
    calls = spent(sim, lambda: compiled(x))
    assert calls["launches"] == 1
    assert calls["downloads"] == calls["waits"] == 0
    np.testing.assert_allclose(np.asarray(result), np.exp(np.arange(100.0)) * 2, rtol=1e-12)


@inside
def test_another_stream_follows_this_one_and_is_followed(sim):
    api = get_device("cuda:0").driver.api
    before = sim.counts()["orders"]
    with get_device("cuda:0").driver.lock:
        second, event = api.make_stream(), api.make_event()
        assert second not in (0, api.stream)
        api.order(api.stream, second)
        api.record(event, second)
        api.follow(event)
    assert sim.counts()["orders"] - before == 2


@inside
def test_tables_are_sent_only_when_an_address_changed(sim):
    device = get_device("cuda:0")
    compiled = lg.compile(lambda x: x + 1.0)
    x = lg.asarray(np.arange(5.0))
    held = [compiled(x) for _ in range(4)]  # each has memory of its own
    assert spent(sim, lambda: held.append(compiled(x)))["uploads"] == 1
    held.clear()
    compiled(x)
    device.get(device.put(np.ones(1)))
    assert spent(sim, lambda: compiled(x))["uploads"] == 0


@inside
def test_replays_whose_results_nobody_holds_write_to_the_same_addresses(sim):
    captured = lg.compile(lambda x: x + 1.0).capture(x := lg.asarray(np.arange(5.0)))
    captured.replay(x)
    assert spent(sim, lambda: captured.replay(x))["uploads"] == 0
    held = [captured.replay(x)]
    assert spent(sim, lambda: held.append(captured.replay(x)))["uploads"] <= 1  # none where commands are there for them
    for result in held:
        assert np.asarray(result).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


@inside
@pytest.mark.parametrize("parts", [(40,), (40, 30)], ids=str)
def test_a_replay_is_one_launch_that_is_not_waited_for(sim, parts):
    """Of a graph, when it isn't the first with such stacks. A stack that is too small shows when somebody looks."""
    gradient, rng = gradient_of_ragged_loops(), np.random.default_rng(0)
    compiled = lg.compile(lambda x, n: [gradient(x[:k], n[:k]) for k in parts])
    x, n = rng.uniform(0.5, 1.5, 40), rng.integers(0, 4, 40, dtype=np.int32)
    captured = compiled.capture(lg.asarray(x), lg.asarray(n))
    captured.replay(lg.asarray(x), lg.asarray(n))
    for most in (5, 60, 3):
        n = rng.integers(0, most, 40, dtype=np.int32)
        given, before = (lg.asarray(x), lg.asarray(n)), captured.stats().growths
        calls = spent(sim, lambda given=given: captured.replay(*given))
        assert calls["downloads"] == calls["waits"] == 0
        look = spent(sim, captured.stats)
        grown = captured.stats().growths > before
        assert grown or look["downloads"] == 1
        assert (look["launches"] + look["graph_launches"] > 0) == grown
        for _ in range(3):
            captured.replay(*given)
        calls = spent(sim, lambda given=given: captured.replay(*given))
        assert (calls["launches"], calls["graph_launches"]) == (0, 1)
        assert calls["downloads"] == calls["waits"] == 0
        np.testing.assert_allclose(np.asarray(captured.replay(*given)[0]), ragged_reference(x, n), rtol=1e-12)
    assert captured.stats().captures == 1
    assert captured.stats().growths >= 1


@inside
def test_earlier_results_stay_while_later_work_is_started(sim):
    compiled = lg.compile(lambda x: (x * 2.0, lg.sum(x)))
    results = [compiled(lg.asarray(np.full(1000, float(i)))) for i in range(20)]
    for i, (array, total) in enumerate(results):
        assert np.asarray(array).tolist() == [2.0 * i] * 1000
        assert float(total) == 1000.0 * i


@inside
def test_many_small_arrays_go_around_the_staging_ring(sim):
    arrays = [np.full(8000, float(i)) for i in range(100)]
    placed = [lg.asarray(a) for a in arrays]
    for a, b in zip(arrays, placed, strict=True):
        np.testing.assert_array_equal(np.asarray(b), a)


@inside
@pytest.mark.parametrize("size", [0, 1, 1 << 13, 1 << 15, (1 << 15) + 1, 1 << 18])
def test_put_and_get(sim, size):
    device = get_device("cuda:0")
    source = np.random.default_rng(size).normal(size=size)
    np.testing.assert_array_equal(device.get(device.put(source)), source)


@inside
def test_what_a_loop_gives_after_a_put_from_memory_that_changes(sim):
    source = np.ones(10)
    x = lg.asarray(source)
    source[:] = 7.0
    y = np.asarray(x * 1.0)
    assert y.tolist() == [1.0] * 10


@inside
def test_memory_that_is_refused(sim):
    device = get_device("cuda:0")
    held = device.driver.held
    sim.set_state("capacity", held + (1 << 20))
    with pytest.raises(MemoryError, match=r"expected [\d,]+ bytes, [\d,]+ bytes are available"):
        np.asarray(lg.ones((1 << 22,), dtype=lg.float64) * 2.0 + lg.arange(1 << 22))
    sim.set_state("capacity", 1 << 32)
    assert float(lg.sum(lg.ones((100,)))) == 100.0


@inside
def test_memory_goes_back_under_pressure(sim):
    device = get_device("cuda:0")
    first = [device.put(np.ones(1 << 20)) for _ in range(4)]
    held = device.driver.held
    del first
    sim.set_state("capacity", held + (4 << 20))
    second = device.put(np.ones(3 << 20))
    assert device.get(second)[-1] == 1.0
    assert lg.memory_stats().heap_bytes == device.driver.held


@inside
@pytest.mark.parametrize("what", ["load", "function", "instantiate"])
def test_idle_memory_makes_room_for_code_and_graphs(sim, monkeypatch, what):
    device = get_device("cuda:0")
    device.put(np.ones(1 << 20))  # and nobody holds it
    driver, held, real = device.driver, device.driver.held, getattr(device.driver.api, what)
    refused = []

    def made(*given):
        if driver.held >= held:
            refused.append(given)
            raise MemoryError(what)
        return real(*given)

    monkeypatch.setattr(driver.api, what, made)
    compiled, x = lg.compile(lambda x: lg.cumsum(lg.sin(x) + float(len(what)))), np.arange(3000.0)
    for _ in range(4):
        np.testing.assert_allclose(np.asarray(compiled(lg.asarray(x))), np.cumsum(np.sin(x) + len(what)), rtol=1e-12)
    assert len(refused) == 1


@inside
def test_threads_share_the_stream(sim):
    compiled = lg.compile(lambda x: lg.sum(lg.sin(x) * x))
    wrong = []

    def work(number):
        with lg.default_device("cuda:0"):
            x = np.linspace(0, number, 500)
            for _ in range(20):
                got = float(compiled(lg.asarray(x)))
                if not np.isclose(got, (np.sin(x) * x).sum(), rtol=1e-12):
                    wrong.append((number, got))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@inside
def test_code_goes_with_its_executable(sim):
    from loopgrad.runtime.session import SESSION

    def once():
        np.asarray(lg.compile(lambda x: lg.cos(x) * 3.0 + lg.tanh(x))(lg.ones((7,))))

    SESSION.clear()
    once()
    modules = sim.counts()["modules"]
    SESSION.clear()
    once()
    np.asarray(lg.ones((3,)) + 1.0)
    assert sim.counts()["modules"] <= modules + 2


@inside
def test_the_context_of_others_is_left_alone(sim):
    from loopgrad.runtime.cuda.found import driver

    cuda = driver()
    other = cuda.CUcontext(12345)
    cuda.cuCtxSetCurrent(other)
    try:
        assert float(lg.sum(lg.ones((10,)))) == 10.0
        assert int(cuda.cuCtxGetCurrent()[1]) == 12345
    finally:
        cuda.cuCtxSetCurrent(cuda.CUcontext(0))


@pytest.fixture
def heeding_ctrl_c():
    """A process that a shell has put into the background ignores the signal, and so do those that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@inside
def test_ctrl_c_while_waiting(sim, monkeypatch, heeding_ctrl_c):
    device = get_device("cuda:0")
    api = device.driver.api
    asked = []

    def idle():
        asked.append(None)
        if len(asked) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return False

    monkeypatch.setattr(api, "idle", idle)
    with pytest.raises(KeyboardInterrupt):
        np.asarray(lg.ones((10,)) + 1.0)
    monkeypatch.undo()
    assert np.asarray(lg.ones((10,)) + 1.0).tolist() == [2.0] * 10


@inside
def test_a_lost_device_names_the_kernels(sim):
    """Last: the device of this process is of no use afterwards."""
    compiled = lg.compile(gradient_of_ragged_loops())
    x, n = lg.ones((8,), dtype=lg.float64), lg.asarray(np.arange(8, dtype=np.int32))
    for _ in range(3):  # then commands are known for these addresses, and a call does nothing but start them
        np.asarray(compiled(x, n))
    sim.set_state("lost", 700)
    with pytest.raises(RuntimeError, match=r"one of the kernels k0.*CUDA_ERROR_ILLEGAL_ADDRESS.*can't be used again"):
        np.asarray(compiled(x, n))
    with pytest.raises(RuntimeError, match="can't be used again in this process"):
        np.asarray(compiled(x, n))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="can't be used again in this process"):
            np.asarray(lg.compile(lambda x: lg.cosh(x) * 5.0)(x))
