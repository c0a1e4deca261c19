"""Calls that start what a call with the same addresses has recorded."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.gpu import direct_calls
from loopgrad.runtime.gpu.context import GpuContext
from loopgrad.runtime.session import SESSION
from tests.runtime.loops import gradient_of_ragged_loops, ragged_reference


@pytest.fixture(params=["simulator:1", "vulkan:0"])
def gpu(request):
    if not next((status.available for status in lg.devices() if status.name == request.param), True):
        pytest.skip("there is no such device")
    SESSION.clear()
    with lg.default_device(request.param):
        yield request.param
    SESSION.clear()


@pytest.fixture
def repeated(monkeypatch):
    """How often a context was repeated."""
    count = [0]
    repeat = GpuContext.repeat

    def counted(context):
        count[0] += 1
        repeat(context)

    monkeypatch.setattr(GpuContext, "repeat", counted)
    return count


def program():
    """Two launches with a temporary between them, two results."""
    return lg.compile(lambda x, y: (lg.sum(lg.sin(x) * y), x - lg.max(y)))


def expected(x, y):
    return (np.sin(x) * y).sum(), x - y.max()


def check(results, x, y):
    for found, wanted in zip(results, expected(x, y), strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-12)


def test_calls_whose_results_are_dropped_are_repeated(repeated):
    SESSION.clear()
    rng, both = np.random.default_rng(0), program()
    with lg.default_device("simulator:1"):
        for _ in range(20):
            x, y = rng.normal(size=(2, 500))
            check(both(lg.asarray(x), lg.asarray(y)), x, y)
    assert repeated[0] >= 12


def test_results_that_are_kept_stay_what_they_were(gpu):
    """By chance, so that addresses come back in any order, and by the hundred."""
    rng, both = np.random.default_rng(1), program()
    kept = []
    for i in range(150):
        x, y = rng.normal(size=(2, 300))
        kept.append((both(lg.asarray(x), lg.asarray(y)), x, y))
        if i % 3 == 0:
            kept = [entry for entry in kept if rng.random() < 0.7]
    for results, x, y in kept:
        check(results, x, y)


def test_sets_of_addresses_come_and_go(monkeypatch, repeated):
    monkeypatch.setattr(direct_calls, "MISSES", 4)
    monkeypatch.setattr(direct_calls, "PAUSE", 8)
    SESSION.clear()
    rng, both = np.random.default_rng(2), program()
    with lg.default_device("simulator:1"):
        kept = []
        for round in range(12):
            for _ in range(20):
                x, y = rng.normal(size=(2, 300))
                kept.append((both(lg.asarray(x), lg.asarray(y)), x, y))
                if round % 2:
                    check(kept.pop()[0], x, y)
            for results, x, y in kept:
                check(results, x, y)
            kept.clear()
            gc.collect()
    assert repeated[0] > 10


def test_after_a_loop_whose_stacks_grow_come_calls_of_its_results(gpu):
    """The loop is in the ledger, and does nothing the first time: who reads its results has to wait."""
    gradient, double = lg.compile(gradient_of_ragged_loops()), lg.compile(lambda g: 2.0 * g)
    ones = lg.asarray(np.ones(40))
    for trips in (2, 2, 2, 90, 3, 400):
        n = np.full(40, trips, np.int32)
        x = np.linspace(0.5, 1.5, 40)
        for _ in range(3):
            double(ones)
        slope = gradient(lg.asarray(x), lg.asarray(n))
        np.testing.assert_allclose(np.asarray(double(slope)), 2.0 * ragged_reference(x, n), rtol=1e-9)


def test_replays_are_repeated_too(repeated):
    SESSION.clear()
    with lg.default_device("simulator:1"):
        replay = program().capture(lg.asarray(np.ones(200)), lg.asarray(np.ones(200)))
        rng = np.random.default_rng(3)
        first = replay.replay()
        for _ in range(10):
            x, y = rng.normal(size=(2, 200))
            check(replay.replay(lg.asarray(x), lg.asarray(y)), x, y)
        check(first, np.ones(200), np.ones(200))
    assert repeated[0] > 3
