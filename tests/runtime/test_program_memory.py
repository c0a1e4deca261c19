"""The memory that compiled programs may take: who leaves, and that nothing else holds what left."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime import program_memory, session
from loopgrad.runtime.program_memory import PROGRAMS, ProgramMemory
from loopgrad.runtime.session import SESSION


class Shelf:
    """Keeps something until it is told to forget it."""

    def __init__(self, name: str, forgotten: list[str]) -> None:
        self.name, self.forgotten, self.used = name, forgotten, False

    def forget(self) -> None:
        self.forgotten.append(self.name)


def test_the_longest_unused_leave() -> None:
    forgotten: list[str] = []
    memory = ProgramMemory(100)
    a, b, c, d = (Shelf(name, forgotten) for name in "abcd")
    for shelf in (a, b, c):
        memory.add(shelf, 30)
    a.used = True
    memory.add(d, 30)
    assert forgotten == ["b"]
    assert memory.held == 90
    memory.add(d, 40)  # one that grows makes room for itself
    assert forgotten == ["b", "c"]
    memory.add(d, 1000)  # and stays, however large it is
    assert forgotten == ["b", "c", "a"]
    assert memory.held == 1070


def test_all_of_them_used_leave_in_their_order() -> None:
    forgotten: list[str] = []
    memory = ProgramMemory(100)
    shelves = [Shelf(name, forgotten) for name in "abc"]
    for shelf in shelves:
        memory.add(shelf, 40)
        shelf.used = True
    assert forgotten == ["a"]
    memory.add(Shelf("d", forgotten), 100)
    assert forgotten == ["a", "b", "c"]


def test_what_nobody_has_takes_no_memory(young_heap: None) -> None:
    memory = ProgramMemory(100)
    gone = Shelf("gone", [])
    memory.add(gone, 70)
    del gone
    gc.collect()
    stays = Shelf("stays", forgotten := [])
    memory.add(stays, 60)
    assert (memory.held, forgotten) == (60, [])


@pytest.mark.parametrize(("text", "bytes_"), [("", 1 << 29), ("0", 0), ("4096", 4096)])
def test_the_environment_names_the_limit(monkeypatch: pytest.MonkeyPatch, text: str, bytes_: int) -> None:
    monkeypatch.setenv("LOOPGRAD_PROGRAM_BYTES", text)
    assert program_memory.chosen_limit() == bytes_


@pytest.mark.parametrize("text", ["1G", "-1", "1.5", "\u0663"])
def test_a_limit_that_is_no_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("LOOPGRAD_PROGRAM_BYTES", text)
    with pytest.warns(RuntimeWarning, match="expected a number of bytes"):
        assert program_memory.chosen_limit() == 1 << 29


def test_ever_new_programs_stay_few(compiled_device: str, young_heap: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that never repeats itself; what it uses all the time stays compiled."""
    SESSION.clear()
    alone = ProgramMemory(1 << 40)  # what other tests have left doesn't count
    monkeypatch.setattr(session, "PROGRAMS", alone)
    x = np.linspace(0.0, 1.0, 5)

    def often() -> Any:
        return np.asarray(lg.exp(lg.asarray(x)) * 3.0)

    expected, made = often(), []
    one = next(iter(SESSION._versions.values()))
    (executable,) = one.exact.values()
    alone.limit = 4 * (executable.host_bytes + 3 * program_memory.NODE_BYTES)
    compiled = SESSION.compiled
    for n in range(1, 13):
        np.testing.assert_array_equal(np.asarray(lg.zeros(n) + lg.arange(n) * 2.0), np.arange(n) * 2.0)
        made += [weakref.ref(e) for v in SESSION._versions.values() for e in v.exact.values() if e is not executable]
        np.testing.assert_array_equal(often(), expected)
    gc.collect()
    assert SESSION.compiled - compiled == 12
    assert next(iter(one.exact.values())) is executable
    assert len(SESSION._versions) < 8
    assert len({id(e) for r in made if (e := r()) is not None}) < 8, "something holds programs that were forgotten"


def test_a_compiled_function_traces_again_what_it_forgot(compiled_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[Any] = []

    def squares(x: Any) -> Any:
        traced.append(x.shape)
        return lg.sum(x * x)

    f = lg.compile(squares)
    for n in (1, 2, 3):
        assert float(f(np.ones(n))) == n
    monkeypatch.setattr(PROGRAMS, "limit", 1)
    assert float(f(np.ones(4))) == 4
    assert f.versions == 1
    assert float(f(np.ones(4))) == 4
    assert traced == [(1,), (2,), (3,), (4,)]
    assert float(f(np.ones(2))) == 2
    assert (traced[-1], f.versions) == ((2,), 1)
    replay = f.capture(np.ones(3))
    assert float(f(np.ones(5))) == 5  # what was captured goes on
    assert float(replay(np.ones(3) * 2.0)) == 12
