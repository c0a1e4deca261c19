"""A way through loops and branches started at once: a decision that nobody expected pauses what follows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.gpu.support import update_list as u
from loopgrad.graph.errors import LoopLimitError
from loopgrad.runtime.gpu.speculation import SpeculativeWork
from loopgrad.runtime.gpu.streams.graph import StreamGraph
from tests.runtime.loops import mixing_reference, sum_of_mixing_loop
from tests.simulator.code import UPDATE_GROUP, update_code
from tests.simulator.driver import Image, SimulatorDriver

X = np.linspace(-0.6, 0.9, 300)


SYMBOLS = u.HEADER + u.LOOP


class State:
    """One loop of two trips, two symbols; `void` and the loop's index lie outside of the words."""

    def __init__(self) -> None:
        self.void, self.index, self.answer = np.zeros(1, np.int32), np.zeros(1, np.int64), np.full(1, 77, np.int64)
        self.words = np.array([0, 0, 0, self.void.ctypes.data, 0, -1, 2, self.index.ctypes.data, 5, 6], np.int64)
        made = u.UpdateList()
        made.next(u.HEADER, SYMBOLS, 8 + 16, False)
        made.swap(SYMBOLS + 1, SYMBOLS + 2)
        self.next = np.array(made.encode([]), np.uint64)
        self.nothing = np.zeros(2, np.uint64)
        self.kernel = Image(update_code()).pipeline("update", "k0", UPDATE_GROUP)

    def decide(self, expected: int = 1) -> None:
        words = (self.words.ctypes.data, self.next.ctypes.data, self.answer.ctypes.data, expected + 1, 0, 0)
        self.kernel.dispatch(1, words)

    def resume(self) -> None:
        self.kernel.dispatch(1, (self.words.ctypes.data, self.nothing.ctypes.data, 0, 0, 1, 0))


def test_an_unexpected_end_pauses_what_follows_until_it_is_resumed():
    state = State()
    for goes in (1, 1):
        state.decide()
        assert (state.answer[0], state.void[0]) == (goes, 0)
    state.decide()
    assert (state.answer[0], state.void[0]) == (0, u.PAUSED)
    before = state.words.tolist()
    assert before[-2:] == [5, 6]  # two swaps
    assert before[u.PROGRESS] == 3
    state.answer[0] = 77
    state.decide()
    assert state.words.tolist() == before
    assert (state.answer[0], state.void[0]) == (77, u.PAUSED)
    state.resume()
    assert state.void[0] == 0
    state.resume()
    assert state.words.tolist() == before


def test_a_pass_that_nobody_expected_pauses_too():
    state = State()
    state.decide(expected=0)
    assert (state.answer[0], state.void[0]) == (1, u.PAUSED)
    state.resume()
    state.decide()
    state.decide(expected=0)
    assert (state.answer[0], state.void[0]) == (0, 0)
    assert state.words[u.PROGRESS] == 3


def test_a_failure_is_no_pause():
    state = State()
    state.void[0] = 1
    state.decide()
    state.resume()
    assert (state.answer[0], state.void[0]) == (0, 1)


@pytest.fixture
def starts(monkeypatch):
    """How often the host started something and waited for the answer, on a machine that is quick enough."""
    monkeypatch.setattr("loopgrad.runtime.gpu.speculation.START_SECONDS", 1e9)
    counts, start = [0], SimulatorDriver.start

    def counted(driver, work, uploads, report):
        counts[0] += report is not None
        start(driver, work, uploads, report)

    monkeypatch.setattr(SimulatorDriver, "start", counted)
    return counts


def replayed(replay, starts, *arguments):
    """The result, and how many starts it took."""
    starts[0] = 0
    with lg.default_device("simulator:0"):
        return np.asarray(replay.replay(*map(lg.asarray, arguments))), starts[0]


def captured(fun, *arguments):
    with lg.default_device("simulator:0"):
        return lg.compile(fun).capture(*map(lg.asarray, arguments))


