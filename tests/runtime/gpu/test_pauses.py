"""Many passes of a loop started at once: the pass that ends the loop pauses those behind it."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.gpu import update as u
from loopgrad.graph.errors import LoopLimitError
from loopgrad.runtime.gpu.stepped import AT_ONCE
from tests.runtime.loops import mixing_reference, sum_of_mixing_loop
from tests.simulator.code import UPDATE_GROUP, update_code
from tests.simulator.driver import Commands, Image

X = np.linspace(-0.6, 0.9, 300)


SYMBOLS = u.HEADER + u.LOOP


class State:
    """One loop of two trips, two symbols; `void` and the loop's index lie outside of the words."""

    def __init__(self) -> None:
        self.void, self.index, self.answer = np.zeros(1, np.int32), np.zeros(1, np.int64), np.full(1, 77, np.int64)
        self.words = np.array([0, 0, 0, self.void.ctypes.data, -1, 2, self.index.ctypes.data, 5, 6], np.int64)
        made = u.UpdateList()
        made.next(u.HEADER, SYMBOLS, 8 + 16, False)
        made.swap(SYMBOLS + 1, SYMBOLS + 2)
        self.next = np.array(made.encode([]), np.uint64)
        self.nothing = np.zeros(2, np.uint64)
        self.kernel = Image(update_code()).pipeline("update", "k0", UPDATE_GROUP)

    def decide(self) -> None:
        words = (self.words.ctypes.data, self.next.ctypes.data, self.answer.ctypes.data, 1, 0, 0)
        self.kernel.dispatch(1, words)

    def resume(self) -> None:
        self.kernel.dispatch(1, (self.words.ctypes.data, self.nothing.ctypes.data, 0, 0, 1, 0))


def test_the_end_of_a_loop_pauses_what_follows_until_it_is_resumed():
    state = State()
    for goes in (1, 1):
        state.decide()
        assert (state.answer[0], state.void[0]) == (goes, 0)
    state.decide()
    assert (state.answer[0], state.void[0]) == (0, u.PAUSED)
    before = state.words.tolist()
    assert before[-2:] == [5, 6]  # two swaps
    state.answer[0] = 77
    state.decide()
    assert state.words.tolist() == before
    assert (state.answer[0], state.void[0]) == (77, u.PAUSED)
    state.resume()
    assert state.void[0] == 0
    state.resume()
    assert state.words.tolist() == before


def test_a_failure_is_no_pause():
    state = State()
    state.void[0] = 1
    state.decide()
    state.resume()
    assert (state.answer[0], state.void[0]) == (0, 1)


@pytest.fixture
def starts(monkeypatch):
    """How often commands of the simulator were started."""
    counts = [0]
    run = Commands.run

    def counted(commands, uploads, report):
        counts[0] += 1
        run(commands, uploads, report)

    monkeypatch.setattr(Commands, "run", counted)
    return counts


def test_long_loops_are_started_many_passes_at_a_time(starts):
    with lg.default_device("simulator:0"):
        replay = lg.compile(sum_of_mixing_loop).capture(lg.asarray(X), lg.asarray(3))
        for trips in (3, 100, 100, 0, 1, 5, 16, 17, 33, 200, 2, 48):
            starts[0] = 0
            value = replay.replay(lg.asarray(X), lg.asarray(trips))
            np.testing.assert_allclose(value, mixing_reference(X, trips), rtol=1e-12)
            assert starts[0] <= 4 + AT_ONCE + -(-trips // AT_ONCE) + AT_ONCE
        starts[0] = 0
        for _ in range(2):
            starts[0] = 0
            np.testing.assert_allclose(
                replay.replay(lg.asarray(X), lg.asarray(160)), mixing_reference(X, 160), rtol=1e-12
            )
        assert starts[0] < 160 // AT_ONCE + AT_ONCE


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
    """An inner loop without loops, in an outer one."""

    def outer(_, v):
        return lg.fori_loop(0, n, lambda _, w: 0.9 * w + 0.05 * lg.sum(w) / 300, v) + 0.01

    return lg.sum(lg.fori_loop(0, 4, outer, x))


def test_inner_loops(starts):
    with lg.default_device("simulator:0"):
        replay = lg.compile(nested).capture(lg.asarray(X), lg.asarray(40))
        for trips in (40, 40, 3, 70):
            value = replay.replay(lg.asarray(X), lg.asarray(trips))
            with lg.default_device("cpu"):
                wanted = np.asarray(nested(lg.asarray(X), lg.asarray(trips)))
            np.testing.assert_allclose(value, wanted, rtol=1e-12)
