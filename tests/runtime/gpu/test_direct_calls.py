"""Calls that start what a call with the same addresses has recorded."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.devices import get_device
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
    monkeypatch.setattr(direct_calls, "SETS", 3)
    monkeypatch.setattr(direct_calls, "RECORDING", 2)
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


def test_results_that_are_kept_cost_no_more_commands_and_sets_that_come_in_turn_get_theirs(monkeypatch, repeated):
    made = [0]
    usual = GpuContext.__init__

    def counted(context, *arguments, **options):
        made[0] += 1
        usual(context, *arguments, **options)

    monkeypatch.setattr(GpuContext, "__init__", counted)
    SESSION.clear()
    with lg.default_device("simulator:1"):
        both, x = program(), lg.asarray(np.ones(300))
        kept = [both(x, x) for _ in range(60)]
        assert made[0] <= 4
        assert repeated[0] <= 2
        turns = []
        for _ in range(50):
            turns = [*turns[-1:], both(x, x)]  # one of two sets of addresses
        assert repeated[0] >= 40
        for results in (*kept[::20], *turns):
            check(results, np.ones(300), np.ones(300))


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


# ---- calls with stacks, which are entered in the ledger


def loops():
    """A gradient that saves values, compiled for a few trips."""
    compiled = lg.compile(gradient_of_ragged_loops())
    for _ in range(3):
        compiled(lg.asarray(np.ones(40)), lg.asarray(np.full(40, 5, np.int32))).numpy()
    return compiled


def test_calls_with_stacks_are_repeated_and_entered_in_the_ledger(repeated):
    SESSION.clear()
    with lg.default_device("simulator:1"):
        compiled, ledger = loops(), get_device("simulator:1").driver.ledger
        x, n = np.linspace(0.5, 1.5, 40), np.arange(40, dtype=np.int32) % 6
        ours, trips = lg.asarray(x), lg.asarray(n)
        before = repeated[0]
        for _ in range(20):
            result = compiled(ours, trips)  # nobody holds the one before
        assert repeated[0] - before >= 14
        assert len(ledger._calls) >= 14
        np.testing.assert_allclose(np.asarray(result), ragged_reference(x, n), rtol=1e-9)
        assert ledger.empty


@pytest.mark.parametrize("seed", range(6))
def test_stacks_that_grow_between_repeated_calls(gpu, seed):
    """Some results are dropped before the ledger has their calls done again, and their memory has another use by then;
    some are read by later calls, of programs with stacks and without."""
    rng = np.random.default_rng(seed)
    compiled, scaled = loops(), lg.compile(lambda v: v * 0.2)
    x = np.linspace(0.5, 1.5, 40)
    ours, kept = lg.asarray(x), []
    given = {trips: np.minimum(rng.integers(0, trips + 1, 40), trips).astype(np.int32) for trips in (2, 5, 9, 40, 150)}
    counts = {trips: lg.asarray(n) for trips, n in given.items()}
    for _ in range(60):
        trips = int(rng.choice([2, 5, 5, 5, 5, 5, 9, 40, 150], p=[0.3, *[0.12] * 5, 0.06, 0.03, 0.01]))
        result = compiled(ours, counts[trips])
        wanted = ragged_reference(x, given[trips])
        if rng.random() < 0.3:
            result, wanted = scaled(result), wanted * 0.2
        if rng.random() < 0.3:
            kept.append((result, wanted))
        if rng.random() < 0.2:
            fresh = rng.normal(size=40)  # into memory that was let go
            kept.append((lg.asarray(fresh), fresh))
        if rng.random() < 0.1 and kept:
            found, expected_now = kept.pop(int(rng.integers(len(kept))))
            np.testing.assert_allclose(np.asarray(found), expected_now, rtol=1e-9)
    for found, expected_then in kept:
        np.testing.assert_allclose(np.asarray(found), expected_then, rtol=1e-9)


def test_commands_that_the_ledger_used_elsewhere_are_given_up(repeated):
    """A call in vain is done again with other memory: what its commands were for is no longer so."""
    SESSION.clear()
    with lg.default_device("simulator:1"):
        compiled = loops()
        x, few, many = np.linspace(0.5, 1.5, 40), np.full(40, 4, np.int32), np.full(40, 60, np.int32)
        ours, short, long = lg.asarray(x), lg.asarray(few), lg.asarray(many)
        for _ in range(5):
            for n, counts in ((few, short), (many, long), (few, short)):
                for _ in range(3):
                    result = compiled(ours, counts)
                np.testing.assert_allclose(np.asarray(result), ragged_reference(x, n), rtol=1e-9)
        assert repeated[0] > 5
