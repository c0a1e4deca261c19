"""Recorded loops and branches: what a driver gets, and what a replay costs."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.nodes import Location
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.gpu.control_flow import Launch
from loopgrad.runtime.gpu.device_decided import DeviceDecided
from loopgrad.runtime.gpu.driver import LibraryCall
from loopgrad.runtime.gpu.recorder import Recorder
from loopgrad.runtime.gpu.region_recorder import RecordedLaunch, RecordedRegion, RecordedUpdate, UpdateList, tidy
from tests.runtime.loops import mixing_reference, sum_of_mixing_loop

N = 300  # more than one lane of a kernel carries
X = np.linspace(-0.6, 0.9, N)


def captured(device, fun, *arguments):
    with lg.default_device(device):
        return lg.compile(fun).capture(*map(lg.asarray, arguments))


def replayed(device, replay, *arguments):
    with lg.default_device(device):
        return replay.replay(*map(lg.asarray, arguments))


def regions(block):
    for entry in block:
        if isinstance(entry, RecordedRegion):
            yield entry
            for inner in entry.blocks:
                yield from regions(inner)


def updates(block):
    return [entry for entry in block if isinstance(entry, RecordedUpdate)]


def test_a_replay_is_one_graph_launch():
    host = get_device("simulator:1").driver.host
    replay = captured("simulator:1", sum_of_mixing_loop, X, 3)
    for trips in (3, 50, 0, 7):
        before = host.launches
        np.testing.assert_allclose(replayed("simulator:1", replay, X, trips), mixing_reference(X, trips), rtol=1e-12)
        assert host.launches == before + 1


def test_a_growth_is_one_launch_more_and_no_capture():
    host = get_device("simulator:1").driver.host
    replay = captured("simulator:1", lg.value_and_grad(sum_of_mixing_loop), X, 3)
    graphs, before = host.graphs, host.launches
    for trips, launches in ((2, 1), (60, 2), (60, 1), (3, 1), (200, 2)):
        start = host.launches
        value, _ = replayed("simulator:1", replay, X, trips)
        np.testing.assert_allclose(value, mixing_reference(X, trips), rtol=1e-12)
        assert host.launches == start + launches
    assert host.launches == before + 7
    assert host.graphs == graphs
    assert replay.stats().growths == 2


def test_capture_records():
    """The first replay has no more to do than the others."""
    host = get_device("simulator:1").driver.host
    replay = captured("simulator:1", lg.value_and_grad(sum_of_mixing_loop), X + 0.5, 3)
    graphs = host.graphs
    replayed("simulator:1", replay, X, 3)
    assert host.graphs == graphs


@pytest.mark.parametrize("name", ["for", "while", "gradient"])
def test_one_update_a_trip(recordings, name):
    def counted(x, n):
        return sum_of_mixing_loop(x, n)

    def conditional(x, n):
        return lg.sum(lg.while_loop(lambda v: lg.max(v) < n, lambda v: 1.3 * v + 0.1 * lg.mean(v), x))

    fun = {"for": counted, "while": conditional, "gradient": lg.value_and_grad(conditional)}[name]
    captured("simulator:0", fun, X, 3.0 if name != "for" else 3)
    loops = list(regions(recordings[-1]))
    assert len(loops) == (2 if name == "gradient" else 1)
    for loop in loops:
        assert [update.condition for update in updates(loop.blocks[0])] == [loop.condition]


def test_pushes_move_up_to_the_decision(recordings):
    """Also those of values that are made late in the body."""

    def fun(x, n):
        return lg.sum(lg.fori_loop(0, n, lambda _, v: lg.sin(lg.cos(v) * lg.mean(v)) * lg.sum(v), x))

    captured("simulator:0", lg.grad(fun), X, 3)
    assert len(list(regions(recordings[-1]))) == 2
    for loop in regions(recordings[-1]):
        assert len(updates(loop.blocks[0])) == 1


def test_a_launch_between_keeps_a_pop_where_it_is():
    """An update doesn't pass a launch that uses what it changes."""
    update = RecordedUpdate(UpdateList())
    update.operations.pop(4, 10 + 7)
    uses, other = (RecordedLaunch(Launch(None, 1, (0,) * 6), frozenset(symbols)) for symbols in ({7}, {8}))
    assert tidy([other, uses, other, update], 10) == [other, uses, update, other]
    assert tidy([other, other, update], 10) == [update, other, other]


def test_what_reads_memory_stays():
    update = RecordedUpdate(UpdateList())
    update.operations.room(4, 17, 8)
    other = RecordedLaunch(Launch(None, 1, (0,) * 6), frozenset({3}))
    assert tidy([other, update], 10) == [other, update]