def test_a_loop_of_known_length_is_one_start(starts):
    replay = captured(sum_of_mixing_loop, X, 3)
    for trips in (0, 5, 16, 30):
        for seen in (False, True):
            value, count = replayed(replay, starts, X, trips)
            np.testing.assert_allclose(value, mixing_reference(X, trips), rtol=1e-12)
            assert count == 1 if seen else count <= 2 + max(trips, 1).bit_length()


def test_the_passes_of_a_start_grow_with_the_loop(starts):
    replay = captured(sum_of_mixing_loop, X, 1)
    for trips in (60, 3, 130):
        value, count = replayed(replay, starts, X, trips)
        np.testing.assert_allclose(value, mixing_reference(X, trips), rtol=1e-12)
        assert count <= 8


def test_no_start_has_very_many_launches(starts, monkeypatch):
    monkeypatch.setattr("loopgrad.runtime.gpu.speculation.MOST", 20)
    replay = captured(sum_of_mixing_loop, X, 1)
    for _ in range(2):
        value, count = replayed(replay, starts, X, 30)
        np.testing.assert_allclose(value, mixing_reference(X, 30), rtol=1e-12)
    assert 30 // 20 < count <= 30


def test_slow_launches_make_starts_short(starts, monkeypatch):
    """So that signals are seen."""
    replay = captured(sum_of_mixing_loop, X, 1)
    monkeypatch.setattr("loopgrad.runtime.gpu.speculation.START_SECONDS", 0.25)
    clock = iter(np.arange(0.0, 1e5, 0.2))
    monkeypatch.setattr("loopgrad.runtime.gpu.speculation.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    value, count = replayed(replay, starts, X, 10)
    np.testing.assert_allclose(value, mixing_reference(X, 10), rtol=1e-12)
    assert count > 3


def test_loops_that_are_written_out_start_in_parts_where_they_take_long(starts, monkeypatch):
    """So that signals are seen."""
    monkeypatch.setattr("loopgrad.runtime.gpu.speculation.LONGEST", 4)
    monkeypatch.setattr("loopgrad.runtime.gpu.device_decided.BRIEF_SECONDS", 0.0)

    def steps(x):
        return lg.fori_loop(0, 40, lambda _, v: lg.sin(v) + 0.3 * lg.mean(v), x)

    replay = captured(steps, X)
    wanted = X
    for _ in range(40):
        wanted = np.sin(wanted) + 0.3 * np.mean(wanted)
    for seconds in (1e9, 0.0):
        monkeypatch.setattr("loopgrad.runtime.gpu.speculation.START_SECONDS", seconds)
        value, count = replayed(replay, starts, X)
        np.testing.assert_allclose(value, wanted, rtol=1e-12)
        assert count == 1 if seconds else count > 10


def scanned(x, w):
    def step(v, row):
        return lg.sin(v * row) + 0.3 * lg.mean(v), lg.max(v)

    return lg.scan(step, x, w)


@pytest.fixture
def reported(monkeypatch):
    """Of each run of what is recorded with its loops, whether the host waits for its report."""
    found = []
    for kind in (SpeculativeWork, StreamGraph):
        run = kind.run

        def noted(work, uploads, report, run=run):
            found.append(report is not None)
            run(work, uploads, report)

        monkeypatch.setattr(kind, "run", noted)
    return found


@pytest.mark.parametrize("gpu", ["simulator:0", "simulator:1"])
@pytest.mark.parametrize("gradient", [False, True])
def test_what_has_nothing_to_report_is_not_waited_for(reported, monkeypatch, gpu, gradient):
    """An odd number of trips, after which carries have changed places; with a stack in the gradient."""
    monkeypatch.setattr("loopgrad.runtime.gpu.device_decided.BRIEF_SECONDS", 1e9)
    rng = np.random.default_rng(4)

    def loss(x, w):
        last, most = scanned(x, w)
        return lg.sum(last) + lg.sum(most**2)

    fun = lg.grad(loss, argnums=(0, 1)) if gradient else scanned
    given = [(X + rng.normal(size=X.shape) / 9, rng.normal(size=5)) for _ in range(4)]
    with lg.default_device(gpu):
        replay = lg.compile(fun).capture(*map(lg.asarray, given[0]))
        found = [replay.replay(*map(lg.asarray, arguments)) for arguments in given]
    assert True in reported
    assert reported[-3:] == [False, False, False]
    for arguments, results in zip(given, found, strict=True):
        with lg.default_device("interpreter"):
            wanted = fun(*map(lg.asarray, arguments))
        for got, want in zip(results, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-11, atol=1e-12)


def converging(x, tolerance):
    def going(c):
        return lg.max(lg.abs(c[0] - c[1])) > tolerance

    return lg.while_loop(going, lambda c: (0.5 * c[0] + 0.1 * lg.mean(c[0]), c[0]), (x, x + 1.0), max_steps=60)[0]


def test_conditions_gradients_and_limits():
    """A `while`, its reverse pass with stacks that grow, and a limit that a pass in the middle reaches."""

    def loss(x, tolerance):
        return lg.sum(converging(x, tolerance) ** 2)

    for device in ("simulator:0", "cpu"):
        with lg.default_device(device):
            replay = lg.compile(lg.value_and_grad(loss)).capture(lg.asarray(X), lg.asarray(0.5))
            results = [
                [np.asarray(r) for r in replay.replay(lg.asarray(X), lg.asarray(tolerance))]
                for tolerance in (0.5, 1e-9, 1e-9, 0.1, 1e-12, 1e-12, 1e-3)
            ]
            for _ in range(2):
                with pytest.raises(LoopLimitError, match="60"):
                    replay.replay(lg.asarray(X), lg.asarray(-1.0))
                again = replay.replay(lg.asarray(X), lg.asarray(1e-9))
                for a, b in zip(again, results[1], strict=True):
                    np.testing.assert_array_equal(a, b)
        if device == "simulator:0":
            got = results
    for a, b in zip(got, results, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-11)


def nested(x, n):
    """An inner loop of its own length each time, and a branch, in an outer one."""

    def outer(k, v):
        v = lg.fori_loop(0, n + k, lambda _, w: 0.9 * w + 0.05 * lg.sum(w) / 300, v) + 0.01
        return lg.cond(lg.sum(v) > 100.0, lambda w: w * 0.5, lambda w: w + lg.max(w), v)

    return lg.sum(lg.fori_loop(0, 6, outer, x))


def test_loops_and_branches_inside_of_loops_are_foreseen(starts):
    replay = captured(nested, X, 10)
    for trips in (9, 3):
        first, _ = replayed(replay, starts, X, trips)
        value, count = replayed(replay, starts, X, trips)
        assert count == 1
        np.testing.assert_array_equal(first, value)
        with lg.default_device("cpu"):
            wanted = np.asarray(nested(lg.asarray(X), lg.asarray(trips)))
        np.testing.assert_allclose(value, wanted, rtol=1e-12)


def test_other_ways_than_foreseen_have_the_same_bits(starts):
    """Whatever the run before did: trips, branches, growth of stacks."""
    generator = np.random.default_rng(3)
    inputs = [(X * generator.choice([0.1, 1.0, 3.0]), int(generator.integers(0, 5))) for _ in range(5)]
    gradient = lg.grad(nested)
    replay = captured(gradient, *inputs[0])
    for arguments in inputs:
        value, _ = replayed(replay, starts, *arguments)
        with lg.default_device("simulator:0"):  # driven by the host
            once = np.asarray(lg.compile(lambda *a, fun=gradient: fun(*a))(*map(lg.asarray, arguments)))
        np.testing.assert_array_equal(value, once)
