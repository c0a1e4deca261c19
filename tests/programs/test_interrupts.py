"""A signal ends a loop inside a kernel that would never end, and the next call works."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")


@contextmanager
def alarm() -> Iterator[None]:
    """A signal whose handler raises KeyError arrives after a while."""

    def handler(number: int, frame: object) -> None:
        raise KeyError("alarm")

    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def endless_below_two(x: Any) -> Any:
    return lg.while_loop(lambda v: v < 2.0, lambda v: v * 0.5 + 0.1, x)


def nested(x: Any) -> Any:
    return lg.fori_loop(0, 1000, lambda _, v: endless_below_two(v), x)


def uniform_in_a_lane(x: Any) -> Any:
    """The condition is the same for all lanes of the kernel."""
    stop = lg.min(x)

    def one(v: Any) -> Any:
        return lg.while_loop(lambda c: c[0] < 2.0, lambda c: (stop, c[1] * 0.5), (stop, v))[1]

    return lg.vmap(one)(x)


def squared_sum(x: Any) -> Any:
    return lg.sum(endless_below_two(x) ** 2)


@pytest.mark.parametrize("lanes", [None, 3, 1000, 100_000])
@pytest.mark.parametrize(
    "function", [endless_below_two, nested, lg.grad(squared_sum)], ids=["alone", "nested", "gradient"]
)
def test_an_endless_loop_in_a_kernel_can_be_interrupted(lanes: int | None, function: Callable[[Any], Any]) -> None:
    compiled = lg.compile(function, device="cpu")
    shape = () if lanes is None else (lanes,)
    good = np.asarray(compiled(np.full(shape, 5.0)))
    with pytest.raises(KeyError, match="alarm"), alarm():
        compiled(np.full(shape, 1.0))
    np.testing.assert_array_equal(compiled(np.full(shape, 5.0)), good)


def test_one_endless_lane_among_many_whatever_thread_has_it() -> None:
    compiled = lg.compile(endless_below_two, device="cpu")
    for place in (0, 300_000, 599_999):
        x = np.full(600_000, 5.0)
        x[place] = 1.0
        with pytest.raises(KeyError, match="alarm"), alarm():
            compiled(x)
        x[place] = 3.0
        np.testing.assert_array_equal(compiled(x), x)


def test_a_condition_that_all_lanes_share() -> None:
    compiled = lg.compile(uniform_in_a_lane, device="cpu")
    with pytest.raises(KeyError, match="alarm"), alarm():
        compiled(np.full(5000, 1.0))
    np.testing.assert_array_equal(compiled(np.full(5000, 3.0)), 3.0)


def test_a_long_loop_with_a_limit() -> None:
    def limited(x: Any) -> Any:
        return lg.while_loop(lambda v: v < 2.0, lambda v: v * 0.5 + 0.1, x, max_steps=10**15)

    compiled = lg.compile(limited, device="cpu")
    with pytest.raises(KeyError, match="alarm"), alarm():
        compiled(np.full(100, 1.0))


def test_a_replay() -> None:
    replay = lg.compile(endless_below_two, device="cpu").capture(np.full(2000, 5.0))
    with pytest.raises(KeyError, match="alarm"), alarm():
        replay.replay(np.full(2000, 1.0))
    np.testing.assert_array_equal(replay.replay(np.full(2000, 4.0)), 4.0)