def test_why_the_host_decides():
    def notes(device):
        with lg.default_device(device):
            compiled = lg.compile(sum_of_mixing_loop)
            compiled(lg.asarray(X), lg.asarray(2))
            return "\n".join(compiled.plan(lg.asarray(X), lg.asarray(2)).notes)

    assert "the host reads the decisions" in notes("simulator:0")
    assert "replay" not in notes("simulator:1")


def product(task):
    """A library on the host."""

    def start(words):
        sizes = (task.m * task.k, task.k * task.n, task.m * task.n)
        a, b, c = (
            np.frombuffer((ctypes.c_char * (8 * size)).from_address(int(word)), task.result.np)
            for word, size in zip(words, sizes, strict=True)
        )
        left = a.reshape(task.k, task.m).T if task.transpose_left else a.reshape(task.m, task.k)
        right = b.reshape(task.n, task.k).T if task.transpose_right else b.reshape(task.k, task.n)
        c[:] = (left @ right).reshape(-1)

    return LibraryCall("matmul", start)


@pytest.mark.parametrize("large", [True, False])
def test_loops_with_large_products_are_left_to_the_library(monkeypatch, large):
    """Whoever decides, the first run and the next have the same bits."""
    driver = get_device("simulator:1").driver
    monkeypatch.setattr(driver, "product", product)
    monkeypatch.setattr("loopgrad.runtime.gpu.loaded_program.LARGE_PRODUCT", 1 if large else 1 << 40)
    a = np.random.default_rng(0).standard_normal((N, N)) / N**0.5

    def fun(a, x, n):
        factor = 1.0 if large else 2.0  # another program, since programs are kept
        return lg.fori_loop(0, n, lambda _, v: factor * lg.tanh(a @ v), x)

    x = np.random.default_rng(1).standard_normal((N, 20))
    with lg.default_device("simulator:1"):
        compiled = lg.compile(fun)
        runs = [np.asarray(compiled(lg.asarray(a), lg.asarray(x), lg.asarray(3))) for _ in range(3)]
        notes = "\n".join(compiled.plan(lg.asarray(a), lg.asarray(x), lg.asarray(3)).notes)
    assert ("a library computes" in notes) == large
    wanted = x
    for _ in range(3):
        wanted = (1.0 if large else 2.0) * np.tanh(a @ wanted)
    np.testing.assert_allclose(runs[0], wanted, rtol=1e-10, atol=1e-13)
    for again in runs[1:]:
        np.testing.assert_array_equal(again, runs[0])


def test_products_by_matrix_units_are_left_to_the_library_later(monkeypatch):
    """Kernels of our own take about as long as a library there, and deciding on the host takes longer."""
    monkeypatch.setattr(get_device("simulator:1").driver, "product", product)
    monkeypatch.setattr("loopgrad.runtime.gpu.loaded_program.LARGE_PRODUCT", 1)
    x = lg.asarray(np.ones((64, 64), np.float16))
    found = []
    with lg.default_device("simulator:1"):
        for factor in (5.0, 6.0):  # other programs, since programs are kept
            compiled = lg.compile(lambda x, n, c=factor: lg.fori_loop(0, n, lambda _, v: lg.tanh(c * (v @ x)), x))
            found.append("a library computes" in "\n".join(compiled.plan(x, lg.asarray(3)).notes))
            monkeypatch.setattr("loopgrad.runtime.gpu.loaded_program.LARGE_BY_UNITS", 1)
    assert found == [False, True]


