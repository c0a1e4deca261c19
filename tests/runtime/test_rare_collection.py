"""The collector of cycles looks seldom while something is compiled, and as often as before afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime import session
from loopgrad.runtime.rare_collection import RARE_COLLECTION, YOUNG


@pytest.fixture
def usual() -> Iterator[tuple[int, int, int]]:
    """A threshold as Python has it."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_the_last_to_leave_sets_it_back(usual: tuple[int, int, int]) -> None:
    with RARE_COLLECTION:
        with RARE_COLLECTION:
            assert gc.get_threshold()[0] == YOUNG
        assert gc.get_threshold()[0] == YOUNG
    assert gc.get_threshold() == usual


def test_it_is_set_back_after_an_error(usual: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="inside"), RARE_COLLECTION:
        raise ValueError("inside")
    assert gc.get_threshold() == usual


def test_of_two_threads_the_later_sets_it_back(usual: tuple[int, int, int]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with RARE_COLLECTION:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with RARE_COLLECTION:
        thread.start()
        inside.wait()
    assert gc.get_threshold()[0] == YOUNG
    leave.set()
    thread.join()
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("young", [0, 2 * YOUNG])
def test_what_asks_for_less_stays(usual: tuple[int, int, int], young: int) -> None:
    gc.set_threshold(young, 7, 7)
    with RARE_COLLECTION:
        assert gc.get_threshold()[0] == young
    assert gc.get_threshold()[0] == young


def test_what_somebody_chose_meanwhile_stays(usual: tuple[int, int, int]) -> None:
    with RARE_COLLECTION:
        gc.set_threshold(1234, 5, 6)
    assert gc.get_threshold() == (1234, 5, 6)


def test_compiling_is_inside(usual: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    inner = session.compiled
    monkeypatch.setattr(session, "compiled", lambda *a: (seen.append(gc.get_threshold()[0]), inner(*a))[1])
    with lg.options(direct=False):
        np.asarray(lg.asarray(np.arange(7.0)) * 3.0 - 1.25)
        traced = lg.compile(lambda x: (seen.append(gc.get_threshold()[0]), x + 1.0)[1])
        traced(lg.ones(7))
    assert len(seen) >= 2
    assert set(seen) == {YOUNG}
    assert gc.get_threshold() == usual
