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
    """A signal whose handler raises KeyError arrives after a while; once more where Python swallowed that, as it does
    in finalizers."""

    def handler(number: int, frame: object) -> None:
        raise KeyError("alarm")

    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 3.0)
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


@pytest.mark.in_turns
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


FOREVER = 1 << 62


def drift(v: Any) -> Any:
    return v * 0.5 + 0.1


def counted(x: Any, n: Any) -> Any:
    return lg.fori_loop(0, n, lambda _, v: drift(v), x)


def in_short_ones(x: Any, n: Any) -> Any:
    """No loop of the nest is long, all together are."""
    few = lg.minimum(n, 3000)
    body = drift
    for _ in range(4):
        body = lambda v, body=body: lg.fori_loop(0, few, lambda _, w: body(w), v)
    return body(x)


@pytest.mark.in_turns
@pytest.mark.parametrize("lanes", [None, 3, 5000])
@pytest.mark.parametrize("function", [counted, in_short_ones])
def test_a_counted_loop_that_takes_years_can_be_interrupted(lanes: int | None, function: Callable[..., Any]) -> None:
    compiled = lg.compile(function, device="cpu")
    x, counts = (np.ones(()), np.full((), 4)) if lanes is None else (np.ones(lanes), np.arange(lanes) % 5)
    good = np.asarray(compiled(x, counts))
    with pytest.raises(KeyError, match="alarm"), alarm():
        compiled(x, np.where(counts == counts.max(), FOREVER, counts))
    np.testing.assert_array_equal(compiled(x, counts), good)


def test_a_loop_of_a_constant_count_can_be_interrupted() -> None:
    for reverse in (False, True):
        compiled = lg.compile(lambda x, r=reverse: lg.vmap(lambda v: repeated(v, r))(x), device="cpu")
        with pytest.raises(KeyError, match="alarm"), alarm():
            compiled(np.ones(40))


def repeated(x: Any, reverse: bool) -> Any:
    return lg.scan(lambda v, _: (drift(v), None), x, None, length=FOREVER, reverse=reverse)[0]


@pytest.mark.parametrize("trips", [0, 1, 2, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 1 << 17, 200_001])
def test_stretches_of_a_counted_loop_make_every_trip_once(trips: int) -> None:
    """Trips of both directions, seen by what is saved: the gradient pops what the loop pushed."""

    def walk(x: Any, n: Any) -> Any:
        return lg.fori_loop(0, n, lambda k, s: (s[0] + k, s[1] * lg.cos(1e-6 * lg.astype(k, lg.float64))), (0, x))

    total, value = lg.compile(walk, device="cpu")(1.0, trips)
    assert int(total) == trips * (trips - 1) // 2
    np.testing.assert_allclose(value, np.prod(np.cos(1e-6 * np.arange(trips))), rtol=1e-9)
    lanes = np.array([trips, trips // 2, 3])
    sums = lg.compile(lambda x, n: lg.fori_loop(0, n, lambda k, v: v + lg.astype(k, lg.float64) * v * 1e-12, x))
    slope = lg.compile(lg.grad(lambda x, n: lg.sum(sums(x, n))), device="cpu")(np.ones(3), lanes)
    np.testing.assert_allclose(slope, [np.prod(1 + 1e-12 * np.arange(n)) for n in lanes], rtol=1e-9)