@pytest.mark.parametrize("huge", [True, False])
def test_a_large_product_beside_a_loop_leaves_the_loop_to_the_device(monkeypatch, huge):
    monkeypatch.setattr(get_device("simulator:1").driver, "product", product)
    monkeypatch.setattr("loopgrad.runtime.gpu.loaded_program.LARGE_PRODUCT", 1)
    if huge:
        monkeypatch.setattr("loopgrad.runtime.gpu.loaded_program.LARGE_BESIDE_LOOPS", 1)
    a, x = np.random.default_rng(0).standard_normal((N, N)) / N**0.5, np.random.default_rng(1).standard_normal((N, 20))
    factor = 3.0 if huge else 4.0  # another program, since programs are kept

    def fun(a, x, n):
        return lg.fori_loop(0, n, lambda _, v: lg.roll(lg.tanh(factor * v), 1, 0), a @ x)

    with lg.default_device("simulator:1"):
        compiled = lg.compile(fun)
        got = [np.asarray(compiled(lg.asarray(a), lg.asarray(x), lg.asarray(2))) for _ in range(3)]
        notes = "\n".join(compiled.plan(lg.asarray(a), lg.asarray(x), lg.asarray(2)).notes)
    assert ("a library computes" in notes) == huge
    wanted = a @ x
    for _ in range(2):
        wanted = np.roll(np.tanh(factor * wanted), 1, 0)
    for each in got:
        np.testing.assert_allclose(each, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("on", ["simulator:0", "simulator:1"])
def test_short_memory_means_fewer_lanes_in_flight(monkeypatch, on):
    """A replay whose stacks grow beyond the memory that there is gives them narrower rows, for which its launches are
    recorded anew."""

    def gradients(x, n, trips):
        def lane(v, count):
            return lg.fori_loop(0, count, lambda _, s: lg.sin(s) * v, v)

        def body(_, total):
            y = x + 0.001 * lg.mean(total)
            return total + lg.grad(lambda v: lg.sum(lg.vmap(lane)(v, n)))(y)

        return lg.fori_loop(0, trips, body, x * 0.0)

    generator = np.random.default_rng(4)
    x, few = generator.uniform(0.9, 1.1, 500), generator.integers(0, 4, 500)
    many = np.where(np.arange(500) == 7, 6000, few)
    with lg.default_device("cpu"):
        wanted = np.asarray(lg.compile(gradients)(lg.asarray(x), lg.asarray(many), lg.asarray(2)))
    replay = captured(on, gradients, x, few, 2)
    driver, widths, tiled = type(get_device(on).driver), [], Recorder.tiled

    def watched(recorder, pipeline, tiles, table, groups):
        widths.append(groups)
        tiled(recorder, pipeline, tiles, table, groups)

    monkeypatch.setattr(driver, "ready", lambda _, size: size < 0)
    monkeypatch.setattr(driver, "available", lambda _: 5 << 20)
    monkeypatch.setattr(Recorder, "tiled", watched)
    np.testing.assert_allclose(replayed(on, replay, x, many, 2), wanted, rtol=1e-9)
    assert max(widths, default=0) == 2


def test_a_refused_graph_is_run_in_steps(monkeypatch):
    device = get_device("simulator:1")
    monkeypatch.setattr(type(device.driver), "graph", lambda *_: None)
    replay = captured("simulator:1", sum_of_mixing_loop, X - 0.1, 2)
    before = device.driver.host.launches
    for trips in (3, 0, 5):
        np.testing.assert_allclose(replayed("simulator:1", replay, X, trips), mixing_reference(X, trips), rtol=1e-12)
    assert device.driver.host.launches >= before


def test_a_wait_that_is_broken_off_ends_the_loops(monkeypatch):
    host = get_device("simulator:1").driver.host
    replay = captured("simulator:1", sum_of_mixing_loop, X, 2)
    poked = []
    monkeypatch.setattr(host, "poke", lambda _, value: poked.append(value))

    def interrupted():
        monkeypatch.setattr(host, "idle", lambda: True)
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "idle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replayed("simulator:1", replay, X, 4)
    assert set(poked) == {1}
    np.testing.assert_allclose(replayed("simulator:1", replay, X, 4), mixing_reference(X, 4), rtol=1e-12)


def test_an_interruption_before_the_wait_ends_the_loops_too(monkeypatch):
    host = get_device("simulator:1").driver.host
    replay = captured("simulator:1", sum_of_mixing_loop, X, 2)
    calls = []
    original = host.launch_graph

    def interrupted(executable):
        original(executable)
        monkeypatch.setattr(host, "launch_graph", original)
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "launch_graph", interrupted)
    monkeypatch.setattr(host, "poke", lambda _, value: calls.append(value))
    monkeypatch.setattr(host, "synchronize", lambda: calls.append("synchronize"))
    with pytest.raises(KeyboardInterrupt):
        replayed("simulator:1", replay, X, 4)
    assert calls == [1, "synchronize"]
    np.testing.assert_allclose(replayed("simulator:1", replay, X, 4), mixing_reference(X, 4), rtol=1e-12)


def test_a_popped_empty_stack_is_reported():
    """It would be a bug of the compiler: nothing it makes does this."""
    device = get_device("simulator:0")
    with lg.default_device("simulator:0"):
        replay = lg.compile(lg.grad(sum_of_mixing_loop)).capture(lg.asarray(X), lg.asarray(2))
    assert device
    context = replay._recorded._recording._context
    execution = context._execution
    assert isinstance(execution, DeviceDecided)
    record = context.program.stacks[0]
    assert record.loc is None or isinstance(record.loc, Location)
    with pytest.raises(lg.LoopgradError, match="popped while empty"):
        execution._raise_loop_failure(execution._recording, (1 << 32) - 1, execution._layout.stacks)
