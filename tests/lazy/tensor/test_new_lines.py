"""What comes for the first time is computed from notes, to the bits of compiled code, and nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.nodes import Leaf, Noted
from loopgrad.graph.structure import noted_structure
from loopgrad.lazy.tensor import new_lines, repeated_lines
from loopgrad.lazy.tensor.config import current
from loopgrad.lazy.tensor.core import wrap
from loopgrad.lazy.tensor.evaluator import known_leaf
from loopgrad.runtime.session import SESSION

A = np.linspace(0.25, 3.0, 12)
B = np.array([[1.5, -2.0, 0.0], [3.25, 7.0, -0.5]])


class Given(NamedTuple):
    """lg or NumPy, a vector, a matrix and a number that no other line has."""

    xp: Any
    a: Any
    b: Any
    n: float


LINES: dict[str, Callable[[Given], Any]] = {
    "numbers": lambda v: (v.a * v.n - 1.0) / (v.a + v.n),
    "signs of zero": lambda v: v.a * -0.0 + v.b[0, 2] * 0.0 - v.n * v.b[0, 2],
    "a value read twice": lambda v: (v.a + v.n) * (v.a + v.n) - v.a,
    "functions": lambda v: v.xp.exp(v.a * v.n) + v.xp.sin(v.a),
    "a function of a constant": lambda v: v.xp.exp(v.xp.full(12, v.n)) + v.a,
    "powers": lambda v: (v.a + v.n) ** 3 + (v.a * v.n) ** 0.5 + v.a**v.a,
    "a sum": lambda v: v.xp.sum(v.a * v.n),
    "sums of rows": lambda v: v.xp.mean(v.b * v.n, axis=1) + v.xp.max(v.b, axis=1),
    "whole numbers": lambda v: v.xp.arange(12) * int(v.n * 100) // 7,
    "comparisons": lambda v: v.xp.where(v.a > v.n, v.a, v.b[0, 0]),
    "moved": lambda v: v.xp.concatenate([v.a * v.n, v.xp.roll(v.a, 2), v.xp.ravel(v.b.T)])[::-1],
    "a view": lambda v: (v.b * v.n)[:, 1:],
    "a cut": lambda v: v.xp.stack([v.a[:3] * v.n, v.b[1]])[:, ::-1],
    "another dtype": lambda v: v.xp.astype(v.a * v.n, np.float32) * np.float32(1.1),
    "a pad": lambda v: v.xp.pad(v.b, ((1, 2), (0, 1)), constant_values=v.n) * 2.0,
    "many pieces": lambda v: v.xp.stack([v.a[i] * v.n if i % 3 else v.a[i] - v.n for i in range(12)] * 2),
}


@pytest.mark.parametrize("line", LINES)
def test_bits_are_those_of_compiled_code(line: str, usual: list[Any]) -> None:
    n = 0.37 + 0.01 * [*LINES].index(line)
    got = LINES[line](Given(lg, lg.asarray(A), lg.asarray(B), n)).numpy()
    if line != "a function of a constant":  # which passes make a constant
        assert not usual, "computed from notes"
    with lg.options(direct=False):
        compiled = LINES[line](Given(lg, lg.asarray(A), lg.asarray(B), n)).numpy()
    assert got.tobytes() == compiled.tobytes()
    assert got.dtype == compiled.dtype
    np.testing.assert_allclose(got, LINES[line](Given(np, A, B, n)), rtol=1e-6)


def test_nothing_is_computed_twice(usual: list[Any]) -> None:
    x = lg.asarray(A)
    held = x * 1.71
    wide = lg.broadcast_to(held + 0.31, (2, 12))
    result = lg.sqrt(held) - 0.13
    np.testing.assert_array_equal(result, np.sqrt(A * 1.71) - 0.13)
    assert not usual
    assert isinstance(held._value, Leaf)
    np.testing.assert_array_equal(lg.max(wide, axis=0), A * 1.71 + 0.31)
    np.testing.assert_array_equal(wide, np.broadcast_to(A * 1.71 + 0.31, (2, 12)))


def test_long_programs_need_no_nodes(usual: list[Any]) -> None:
    x = lg.asarray(A)
    value, expected = x, A
    for i in range(700):
        value, expected = value * 0.97 + x, expected * 0.97 + A
        if i == 300:
            middle, before = value, expected
    note = middle._value.note
    np.testing.assert_array_equal(value, expected)
    assert not usual
    assert len(note) == 4, "no node was made"
    assert isinstance(middle._value, Leaf)
    np.testing.assert_array_equal(middle, before)


def test_long_programs_are_compiled_once_they_ran_for_as_long_as_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lg.asarray(A)
    monkeypatch.setattr("loopgrad.runtime.session.COMPILING", (1_000_000, 1_000))
    before, results = SESSION.compiled, []
    for _ in range(8):
        value = x
        for _ in range(600):
            value = value * 0.83 + 0.29
        results.append(value.numpy().tobytes())
    assert SESSION.compiled == before + 1
    assert len({*results}) == 1


def test_what_several_tensors_hold_stays_apart() -> None:
    x = lg.asarray(A)
    y = x * 1.13
    other = y.copy()
    np.testing.assert_array_equal(y + 0.77, A * 1.13 + 0.77)
    assert isinstance(y._value, Leaf)
    assert isinstance(other._value, Leaf)
    other += 1.0
    np.testing.assert_array_equal(y, A * 1.13)
    np.testing.assert_array_equal(other, A * 1.13 + 1.0)
    gradient = lg.grad(lambda v: lg.sum(v * v * 1.19))(x)
    np.testing.assert_allclose(gradient, 2 * 1.19 * A, rtol=1e-15)


def test_references_are_counted_as_they_are() -> None:
    x = lg.asarray(A)
    value = ((x + 0.43) * (x + 0.43))._value
    assert isinstance(value, Noted)
    counted = new_lines._references([*value.note[1], value])
    assert [*counted.values()] == [new_lines.UNREAD + 1] * 2 + [new_lines.UNREAD]


def test_a_state_that_is_never_asked_for_lets_go_of_its_past() -> None:
    state, expected = lg.asarray(A), A
    for i in range(40):
        energy = lg.max(state * (1.0 + 0.01 * i)) - 0.21 * i
        past, state = state, state * 0.93 + 0.17
        assert float(energy) == np.max(expected * (1.0 + 0.01 * i)) - 0.21 * i
        expected = expected * 0.93 + 0.17
        del energy
    depth, value = 0, state._value
    while isinstance(value, Noted):
        depth, value = depth + 1, value.note[1][0]
    assert depth < 20
    np.testing.assert_array_equal(past * 0.93 + 0.17, state)


def test_values_that_are_asked_for_while_others_read_them_are_computed_once(usual: list[Any]) -> None:
    x, ran = lg.asarray(A), []
    y = x * 1.37
    z = y + 0.23
    program = new_lines._settled

    def counted(*asked: Any) -> Any:
        ran.append([v.note[0] for v in asked[2].computed])
        return program(*asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new_lines, "_settled", counted)
        np.testing.assert_array_equal(y, A * 1.37)
        del y
        np.testing.assert_array_equal(z, A * 1.37 + 0.23)
    assert ran == [["mul"], ["add"]]
    assert not usual


def test_what_another_thread_computes_while_a_line_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    x, usual = lg.asarray(np.arange(5.0)), new_lines._program

    def meanwhile(value: Noted, *given: Any) -> Any:
        monkeypatch.undo()
        np.testing.assert_array_equal(wrap(value), np.arange(5.0) * 2.5)
        return usual(value, *given)

    monkeypatch.setattr(new_lines, "_program", meanwhile)
    y = x * 2.5
    np.testing.assert_array_equal(y, np.arange(5.0) * 2.5)

    y = x * 2.5
    value = y._value
    assert noted_structure(value, known_leaf) is not None
    np.testing.assert_array_equal(y, np.arange(5.0) * 2.5)
    assert noted_structure(value, known_leaf) is None

    inner = x * 0.75
    outer = (inner + 0.5)._value
    found, lines = noted_structure(outer, known_leaf), repeated_lines.SETTINGS.of(current())
    assert found is not None
    np.testing.assert_array_equal(inner, np.arange(5.0) * 0.75)
    lines.note(found[0])
    for _ in range(2):  # what was found of the line isn't so any more: it isn't learned
        assert lines.line(outer, found) is None
    for k in range(5):
        np.testing.assert_array_equal(x * (0.75 + k) + 0.5, np.arange(5.0) * (0.75 + k) + 0.5)
