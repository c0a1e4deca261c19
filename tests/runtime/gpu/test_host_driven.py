"""Programs on any GPU: loops that the host drives, stacks that grow, memory that is short."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.gpu.launches import Launches
from loopgrad.runtime.gpu.recorder import Recorder
from tests.runtime.loops import gradient_of_ragged_loops, ragged_reference

DEVICES = ("simulator:0", "simulator:1")


@pytest.fixture(params=DEVICES)
def on(request):
    with lg.default_device(request.param):
        yield get_device(request.param)


def test_a_loop_with_library_calls_counts_through_the_tables(on, sorted_by_host):
    def sorted_sums(x, n):
        return lg.fori_loop(0, n, lambda k, v: lg.sort(v * -1.0) + k.astype(lg.float64), x)

    x = np.random.default_rng(0).normal(size=500)
    compiled = lg.compile(sorted_sums)
    assert "NumPy, on the host" in str(compiled.plan(lg.asarray(x), lg.asarray(1)))
    for trips in (0, 1, 7):
        wanted = x
        for k in range(trips):
            wanted = np.sort(-wanted) + k
        got = np.asarray(compiled(lg.asarray(x), lg.asarray(trips)))
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_what_lies_where_it_is_wanted_is_not_copied(on, monkeypatch):
    """A loop that writes a row of an array in each trip leaves the other rows alone."""
    started: list[tuple[int, ...]] = []
    usual = Launches.supported

    def watched(launches, by, arrays):
        started.append(tuple(arrays))
        usual(launches, by, arrays)

    monkeypatch.setattr(Launches, "supported", watched)

    def step(v, _):
        v = lg.tanh(lg.roll(v, 1) * 1.5)
        return v, v

    x = np.random.default_rng(5).normal(size=700)
    compiled, wanted = lg.compile(lambda x: lg.scan(step, x, None, length=6)[1]), [x]
    for k in range(6):
        wanted += [np.tanh(np.roll(wanted[k], 1) * 1.5)]
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(compiled(lg.asarray(x))), wanted[1:], rtol=1e-12)
    assert not [arrays for arrays in started if len(arrays) == 2 and arrays[0] == arrays[1]]


def test_an_index_that_a_loop_inside_uses_after_the_host_looked(on, sorted_by_host):
    def nested(x, n):
        def outer(i, v):
            inner = lg.fori_loop(0, i, lambda j, w: lg.sort(w) * 0.5 + j.astype(lg.float64), v)
            return inner + i.astype(lg.float64)

        return lg.fori_loop(0, n, outer, x)

    x = np.random.default_rng(1).normal(size=400)
    wanted = x
    for i in range(5):
        for j in range(i):
            wanted = np.sort(wanted) * 0.5 + j
        wanted = wanted + i
    got = lg.compile(nested)(lg.asarray(x), lg.asarray(5))
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-12)


def test_an_index_that_is_carried_on(on, sorted_by_host):
    def last_indices(x, n):
        def body(k, carry):
            v, last = carry
            return lg.sort(v) + last.astype(lg.float64), k

        return lg.fori_loop(0, n, body, (x, lg.asarray(0)))

    x = np.random.default_rng(2).normal(size=300)
    wanted, last = x, 0
    for k in range(6):
        wanted, last = np.sort(wanted) + last, k
    got, index = lg.compile(last_indices)(lg.asarray(x), lg.asarray(6))
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-12)
    assert int(index) == 5


def test_nothing_is_reported_where_nothing_can_fail(on, monkeypatch):
    reports = []
    original = Recorder.run

    def watched(self, report, sent=()):
        reports.append(report)
        original(self, report, sent)

    monkeypatch.setattr(Recorder, "run", watched)
    compiled = lg.compile(lambda x: lg.sum(lg.exp(x)))
    for _ in range(3):
        np.asarray(compiled(lg.ones((50,))))
    assert reports
    assert set(reports) == {None}
    np.asarray(lg.compile(gradient_of_ragged_loops())(lg.ones((5,)), lg.asarray(np.arange(5))))
    assert set(reports) != {None}


def test_a_stack_that_grows_in_a_capture(on):
    compiled = lg.compile(gradient_of_ragged_loops())
    rng = np.random.default_rng(3)
    x, n = rng.uniform(0.5, 1.5, 200), rng.integers(0, 4, 200)
    replay = compiled.capture(lg.asarray(x), lg.asarray(n))
    for most in (4, 50, 9):
        n = rng.integers(0, most, 200)
        got = replay.replay(lg.asarray(x), lg.asarray(n))
        np.testing.assert_allclose(np.asarray(got), ragged_reference(x, n), rtol=1e-12)
    assert replay.stats().captures == 1
    assert replay.stats().growths >= 1


def test_a_capture_after_the_program_was_called_with_deeper_loops(on):
    compiled = lg.compile(gradient_of_ragged_loops())
    rng = np.random.default_rng(5)
    x, n = rng.uniform(0.5, 1.5, 100), rng.integers(0, 4, 100)
    replay = compiled.capture(lg.asarray(x), lg.asarray(n))
    deeper = rng.integers(0, 200, 100)
    for trips in (n, deeper, n, deeper):
        called = compiled(lg.asarray(x), lg.asarray(trips))
        replayed = replay.replay(lg.asarray(x), lg.asarray(trips))
        np.testing.assert_allclose(np.asarray(called), ragged_reference(x, trips), rtol=1e-12)
        np.testing.assert_array_equal(np.asarray(called), np.asarray(replayed))


def test_short_memory_means_fewer_lanes_in_flight(on, monkeypatch):
    compiled = lg.compile(gradient_of_ragged_loops())
    rng = np.random.default_rng(4)
    x, n = rng.uniform(0.9, 1.1, 500), rng.integers(0, 4, 500)
    few = lg.asarray(n)
    n[7] = 6000
    placed, many = lg.asarray(x), lg.asarray(n)
    roomy = np.asarray(lg.compile(gradient_of_ragged_loops())(placed, many))
    compiled(placed, few)
    monkeypatch.setattr(type(on.driver), "ready", lambda _, size: size < 0)
    monkeypatch.setattr(type(on.driver), "available", lambda _: 5 << 20)
    replay = compiled.capture(placed, few)
    np.testing.assert_array_equal(np.asarray(compiled(placed, many)), roomy)
    np.testing.assert_array_equal(np.asarray(replay.replay(placed, many)), roomy)
    n[7] = 1 << 20
    with pytest.raises(MemoryError, match=r"expected its saved values to fit into 5,242,880 bytes available, needed"):
        np.asarray(compiled(placed, lg.asarray(n)))
    got = np.asarray(compiled(placed, few))
    np.testing.assert_allclose(got, ragged_reference(x, np.asarray(few)), rtol=1e-12)


def test_a_recorded_loop_works_again_after_its_memory_was_refused(on):
    def loss(x, n):
        return lg.sum(lg.fori_loop(0, n, lambda _, v: lg.sin(lg.roll(v, 1)), x))

    gradient = lg.compile(lg.grad(loss))
    x = np.ones(4096)
    for trips in (3, 3, 10**13, 3, 4):
        if trips > 4:
            with pytest.raises(MemoryError):
                np.asarray(gradient(lg.asarray(x), lg.asarray(trips)))
            continue
        v, wanted = x, np.ones_like(x)
        for _ in range(trips):
            v, wanted = np.sin(v), wanted * np.cos(v)
        np.testing.assert_allclose(np.asarray(gradient(lg.asarray(x), lg.asarray(trips))), wanted, rtol=1e-12)
